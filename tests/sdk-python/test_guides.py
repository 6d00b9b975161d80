"""Every page for users works as written: its Python and shell blocks are run in their order, and print what the page says.

- A `python` or `sh` block is run; a `text` block behind it is what it prints on standard output. In there, `…` stands for anything,
  and a line of only `…` for any lines. Blank lines do not count.
- Python blocks of a page share their variables. Shell blocks share the working directory; `ID` is the id of `sandbox`, the variable.
- Commands of a `console` block are typed on a terminal, but for those that `harness.console` lists with a reason. What the page has below
  a command is how its output ends.
- Blocks of other kinds, such as `js`, are shown only.
"""

import contextlib
import io
import re
import subprocess
from pathlib import Path

import pytest
from test_readme import environment  # noqa: F401

from harness.console import NOT_RUN, TYPED, Console, commands, why_not
from harness.server import ADMIN_TOKEN, ROOT

DOCS = ROOT / "docs"
PAGES = [DOCS / "getting-started.md", *sorted((DOCS / "guides").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)


def blocks(page: str) -> list[tuple[str, str, str | None]]:
    """Kind and text of every block that is run, with what it prints where the page says so."""
    found = BLOCK.findall(page)
    following = [*found[1:], ("", "")]
    return [
        (kind, text, after if after_kind == "text" else None)
        for (kind, text), (after_kind, after) in zip(found, following, strict=True)
        if kind in ("python", "sh", "console")
    ]


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def prints(expected: str, printed: str) -> bool:
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in lines(expected)
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines(printed))) is not None


class Page:
    """One page that is being run."""

    def __init__(self, directory, environment) -> None:
        self.variables: dict = {"__name__": "__main__"}
        self.directory, self.environment = directory, environment
        self.terminal: Console | None = None

    def python(self, text: str) -> str:
        printed = io.StringIO()
        # Sandboxes live for as long as a page takes on a busy machine.
        text = re.sub(r"(Sandbox\.create\(.*?\btimeout=)(?:60|120|300)\b", r"\g<1>550", text)
        with contextlib.redirect_stdout(printed):
            exec(compile(text, "guide", "exec"), self.variables)  # noqa: S102 -- the page is ours
        return printed.getvalue()

    def with_id(self, text: str) -> str:
        """A text with the id of the page's sandbox."""
        return re.sub(r"\bID\b", self.variables["sandbox"].sandbox_id, text) if "sandbox" in self.variables else text

    def console(self, text: str) -> str:
        at = self.directory / ".directory"
        self.terminal = self.terminal or Console(self.directory, self.environment, ADMIN_TOKEN)
        self.terminal.run(self.with_id(text), Path(at.read_text().strip()) if at.exists() else self.directory)
        return ""

    def sh(self, text: str) -> str:
        text = self.with_id(text)
        at = self.directory / ".directory"
        done = subprocess.run(
            ["bash", "-euc", f'{text}\npwd > "{at}"'],
            cwd=at.read_text().strip() if at.exists() else self.directory,
            env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1200,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def close(self) -> None:
        from e2b import Sandbox

        if self.terminal:
            self.terminal.close()
        for value in self.variables.values():
            for sandbox in value if isinstance(value, list) else [value]:
                if isinstance(sandbox, Sandbox):
                    sandbox.kill()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_page_works_as_written(path, environment, tmp_path):  # noqa: F811
    work = tmp_path / "work"
    work.mkdir()
    page = Page(work, environment)
    try:
        for kind, text, expected in blocks(path.read_text()):
            printed = getattr(page, kind)(text)
            assert expected is None or prints(expected, printed), f"{text}\nprints\n{printed}\nand not\n{expected}"
    finally:
        page.close()


def test_every_command_of_a_console_is_run_or_has_a_reason():
    consoles = [text for path in PAGES for kind, text in BLOCK.findall(path.read_text()) if kind == "console"]
    typed = [command for text in consoles for command, _ in commands(text)]
    assert all(consoles) and len(typed) > 20
    for start in (*NOT_RUN, *TYPED):
        assert any(command.startswith(start) for command in typed), f"no page has `{start}`"
    assert not any(why_not(command) and command.startswith(start) for command in typed for start in TYPED)


def test_what_is_printed_is_compared_line_by_line():
    assert prints("a…\n…\nz", "abc\nx\n\ny\nz\n")
    assert prints("…\nz", "z\n")
    assert not prints("a\nz", "a\nb\nz\n")
    assert not prints("a", "b\n")
