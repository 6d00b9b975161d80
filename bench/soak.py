"""Leads many sandboxes' lives at once and holds every answer to what was promised: for an hour, or while the server is killed.

    soak.py [--seconds N] [--lives N] [--kills N] [--data-dir DIR] [--seed N]
    as root, with `e2b-code-interpreter` and `requests` installed and `sandcove` built (SANDCOVE_BIN); it starts a server itself

Creates, commands, code, files, pauses of both kinds, snapshots, forks and ends, at random, as fast as they are answered. With
`--kills` the server dies by SIGKILL so many times at random moments under that load, and after each restart everything that was
acknowledged must be there and nothing else. At the end whatever the host and the database have is counted against the
beginning. Ends with status 1 if anything was not as promised.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import sys
import threading
import time
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from e2b import Sandbox  # noqa: E402

from harness.census import descriptors, everything, memory_mib  # noqa: E402
from harness.load import Keys, Life, all_pages, hold, quietly  # noqa: E402
from harness.server import Server, host_resources, settled_counts, snapshot_files, wait_until  # noqa: E402

# How often memory is looked at.
SAMPLE_S = 15
# The server's own pools keep connections and descriptors for a while.
SPARE_DESCRIPTORS = 60


class Soak:
    """Lives that are led side by side on one server."""

    def __init__(self, server: Server, lives: int, seed: int, log=print) -> None:
        self.server, self.seed, self.log = server, seed, log
        self.rng = random.Random(seed)
        self.lives: list[Life | None] = [None] * lives
        self.rngs = [random.Random(self.rng.random()) for _ in range(lives)]
        self.keys = Keys(server.url)
        self.steps: collections.Counter[str] = collections.Counter()
        self.errors: list[str] = []
        self.memory: list[dict[str, float]] = []
        self.down = self.over = False
        self.lock = threading.Lock()
        self.clear()
        wait_until(self.is_ready, 300, "that the server has what it makes ahead")
        # The kernel deletes networks of sandboxes a moment after their ends.
        settled_counts(server.data_dir)
        self.before, self.descriptors = everything(server), descriptors(server)

    def is_ready(self) -> bool:
        """Whether both templates have their spares, and so a warm interpreter."""
        return len(list(self.server.data_dir.glob("run/spare*"))) >= 2 * int(os.environ.get("SANDCOVE_SPARES", "4"))

    def lead(self, number: int) -> None:
        """Leads lives one after the other until the server goes down or time is up."""
        while not self.down and not self.over:
            life = self.lives[number]
            try:
                if life is None:
                    name, self.lives[number] = "create", Life(self.rngs[number])
                else:
                    name = life.step()
                    if name == "end":
                        self.lives[number] = None
                with self.lock:
                    self.steps[name] += 1
            except Exception as error:
                # What was asked of a dying server has no answer.
                if not self.down:
                    self.failed(number, error)

    def lead_keys(self) -> None:
        while not self.down and not self.over:
            try:
                self.keys.step()
            except Exception as error:
                if not self.down:
                    self.note(error)
            time.sleep(0.2)

    def begin(self, pool: ThreadPoolExecutor) -> list[Future]:
        return [pool.submit(self.lead, number) for number in range(len(self.lives))] + [pool.submit(self.lead_keys)]

    def failed(self, number: int, error: Exception) -> None:
        life, self.lives[number] = self.lives[number], None
        self.note(error, life)
        if life is not None:
            life.abandon()

    def note(self, error: Exception, life: Life | None = None) -> None:
        text = "".join(traceback.format_exception(error))
        with self.lock:
            self.errors.append(text)
        self.log(f"{stamp()} UNEXPECTED, {life}: {text}")

    def run(self, seconds: float) -> None:
        """Lives for so long; then whatever lives is ended."""
        with ThreadPoolExecutor(len(self.lives) + 1) as pool:
            work = self.begin(pool)
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                self.sample()
                time.sleep(min(left, SAMPLE_S))
            self.over = True
            for one in work:
                one.result()
            self.over = False

    def die(self, kills: int, seconds: float = 3600) -> int:
        """Kills the server so many times, if there is time; how many it was."""
        until = time.monotonic() + seconds
        for kill in range(kills):
            if time.monotonic() > until:
                return kill
            with ThreadPoolExecutor(len(self.lives) + 1) as pool:
                work = self.begin(pool)
                time.sleep(self.rng.uniform(0.2, 3))
                self.down = True
                self.server.kill9()
                for one in work:
                    one.result()
            began = time.monotonic()
            self.server.start()
            ready = time.monotonic() - began
            self.down = False
            self.verify()
            self.log(f"{stamp()} death {kill + 1}, ready after {ready:.2f} s, {len(self.errors)} errors so far, {sum(self.steps.values())} steps")
        return kills

    def verify(self) -> None:
        """All that was acknowledged is there, and nothing else is."""
        mine = {life.sandbox.sandbox_id for life in self.lives if life is not None}
        mine |= {copy.sandbox_id for life in self.lives if life is not None for copy, _, _ in life.copies}
        try:
            for one in all_pages(Sandbox.list()):
                if one.sandbox_id not in mine:
                    # No client was notified of it; then it is whole.
                    found = Sandbox.connect(one.sandbox_id, timeout=600)
                    hold(found.commands.run("echo whole").stdout == "whole\n", f"{one.sandbox_id} is not whole")
                    found.kill()
        except Exception as error:
            self.note(error)

        def look(number: int) -> None:
            life = self.lives[number]
            try:
                if life is not None:
                    life.verify()
                    if not life.there.value:
                        self.lives[number] = None
            except Exception as error:
                self.failed(number, error)

        with ThreadPoolExecutor(len(self.lives)) as pool:
            list(pool.map(look, range(len(self.lives))))
        try:
            self.keys.verify()
            self.sweep()
        except Exception as error:
            self.note(error)

    def sweep(self) -> None:
        """Looks for what belongs to nobody."""
        owned = {one for life in self.lives if life is not None for one in life.snapshots}
        for one in all_pages(Sandbox.list_snapshots()):
            if one.snapshot_id not in owned:
                Sandbox.delete_snapshot(one.snapshot_id)
        known = {one.sandbox_id for one in all_pages(Sandbox.list())}

        def orphans() -> dict[str, object]:
            there = host_resources(self.server.data_dir)
            return {
                "uppers": there["uppers"] ^ known,
                "run directories": there["run directories"] ^ known,
                "slots": {Path(group).name for group in there["cgroups"]} ^ {f"s{link.rsplit('-')[-1]}" for link in there["links"]},
                "sandboxes and slots": set() if len(there["links"]) == len(known) else {len(there["links"]), len(known)},
                "snapshots": set() if len(snapshot_files(self.server.data_dir)) == len(owned) else owned,
            }

        try:
            wait_until(lambda: not any(orphans().values()), 30, "that nothing is left of others")
        except AssertionError as error:
            raise AssertionError(f"{error}: {orphans()}") from None

    def sample(self) -> None:
        sizes = memory_mib(self.server)
        self.memory.append(sizes)
        self.log(f"{stamp()} {sum(self.steps.values())} steps, {len(self.errors)} errors, MiB {json.dumps(sizes)}")

    def end(self) -> dict[str, object]:
        """Ends every life; what is there afterwards that was not there before."""
        for life in self.lives:
            if life is not None:
                quietly(life.abandon)
        self.clear()
        quietly(lambda: wait_until(lambda: everything(self.server) == self.before, 60))
        after = everything(self.server)
        left = {kind: [self.before.get(kind), after.get(kind)] for kind in self.before | after if self.before.get(kind) != after.get(kind)}
        quietly(lambda: wait_until(lambda: not self.open_descriptors(), 60))
        return left | self.open_descriptors()

    def clear(self) -> None:
        for one in all_pages(Sandbox.list()):
            Sandbox.kill(one.sandbox_id)
        for one in all_pages(Sandbox.list_snapshots()):
            Sandbox.delete_snapshot(one.snapshot_id)
        self.keys.end()

    def open_descriptors(self) -> dict[str, object]:
        now = descriptors(self.server)
        return {
            f"descriptors of {name}": [count, now.get(name)]
            for name, count in self.descriptors.items()
            if now.get(name, 0) > count + SPARE_DESCRIPTORS
        }


def stamp() -> str:
    return time.strftime("%H:%M:%S", time.gmtime())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600, help="how long, also the most that kills may take")
    parser.add_argument("--lives", type=int, default=6, help="sandboxes that are lived in at once")
    parser.add_argument("--kills", type=int, default=0, help="times the server dies")
    parser.add_argument("--data-dir", type=Path, default=Path("/var/lib/sandcove-soak"))
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    server = Server(arguments.data_dir)
    server.start()
    os.environ.update(server.env)

    def log(text: str) -> None:
        print(text, flush=True)

    log(f"{stamp()} seed {arguments.seed}, server {server.pid} at {server.url}")
    soak = Soak(server, arguments.lives, arguments.seed, log)
    began, kills = time.monotonic(), 0
    if arguments.kills:
        kills = soak.die(arguments.kills, arguments.seconds)
    else:
        soak.run(arguments.seconds)
    took = time.monotonic() - began
    left = soak.end()
    log(f"{took:.0f} s, {kills} kills, {sum(soak.steps.values())} steps: {json.dumps(soak.steps)}")
    for name in soak.memory[0] if soak.memory else []:
        sizes = [sample[name] for sample in soak.memory if name in sample]
        quarter = max(len(sizes) // 4, 1)
        parts = [sum(part) / len(part) for part in [sizes[:quarter], sizes[quarter : 2 * quarter], sizes[-quarter:]] if part]
        log(f"{name}: {sizes[0]} MiB first, {sizes[-1]} last, {max(sizes)} most; means of quarters 1, 2, 4: {[round(part, 1) for part in parts]}")
    log(f"unexpected errors: {len(soak.errors)}; left: {left or 'nothing'}; descriptors {soak.descriptors} -> {descriptors(server)}")
    server.stop()
    return 1 if soak.errors or left else 0


if __name__ == "__main__":
    sys.exit(main())
