"""The `sandcove` command beside a server of the tests: run to its end, or on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("SANDCOVE_BIN", str(ROOT / "target/release/sandcove"))


def command_line(server, *arguments: str) -> list[str]:
    """The data directory first: what follows a file or a command is for that."""
    return [BINARY, "--data-dir", str(server.data_dir), *arguments]


def sandcove(server, *arguments: str, stdin: str = "", timeout: float = 1200, **options) -> subprocess.CompletedProcess[str]:
    command = command_line(server, *arguments)
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, **options)


def without_a_word(**variables: str) -> dict[str, str]:
    """The environment, with no server in it but what is given."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith("E2B_")}, **variables}


class Terminal:
    """The command on a terminal of its own, as somebody types there."""

    def __init__(self, command: list[str], rows: int = 33, columns: int = 111, directory: str = ".") -> None:
        self.resize = lambda rows, columns: fcntl.ioctl(
            self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0)
        )
        gate_read, gate_write = os.pipe()
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm-256color"
            os.chdir(directory)
            os.read(gate_read, 1)
            os.execv(command[0], command)
        self.resize(rows, columns)
        os.write(gate_write, b"x")
        os.close(gate_read)
        os.close(gate_write)
        self.seen = b""

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def until(self, text: str) -> str:
        while text.encode() not in self.seen:
            # `select` takes no descriptor from 1,024 on, and a long run of tests may have as many.
            poll = select.poll()
            poll.register(self.descriptor, select.POLLIN)
            ready = poll.poll(300_000)
            assert ready, f"`{text}` does not come: {self.seen!r}"
            self.seen += os.read(self.descriptor, 4096)
        before, _, self.seen = self.seen.partition(text.encode())
        return before.decode()

    def end(self) -> int:
        """Waits for the end of the command; `seen` is then everything that it has printed since."""
        while True:
            try:
                if not (read := os.read(self.descriptor, 4096)):
                    break
            except OSError:
                break
            self.seen += read
        _, status = os.waitpid(self.pid, 0)
        os.close(self.descriptor)
        return os.waitstatus_to_exitcode(status)
