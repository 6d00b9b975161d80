"""``sys.stdout`` and ``sys.stderr`` of a kernel.

Text written by Python goes over the socket, in order with results. What C libraries and child processes write goes to
descriptors 1 and 2, which are pipes the server reads.
"""

import io
import os

from .channel import Channel


class KernelStream(io.TextIOBase):
    """A text stream whose writes are frames. The server joins them into messages."""

    encoding = "UTF-8"
    errors = "strict"

    def __init__(self, channel: Channel, name: str, descriptor: int) -> None:
        self._channel = channel
        self._kind = name.encode()
        self._descriptor = descriptor
        self.name = f"<{name}>"
        self.mode = "w"
        self.buffer = _Bytes(self)

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if text:
            data = text.encode("utf-8", "replace")
            if self._channel.open:
                self._channel.send(self._kind, data)
            else:
                _write_all(self._descriptor, data)
        return len(text)

    def flush(self) -> None:
        self._channel.send(b"flush", self._kind)

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def close(self) -> None:
        """Does nothing: code that closes the output of a notebook does not mean the next cells."""


class _Bytes(io.RawIOBase):
    """The ``buffer`` of a stream, for code that writes bytes."""

    def __init__(self, text: KernelStream) -> None:
        self._text = text

    def write(self, data) -> int:
        data = bytes(data)
        self._text.write(data.decode("utf-8", "replace"))
        return len(data)

    def flush(self) -> None:
        if not self.closed:
            self._text.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._text.fileno()


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
