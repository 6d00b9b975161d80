"""Migrations of the database that die: after a death at any write, the next start brings the database up to date, with all that it had."""

import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest
from harness.server import ROOT, Server

STEPS = ROOT / "crates/server/migrations"
OLDEST = STEPS / "0001_base.sql"
TEAM, KEY, TEMPLATE, BUILD = (f"0000000{number}-0000-4000-8000-000000000000" for number in range(4))
MASK = {"prefix": "e2b_", "valueLength": 40, "maskedValuePrefix": "ab", "maskedValueSuffix": "cdef"}
MIGRATED = """
CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT NOT NULL, installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  success BOOLEAN NOT NULL, checksum BLOB NOT NULL, execution_time BIGINT NOT NULL)
"""
# Counts what changes files, and dies at one of these calls, in the middle if it is a write.
DYING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>
static long left = -1;
static int is_last(int fd) {
  if (left < 0) { const char *at = getenv("DIE_AT"); left = at ? atol(at) : 1L << 40; }
  return fd > 2 && --left == 0;
}
static void die(void) { kill(getpid(), SIGKILL); for (;;) pause(); }
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
  if (is_last(fd)) { NEXT(pwrite64)(fd, data, size / 2, at); die(); }
  return NEXT(pwrite64)(fd, data, size, at);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return pwrite64(fd, data, size, at); }
ssize_t write(int fd, const void *data, size_t size) {
  if (is_last(fd)) { NEXT(write)(fd, data, size / 2); die(); }
  return NEXT(write)(fd, data, size);
}
int ftruncate64(int fd, off64_t size) { if (is_last(fd)) die(); return NEXT(ftruncate64)(fd, size); }
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }
int fsync(int fd) { if (is_last(fd)) die(); return NEXT(fsync)(fd); }
int fdatasync(int fd) { if (is_last(fd)) die(); return NEXT(fdatasync)(fd); }
int unlink(const char *path) { if (is_last(3)) die(); return NEXT(unlink)(path); }
"""


@pytest.fixture(autouse=True)
def _server_runs():
    """No server is needed here."""


@pytest.fixture(scope="module")
def dying(tmp_path_factory) -> Path:
    """A library that has a program die."""
    directory = tmp_path_factory.mktemp("dying")
    (directory / "dying.c").write_text(DYING)
    library = directory / "dying.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, directory / "dying.c", "-ldl"], check=True)
    return library


@pytest.fixture
def oldest(tmp_path) -> Path:
    """A data directory with a database of the first version, which was in use."""
    own = tmp_path / "oldest/server"
    own.mkdir(parents=True)
    with sqlite3.connect(own / "sandcove.db") as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(OLDEST.read_text())
        database.execute(MIGRATED)
        checksum = hashlib.sha384(OLDEST.read_bytes()).digest()
        database.execute("INSERT INTO _sqlx_migrations VALUES (1, 'base', CURRENT_TIMESTAMP, TRUE, ?, 0)", (checksum,))
        database.execute("INSERT INTO teams VALUES (?, 'default', 'Default', TRUE, FALSE, NULL, 20, 3600, 1)", (TEAM,))
        database.execute("INSERT INTO api_keys VALUES (?, ?, 'a key of old', 'hash', ?, 1, NULL)", (KEY, TEAM, json.dumps(MASK)))
        for number in range(20):
            template, build = f"{TEMPLATE}{number}", f"{BUILD}{number}"
            database.execute("INSERT INTO templates VALUES (?, ?, ?, FALSE, 0, NULL, 1, 1)", (template, TEAM, f"t{number}"))
            database.execute("INSERT INTO template_builds VALUES (?, ?, 'ready', '{}', 1, 1, 1)", (build, template))
            database.execute("INSERT INTO template_tags VALUES (?, 'default', ?, 1)", (template, build))
    database.close()
    return own.parent


def opened(data_dir: Path, **variables) -> subprocess.CompletedProcess[str]:
    """A command that opens the database as a start of the server does."""
    command = [Server(data_dir).binary, "--data-dir", str(data_dir), "keys", "list"]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=300)


def contents(data_dir: Path) -> list[str]:
    """Tables and rows, without when a step was made."""
    with sqlite3.connect(data_dir / "server/sandcove.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        steps = [str(row) for row in database.execute("SELECT version, description, success, checksum FROM _sqlx_migrations ORDER BY version")]
        dump = [line for line in database.iterdump() if 'INSERT INTO "_sqlx_migrations"' not in line]
    database.close()
    return steps + sorted(dump)


def test_a_migration_that_dies_at_any_write_is_made_by_the_next_start(oldest, dying, tmp_path):
    def copy(name: str) -> Path:
        return Path(shutil.copytree(oldest, tmp_path / name))

    expected = copy("expected")
    done = opened(expected)
    assert done.returncode == 0 and "a key of old" in done.stdout, done.stderr
    wanted = contents(expected)
    assert len([line for line in wanted if line.startswith("(")]) == len(list(STEPS.iterdir()))
    assert len([line for line in wanted if 'INTO "template_tag_assignments"' in line]) == 20, "a step that copies rows"
    assert wanted != contents(copy("untouched"))

    killed = 0
    while True:
        data_dir = copy("killed")
        died = opened(data_dir, LD_PRELOAD=str(dying), DIE_AT=str(killed + 1))
        if died.returncode == 0:
            break
        killed += 1
        assert died.returncode == -signal.SIGKILL, died.stderr
        again = opened(data_dir)
        assert again.returncode == 0 and "a key of old" in again.stdout, f"after {killed} writes: {again.stderr}"
        assert contents(data_dir) == wanted, f"after {killed} writes"
        shutil.rmtree(data_dir)
    # Each step writes at least its own row.
    assert killed > 2 * len(list(STEPS.iterdir())), "the library was not used"
