"""Files and directories that may vanish while they are read: those of processes, control groups, loop devices and sandboxes.

Python's own `glob` raises when a process ends between two of its calls, and so do `iterdir` and `read_text`. Here what is gone is
not there, and nothing else: no function raises because somebody else was quicker.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path


def content(path: Path | str) -> bytes | None:
    """The bytes of a file; None when it is gone, or when it is of something that is."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


def text(path: Path | str) -> str | None:
    """The text of a file; None when it is gone, or when it is of something that is."""
    found = content(path)
    return None if found is None else found.decode(errors="replace")


def link(path: Path | str) -> str | None:
    """Where a link leads; None when it is gone."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def record(path: Path | str) -> dict | None:
    """A document of JSON; None when it is gone, or only partly written."""
    try:
        return json.loads(text(path) or "")
    except ValueError:
        return None


def names(directory: Path | str) -> list[str]:
    """What a directory has; nothing when it is gone."""
    try:
        return os.listdir(directory)
    except OSError:
        return []


def matching(directory: Path | str, pattern: str) -> list[Path]:
    """The paths below a directory that match a pattern such as `warm*/jail.json`."""
    found = [Path(directory)]
    for part in pattern.split("/"):
        if "*" in part or "[" in part:
            found = [path / name for path in found for name in names(path) if fnmatchcase(name, part)]
        else:
            found = [path / part for path in found if os.path.lexists(path / part)]
    return found


def processes() -> Iterator[Path]:
    """Directories of all processes of this host."""
    return (Path("/proc") / name for name in names("/proc") if name.isdecimal())


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    lists = matching(f"/proc/{pid}/task", "*/children")
    return [int(child) for listed in lists for child in (text(listed) or "").split()]


def parts(pid: int) -> list[int]:
    """The process of a server that was started, and the one without rights that it has started, if it runs in two processes."""
    return [pid, *(child for child in children(pid) if "__server" in (text(f"/proc/{child}/cmdline") or ""))]


def egress(pid: int) -> list[int]:
    """The process of the egress proxies that a server has started, if a sandbox needs one."""
    return [child for child in children(pid) if "__egress" in (text(f"/proc/{child}/cmdline") or "")]


def resident_bytes(pid: int) -> int | None:
    """Bytes of memory of a process; None when it has ended."""
    lines = (text(f"/proc/{pid}/status") or "").splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:")), None)
