"""The official code-interpreter clients, sync and async, behind one face: each test is written once and runs through both."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any

import pytest
from e2b_code_interpreter import AsyncSandbox, Sandbox


class Awaited:
    """An `AsyncSandbox` whose methods are waited for, on an event loop in a thread of its own."""

    def __init__(self, sandbox: AsyncSandbox, loop: asyncio.AbstractEventLoop) -> None:
        self.inner, self._loop = sandbox, loop

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.inner, name)
        return self._waiting(member) if callable(member) else member

    @property
    def commands(self) -> Any:
        return Part(self.inner.commands, self._waiting)

    @property
    def files(self) -> Any:
        return Part(self.inner.files, self._waiting)

    def _waiting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*arguments: Any, **keywords: Any) -> Any:
            answer = method(*arguments, **keywords)
            if not inspect.isawaitable(answer):
                return answer
            return asyncio.run_coroutine_threadsafe(_whole(answer), self._loop).result()

        return call


class Part:
    """`sandbox.commands` and its like, waited for in the same way."""

    def __init__(self, inner: Any, waiting: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._inner, self._waiting = inner, waiting

    def __getattr__(self, name: str) -> Any:
        return self._waiting(getattr(self._inner, name))


async def _whole(awaitable: Any) -> Any:
    return await awaitable


class Clients:
    """Creates sandboxes through one of the two clients, and kills them at the end."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._made: list[Any] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def create(self, **options: Any) -> Any:
        options = {"timeout": 3600, **options}
        if self.kind == "sync":
            sandbox = Sandbox.create(**options)
        else:
            made = asyncio.run_coroutine_threadsafe(AsyncSandbox.create(**options), self._loop).result()
            sandbox = Awaited(made, self._loop)
        self._made.append(sandbox)
        return sandbox

    def close(self) -> None:
        together(*[sandbox.kill for sandbox in self._made])
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module", params=["sync", "async"])
def clients(server, request) -> Iterator[Clients]:
    """Where a test gets sandboxes of its own from."""
    clients = Clients(request.param)
    yield clients
    clients.close()


@pytest.fixture(scope="module")
def code(clients) -> Any:
    """One sandbox for the tests of a file that leave its default contexts usable."""
    return clients.create()


@pytest.fixture
def context(code) -> Iterator[Any]:
    """A Python context of the shared sandbox with nothing in it."""
    context = code.create_code_context()
    yield context
    code.remove_code_context(context)


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Runs the calls at the same time and returns what each returned."""
    with ThreadPoolExecutor(max(len(calls), 1)) as pool:
        return [running.result() for running in [pool.submit(call) for call in calls]]
