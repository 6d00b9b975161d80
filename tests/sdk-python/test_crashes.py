"""The server dies at every point of every change: what was acknowledged is there afterwards, and nothing else is."""

import pytest
from e2b import Sandbox, SandboxNotFoundException

from durability import crash_file, everything_listed, pause_state, running, stored, told  # noqa: F401
from harness.server import host_resources, snapshot_files, wait_until


@pytest.fixture(scope="module")
def bystander(crash_file):
    """One that has nothing to do with it, and goes on through all of it."""
    sandbox = Sandbox.create(timeout=36000)
    ticker = sandbox.commands.run("i=0; while true; do i=$((i+1)); echo $i > ticks; sleep 0.05; done", background=True, timeout=0)
    yield sandbox
    assert ticker.pid in [process.pid for process in sandbox.commands.list()]
    sandbox.kill()


def paused():
    sandbox = running()
    sandbox.pause()
    return sandbox


def time_up(sandbox):
    # Acknowledged at once; what it leads to is what the server dies of.
    sandbox.set_timeout(0)


def pausing_at_end():
    return running(lifecycle={"on_timeout": "pause"})


def connect(sandbox):
    sandbox.connect(timeout=1800)


def pause_files(sandbox):
    sandbox.pause(mode="filesystem")


def reboot(sandbox):
    sandbox.connect(timeout=1800, on_resume="reboot")


def dies(server, crash_file, point, act, sandbox) -> bool:
    """Has the server die at a point of what it is asked for; whether that was acknowledged."""
    if act is time_up:
        # The acknowledgement and the end of life are on their way at the same time, so that the server stays at the point until the
        # first is here.
        crash_file.write_text(f"wait {point}")
        act(sandbox)
        wait_until(lambda: crash_file.read_text() == "there", what=f"arrival at {point}")
        server.kill9()
        return True
    crash_file.write_text(point)
    try:
        act(sandbox)
        acknowledged = True
    except Exception:
        acknowledged = False
    wait_until(lambda: server.process.poll() is not None, what=f"death at {point}")
    return acknowledged


# Where it dies, what there is before, what is asked for, and what there is afterwards.
CASES = [
    ("create.files", running, lambda _: Sandbox.create(), "running"),
    ("create.ready", running, lambda _: Sandbox.create(), "running"),
    ("create.launched", running, lambda _: Sandbox.create(), "running"),
    ("create.recorded", running, lambda _: Sandbox.create(), "running"),
    ("pause.frozen", running, Sandbox.pause, "running"),
    ("pause.recorded", running, Sandbox.pause, "full"),
    ("pause.recorded", pausing_at_end, time_up, "full"),
    ("shutdown.recorded", running, pause_files, "filesystem"),
    ("shutdown.killed", running, pause_files, "filesystem"),
    ("pause.recorded", running, pause_files, "filesystem"),
    ("resume.thawed", paused, connect, "full"),
    ("resume.recorded", paused, connect, "running"),
    ("shutdown.killed", paused, reboot, "filesystem"),
    ("create.files", stored, connect, "filesystem"),
    ("create.ready", stored, connect, "filesystem"),
    ("resume.started", stored, connect, "filesystem"),
    ("resume.recorded", stored, connect, "running"),
    ("snapshot.frozen", running, Sandbox.create_snapshot, "running"),
    ("snapshot.taken", running, Sandbox.create_snapshot, "running"),
    ("snapshot.recorded", running, Sandbox.create_snapshot, "running"),
    ("snapshot.taken", running, Sandbox.fork, "running"),
    ("create.launched", running, Sandbox.fork, "running"),
    ("kill.forgotten", running, Sandbox.kill, None),
    ("kill.forgotten", stored, Sandbox.kill, None),
    ("kill.removed", paused, Sandbox.kill, None),
    ("kill.forgotten", running, time_up, None),
]


@pytest.mark.parametrize("point, before, act, after", CASES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_server_dies(server, crash_file, bystander, point, before, act, after):
    sandbox = before()
    known = {one.sandbox_id for one in everything_listed()}
    snapshots = len(Sandbox.list_snapshots(sandbox_id=sandbox.sandbox_id).next_items())
    assert dies(server, crash_file, point, act, sandbox) == (act is time_up)
    crash_file.write_text("")
    server.start()

    if after is None:
        with pytest.raises(SandboxNotFoundException):
            sandbox.get_info()
        known.remove(sandbox.sandbox_id)
    else:
        assert pause_state(server, sandbox) == after
        assert told(server, sandbox) == ("running" if after == "running" else "paused")
        sandbox.connect(timeout=1800)
        assert sandbox.files.read("kept") == sandbox.sandbox_id
    # Other objects were never acknowledged; they may exist, and then they are whole.
    for one in everything_listed():
        if one.sandbox_id not in known:
            assert point == "create.recorded"
            assert Sandbox.connect(one.sandbox_id).commands.run("echo whole").stdout == "whole\n"
            Sandbox.kill(one.sandbox_id)
    taken = Sandbox.list_snapshots(sandbox_id=sandbox.sandbox_id).next_items()
    assert len(taken) - snapshots == (point == "snapshot.recorded")
    for one in taken:
        copy = Sandbox.create(one.snapshot_id, timeout=1800)
        assert copy.files.read("kept") == sandbox.sandbox_id
        copy.kill()
        assert Sandbox.delete_snapshot(one.snapshot_id)
    Sandbox.kill(sandbox.sandbox_id)
    assert told(server, sandbox) == "killed"
    wait_until(lambda: host_resources(server.data_dir)["uppers"] == {bystander.sandbox_id}, what="files of others are gone")
    wait_until(lambda: snapshot_files(server.data_dir) == [], what="snapshots are gone")
    first = int(bystander.files.read("ticks") or 0)
    wait_until(lambda: int(bystander.files.read("ticks") or 0) > first, what="the bystander goes on")
