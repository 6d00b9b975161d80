"""One JSON file for each judged answer, under PROMPTFOO_RESULTS_DIR."""

import json
import os
import time
import uuid
from pathlib import Path


def directory():
    return Path(os.environ.get("PROMPTFOO_RESULTS_DIR", ".promptfoo_results"))


def write_metrics(task_id, provider, model, success, runtime_s, memory_mb=None, extra=None):
    """Writes one record and returns its path."""
    record = {
        "task_id": task_id,
        "provider": provider,
        "model": model,
        "success": bool(success),
        "runtime_s": runtime_s,
        "memory_mb": memory_mb,
        "extra": extra,
        "timestamp": int(time.time()),
    }
    directory().mkdir(parents=True, exist_ok=True)
    path = directory() / f"metrics_{uuid.uuid4().hex}.json"
    path.write_text(json.dumps(record, indent=2, default=str) + "\n")
    return path
