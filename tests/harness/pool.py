"""The storage pool of a server under test, as root on the host sees it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path


def btrfs(*arguments: object) -> str:
    done = subprocess.run(["btrfs", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, f"btrfs {arguments}: {done.stdout}{done.stderr}"
    return done.stdout


class Pool:
    """A pool on btrfs."""

    def __init__(self, data_dir: Path) -> None:
        self.root = data_dir / "pool"

    def sync(self) -> None:
        """Commits, so that quota groups hold what was written."""
        btrfs("filesystem", "sync", self.root)

    def is_grouped(self) -> bool:
        """Whether the kernel has simple quotas, with which nested subvolumes share a limit."""
        mode = Path("/sys/fs/btrfs") / self.uuid() / "qgroups/mode"
        return mode.exists() and mode.read_text().strip() == "squota"

    def uuid(self) -> str:
        return re.search(r"uuid: (\S+)", btrfs("filesystem", "show", self.root)).group(1)

    def groups(self) -> dict[str, int]:
        """The bytes that each quota group is charged for."""
        self.sync()
        lines = btrfs("qgroup", "show", "--raw", self.root).splitlines()
        found = (re.match(r"(\d+/\d+)\s+(\d+)\s", line) for line in lines)
        return {match[1]: int(match[2]) for match in found if match}

    def subvolumes(self) -> set[str]:
        """Paths of all subvolumes, below the pool."""
        lines = btrfs("subvolume", "list", self.root).splitlines()
        return {line.split(" path ", 1)[1] for line in lines}

    def number(self, path: Path) -> int:
        return int(btrfs("inspect-internal", "rootid", path))

    def used(self) -> int:
        """Bytes that are taken from the pool."""
        self.sync()
        space = os.statvfs(self.root)
        return (space.f_blocks - space.f_bfree) * space.f_frsize
