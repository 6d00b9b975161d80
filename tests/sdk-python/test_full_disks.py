"""Disks are full: that is an error that says so, tears nothing, and is over when there is room again."""

import os
import shutil
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from e2b import Sandbox, SandboxNotFoundException
from e2b.exceptions import ServiceBusyException

from durability import clear, everything_listed, fill, pause_state, running
from harness.server import Server, host_resources, snapshot_files, wait_until
from test_crashes import CASES, time_up

DATA_DISK_MIB = 96


@pytest.fixture(scope="module")
def tight(server, tmp_path_factory):
    """A server with the templates of the usual one, whose database is on a small disk of its own."""
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    clear(server)
    server.stop()
    scratch = tmp_path_factory.mktemp("tight")
    image, point = scratch / "image", scratch / "point"
    point.touch()
    data_dir = server.data_dir.with_name(server.data_dir.name + "-tight")
    # One of a run that was killed may be there.
    data_dir.mkdir(exist_ok=True)
    with image.open("wb") as file:
        file.truncate(DATA_DISK_MIB << 20)
    run("mkfs.ext4", "-q", "-m", "0", image)
    run("mount", "-o", "loop", image, data_dir)
    (data_dir / "pool").mkdir()
    # A server without sandboxes takes the mount of its pool away when it stops.
    pool = server.data_dir / "pool.img"
    how = ["-o", "loop", pool] if pool.exists() else ["--bind", server.data_dir / "pool"]
    run("mount", *how, data_dir / "pool")
    (data_dir / "server").mkdir()
    shutil.copy(server.data_dir / "server/sandcove.db", data_dir / "server")
    os.environ["SANDCOVE_CRASH_FILE"] = str(point)
    small = Server(data_dir)
    small.log, small.point = scratch / "log", point
    try:
        small.start()
        os.environ.update(small.env)
        yield small
        clear(small)
        small.stop()
        kinds = ["processes", "cgroups", "links", "run directories", "uppers"]
        wait_until(lambda: not any(host_resources(data_dir)[kind] for kind in kinds), what="nothing is left of sandboxes")
    finally:
        del os.environ["SANDCOVE_CRASH_FILE"]
        if small.process is not None and small.process.poll() is None:
            small.kill9()
        # Programs of the server hold it until they have ended.
        wait_until(lambda: subprocess.run(["umount", data_dir / "pool"]).returncode == 0, what="the pool is unmounted")
        run("umount", "--lazy", data_dir)
        data_dir.rmdir()
        server.start()
        os.environ.update(server.env)


def run(*command):
    subprocess.run(command, check=True)


class Disk:
    """One that can be filled to the last block, and freed."""

    def __init__(self, directory, database=None):
        self.filler, self.database = directory / "filler", database

    def __enter__(self):
        if self.database is not None:
            # What SQLite writes next needs room, not what it has in its journal already.
            connection = sqlite3.connect(self.database, timeout=120)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.close()
        fill(self.filler)

    def __exit__(self, *_):
        self.filler.unlink(missing_ok=True)


# What an acknowledged change leads to; the others leave it running.
LEADS_TO = {"pause": "full", "pause_files": "filesystem", "kill": None}


# From these points on the pool is written to.
POOL_POINTS = {"create.files", "pause.frozen", "shutdown.recorded", "snapshot.frozen", "snapshot.taken", "kill.forgotten"}


@pytest.mark.parametrize("point, before, act, after", CASES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_disk_of_the_database_fills_up(tight, point, before, act, after):
    """The same changes as those at which the server dies, and the disk is full from that point on."""
    disk = Disk(tight.data_dir, tight.data_dir / "server/sandcove.db")
    sandbox, allowed = change_on(tight, disk, point, before, act, after)
    # And nothing else comes to light in a server that knows only what was written down.
    tight.kill9()
    tight.start()
    look(tight, sandbox, allowed)
    clear_all(tight)


@pytest.mark.parametrize(
    "point, before, act, after",
    [case for case in CASES if case[0] in POOL_POINTS],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_the_pool_fills_up(tight, point, before, act, after):
    look(tight, *change_on(tight, Disk(tight.data_dir / "pool"), point, before, act, after))
    clear_all(tight)


def change_on(tight, disk, point, before, act, after):
    """The sandbox of which something was asked while the disk was full, and the states it may be in now."""
    sandbox = before()
    wanted = LEADS_TO.get(act.__name__, "running")
    allowed = {pause_state(tight, sandbox), after, wanted}
    tight.point.write_text(f"wait {point}")
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(act, sandbox)
        try:
            wait_until(lambda: tight.point.read_text() == "there", what=f"arrival at {point}")
            with disk:
                tight.point.write_text("")
                error = done.exception(timeout=600)
                if act is time_up:
                    # Acknowledged before it began; what was written by then decides.
                    wait_until(lambda: state_of(tight, sandbox) == after, what=f"being {after}")
        finally:
            tight.point.write_text("")
    if error is not None:
        assert says_so(error), repr(error)
    elif act is not time_up:
        allowed = {wanted}
    wait_until(lambda: state_of(tight, sandbox) in allowed, what=f"one of {allowed}")
    return sandbox, allowed


def look(tight, sandbox, allowed):
    wait_until(lambda: state_of(tight, sandbox) in allowed, what=f"one of {allowed}")
    if state_of(tight, sandbox) is not None:
        sandbox.connect(timeout=1800)
        assert sandbox.files.read("kept") == sandbox.sandbox_id
    for one in everything_listed():
        assert Sandbox.connect(one.sandbox_id).commands.run("echo whole").stdout == "whole\n"
    for one in Sandbox.list_snapshots().next_items():
        assert Sandbox.create(one.snapshot_id, timeout=1800).files.read("kept") == sandbox.sandbox_id


def clear_all(tight):
    clear(tight)
    wait_until(lambda: not host_resources(tight.data_dir)["uppers"], what="all files are gone")
    wait_until(lambda: snapshot_files(tight.data_dir) == [], what="all snapshots are gone")


def says_so(error) -> bool:
    return any(word in str(error) for word in ["full", "capacity"])


def state_of(server, sandbox):
    """As `pause_state`, and None when it is gone."""
    try:
        sandbox.get_info()
    except SandboxNotFoundException:
        return None
    except ServiceBusyException as error:
        # While the disk is full it can be unable to read.
        return str(error)
    return pause_state(server, sandbox)
