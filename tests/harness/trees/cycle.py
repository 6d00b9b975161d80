"""Random process trees in sandboxes go to disk and come back: several trees to a sandbox, several sandboxes to a stop of the server.

What comes back is compared with what was there, by the trees themselves and from outside. A sandbox that cannot be stored says why; its
trees must be as they were then, and the tree that was in the way is taken out.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import requests

from harness.server import API_KEY, instance_of, processes_of, wait_until
from harness.trees import outside, plan

INSIDE = ["inside.py", "parts_files.py", "parts_links.py", "parts_process.py", "parts_sockets.py"]
PLACE = "/home/user/program"
# Differences in seconds between two deadlines that are the same: what is read takes its time on a busy machine. The time that storing and
# resuming take is added, because clocks and timers are not read at once.
TOLERANCE_S = 5.0


@dataclass
class Report:
    """What became of the trees."""

    equal: int = 0
    # Reasons, without the numbers in them.
    refused: Counter = field(default_factory=Counter)
    # Parts that could not be made, by kind and reason.
    missing: Counter = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def brief(self) -> list[str]:
        """What is wrong first, for each tree."""
        return [" ".join(line.strip() for line in text.splitlines()[:2])[:200] for text in self.wrong]

    def __str__(self) -> str:
        refused = "".join(f"\n  {count} refused: {reason}" for reason, count in self.refused.most_common())
        missing = "".join(f"\n  {count} without {what}" for what, count in self.missing.most_common())
        wrong = "".join(f"\nWRONG {text}" for text in self.wrong)
        return f"{self.equal} trees equal, {sum(self.refused.values())} refused, {len(self.wrong)} wrong{refused}{missing}{wrong}"


class Grove:
    """A sandbox with trees."""

    def __init__(self, server, sandbox, plans: list[dict], user: str = "user") -> None:
        self.server, self.sandbox, self.plans, self.user = server, sandbox, plans, user
        # Seconds that it took to store and to resume it.
        self.took = 0.0
        here = Path(__file__).parent
        for name in INSIDE:
            sandbox.files.write(f"{PLACE}/{name}", (here / name).read_text())
        # Nodes that do not answer.
        self.silent = self.run(f"launch {self.write(plans)}").splitlines()

    def write(self, plans: list[dict]) -> str:
        path = f"{PLACE}/plans.json"
        self.sandbox.files.write(path, json.dumps(plans))
        return path

    def run(self, arguments: str) -> str:
        return self.sandbox.commands.run(f"python3 -I -S {PLACE}/inside.py {arguments}", user=self.user, timeout=600).stdout

    def ask(self, *steps: str) -> list[dict]:
        return [json.loads(line) for line in self.run(f"ask {'+'.join(steps)} {self.write(self.plans)}").splitlines()]

    def pids(self) -> dict[str, set[int]]:
        """Numbers inside of the processes of each tree."""
        found = outside.processes(self.server.data_dir, self.sandbox.sandbox_id)
        names = {one["name"] for one in self.plans}
        mine: dict[str, set[int]] = {name: set() for name in names}
        for number, process in found.items():
            try:
                tree = re.search(rb"(?:^|\0)SANDCOVE_TREE=([^\0]*)", (process / "environ").read_bytes())
            except OSError:
                continue
            if tree and tree[1].decode() in names:
                mine[tree[1].decode()].add(number)
        # The dead have no variables.
        parents = {number: re.search(r"^PPid:\t(\d+)", (process / "status").read_text(), re.M)[1] for number, process in found.items()}
        host = {process.name: number for number, process in found.items()}
        for number, parent in parents.items():
            for numbers in mine.values():
                if host.get(parent) in numbers:
                    numbers.add(number)
        return mine

    def look(self) -> dict[str, dict]:
        """The state of each tree: what its nodes say, and what the host sees."""
        said, pids = self.ask("state")[0], self.pids()
        found = outside.processes(self.server.data_dir, self.sandbox.sandbox_id)
        root = found[1] / "root"
        looks = {}
        for one in self.plans:
            nodes = {node["name"]: said[node["name"]] for node in plan.nodes(one)}
            files = outside.files(Path(f"{root}{one['place']}"))
            looks[one["name"]] = {"inside": nodes, "outside": outside.describe(found, pids[one["name"]]), "files": files}
        return looks

    def logs(self) -> list[str]:
        url = f"{self.server.url}/v2/sandboxes/{self.sandbox.sandbox_id}/logs"
        return [entry["message"] for entry in requests.get(url, headers={"X-API-KEY": API_KEY}).json()["logs"]]

    def park(self) -> str | None:
        """Pauses the sandbox and brings it to disk; why not, when it cannot be."""
        began = time.monotonic()
        self.sandbox.pause()
        url = f"{self.server.url}/sandboxes/{self.sandbox.sandbox_id}/park"
        answer = requests.post(url, headers={"X-API-KEY": API_KEY}, timeout=300)
        self.took = time.monotonic() - began
        if answer.ok:
            return None
        assert answer.status_code == 409, answer.text
        return answer.json()["message"]

    def resume(self) -> None:
        began = time.monotonic()
        self.sandbox.connect(timeout=3600)
        self.took += time.monotonic() - began

    def fell(self, one: dict) -> None:
        """Ends a tree."""
        found = outside.processes(self.server.data_dir, self.sandbox.sandbox_id)
        for number in self.pids()[one["name"]]:
            # The end of a terminal ends others.
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(found[number].name), signal.SIGKILL)
        self.plans.remove(one)

    def owner(self, reason: str) -> dict | None:
        """The tree that a refusal is about, when it names a process."""
        named = re.search(r"\bprocess (\d+)", reason)
        for name, numbers in self.pids().items() if named else ():
            if int(named[1]) in numbers:
                return next(one for one in self.plans if one["name"] == name)
        return None


def differences(before, after, tolerance: float, path: str = "") -> list[str]:
    """How two states differ; deadlines that are no more than `tolerance` seconds apart do not."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted(before.keys() | after.keys())
        return [text for key in keys for text in differences(before.get(key), after.get(key), tolerance, f"{path} > {key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [text for at, pair in enumerate(zip(before, after, strict=True)) for text in differences(*pair, tolerance, f"{path} > {at}")]
    if isinstance(before, list) and isinstance(after, list) and all(isinstance(one, str) for one in before + after):
        # Of long lists, what is not in both.
        before, after = [one for one in before if one not in after], [one for one in after if one not in before]
    if path.endswith("~") and isinstance(before, float) and isinstance(after, float):
        return [] if abs(before - after) < tolerance else [f"{path}: {before} became {after}"]
    return [] if before == after else [f"{path}: {before} became {after}"]


def reason_of(message: str) -> str:
    return re.sub(r"\b(0x)?[0-9a-f]*\d[0-9a-f]*\b", "N", message.split("cannot be parked: ")[-1])[:160]


class Cycle:
    def __init__(self, server, create) -> None:
        self.server, self.create, self.report = server, create, Report()
        # The sandboxes of a run, and those of them that are on disk, with what they were before.
        self.groves: list[Grove] = []
        self.stored: list[tuple[Grove, dict]] = []

    def run(self, plans: list[list[dict]]) -> Report:
        """Runs trees, by sandboxes."""
        try:
            for number, trees in enumerate(plans):
                self.store(self.plant(list(trees), "root" if number % 3 == 2 else "user"))
            self.restart()
            for grove, looks in self.stored:
                self.compare(grove, looks)
        finally:
            for grove in self.groves:
                grove.sandbox.kill()
            self.groves, self.stored = [], []
        return self.report

    def plant(self, plans: list[dict], user: str) -> Grove:
        grove = Grove(self.server, self.create(), plans, user)
        self.groves.append(grove)
        for line in grove.silent:
            name, _, why = line.partition(" ")
            self.report.missing[f"answers, of a whole tree: {why}"] += 1
            grove.fell(next(one for one in grove.plans if one["name"] == name.split("/")[0]))
        return grove

    def store(self, grove: Grove) -> None:
        """Parks a sandbox, without the trees that are in the way."""
        while grove.plans:
            looks = grove.look()
            refused = grove.park()
            if refused is None:
                self.stored.append((grove, looks))
                return
            culprit = grove.plans[0] if len(grove.plans) == 1 else grove.owner(refused)
            self.resume(grove, looks, "after a refusal")
            if culprit is None:
                # It names no process: one half has the tree, and the other is stored.
                half = len(grove.plans) // 2
                for part in (grove.plans[:half], grove.plans[half:]):
                    self.store(self.plant(part, grove.user))
                return
            self.report.refused[reason_of(refused)] += 1
            grove.fell(culprit)

    def restart(self) -> None:
        """The server dies, and every process of a sandbox, pooled and warm ones too."""
        self.server.kill9()
        instance = instance_of(self.server.data_dir)

        def ended() -> bool:
            for process in (found := processes_of(instance)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process.name), signal.SIGKILL)
            return not found

        wait_until(ended, what="the end of all processes")
        self.server.start()

    def resume(self, grove: Grove, looks: dict, when: str) -> set[str]:
        """Resumes a sandbox; names of the trees that are not as before."""
        grove.resume()
        now, wrong = grove.look(), set()
        for one in grove.plans:
            name = one["name"]
            if found := differences(looks[name], now[name], TOLERANCE_S + grove.took):
                wrong.add(name)
                self.note(one, f"is not as before {when}", found)
        return wrong

    def compare(self, grove: Grove, looks: dict) -> None:
        wrong = self.resume(grove, looks, "on disk")
        if lost := [text for text in grove.logs() if "cannot be restored" in text]:
            # It says so: nothing is silent about it, but nothing of the kind is expected either.
            self.note(grove.plans[0], "and those beside it were not restored", lost)
            return
        # One that is wrong already would take its time to find that out by itself.
        grove.plans = [one for one in grove.plans if one["name"] not in wrong]
        answers = grove.ask("use", "finish")
        for one in grove.plans:
            failed = [
                f"{node['name']} > {part}: {text['error']}"
                for step in answers
                for node in plan.nodes(one)
                for part, text in step[node["name"]].items()
                if isinstance(text, dict) and "error" in text
            ]
            for node in plan.nodes(one):
                for part, why in looks[one["name"]]["inside"][node["name"]].get("missing", {}).items():
                    self.report.missing[f"{part.split('-', 1)[1]}: {why}"] += 1
            if failed:
                self.note(one, "cannot be used", failed)
            else:
                self.report.equal += 1

    def note(self, one: dict, what: str, found: list[str]) -> None:
        shown = "\n  ".join(text[:600] for text in found[:12])
        self.report.wrong.append(f"tree of seed {one['seed']} {what}:\n  {shown}\n{plan.describe(one)}")
