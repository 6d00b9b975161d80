"""What a server has and uses: counted and measured from outside."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from . import volatile
from .server import Server, settled_counts, snapshot_files

# What grows with what happened, and is kept for as long as operators say.
HISTORY = {"events", "team_metrics", "webhook_attempts", "sandbox_logs", "sandbox_readings"}


def programs(server: Server) -> dict[str, int]:
    """The processes of the server itself, by what they are."""
    found = {"server": server.pid}
    for child in volatile.children(server.pid):
        command = volatile.text(f"/proc/{child}/cmdline") or ""
        if "__spawner" in command:
            found["spawner"] = child
        if "__server" in command:
            found["server without rights"] = child
    for path in volatile.matching(server.data_dir, "run/warm*/jail.json"):
        if record := volatile.record(path):
            found["warm"] = record["pid"]
    return found


def resident_mib(pid: int) -> float:
    """Resident size of a server, in all its processes but the spawner."""
    sizes = [volatile.resident_bytes(part) for part in volatile.parts(pid)]
    assert sizes and None not in sizes, f"process {pid} has ended"
    return sum(sizes) / (1 << 20)


def memory_mib(server: Server) -> dict[str, float]:
    """Resident sizes of the server's own processes; one that has just been replaced is left out."""
    sizes = {name: volatile.resident_bytes(pid) for name, pid in programs(server).items()}
    return {name: round(size / (1 << 20), 1) for name, size in sizes.items() if size is not None}


def rows(data_dir: Path) -> dict[str, int]:
    """Rows of every table that is no history."""
    database = sqlite3.connect(f"file:{data_dir}/server/sandcove.db?mode=ro", uri=True, timeout=120)
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
    """Open ones of the server's own processes; one that has just been replaced has none."""
    return {name: len(volatile.names(f"/proc/{pid}/fd")) for name, pid in programs(server).items()}
