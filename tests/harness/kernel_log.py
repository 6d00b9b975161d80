"""The log of this host's kernel."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable


def kernel_log() -> Callable[[], list[str]]:
    """The kernel's log from now on: a function that returns what was added since its last call."""
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    os.lseek(log, 0, os.SEEK_END)

    def added():
        lines = []
        with contextlib.suppress(BlockingIOError):
            while True:
                with contextlib.suppress(BrokenPipeError):  # overwritten meanwhile
                    lines.append(os.read(log, 8192).decode(errors="replace"))
        return lines

    return added
