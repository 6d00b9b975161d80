"""An accountant outside of the server: what the host holds for a team, read from the kernel, the pool and the database."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from harness import volatile
from harness.pool import Pool
from harness.server import instance_of, open_descriptors
from harness.teams import Team

CGROUPS = Path("/sys/fs/cgroup")


@dataclass
class Slot:
    """A sandbox with processes."""

    sandbox: str
    memory: int
    is_frozen: bool


def slots(data_dir: Path) -> dict[int, Slot]:
    """The sandboxes with processes by slot, without those that the server makes ahead."""
    found, instance = {}, instance_of(data_dir)
    for path in volatile.matching(data_dir / "run", "*/jail.json"):
        record = None if path.parent.name.startswith(("warm", "spare")) else volatile.record(path)
        if record:
            group = f"sandcove{instance}/s{record['slot']}"
            found[record["slot"]] = Slot(path.parent.name, memory_of(group), is_frozen(group))
    return found


def memory_of(group: str) -> int:
    for path in [CGROUPS / "memory" / group / "memory.usage_in_bytes", CGROUPS / group / "memory.current"]:
        if (held := volatile.text(path)) is not None:
            return int(held)
    return 0


def is_frozen(group: str) -> bool:
    for path, frozen in [(CGROUPS / "freezer" / group / "freezer.state", "FROZEN"), (CGROUPS / group / "cgroup.freeze", "1")]:
        if (state := volatile.text(path)) is not None:
            return state.strip() == frozen
    return False


def size_of(path: Path) -> int:
    """Bytes of a file; none when it is gone."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def parked_bytes(directory: Path) -> int:
    """Size of the memory of a sandbox that was published on disk, without what it has in common with sandboxes of all teams."""
    files = volatile.matching(directory, "*")
    return sum(size_of(file) for file in files if file.name != "pages-common.img")


@dataclass
class Books:
    """What the host holds for a team at one moment."""

    rows: dict[str, int]
    states: dict[str, int]
    snapshots: int
    volumes: dict[str, int]
    frozen: list[int] = field(default_factory=list)
    parked: int = 0
    running: list[int] = field(default_factory=list)
    account: int = 0
    disk: int = 0
    descriptors: int = 0
    memory: int = 0
    database: int = 0
    # Attempts to deliver each event to each webhook.
    attempts: list[int] = field(default_factory=list)


class Accountant:
    """Reads what the host holds for a team."""

    TABLES = ["sandboxes", "volumes", "api_keys", "webhooks", "idempotency_keys", "events", "secrets"]

    def __init__(self, server, team: Team) -> None:
        self.server, self.team = server, team
        self.pool = Pool(server.data_dir)
        self.first = self.books()

    def query(self, sql: str) -> list[tuple]:
        database = sqlite3.connect(f"file:{self.server.data_dir}/server/sandcove.db?mode=ro", uri=True, timeout=120)
        try:
            return database.execute(sql, {"team": self.team.id}).fetchall()
        finally:
            database.close()

    def books(self) -> Books:
        count = "SELECT COUNT(*) FROM {} WHERE team_id = :team"
        rows = {table: self.query(count.format(table))[0][0] for table in self.TABLES}
        states = dict(self.query("SELECT state, COUNT(*) FROM sandboxes WHERE team_id = :team GROUP BY state"))
        own = {row[0] for row in self.query("SELECT id FROM sandboxes WHERE team_id = :team")}
        files = self.query(
            "SELECT b.id FROM templates t JOIN template_builds b ON b.template_id = t.id WHERE t.team_id = :team"
        )
        groups = self.pool.groups()
        volumes = {}
        for (volume,) in self.query("SELECT id FROM volumes WHERE team_id = :team"):
            path = self.pool.root / "volumes" / volume
            volumes[volume] = groups.get(f"1/{self.pool.number(path)}", 0)
        books = Books(rows=rows, states=states, snapshots=len(files), volumes=volumes)
        for slot in slots(self.server.data_dir).values():
            if slot.sandbox in own:
                (books.frozen if slot.is_frozen else books.running).append(slot.memory)
        books.parked = sum(map(parked_bytes, (self.pool.root / "parked" / sandbox for sandbox in own)))
        books.account = groups.get(self.team.account, 0)
        books.attempts = [row[0] for row in self.query(
            "SELECT COUNT(*) FROM webhook_attempts a JOIN webhooks w ON w.id = a.webhook_id WHERE w.team_id = :team "
            "GROUP BY a.webhook_id, a.event_id"
        )]  # fmt: skip
        books.disk = self.pool.used()
        books.descriptors = open_descriptors(self.server.pid)
        books.memory = sum(volatile.resident_bytes(part) or 0 for part in volatile.parts(self.server.pid))
        books.database = sum(map(size_of, volatile.matching(self.server.data_dir, "server/sandcove.db*")))
        return books
