"""The README's commands and programs work as written, in their order."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.server import ADMIN_TOKEN, ROOT

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.M | re.S)

# What whoever runs this has done already, or what would stop the server of the other tests.
DONE_ELSEWHERE = re.compile(r"make (up|test)\b|(pip|npm) install\b|sandcove down\b")
# What goes on until it is interrupted.
ENDLESS = re.compile(r"sandcove (sandbox forward|view|eval --watch)\b")
SECONDS = 8

PLOT = """\
import matplotlib.pyplot as plt
plt.plot([1, 2, 3])
plt.show()
"""


def programs(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


def promised(program: str) -> list[str]:
    """What comments behind the calls that print say comes out."""
    return re.findall(r"(?:print|console\.log)\(.*\)\s+(?:#|//) (.+)$", program, re.M)


def commands() -> list[str]:
    """Every command, one a line, without what is said about it."""
    text = "".join(programs("sh")).replace("\\\n", " ")
    lines = (re.sub(r"\s+#\s.*$", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line and not DONE_ELSEWHERE.match(line)]


@pytest.fixture
def environment(server, tmp_path):
    """A user with the command on PATH."""
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "sandcove").symlink_to(server.binary)
    return {
        **os.environ,
        **server.env,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "SANDCOVE_DATA_DIR": str(server.data_dir),
        "SANDCOVE_ADMIN_TOKEN": ADMIN_TOKEN,
    }


def test_the_python_program_prints_what_it_says(environment, tmp_path):
    for program in programs("python"):
        assert promised(program), "a program of the README says what it prints"
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=1200)
        assert done.returncode == 0, done.stderr
        printed = done.stdout.splitlines()
        assert [line for line in printed if line in promised(program)] == promised(program)


def test_every_command_works_in_order(environment, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "script.py").write_text("import sys; print(sys.argv)")
    (work / "plot.py").write_text(PLOT)
    # Of an earlier run.
    subprocess.run(["sandcove", "keys", "delete", "laptop"], env=environment, capture_output=True)
    lines = commands()
    assert len(lines) > 10, "the README shows how to use the command"
    script = ["status() { printf '\\n== %s\\n' $?; }"]
    for line in lines:
        if ENDLESS.match(line):
            # As if somebody pressed Ctrl-C: it must still be there to be interrupted.
            line = f"timeout --signal INT {SECONDS} {line}; [ $? -eq 124 ]"
        script += [line, "status"]
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1200,
    )
    statuses = re.findall(r"^== (\d+)$", done.stdout, re.M)
    failed = [line for line, status in zip(lines, statuses, strict=True) if status != "0"]
    assert not failed, f"{failed}\n{done.stdout}\n{done.stderr}"
    assert list((work / "plots").glob("*.png")), "the picture is where the README says"
    assert Path(work / "hello/results.json").exists()
