"""Sandboxes that are lived in: one step after the other at random, and every answer is held to what was promised before.

A change that was asked for and not acknowledged may have been made or not; everything else has one right answer. So the same
lives are led while all is well, and while the server dies under them.
"""

from __future__ import annotations

import hashlib
import random
import uuid
from contextlib import contextmanager

import requests
from e2b import CommandExitException, NotFoundException, Sandbox, SandboxNotFoundException
from e2b_code_interpreter import Sandbox as Interpreter

from .server import ADMIN_TOKEN, wait_until

TIMEOUT_S = 3600
TICKER = "while true; do printf . >> ticks; sleep 0.3; done"


class Broken(AssertionError):
    """Something is not as it was promised."""


def hold(true: bool, what: str) -> None:
    """As `assert`, also where Python drops those."""
    if not true:
        raise Broken(what)


class Promise:
    """What a value may be: one thing, or the old and the new while a change is not acknowledged."""

    def __init__(self, value) -> None:
        self.may_be = [value]

    @contextmanager
    def becoming(self, value):
        self.may_be.append(value)
        yield
        self.may_be = [value]

    def check(self, seen, what: str) -> None:
        hold(seen in self.may_be, f"{what} is {shown(seen)}, and should be {' or '.join(map(shown, self.may_be))}")
        self.may_be = [seen]

    @property
    def value(self):
        return self.may_be[-1]

    @property
    def certain(self) -> bool:
        return len(self.may_be) == 1


def shown(value) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes {hashlib.sha256(value).hexdigest()[:12]}"
    return repr(value)


