"""What `--help` prints of every command is what the reference has."""

from __future__ import annotations

import re
import subprocess

from harness.command_line import BINARY, ROOT
from harness.verbs import below

REFERENCE = (ROOT / "docs/reference/cli.md").read_text()
# Lines of the parser itself.
OWN = ("-h, --help", "-V, --version", "help ")


def normal(text: str) -> str:
    """Words without the marks of tables and of the parser's layout."""
    return re.sub(r"\s+", " ", text.replace("`", "").replace("\\|", "|")).strip()


def section(command: str) -> str:
    """What the reference has about a command, without the commands below it."""
    heading = re.search(rf"^#+ {re.escape(command)}$", REFERENCE, re.M)
    assert heading, f"the reference has no section `{command}`"
    return normal(re.split(r"^#+ ", REFERENCE[heading.end():], maxsplit=1, flags=re.M)[0])


def help_of(*path: str) -> str:
    return subprocess.run([BINARY, *path, "--help"], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}).stdout


def entries(text: str) -> list[tuple[str, str]]:
    """Names and meanings of the arguments and options of a help text."""
    found = []
    for block in re.findall(r"^(?:Arguments|Options|Global options):\n((?:  .*\n|\n)*)", text + "\n", re.M):
        # An entry begins two to six columns in; its meaning is behind it, or on lines below it.
        for entry in re.split(r"\n(?= {2,6}[-<\[])", "\n" + block):
            if entry.strip():
                name, _, meaning = re.sub(r"^\s*(\S.*?)(?:  +|\n\s*)", "\\1\0", entry, count=1).partition("\0")
                found.append((name.strip(), meaning))
    return found


def test_every_help_text_is_in_the_reference():
    paths = [verb.split() for verb in below(())]
    groups = {tuple(path[:length]) for path in paths for length in range(1, len(path))}
    everywhere = section("Options of every command")
    compared = 0
    for path in [*paths, *map(list, sorted(groups))]:
        command = " ".join(["sandcove", *path])
        text, page = help_of(*path), section(command)
        # Options of all commands of a group are in the section of the group.
        above = " ".join(section(" ".join(["sandcove", *path[:length]])) for length in range(1, len(path)))
        about = normal(text.splitlines()[0])
        assert about.lower().rstrip(".") in page.lower(), (command, about)
        usage = normal(re.search(r"^Usage: (.*(?:\n       .*)*)", text, re.M)[1])
        # Options of all commands are no options of this one for the reference.
        assert usage.replace(" [OPTIONS]", "") in page.replace(" [OPTIONS]", ""), (command, usage)
        for name, meaning in entries(text):
            if name.startswith(OWN):
                continue
            long = re.search(r"--[\w-]+|<[^>]+>|\[\w+\]", name)[0].strip("[]<>.")
            place = f"{page} {above} {everywhere}"
            assert long in place, (command, name)
            # The parser writes variables, values and defaults in its own way.
            words = re.split(r" *(?:\[(?:env|possible values|alias|aliases|default): |Possible values:)", normal(meaning))[0]
            assert words in place or words.rstrip(".") in place, (command, name, words)
            compared += 1
        after = re.split(r"^(?:Commands|Arguments|Options|Global options):\n(?:  .*\n|\n)*", text + "\n", flags=re.M)[-1]
        assert normal(after) in page, (command, after)
    assert compared > 400, compared
