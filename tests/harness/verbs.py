"""Stories of the command line: verbs of `sandcove` in an order that makes sense, typed on a real terminal."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from collections.abc import Callable

from harness.command_line import BINARY, Terminal, without_a_word

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Verbs that stories type, by the names of the stories.
TOLD: dict[str, set[str]] = {}
# What a command on a terminal prints for colours and boldness, as `ESC [ 1 m`.
COLOUR = re.compile(r"\x1b\[[\d;]*m")


def verbs() -> set[str]:
    """Every verb of the program, from its own help."""
    return set(below(()))


def below(path: tuple[str, ...]):
    help_text = subprocess.run([BINARY, *path, "--help"], capture_output=True, text=True, check=True).stdout
    section = re.search(r"^Commands:\n((?:  .*\n|\n)*)", help_text, re.MULTILINE)
    names = [name for name in re.findall(r"^  (\S+)  ", section[1], re.MULTILINE) if name != "help"] if section else []
    # A group that can be typed without one of its verbs is a verb itself.
    if path and not re.search(r"^Usage: .*<COMMAND>$", help_text, re.MULTILINE):
        yield " ".join(path)
    for name in names:
        yield from below((*path, name))


def story(*told: str) -> Callable:
    """Marks a test that types these verbs, with and without mistakes."""

    def mark(test: Callable) -> Callable:
        TOLD[test.__name__] = set(told)
        return test

    return mark


class Typist:
    """Types commands, each on a terminal of its own, and notes their verbs."""

    def __init__(self, *options: str, directory: str = ".", **variables: str) -> None:
        self.options, self.directory, self.home = options, str(directory), Path(directory)
        self.environment = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in without_a_word(**variables).items()), "TERM=xterm-256color"]
        self.typed: set[str] = set()

    def open(self, line: str, *more: str) -> Terminal:
        """A terminal on which a command runs. Words that hold spaces are `more`."""
        words = line.split()
        names = [word for word in words if not word.startswith("-")]
        self.typed |= {" ".join(names[:length]) for length in (1, 2, 3)}
        return Terminal([*self.environment, BINARY, *self.options, *words, *more], columns=200, directory=self.directory)

    def shows(self, line: str, *more: str, status: int = 0) -> str:
        """Runs a command to its end; returns what the terminal shows, without colours."""
        return COLOUR.sub("", self.run(line, *more, status=status))

    def run(self, line: str, *more: str, status: int) -> str:
        terminal = self.open(line, *more)
        code, shown = terminal.end(), terminal.seen.decode().replace("\r\n", "\n")
        assert code == status, f"`{line}` ended with {code}: {shown}"
        return shown

    def __call__(self, line: str, *more: str) -> str:
        """Runs a command that succeeds, and prints data without colours."""
        shown = self.run(line, *more, status=0)
        assert not COLOUR.search(shown), shown
        return shown

    def fails(self, line: str, *more: str, hint: str, status: int = 1) -> str:
        """Runs a command that fails, with an error that names what is wrong or what to do: one that `hint` is in."""
        shown = self.run(line, *more, status=status)
        plain = COLOUR.sub("", shown)
        assert hint in plain and re.search("error: |unknown |failed", plain), plain
        assert "panicked" not in plain, plain
        return shown