class Life:
    """One sandbox from its creation to its end, and all that was ever acknowledged about it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        # Half of them with code that is run in a warm kernel.
        self.interpreter = rng.random() < 0.5
        self.there = Promise(True)
        # The total that a variable in memory holds; None where there is no such variable.
        self.total = Promise(None)
        self.files: dict[str, Promise] = {}
        self.snapshots: dict[str, Promise] = {}
        # Sandboxes that were made from this one: what they hold, and whether they are there.
        self.copies: list[tuple[Sandbox, dict[str, Promise], Promise]] = []
        self.steps_left = rng.randint(15, 60)
        self.sandbox = (Interpreter if self.interpreter else Sandbox).create(timeout=TIMEOUT_S, metadata={"life": "led"})
        self.ticker, self.ticks = Promise(None), 0
        self.begin_ticker()

    def __str__(self) -> str:
        return f"{'interpreter' if self.interpreter else 'plain'} {self.sandbox.sandbox_id}"

    def step(self) -> str:
        """Does something; gives its name. After the last one the sandbox is gone."""
        self.steps_left -= 1
        if self.steps_left <= 0:
            self.rng.choice([self.kill, self.kill, self.kill, self.expire])()
            return "end"
        steps = {
            self.command: 6, self.write: 6, self.read: 5, self.checksum: 3, self.remove: 2, self.listing: 1,
            self.pause: 4, self.store: 1, self.snapshot: 1, self.copy: 1, self.forget_snapshot: 1, self.fork: 1,
            self.info: 1, self.code: 8 if self.interpreter else 0,
        }  # fmt: skip
        (step,) = self.rng.choices(list(steps), list(steps.values()))
        step()
        return step.__name__

    # What is done with a running sandbox.

    def begin_ticker(self) -> None:
        self.ticker = Promise(self.sandbox.commands.run(TICKER, background=True, timeout=0).pid)

    def command(self) -> None:
        a, b, status = self.rng.randint(1, 999), self.rng.randint(1, 999), self.rng.choice([0, 0, 0, 7])
        try:
            result = self.sandbox.commands.run(f"echo $(({a} * {b})); echo beside >&2; exit {status}")
        except CommandExitException as error:
            result = error
        seen = (result.exit_code, result.stdout, result.stderr)
        hold(seen == (status, f"{a * b}\n", "beside\n"), f"command of {self} gave {seen}")

    def code(self) -> None:
        total = (self.total.value or 0) + self.rng.randint(1, 9)
        added = total - (self.total.value or 0)
        with self.total.becoming(total):
            execution = self.sandbox.run_code(f"total = globals().get('total', 0) + {added}\ntotal")
            hold(execution.error is None and execution.text == str(total), f"code of {self} gave {execution}, not {total}")

    def write(self) -> None:
        path = f"file{self.rng.randint(0, 5)}"
        content = self.rng.randbytes(self.rng.choice([0, 10, 1000, 70_000, 1_500_000]))
        with self.files.setdefault(path, Promise(None)).becoming(content):
            self.sandbox.files.write(path, content)

    def read(self) -> None:
        if self.files:
            path = self.rng.choice(list(self.files))
            self.files[path].check(content_of(self.sandbox, path), f"{path} of {self}")

    def checksum(self) -> None:
        held = {path: promise.value for path, promise in self.files.items() if promise.certain and promise.value is not None}
        if held:
            output = self.sandbox.commands.run(f"sha256sum {' '.join(held)}").stdout
            seen = {line.split()[1]: line.split()[0] for line in output.splitlines()}
            wanted = {path: hashlib.sha256(content).hexdigest() for path, content in held.items()}
            hold(seen == wanted, f"check sums of {self} are {seen}, not {wanted}")

    def remove(self) -> None:
        held = [path for path, promise in self.files.items() if promise.certain and promise.value is not None]
        if held:
            path = self.rng.choice(held)
            with self.files[path].becoming(None):
                self.sandbox.files.remove(path)

    def listing(self) -> None:
        seen = {entry.name for entry in self.sandbox.files.list("/home/user")}
        for path, promise in self.files.items():
            if promise.certain:
                hold((path in seen) == (promise.value is not None), f"{path} of {self} in {sorted(seen)}")

    def info(self) -> None:
        hold(self.sandbox.get_info().metadata == {"life": "led"}, f"what is known about {self}")
        self.sandbox.set_timeout(TIMEOUT_S)
        hold(self.sandbox.is_running(), f"{self} does not run")

    # What becomes of it.

    def pause(self) -> None:
        hold(self.sandbox.pause() is True, f"{self} was paused already")
        self.sandbox.connect(timeout=TIMEOUT_S)
        self.look_into_memory()

    def store(self) -> None:
        """Pauses it so that only files are kept: memory may be gone from the first moment on."""
        self.total.may_be.append(None)
        self.ticker.may_be.append(None)
        hold(self.sandbox.pause(mode="filesystem") is True, f"{self} was paused already")
        self.total, self.ticker = Promise(None), Promise(None)
        self.sandbox.connect(timeout=TIMEOUT_S)
        self.look_into_memory()
        self.begin_ticker()

    def look_into_memory(self) -> None:
        """The same processes and variables, which go on."""
        pids = [process.pid for process in self.sandbox.commands.list()]
        self.ticker.check(next((pid for pid in self.ticker.may_be if pid in pids), None), f"ticker of {self}, among {pids},")
        if self.ticker.value is not None:
            ticks = self.count_ticks()
            hold(ticks >= self.ticks, f"ticks of {self} went from {self.ticks} back to {ticks}")
            wait_until(lambda: self.count_ticks() > ticks, what=f"a tick of {self}")
            self.ticks = ticks + 1
        if self.interpreter:
            execution = self.sandbox.run_code("globals().get('total')")
            hold(execution.error is None, f"code of {self} gave {execution}")
            self.total.check(int(execution.text) if execution.text else None, f"variable of {self}")

    def count_ticks(self) -> int:
        try:
            return self.sandbox.files.get_info("ticks").size
        except NotFoundException:
            # It has only just begun.
            return 0

    def snapshot(self) -> None:
        held = self.held()
        self.snapshots[self.sandbox.create_snapshot().snapshot_id] = Promise(held)

    def copy(self) -> None:
        kept = [one for one, promise in self.snapshots.items() if promise.certain]
        if kept:
            one = self.rng.choice(kept)
            copy = Sandbox.create(one, timeout=TIMEOUT_S)
            self.copies.append((copy, self.snapshots[one].value, Promise(True)))
            self.end_copies()

    def forget_snapshot(self) -> None:
        for one, promise in list(self.snapshots.items()):
            with promise.becoming(None):
                hold(Sandbox.delete_snapshot(one) is True, f"snapshot {one} was gone already")
            del self.snapshots[one]

    def fork(self) -> None:
        held = self.held()
        (fork,) = self.sandbox.fork(timeout=TIMEOUT_S)
        # The client returns the error of a fork that was not started in its place.
        if isinstance(fork, Exception):
            raise fork
        self.copies.append((fork, held, Promise(True)))
        self.end_copies()

    def held(self) -> dict[str, Promise]:
        """What a copy of now may hold."""
        held = {}
        for path, promise in self.files.items():
            held[path] = Promise(None)
            held[path].may_be = list(promise.may_be)
        return held

    def end_copies(self) -> None:
        """Looks at every copy, and removes it."""
        while self.copies:
            copy, held, there = self.copies[-1]
            if there.certain:
                check_files(copy, held, f"copy {copy.sandbox_id} of {self}")
            end(copy, there)
            self.copies.pop()

    def kill(self) -> None:
        self.end_copies()
        self.forget_snapshot()
        end(self.sandbox, self.there)
        hold(self.sandbox.kill() is False, f"{self} was killed twice")
        hold(is_gone(self.sandbox), f"{self} is still there")

    def expire(self) -> None:
        self.end_copies()
        self.forget_snapshot()
        with self.there.becoming(False):
            self.sandbox.set_timeout(0)
            wait_until(lambda: is_gone(self.sandbox), what=f"the end of {self}")

    # What is held to be true after the server died.

    def verify(self) -> None:
        """Everything that was acknowledged is there; of the rest, either the old or the new."""
        self.there.check(not is_gone(self.sandbox), f"{self} being there")
        for one, promise in list(self.snapshots.items()):
            listed = {snapshot.snapshot_id for snapshot in all_pages(Sandbox.list_snapshots())}
            hold(one in listed or None in promise.may_be, f"snapshot {one} of {self} is lost")
            if one not in listed:
                del self.snapshots[one]
            else:
                promise.may_be = promise.may_be[:1]
                copy = Sandbox.create(one, timeout=TIMEOUT_S)
                check_files(copy, promise.value, f"snapshot {one} of {self}")
                copy.kill()
        self.end_copies()
        if self.there.value:
            # Whatever it was asked to become: it goes on from here.
            self.sandbox.connect(timeout=TIMEOUT_S)
            check_files(self.sandbox, self.files, str(self))
            self.look_into_memory()
            if self.ticker.value is None:
                self.begin_ticker()

    def abandon(self) -> None:
        """Removes it without looking, after it was found broken."""
        for sandbox in [self.sandbox, *(copy for copy, _, _ in self.copies)]:
            quietly(lambda sandbox=sandbox: sandbox.kill())
        for one in self.snapshots:
            quietly(lambda one=one: Sandbox.delete_snapshot(one))


class Keys:
    """API keys that were made and deleted."""

    def __init__(self, url: str) -> None:
        self.url, self.keys = url, {}
        answer = requests.get(f"{url}/admin/teams", headers={"X-Admin-Token": ADMIN_TOKEN}, timeout=300)
        self.team = answer.json()[0]["id"]
        self.of_team = f"{url}/admin/teams/{self.team}/api-keys"

    def step(self) -> None:
        """Makes one, and deletes the oldest of several."""
        admin = {"headers": {"X-Admin-Token": ADMIN_TOKEN}, "timeout": 300}
        answer = requests.post(self.of_team, json={"name": f"load {uuid.uuid4().hex}"}, **admin)
        hold(answer.status_code == 201, f"a key was not made: {answer.text}")
        self.keys[answer.json()["id"]] = (answer.json()["key"], Promise(True))
        live = [number for number, (_, promise) in self.keys.items() if promise.may_be == [True]]
        if len(live) > 5:
            with self.keys[live[0]][1].becoming(False):
                answer = requests.delete(f"{self.of_team}/{live[0]}", **admin)
                hold(answer.status_code == 204, f"a key was not deleted: {answer.text}")

    def verify(self) -> None:
        for number, (key, promise) in list(self.keys.items()):
            status = requests.get(f"{self.url}/v2/sandboxes", headers={"X-API-Key": key}, timeout=300).status_code
            promise.check({200: True, 401: False}.get(status, status), f"key {number} working")
            if promise.value is False:
                del self.keys[number]

    def end(self) -> None:
        """Deletes all that were made, also those whose creation was never acknowledged."""
        admin = {"headers": {"X-Admin-Token": ADMIN_TOKEN, "X-Team-ID": self.team}, "timeout": 300}
        for key in requests.get(f"{self.url}/api-keys", **admin).json():
            if key["name"].startswith("load "):
                requests.delete(f"{self.of_team}/{key['id']}", **admin)


def content_of(sandbox, path: str) -> bytes | None:
    try:
        return bytes(sandbox.files.read(path, format="bytes"))
    except NotFoundException:
        return None


def check_files(sandbox, held: dict[str, Promise], whose: str) -> None:
    for path, promise in held.items():
        promise.check(content_of(sandbox, path), f"{path} of {whose}")


def end(sandbox, there: Promise) -> None:
    certain = there.certain
    with there.becoming(False):
        hold(sandbox.kill() is True or not certain, f"{sandbox.sandbox_id} was gone already")


def is_gone(sandbox) -> bool:
    try:
        sandbox.get_info()
        return False
    except SandboxNotFoundException:
        return True


def all_pages(paginator) -> list:
    items = []
    while paginator.has_next:
        items.extend(paginator.next_items())
    return items


def quietly(act) -> None:
    try:
        act()
    except Exception:
        pass
