"""Commands in sandboxes that last for as long as a test wants, however slow the machine is."""

from __future__ import annotations

import os
import random
import signal

from harness import volatile
from harness.server import wait_until


class Hold:
    """A command, and its end by the test. In shell code, what is behind it runs then."""

    def __init__(self) -> None:
        # Found by its argument, which no other process has.
        self.seconds = str(random.SystemRandom().randrange(10**9, 10**10))

    @property
    def command(self) -> str:
        return f"sleep {self.seconds}"

    def _processes(self) -> list[int]:
        words = {process: (volatile.text(process / "cmdline") or "").split("\0") for process in volatile.processes()}
        return [int(process.name) for process, line in words.items() if line[1:2] == [self.seconds]]

    def release(self) -> None:
        """Ends it wherever it runs, which may be nowhere."""
        for pid in self._processes():
            try:
                # The signal of whose victims shells say nothing.
                os.kill(pid, signal.SIGPIPE)
            except ProcessLookupError:
                continue

    def let_go(self) -> None:
        """Ends it once it runs."""
        wait_until(self._processes, what=f"a process `{self.command}`")
        self.release()

    def let_go_until(self, condition, what: str) -> None:
        """Ends it each time that it is found, until the condition holds: a command may be run again."""
        wait_until(lambda: self.release() or condition(), 600, what)
