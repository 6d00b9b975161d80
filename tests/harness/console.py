"""`console` blocks of the guides: commands behind a prompt, typed on a terminal, with what they print below them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from harness.command_line import Terminal

CTRL_C, CTRL_P, CTRL_Q = "\x03", "\x10", "\x11"
# Sequences by which programs colour their output and move on the screen, and the echo of Ctrl-C.
SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[a-zA-Z]|[()][A-Z0-9]|[=>78])|\^C")
# What differs on every machine: ids of sandboxes and volumes, and numbers of processes.
SAMPLE = re.compile(r"\bi[a-z0-9]{20}\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|(?<=process )\d+|(?<=--pid )\d+")

# Commands that are not run, by how they begin, each with the reason.
NOT_RUN = {
    "make up": "the tests have started a server",
    "python3 -m venv": "the tests have the SDK",
    "pip install": "the tests have the SDK",
    "sandcove up": "the tests have started a server",
    "sandcove down": "other tests need the server",
    "sandcove purge": "other tests need the server",
    "claude mcp add": "this program is not ours; test_mcp.py speaks the protocol",
    "sandcove run --image": "takes an image from a registry; test_command_line_run.py has one of its own",
    "sandcove template build --builtin": "takes images from a registry; test_shipped_templates.py builds them",
    "sandcove eval --dataset": "needs the data set and a model; tests/eval/test_dataset.py has both",
    "sandcove generate": "needs a model; test_evaluator_verbs.py has one",
    "sandcove sandbox park": "needs CRIU; test_park.py parks",
    "sandcove sandbox egress": "shows connections to the internet; test_names.py makes some",
    "sandcove webhook": "the page has deleted its webhook; test_webhooks.py has a receiver",
    "apt-get install": "changes this machine; test_first_generation.py runs old programs",
    'eval "$(sandcove env --sdk': "is for an old program; test_first_generation.py runs some",
    "python old_program.py": "is the reader's; test_first_generation.py runs some",
}

# What somebody types while a command runs, each after a text that it prints.
TYPED = {
    "sandcove top": [("running", "q")],
    "sandcove sandbox exec -it": [("load average", CTRL_P + CTRL_Q)],
    "sandcove auth login": [("API key:", "{key}\n")],
    "sandcove sandbox forward": [("->", CTRL_C)],
    "sandcove redteam setup": [("token=", CTRL_C)],
}

# Statuses of commands that do not end with 0: rows of the page's suite fail.
STATUS = {"sandcove eval --strict": 100}

# Files that the commands of the pages take.
FILES = {
    "main.py": "print(6 * 7)\n",
    "helper.py": "def double(x):\n    return 2 * x\n",
    "data/number": "7",
}


def commands(block: str) -> list[tuple[str, str]]:
    """The commands of a block, each with what the page says that it prints."""
    found: list[tuple[str, str]] = []
    for line in block.splitlines():
        if line.startswith(("$ ", "# ")):
            found.append((re.sub(r"\s{2,}# .*$", "", line[2:]), ""))
        else:
            assert found or not line.strip(), f"`{line}` is behind no prompt"
            if found:
                found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
    return found


def why_not(command: str) -> str | None:
    """Why a command is not run, if it is not."""
    return next((reason for start, reason in NOT_RUN.items() if command.startswith(start)), None)


def lines(text: str) -> list[str]:
    """The lines of a text, without the width of its columns."""
    return [re.sub(r" {2,}", " ", line.rstrip()) for line in text.splitlines() if line.strip()]


class Console:
    """A terminal in a directory, on which the commands of one page are typed."""

    def __init__(self, directory: Path, environment: dict[str, str], admin_token: str) -> None:
        self.environment = {**environment, "TERM": "xterm-256color", "NO_COLOR": "1"}
        self.samples: dict[str, str] = {"https://api.sandbox.example.com": environment["E2B_API_URL"]}
        for name, text in {**FILES, "token": admin_token}.items():
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_text(text)
        for place in ("/etc/bash_completion.d", "/usr/local/share/man/man1"):
            own = directory / place.strip("/").replace("/", "-")
            own.mkdir()
            self.samples[place] = str(own)
        (Path(environment["HOME"]) / ".config/fish/completions").mkdir(parents=True)
        # A machine of the tests shows nobody a page.
        browser = Path(environment["PATH"].split(":")[0]) / "xdg-open"
        browser.write_text("#!/bin/sh\n")
        browser.chmod(0o755)

    def close(self) -> None:
        """Removes the sandboxes and volumes that the page has made."""
        made = [own for sample, own in self.samples.items() if SAMPLE.fullmatch(sample)]
        for own in made:
            kind = ("volume", "delete") if "-" in own else ("sandbox", "kill")
            subprocess.run(["sandcove", *kind, own], env=self.environment, capture_output=True)

    def known(self, text: str) -> str:
        """A text with what this machine has in place of the samples of the page."""
        # At once, and whole words: what stands for one sample may contain another, such as a number.
        samples = "|".join(re.escape(sample) for sample in sorted(self.samples, key=len, reverse=True))
        return re.sub(rf"(?<!\w)(?:{samples})(?!\w)", lambda found: self.samples[found[0]], text) if samples else text

    def run(self, block: str, directory: Path) -> None:
        for command, expected in commands(block):
            if not why_not(command):
                shown = self.type(self.known(command), directory)
                assert not expected or self.is_shown(expected, shown), f"{command}\nprints\n{shown}\nand not\n{expected}"

    def type(self, command: str, directory: Path) -> str:
        """Runs a command to its end; returns what the terminal shows."""
        environment = [f"{name}={value}" for name, value in self.environment.items()]
        terminal = Terminal(["/usr/bin/env", "-i", *environment, "bash", "-euc", command], columns=300, directory=str(directory))
        typed = next((typed for start, typed in TYPED.items() if command.startswith(start)), [])
        shown = ""
        for after, keys in typed:
            shown += terminal.until(after) + after
            terminal.type(keys.format(key=self.environment["E2B_API_KEY"]))
        status = terminal.end()
        shown = SEQUENCE.sub("", (shown.encode() + terminal.seen).decode()).replace("\r", "")
        expected = next((status for start, status in STATUS.items() if command.startswith(start)), 0)
        # Ctrl-C is how some commands end.
        assert status == expected or (status == 130 and any(keys == CTRL_C for _, keys in typed)), f"{command}\n{status}\n{shown}"
        return shown

    def is_shown(self, expected: str, shown: str) -> bool:
        """Whether a page's lines are the last that are shown. Its samples stand for what is shown in their place, here and in later commands."""
        pattern, samples = "", []
        for line in lines(self.known(expected)):
            if line.strip() == "…":
                pattern += r"(?:.*\n)*?"
                continue
            at = 0
            for sample in SAMPLE.finditer(line):
                pattern += re.escape(line[at : sample.start()]).replace("…", ".*")
                own = sample.group() in self.samples.values()
                pattern += re.escape(sample.group()) if own else r"([\w-]+)"
                samples += [] if own else [sample.group()]
                at = sample.end()
            pattern += re.escape(line[at:]).replace("…", ".*") + r"\n"
        found = re.search(rf"(?:^|\n){pattern}\Z", "".join(f"{line}\n" for line in lines(shown)))
        for sample, own in zip(samples, found.groups() if found else [], strict=found is not None):
            assert self.samples.setdefault(sample, own) == own, f"`{sample}` stands for `{own}` and for `{self.samples[sample]}`"
        return found is not None
