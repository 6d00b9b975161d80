"""The socket between a kernel and the interpreter server.

Both directions carry frames: a line ``<kind> <length>`` and then that many bytes. The format is this plain so that every
kernel host can speak it without a parser.

To the kernel: ``environ`` (all variables, ``K=V`` separated by NUL), ``cwd`` (path), ``env`` (``K=V``), ``unenv`` (``K``),
``warmup`` (empty; runs sample cells), ``reseed`` (empty; seeds random numbers anew), ``execute`` (code).

From the kernel: ``hello`` (process id), ``started`` (execution count), ``stdout`` and ``stderr`` (text), ``flush`` (name of a
stream), ``result`` (``{"main", "data"}``), ``error`` (``{"name", "value", "traceback"}``), ``done`` (empty, or
``leaving`` when the process ends with the cell).
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading

from . import jsonable
from .interrupts import INTERRUPTS


class Channel:
    """Sends and receives frames. Any thread may send; only the event loop receives."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._lock = threading.RLock()
        self._received = bytearray()
        self.open = True
        # A child forked by user code must neither send frames nor keep the socket open after the kernel has ended.
        os.register_at_fork(after_in_child=self._abandon)

    def _abandon(self) -> None:
        self.open = False
        self._link.close()

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        """Sends one frame, whole even when an interrupt arrives."""
        if not self.open:
            return
        with INTERRUPTS.deferred():
            with self._lock:
                try:
                    self._link.sendall(b"%s %d\n%s" % (kind, len(payload), payload))
                except OSError:
                    # The server is gone, so nobody will ever read what this process does.
                    os._exit(1)

    def send_json(self, kind: bytes, value: dict) -> None:
        """Sends a frame with a JSON payload, which never holds NaN, bytes or lone surrogates."""
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError):
            text = json.dumps(jsonable.convert(value, other=jsonable.text_of), ensure_ascii=False, allow_nan=False)
        self.send(kind, text.encode("utf-8", "replace"))

    async def receive(self) -> tuple[str, bytes] | None:
        """The next frame, or None when the server has closed the socket."""
        while True:
            frame = self._take()
            if frame is not None:
                return frame
            await self._readable()
            try:
                data = self._link.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            except OSError:
                return None
            if not data:
                return None
            self._received += data

    def _take(self) -> tuple[str, bytes] | None:
        end = self._received.find(b"\n")
        if end < 0:
            return None
        kind, length = self._received[:end].split()
        start, stop = end + 1, end + 1 + int(length)
        if len(self._received) < stop:
            return None
        payload = bytes(self._received[start:stop])
        del self._received[:stop]
        return kind.decode(), payload

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()

        def arrived() -> None:
            # Not when the task goes on: until then the loop would call this once more, and a loop that the cell runs inside of this one
            # (`nest_asyncio`) would take that call away from the outer one, which fails without it.
            loop.remove_reader(self._link.fileno())
            if not ready.done():
                ready.set_result(None)

        loop.add_reader(self._link.fileno(), arrived)
        try:
            await ready
        finally:
            loop.remove_reader(self._link.fileno())
