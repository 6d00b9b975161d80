#!/usr/bin/env python3
"""Measures how long a paused sandbox takes to disk and back, as clients see it; how long a snapshot with memory makes processes stand still;
a hundred sandboxes at once; and the list of two thousand parked ones.

    packaging/criu/fetch DATA_DIR/criu
    SANDCOVE_BIN=… bench/parking.py DATA_DIR [--at-once N] [--parked N]  # starts a server of its own there
"""

import argparse
import os
import statistics
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from harness.server import API_KEY, Server  # noqa: E402
from harness.teams import Team  # noqa: E402

ROUNDS = 7
USED = "import pandas\ntable = pandas.DataFrame({'a': range(1000)})\ntable.describe()"


def measure(server: Server, name: str, sandbox, first) -> None:
    """`first` is what the sandbox is asked for after a resume."""
    times: dict[str, list[float]] = {"pause": [], "park": [], "connect": [], "first result": []}
    size = 0

    def timed(step: str, act) -> None:
        began = time.monotonic()
        act()
        times[step].append((time.monotonic() - began) * 1000)

    for _ in range(ROUNDS):
        timed("pause", sandbox.pause)
        timed("park", lambda: park(server, sandbox))
        files = (server.data_dir / "pool/parked" / sandbox.sandbox_id).iterdir()
        # What the sandboxes of a template have in common is on disk once.
        size = sum(file.stat().st_size for file in files if file.name != "pages-common.img")
        timed("connect", lambda: sandbox.connect(timeout=3600))
        timed("first result", first)
    medians = {step: round(statistics.median(taken)) for step, taken in times.items()}
    print(f"{name}: {size >> 20} MiB; medians of {ROUNDS}, ms: {medians}")


def connect_of_100_mb(server: Server, create) -> None:
    """Resumes from disk of a sandbox whose processes have 100 MB that are not shared."""
    sandbox = create("base", timeout=3600)
    sandbox.commands.run("python3 -c 'import os, time; heap = os.urandom(100_000_000); open(\"ready\", \"w\"); time.sleep(9999)'",
                         background=True, timeout=0)  # fmt: skip
    while not sandbox.files.exists("ready"):
        time.sleep(0.05)
    measure(server, "a process with 100 MB", sandbox, lambda: sandbox.commands.run("true"))
    sandbox.kill()


def still(server: Server, kernel) -> None:
    """How long the processes of a used kernel stand still for a snapshot with memory, by the longest gap that one of them sees."""
    from lifecycle import ASK, WATCH

    kernel.files.write("/tmp/watch.py", WATCH)
    kernel.commands.run("python3 /tmp/watch.py", background=True, timeout=0)
    gaps = []
    for _ in range(ROUNDS):
        kernel.commands.run(ASK)
        snapshot = kernel.create_snapshot()
        gaps.append(float(kernel.commands.run(ASK).stdout))
        kernel.delete_snapshot(snapshot.snapshot_id)
    print(f"used pandas kernel stands still for a snapshot with memory: median of {ROUNDS}, ms: {statistics.median(gaps):.0f}")


def at_once(create, count: int) -> None:
    """`count` sandboxes that are created at the same time and each used with pandas."""
    began = time.monotonic()

    def one(_: int) -> object:
        sandbox = create(timeout=600)
        result = sandbox.run_code("import pandas\npandas.Series([1, 2]).sum()")
        assert result.text and "3" in result.text, result
        return sandbox

    with ThreadPoolExecutor(count) as threads:
        sandboxes = list(threads.map(one, range(count)))
        print(f"{count} created and used with pandas at once: {(time.monotonic() - began) * 1000:.0f} ms")
        list(threads.map(lambda sandbox: sandbox.kill(), sandboxes))


def listed(server: Server, sandboxes_of, count: int) -> None:
    """Lists of `count` parked sandboxes, page by page as the SDK asks."""
    team = Team(server.url, pausedSandboxes=count, pausedInMemory=count)

    def parked(_: int) -> object:
        sandbox = sandboxes_of.create("base", timeout=3600, api_key=team.key)
        sandbox.pause()
        assert team.call("POST", f"/sandboxes/{sandbox.sandbox_id}/park").ok
        return sandbox

    def pages() -> int:
        paginator, found = sandboxes_of.list(limit=100, api_key=team.key), 0
        while paginator.has_next:
            found += len(paginator.next_items())
        return found

    with ThreadPoolExecutor(4) as threads:
        sandboxes = list(threads.map(parked, range(count)))
        first, every = [], []
        for _ in range(ROUNDS):
            began = time.monotonic()
            team.call("GET", "/v2/sandboxes?limit=100")
            first.append((time.monotonic() - began) * 1000)
            began = time.monotonic()
            assert pages() == count
            every.append((time.monotonic() - began) * 1000)
        memory = sum(1 for sandbox in sandboxes if (server.data_dir / "run" / sandbox.sandbox_id / "jail.json").exists())
        print(f"{count} parked sandboxes, {memory} of them with processes; medians of {ROUNDS}, ms: "
              f"the first page of 100 {statistics.median(first):.1f}, all pages {statistics.median(every):.1f}")  # fmt: skip
    team.clear()


def park(server: Server, sandbox) -> None:
    url = f"{server.url}/sandboxes/{sandbox.sandbox_id}/park"
    urllib.request.urlopen(urllib.request.Request(url, method="POST", headers={"X-API-KEY": API_KEY})).close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("--at-once", type=int, default=100, help="sandboxes that are created and used at the same time")
    parser.add_argument("--parked", type=int, default=2000, help="parked sandboxes that are listed")
    arguments = parser.parse_args()
    server = Server(arguments.data_dir)
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
            if not more:
                still(server, kernel)
            kernel.kill()
        connect_of_100_mb(server, Sandbox.create)
        at_once(CodeInterpreter.create, arguments.at_once)
        listed(server, Sandbox, arguments.parked)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
