"""The memory of single processes of a server and its sandboxes, as the host sees it."""

from __future__ import annotations

import json
from pathlib import Path

from harness import volatile
from harness.server import Server


def status_mib(pid: int, name: str) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) >> 10


def peak_mib(pid: int) -> int:
    """The largest resident size since the last reset; those of all processes of a server together."""
    return sum(status_mib(part, "VmHWM") for part in volatile.parts(pid))


def reset_peak(pid: int) -> int:
    """Forgets the largest resident sizes of a server's processes, and returns the present ones together in MiB."""
    for part in volatile.parts(pid):
        Path(f"/proc/{part}/clear_refs").write_text("5")
    return sum(status_mib(part, "VmRSS") for part in volatile.parts(pid))


def agent_of(server: Server, box) -> int:
    """The process of a sandbox's agent, as the host numbers it."""
    return json.loads((server.data_dir / "run" / box.sandbox_id / "jail.json").read_text())["pid"]
