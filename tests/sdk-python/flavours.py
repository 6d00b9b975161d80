"""The SDK's two Python flavours behind one face, so that every test is written once and run twice.

`AsyncSandbox` is driven from a loop in a thread of its own; what it gives back (handles, modules, streams) is wrapped
the same way. Only what the flavours spell differently has a helper here: terminals, watches and streamed data.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import uuid
from collections.abc import Iterable

from e2b import AsyncSandbox, PtySize, Sandbox

from harness.server import wait_until


class Loop:
    """An event loop that runs for as long as the tests do."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, coroutine, timeout_s: float = 1800):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout_s)


LOOP = Loop()


class Awaited:
    """An object of the async SDK whose calls are awaited for the caller."""

    def __init__(self, target) -> None:
        self.target = target

    def __getattr__(self, name: str):
        value = getattr(self.target, name)
        if not callable(value):
            return wrap(value)

        def call(*args, **kwargs):
            async def on_the_loop():
                result = value(*args, **kwargs)
                return await result if inspect.isawaitable(result) else result

            return wrap(LOOP.run(on_the_loop()))

        return call

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return LOOP.run(self.target.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None


def wrap(value):
    is_async = type(value).__module__.startswith("e2b.sandbox_async") or hasattr(value, "__anext__")
    return Awaited(value) if is_async else value


def create(flavour: str, **options):
    """A sandbox of one flavour. Whoever creates it kills it."""
    return Sandbox.create(**options) if flavour == "sync" else Awaited(LOOP.run(AsyncSandbox.create(**options)))


def is_async(sandbox) -> bool:
    return isinstance(sandbox, Awaited)


def stream_of(sandbox, items: Iterable):
    """`items` as the kind of iterable that this flavour streams from."""
    if not is_async(sandbox):
        return iter(items)

    async def generate():
        for item in items:
            yield item

    return generate()


def type_in_pieces(module, pid: int, pieces: list) -> None:
    """`stream_input` of `commands` or `pty`, until all is acknowledged."""
    if not isinstance(module, Awaited):
        module.stream_input(pid, iter(pieces))
        return
    handle = module.stream_input(pid)
    for piece in pieces:
        handle.send(piece)
    handle.close()


class Terminal:
    """A PTY and all it has said so far."""

    def __init__(self, sandbox, pid: int | None = None, **options) -> None:
        self.sandbox, self._said = sandbox, bytearray()
        # Else the SDK ends it after a minute.
        options.setdefault("timeout", 0)
        method = sandbox.pty.create if pid is None else sandbox.pty.connect
        args = (PtySize(rows=24, cols=80),) if pid is None else (pid,)
        if is_async(sandbox):
            self.handle = method(*args, on_data=self._said.extend, **options)
        else:
            self.handle = method(*args, **options)
            self._result: list = []
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()

    def _read(self) -> None:
        try:
            self._result.append(self.handle.wait(on_pty=self._said.extend))
        except Exception as error:  # noqa: BLE001 -- handed to whoever waits
            self._result.append(error)

    @property
    def pid(self) -> int:
        return self.handle.pid

    @property
    def said(self) -> str:
        return self._said.decode(errors="replace")

    def type(self, text: str) -> None:
        self.sandbox.pty.send_stdin(self.pid, text.encode())

    def says(self, text: str) -> None:
        try:
            wait_until(lambda: text in self.said)
        except AssertionError as late:
            raise AssertionError(f"{text!r} is not in {self.said!r}: {late}") from None

    def wait(self):
        if is_async(self.sandbox):
            return self.handle.wait()
        self._reader.join(300)
        assert self._result, "the terminal did not end"
        if isinstance(self._result[0], Exception):
            raise self._result[0]
        return self._result[0]


class Watch:
    """A watched directory and all events so far."""

    # How names of directories begin that are made to learn that all earlier events have come.
    MARK = ".all-seen-"

    def __init__(self, sandbox, path: str, **options) -> None:
        self.sandbox, self.path = sandbox, path
        self._events: list = []
        self.exits: list = []
        if is_async(sandbox):
            # Else the SDK ends it after a minute.
            options.setdefault("timeout", 0)
            self.handle = sandbox.files.watch_dir(path, self._events.append, on_exit=self.exits.append, **options)
        else:
            self.handle = sandbox.files.watch_dir(path, **options)
        self._polls = not is_async(sandbox)

    def _all_events(self) -> list:
        if self._polls:
            self._events += self.handle.get_new_events()
        return self._events

    @property
    def events(self) -> list:
        return [event for event in self._all_events() if not event.name.startswith(self.MARK)]

    def sees(self, count: int = 1) -> list[tuple[str, str]]:
        """The (type, name) of all events of what was done before this call, which are at least `count`."""
        # An event too many is a fault as well. Events come in order, so that there is none once that of a later change has come.
        mark = f"{self.MARK}{uuid.uuid4().hex}"
        self.sandbox.files.make_dir(f"{self.path}/{mark}")
        wait_until(lambda: mark in [event.name for event in self._all_events()], what="the event of a mark")
        self.sandbox.files.remove(f"{self.path}/{mark}")
        seen = [(event.type.value, event.name) for event in self.events]
        assert len(seen) >= count, f"not {count} events, but {seen}"
        return seen

    def stop(self) -> None:
        self.handle.stop()
