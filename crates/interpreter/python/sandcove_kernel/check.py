"""A warm-up for its report: builds of templates run it once."""

import json
import os
import resource
import sys
import time

from . import warmup


def check() -> None:
    """Warms up, and prints one line of JSON: the modules that could not be imported, with the reason; the number of threads, of
    which a process that is forked must have one; and the time and memory that it took.
    """
    began = time.monotonic()
    missing: dict = {}
    warmup.warm_up(missing)
    report = {
        "missing": missing,
        "threads": len(os.listdir("/proc/self/task")),
        "ms": round((time.monotonic() - began) * 1000),
        "memoryMiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps(report), flush=True)
    # Threads of modules must not keep the process.
    sys.stdout.flush()
    os._exit(0)
