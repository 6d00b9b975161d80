"""What a server has and uses: counted and measured from outside."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from .server import Server, open_descriptors, settled_counts, snapshot_files

# What grows with what happened, and is kept for as long as operators say.
HISTORY = {"events", "team_metrics", "webhook_attempts", "sandbox_logs", "sandbox_readings"}


def programs(server: Server) -> dict[str, int]:
    """The processes of the server itself, by what they are."""
    found = {"server": server.pid}
    for child in children(server.pid):
        if b"__spawner" in Path(f"/proc/{child}/cmdline").read_bytes():
            found["spawner"] = child
    for record in server.data_dir.glob("run/warm*/jail.json"):
        found["warm"] = json.loads(record.read_text())["pid"]
    return found


def children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]


def resident_mib(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def memory_mib(server: Server) -> dict[str, float]:
    """Resident sizes of the server's own processes; one that has just been replaced is left out."""
    sizes = {}
    for name, pid in programs(server).items():
        try:
            sizes[name] = round(resident_mib(pid), 1)
        except (OSError, StopIteration):
            continue
    return sizes


def rows(data_dir: Path) -> dict[str, int]:
    """Rows of every table that is no history."""
    database = sqlite3.connect(f"file:{data_dir}/sandcove.db?mode=ro", uri=True, timeout=30)
    try:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            f"rows of {name}": database.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            for (name,) in tables
            if name not in HISTORY
        }
    finally:
        database.close()


def everything(server: Server) -> dict[str, int]:
    """All there is of a server that has come to rest, but for descriptors, of which some stay open for a while."""
    snapshots = len(snapshot_files(server.data_dir))
    return {**settled_counts(server.data_dir), "snapshots": snapshots, **rows(server.data_dir)}


def descriptors(server: Server) -> dict[str, int]:
    """Open ones of the server's own processes."""
    return {name: open_descriptors(pid) for name, pid in programs(server).items()}
