#!/usr/bin/env python3
"""Measures how long a paused sandbox takes to disk and back, as clients see it.

    packaging/criu/fetch DATA_DIR/criu
    SANDCOVE_BIN=… bench/parking.py DATA_DIR  # starts a server of its own there
"""

import os
import statistics
import sys
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from harness.server import API_KEY, Server  # noqa: E402

ROUNDS = 7
USED = "import pandas\ntable = pandas.DataFrame({'a': range(1000)})\ntable.describe()"


def measure(server: Server, name: str, sandbox, first) -> None:
    """`first` is what the sandbox is asked for after a resume."""
    times: dict[str, list[float]] = {"pause": [], "park": [], "connect": [], "first result": []}
    url = f"{server.url}/sandboxes/{sandbox.sandbox_id}/park"
    headers = {"X-API-KEY": API_KEY}
    size = 0

    def timed(step: str, act) -> None:
        began = time.monotonic()
        act()
        times[step].append((time.monotonic() - began) * 1000)

    for _ in range(ROUNDS):
        timed("pause", sandbox.pause)
        timed("park", lambda: urllib.request.urlopen(urllib.request.Request(url, method="POST", headers=headers)).close())
        size = sum(file.stat().st_size for file in (server.data_dir / "pool/parked" / sandbox.sandbox_id).iterdir())
        timed("connect", lambda: sandbox.connect(timeout=3600))
        timed("first result", first)
    medians = {step: round(statistics.median(taken)) for step, taken in times.items()}
    print(f"{name}: {size >> 20} MiB; medians of {ROUNDS}, ms: {medians}")


def main() -> None:
    server = Server(Path(sys.argv[1]))
    server.variables["SANDCOVE_PARK_AFTER"] = "never"
    server.start()
    os.environ.update(server.env)
    # They read the environment.
    from e2b import Sandbox
    from e2b_code_interpreter import Sandbox as CodeInterpreter

    try:
        sandbox = Sandbox.create("base", timeout=3600)
        sandbox.commands.run("sleep 1000", background=True, timeout=0)
        measure(server, "base with a background process", sandbox, lambda: sandbox.commands.run("true"))
        sandbox.kill()
        for name, more in (("used pandas kernel", ""), ("the same with 512 MiB of random numbers", "\nimport os\nheap = os.urandom(512 << 20)")):
            kernel = CodeInterpreter.create(timeout=3600)
            kernel.run_code(USED + more)
            measure(server, name, kernel, lambda: kernel.run_code("table.describe()"))
            kernel.kill()
    finally:
        server.stop()


if __name__ == "__main__":
    main()
