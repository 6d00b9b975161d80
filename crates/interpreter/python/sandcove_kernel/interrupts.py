"""The SIGINT policy: an interrupt stops the running cell, never a frame half sent and never an idle kernel."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator


class Interrupts:
    """The process-wide SIGINT policy. Python runs signal handlers on the main thread only."""

    def __init__(self) -> None:
        self._deferrals = 0
        self._pending = False

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Holds a KeyboardInterrupt back until the block has ended."""
        if threading.get_ident() != threading.main_thread().ident:
            yield
            return
        self._deferrals += 1
        try:
            yield
        finally:
            self._deferrals -= 1
            if self._pending and not self._deferrals:
                self._pending = False
                raise KeyboardInterrupt

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Makes SIGINT raise KeyboardInterrupt in the block."""
        self._pending = False
        signal.signal(signal.SIGINT, self._raise)
        try:
            yield
        finally:
            self.ignore()

    @contextlib.contextmanager
    def cancelling(self, cell: asyncio.Future) -> Iterator[None]:
        """Makes the first SIGINT in the block cancel an awaiting cell; the next ones raise, in case it does not await."""
        loop = asyncio.get_running_loop()

        def cancel(_signum, _frame) -> None:
            loop.call_soon_threadsafe(cell.cancel)
            signal.signal(signal.SIGINT, self._raise)

        self._pending = False
        signal.signal(signal.SIGINT, cancel)
        try:
            yield
        finally:
            self.ignore()

    def ignore(self) -> None:
        """Makes SIGINT do nothing. Not SIG_IGN, which programs started by user code would inherit."""
        self._pending = False
        signal.signal(signal.SIGINT, lambda _signum, _frame: None)

    def _raise(self, _signum, _frame) -> None:
        if self._deferrals:
            self._pending = True
        else:
            raise KeyboardInterrupt


INTERRUPTS = Interrupts()
