#!/usr/bin/env python3
"""Measures how long sandboxes take to be stored with CRIU and restored beside the original, by hand (tests/harness/criu.py).

    packaging/criu/fetch                                   # fetches CRIU
    SANDCOVE_BIN=… bench/checkpoint.py DATA_DIR  # starts a server of its own there
"""

import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from harness import criu  # noqa: E402
from harness.server import Server  # noqa: E402

ROUNDS = 7
USED = "import pandas\ntable = pandas.DataFrame({'a': range(1000)})\ntable.describe()"


def layers(server: Server, *names: str) -> list[str]:
    found = server.data_dir / "pool/layers"
    return [str(max(found.glob(f"{name}-*"), key=lambda path: path.stat().st_mtime)) for name in names]


def measure(server: Server, name: str, sandbox, *names: str) -> None:
    times: dict[str, list[float]] = {"dump": [], "still": [], "restore": [], "of it CRIU's": []}
    sandbox.pause()
    with tempfile.TemporaryDirectory() as directory:
        images = Path(directory) / "images"
        for _ in range(ROUNDS):
            began = time.monotonic()
            checkpoint = criu.dump(server.data_dir, sandbox.sandbox_id, layers(server, *names), images)
            times["dump"].append(time.monotonic() - began)
            times["still"].append(checkpoint.frozen_s)
            began = time.monotonic()
            with criu.restored(checkpoint):
                times["restore"].append(time.monotonic() - began)
            log = (images / "restore.log").read_text(errors="replace")
            times["of it CRIU's"].append(float(re.findall(r"^\((\d+\.\d+)\)", log, re.M)[-1]))
        size = checkpoint.size >> 20
    print(f"{name}: {size} MiB; medians of {ROUNDS}, ms:", {key: round(statistics.median(all_) * 1000) for key, all_ in times.items()})


def main() -> None:
    server = Server(Path(sys.argv[1]))
    server.start()
    os.environ.update(server.env)
    # They read the environment.
    from e2b import Sandbox
    from e2b_code_interpreter import Sandbox as CodeInterpreter

    try:
        with Sandbox.create("base", timeout=3600) as sandbox:
            sandbox.commands.run("sleep 1000", background=True, timeout=0)
            measure(server, "agent and a process", sandbox, "base")
        with CodeInterpreter.create(timeout=3600) as sandbox:
            sandbox.run_code(USED)
            measure(server, "used pandas kernel", sandbox, "code-interpreter", "base")
        with CodeInterpreter.create(timeout=3600) as sandbox:
            sandbox.run_code(USED + "\nimport os\nheap = os.urandom(512 << 20)")
            measure(server, "used pandas kernel with 512 MiB", sandbox, "code-interpreter", "base")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
