"""The programs of attacks: their names, read from the sources, and how they are compiled."""

import re
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent / "programs"
# How a source declares attacks: by the macro of attack.h, or by one of its own on top of it.
DECLARATIONS = [r"^ATTACK\(\w+, (\w+)\)", r"^(?:SOCKET|DEVICE|ON_THE_ROOT|ON_THE_VOLUME)\((\w+),"]


def names(group: str) -> list[str]:
    text = (SOURCES / f"{group}.c").read_text()
    return [name for pattern in DECLARATIONS for name in re.findall(pattern, text, re.M) if name != "name"]


def compiled(group: str, directory: Path) -> Path:
    """Compiles the program of a group, so that it runs in any root file system."""
    program = directory / group
    source = SOURCES / f"{group}.c"
    command = ["gcc", "-static", "-O1", "-pthread", "-Wall", "-Wextra", "-Werror", "-Wno-unused-result", "-o", program, source]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program
