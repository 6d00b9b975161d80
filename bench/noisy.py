"""How much a sandbox and the server slow down beside a hog.

    noisy.py [--seconds S] [--lead S] [--hogs NAME,...] [--json]
    as root on the server's host, with a server running, E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY set, and `e2b` installed

A neighbour runs `1+1`, and the server answers `GET /health` and lists its sandboxes: for some seconds without, and then beside a
hog that has run for the lead. Everything is measured anew for each hog. The client has real-time priority, like one on another
machine: what waits is the server and the neighbour. Prints Markdown, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from harness.hogs import HOGS, Neighbour, hog  # noqa: E402

# Between two requests, so that quiet is quiet.
PAUSE_S = 0.005


def take_precedence() -> None:
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError as error:
        print(f"the client competes with the hogs: {error}", file=sys.stderr)


def measure(neighbour: Neighbour, seconds: float) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {"1+1": [], "server": []}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        times["1+1"].append(neighbour.add())
        times["server"] += [neighbour.health(), neighbour.list()]
        time.sleep(PAUSE_S)
    return times


def summary(values: list[float]) -> dict[str, float]:
    values = sorted(values)
    at = {f"p{share}": values[min(len(values) * share // 100, len(values) - 1)] for share in (50, 99)}
    return {"n": len(values), **at, "max": values[-1]}


def beside(name: str, neighbour: Neighbour, seconds: float, lead: float) -> dict[str, dict]:
    quiet = measure(neighbour, seconds)
    with hog(name):
        measure(neighbour, lead)
        loud = measure(neighbour, seconds)
    # What the hog has left behind is cleaned up.
    time.sleep(1)
    return {what: {"quiet": summary(quiet[what]), "beside": summary(loud[what])} for what in quiet}


def row(name: str, found: dict[str, dict]) -> str:
    cells = []
    for what in ("1+1", "server"):
        quiet, loud = found[what]["quiet"], found[what]["beside"]
        cells += [f"{one[p]:.1f}" for p in ("p50", "p99") for one in (quiet, loud)]
        cells += [f"{loud['p99'] / quiet['p99']:.1f}", f"{loud['max']:.1f}"]
    return f"| {name} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5, help="length of each measurement")
    parser.add_argument("--lead", type=float, default=3, help="time a hog runs before it is measured beside")
    parser.add_argument("--hogs", help="some of: " + ", ".join(HOGS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = [name.strip() for name in options.hogs.split(",")] if options.hogs else list(HOGS)
    if unknown := set(names) - set(HOGS):
        parser.error(f"unknown hogs {sorted(unknown)}; use {', '.join(HOGS)}")
    take_precedence()
    neighbour = Neighbour(os.environ["E2B_API_URL"], os.environ["E2B_API_KEY"])
    measure(neighbour, 1)
    found = {}
    if not options.json:
        head = " | ".join(f"{what}: p50 quiet | beside | p99 quiet | beside | times | max" for what in ("1+1", "server"))
        print(f"| hog | {head} |\n| --- |" + " ---: |" * 12, flush=True)
    try:
        for name in names:
            found[name] = beside(name, neighbour, options.seconds, options.lead)
            if not options.json:
                print(row(name, found[name]), flush=True)
    finally:
        neighbour.close()
    if options.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
