"""How long pauses and resumes take, what a pause gives back, and how long a snapshot makes processes stand still.

    lifecycle.py [--rounds N] [--snapshots N] [--size MB] [--template NAME]
    with a server running, E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY set, and `e2b` installed

Pauses and resumes are bare HTTP requests over one connection, so that what is measured is the server's. A pause gives back what
the kernel can take of a sandbox, after it has been answered; the sandbox's own log says how much. For snapshots a process inside
looks at the clock all the time: the longest it did not is how long it stood still, and a little more. Prints Markdown.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from e2b import Sandbox

# Writes down the longest time between two looks at the clock since it was last asked, in milliseconds.
WATCH = """
import os, time
last, longest = time.monotonic(), 0.0
while True:
    time.sleep(0.0005)
    now = time.monotonic()
    longest, last = max(longest, now - last), now
    if os.path.exists("/tmp/ask"):
        os.unlink("/tmp/ask")
        open("/tmp/answer.new", "w").write(str(longest * 1000))
        os.rename("/tmp/answer.new", "/tmp/answer")
        longest = 0.0
"""
ASK = "rm -f /tmp/answer; touch /tmp/ask; while [ ! -e /tmp/answer ]; do sleep 0.01; done; cat /tmp/answer"


class Api:
    """One connection to the server."""

    def __init__(self) -> None:
        self.url = urlsplit(os.environ["E2B_API_URL"])
        self.headers = {"X-API-Key": os.environ["E2B_API_KEY"], "Content-Type": "application/json"}
        self.connection = http.client.HTTPConnection(self.url.hostname, self.url.port)

    def call(self, method: str, path: str, body: object = None) -> bytes:
        self.connection.request(method, self.url.path + path, json.dumps(body) if body is not None else None, self.headers)
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:500]!r}")
        return content


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def row(name: str, values: list[float]) -> str:
    values = sorted(values)
    at = [values[min(int(len(values) * share), len(values) - 1)] for share in (0.5, 0.9, 0.99)]
    return f"| {name} | {len(values)} | " + " | ".join(f"{value:.1f}" for value in at) + f" | {values[-1]:.1f} |"


def given_back(api: Api, sandbox_id: str) -> int:
    """MiB that the last pause gave back which gave back any."""
    entries = json.loads(api.call("GET", f"/v2/sandboxes/{sandbox_id}/logs?search=given%20back&limit=1"))["logs"]
    return int(re.match(r"\d+", entries[0]["message"])[0]) if entries else 0


def pauses(api: Api, template: str, rounds: int) -> None:
    sandbox = Sandbox.create(template, timeout=600)
    times: dict[str, list[float]] = {"pause": [], "resume": [], "resume -> first command": []}
    for _ in range(rounds):
        times["pause"].append(timed(lambda: api.call("POST", f"/sandboxes/{sandbox.sandbox_id}/pause", {})))
        time.sleep(0.1)
        start = time.perf_counter()
        api.call("POST", f"/v2/sandboxes/{sandbox.sandbox_id}/connect", {})
        times["resume"].append((time.perf_counter() - start) * 1000)
        assert sandbox.commands.run("echo hello").stdout == "hello\n"
        times["resume -> first command"].append((time.perf_counter() - start) * 1000)
        time.sleep(0.1)
    for name, values in times.items():
        print(row(name, values))
    # What it has read is kept in memory until somebody needs the room.
    sandbox.commands.run("head -c 200M /dev/urandom > f; cat f > /dev/null", timeout=120)
    print(row("pause with 200 MB unwritten", [timed(lambda: sandbox.pause())]))
    time.sleep(2)
    freed = given_back(api, sandbox.sandbox_id)
    sandbox.kill()
    print(f"\nMiB given back by that pause: {freed}")


def snapshots(api: Api, template: str, count: int, size: int) -> None:
    sandbox = Sandbox.create(template, timeout=1800)
    sandbox.files.write("/tmp/watch.py", WATCH)
    sandbox.commands.run("python3 /tmp/watch.py", background=True, timeout=0)
    sandbox.commands.run(f"head -c {size * 10_000} /dev/urandom > big")
    quiet, still, took = [], [], []
    for n in range(count):
        sandbox.commands.run(ASK)
        time.sleep(1)
        quiet.append(float(sandbox.commands.run(ASK).stdout))
        # New files: over old ones the kernel writes at once.
        sandbox.commands.run(f"rm -f f*; for i in $(seq 100); do head -c {size * 10_000} big > f$i; done; {ASK}", timeout=300)
        start = time.perf_counter()
        made = json.loads(api.call("POST", f"/sandboxes/{sandbox.sandbox_id}/snapshots", {}))
        took.append((time.perf_counter() - start) * 1000)
        still.append(float(sandbox.commands.run(ASK).stdout))
        Sandbox.delete_snapshot(made["snapshotID"])
    sandbox.kill()
    print(row("longest gap in a quiet second", quiet))
    print(row(f"longest gap during a snapshot after {size} MB were written", still))
    print(row("that snapshot, until the answer", took))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--snapshots", type=int, default=10)
    parser.add_argument("--size", type=int, default=1000, help="MB written before each snapshot")
    parser.add_argument("--template", default="code-interpreter-v1")
    options = parser.parse_args()
    api = Api()
    print("| milliseconds | n | p50 | p90 | p99 | most |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    if options.snapshots:
        snapshots(api, options.template, options.snapshots, options.size)
    if options.rounds:
        pauses(api, options.template, options.rounds)


if __name__ == "__main__":
    main()
