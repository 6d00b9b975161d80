"""A start may be half in many ways. None of them costs a sandbox: a start that is not whole ends with an error and leaves what
it found, and the next one finds everything again. And what does not start leaves nothing behind."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from e2b import Sandbox
from e2b_code_interpreter import Sandbox as Interpreter

from durability import clear, pause_state, running, stored
from harness.census import programs
from harness.server import API_KEY, free_port, host_resources, instance_of, wait_until

# Number of the capability that raises limits.
CAP_SYS_RESOURCE = 24
# In front of the server: a view of the host of its own, in which `$0` was done.
ALONE = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]


class World:
    """One sandbox of every kind, and what is known of them."""

    def __init__(self, server):
        self.server = server
        self.interpreter = Interpreter.create(timeout=36000)
        self.interpreter.run_code("kept = 'in memory'")
        self.paused, self.stored = running(), stored()
        self.paused.commands.run("echo memory > /dev/shm/kept")
        self.paused.pause()

    def is_whole(self) -> None:
        assert self.interpreter.run_code("kept").text == "in memory"
        assert pause_state(self.server, self.stored) == "filesystem"
        assert pause_state(self.server, self.paused) == "full"
        self.paused.connect(timeout=36000)
        assert self.paused.commands.run("cat /dev/shm/kept").stdout == "memory\n"
        self.paused.pause()


@pytest.fixture(scope="module")
def world(server):
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    clear(server)
    yield World(server)
    clear(server)


def attempt(server, *, before=(), options=(), data_dir=None, cwd=None, env=None):
    """Starts a server that is expected to give up, beside the one of the tests, which does not run."""
    command = [*before, str(server.binary), "serve", "--listen", f"127.0.0.1:{free_port()}"]
    command += ["--data-dir", str(data_dir or server.data_dir), *options]
    variables = {**os.environ, "SANDCOVE_API_KEY": API_KEY, **(env or {})}
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=1200)


def refused(server, text, **how):
    given_up = attempt(server, **how)
    assert given_up.returncode == 1, given_up.stderr
    assert text in given_up.stderr, given_up.stderr


@contextmanager
def without(*paths: Path):
    """As if these were not there."""
    for path in paths:
        path.rename(f"{path}.away")
    try:
        yield
    finally:
        for path in paths:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            Path(f"{path}.away").rename(path)


def test_a_relative_data_directory_is_the_same_one(server, world):
    server.stop()
    real = server.data_dir
    server.data_dir = Path(os.path.relpath(real))
    try:
        server.start()
    finally:
        server.data_dir = real
    world.is_whole()
    assert Sandbox.create(timeout=1800).kill()


def test_a_link_to_the_data_directory_is_the_same_one(server, world, tmp_path):
    number = instance_of(server.data_dir)
    (tmp_path / "link").symlink_to(server.data_dir)
    given_up = attempt(server, data_dir=tmp_path / "link")
    assert given_up.returncode == 1
    assert "another server is using" in given_up.stderr and str(server.pid) in given_up.stderr
    server.stop()
    real, server.data_dir = server.data_dir, tmp_path / "link"
    try:
        server.start()
    finally:
        server.data_dir = real
    assert instance_of(real) == number
    world.is_whole()


def test_a_spawner_that_does_not_start(server, world, tmp_path):
    server.stop()
    point, binary = tmp_path / "point", tmp_path / "sandcove"
    point.write_text("wait start.prepared")
    shutil.copy(server.binary, binary)
    command = [binary, "serve", "--listen", f"127.0.0.1:{free_port()}", "--data-dir", server.data_dir]
    env = {**os.environ, "SANDCOVE_CRASH_FILE": str(point)}
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: point.read_text() == "there", what="the server gets to its spawner")
    binary.unlink()
    point.write_text("")
    _, said = process.communicate(timeout=300)
    assert process.returncode == 1 and "start the spawner" in said, said
    server.start()
    world.is_whole()


def test_a_spawner_that_is_killed_during_the_search_and_later(server, world, tmp_path):
    server.stop()
    point = tmp_path / "point"
    point.write_text("wait recover.found")
    os.environ["SANDCOVE_CRASH_FILE"] = str(point)
    try:
        starter = threading.Thread(target=server.start)
        starter.start()
        wait_until(lambda: point.read_text() == "there", what="all have been looked at")
        os.kill(programs(server)["spawner"], signal.SIGKILL)
        point.write_text("")
        starter.join(900)
        assert not starter.is_alive(), "the server started"
    finally:
        del os.environ["SANDCOVE_CRASH_FILE"]
    world.is_whole()
    assert Sandbox.create(timeout=1800).kill()
    os.kill(programs(server)["spawner"], signal.SIGKILL)
    with Interpreter.create(timeout=1800) as another:
        assert another.run_code("6 * 7").text == "42"
    world.is_whole()


def test_a_spawner_that_is_killed_while_sandboxes_are_created(server, world):
    """Requests that fail together because of one dead spawner succeed with its one successor."""

    def create(number):
        time.sleep(number * 0.002)
        with Sandbox.create(timeout=1800) as sandbox:
            assert sandbox.is_running()

    with ThreadPoolExecutor(8) as threads:
        for _ in range(15):
            creations = [threads.submit(create, number) for number in range(8)]
            os.kill(programs(server)["spawner"], signal.SIGKILL)
            for creation in creations:
                creation.result(600)
            wait_until(lambda: "spawner" in programs(server), what="there is a spawner again")
    world.is_whole()


def test_guest_programs_that_are_damaged(server, world):
    server.stop()
    for agent in (server.data_dir / "libexec").glob("*/sandcove-agent"):
        agent.unlink()
    server.start()
    world.is_whole()
    with Interpreter.create(timeout=1800) as another:
        assert another.run_code("6 * 7").text == "42"


def test_control_groups_that_cannot_be_written(server, world):
    server.stop()
    read_only = "for at in $(awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts); do mount -o remount,bind,ro $at; done; exec \"$@\""
    refused(server, "failed to create", before=[*ALONE, read_only, "sh"])
    server.start()
    world.is_whole()


def test_control_groups_that_are_not_there(server, world):
    server.stop()
    hidden = "mount -t tmpfs none /sys/fs/cgroup; exec \"$@\""
    refused(server, "cgroup", before=[*ALONE, hidden, "sh"])
    server.start()
    world.is_whole()


def test_no_firewall_tool(server, world):
    server.stop()
    hidden = f"mount --bind /dev/null {os.path.realpath(shutil.which('nft', path='/usr/sbin:/sbin:/usr/bin'))}; exec \"$@\""
    refused(server, "`nft` failed", before=[*ALONE, hidden, "sh"])
    server.start()
    world.is_whole()


def test_few_descriptors(server, world):
    server.stop()
    without_rights = ["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource"]
    refused(server, "raise the limit of open files from 24", before=["prlimit", "--nofile=24:24", *without_rights])
    server.start()
    world.is_whole()


def test_no_core_files(server, world):
    """As in the unit of systemd: `LimitCORE=0`."""
    server.stop()
    none = ["sh", "-c", 'ulimit -Sc 0; ulimit -Hc 0; exec "$@"', "sh"]
    if int(re.search(r"CapEff:\s+(\w+)", Path("/proc/self/status").read_text())[1], 16) >> CAP_SYS_RESOURCE & 1:
        server.within = none
        server.start()
        with Sandbox.create("base", timeout=600) as sandbox:
            limits = sandbox.commands.run("grep core /proc/self/limits").stdout
            assert limits.split()[4:6] == ["1", "1"], limits
        server.stop()
        server.within = []
    else:
        refused(server, "raise the limit of core files", before=none)
    server.start()
    world.is_whole()


def test_a_strict_mask(server, world):
    """As in the unit of systemd: `UMask=0077`. Users of sandboxes reach their files all the same."""
    server.stop()
    server.within = ["sh", "-c", 'umask 0077; exec "$@"', "sh"]
    server.start()
    with Sandbox.create("base", timeout=600) as sandbox:
        assert sandbox.commands.run("pwd; stat -c %a / /home").stdout == "/home/user\n755\n755\n"
    server.stop()
    server.within = []
    server.start()
    world.is_whole()


def test_a_pool_that_is_not_mounted(server, world):
    server.stop()
    image = server.data_dir / "pool.img"
    if not image.exists():
        pytest.skip("the data directory is on btrfs: its pool is no file system of its own")
    subprocess.run(["umount", "--lazy", server.data_dir / "pool"], check=True)
    with without(image):
        refused(server, "is not the storage pool this data directory has used")
        assert not image.exists(), "no other pool is made in its place"
    server.start()
    world.is_whole()


def test_a_database_that_is_missing(server, world):
    server.stop()
    database = server.data_dir / "server/sandcove.db"
    with without(database, *(path for path in database.parent.glob("sandcove.db-*"))):
        refused(server, "is missing")
        assert not database.exists(), "the next start is not to take an empty one for whole"
    server.start()
    world.is_whole()


def test_a_database_that_is_damaged(server, world):
    server.stop()
    database = server.data_dir / "server/sandcove.db"
    kept = database.read_bytes()
    database.write_bytes(b"not a database" * 1000)
    refused(server, "store")
    database.write_bytes(kept)
    server.start()
    world.is_whole()


@pytest.mark.parametrize("text", ["", "{", '{"id": "iother"}'])
def test_a_record_that_is_damaged(server, world, text):
    server.stop()
    record = server.data_dir / "run" / world.interpreter.sandbox_id / "jail.json"
    kept = record.read_text()
    record.write_text(text)
    refused(server, "nothing was removed")
    record.write_text(kept)
    server.start()
    world.is_whole()


def test_processes_that_were_moved_out_of_their_group(server, world):
    server.stop()
    record = json.loads((server.data_dir / "run" / world.interpreter.sandbox_id / "jail.json").read_text())
    group = f"sandcove{instance_of(server.data_dir)}/s{record['slot']}"
    homes = [Path(at) for at, names, _ in os.walk("/sys/fs/cgroup") if at.endswith(group)]
    for home in homes:
        (home.parent.parent / "cgroup.procs").write_text(str(record["pid"]))
    refused(server, "may be alive")
    for home in homes:
        (home / "cgroup.procs").write_text(str(record["pid"]))
    server.start()
    world.is_whole()


@pytest.mark.parametrize("shift", ["-3650d", "-1h"])
def test_a_clock_that_is_far_back(server, world, shift):
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    if library is None:
        pytest.skip("faketime is not installed")
    server.stop()
    server.variables = {"LD_PRELOAD": str(library), "FAKETIME": shift, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    try:
        server.start()
        world.is_whole()
        with Sandbox.create(timeout=1800) as another:
            assert another.get_info().started_at < datetime.now(UTC) - timedelta(minutes=50), "the clock is far back"
        server.kill9()
    finally:
        server.variables = {}
    server.start()
    world.is_whole()


def test_a_start_right_after_a_death(server, world):
    """Streams are open, so that the dying server has much to close and holds its locks for a while."""
    for _ in range(10):
        dying = server.process
        streams = [world.interpreter.commands.run("sleep 600", background=True, timeout=0) for _ in range(20)]
        server.process.send_signal(signal.SIGKILL)
        server.start()
        dying.wait()
        for stream in streams:
            world.interpreter.commands.kill(stream.pid)
    world.is_whole()


def test_a_start_while_another_server_is_stopping(server, world):
    stopping = server.process
    stopping.send_signal(signal.SIGTERM)
    server.start()
    assert stopping.wait(300) == 0
    world.is_whole()
