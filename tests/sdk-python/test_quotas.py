"""What a team makes the server keep has limits: attacks on them, with an oracle outside of the server."""

import errno
import os
import uuid

import pytest
import requests
from e2b import Sandbox

from durability import pause_state
from harness.pool import Pool, btrfs
from harness.server import API_KEY, wait_until
from harness.teams import Team

MIB = 1 << 20


@pytest.fixture
def pool(server):
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    pool = Pool(server.data_dir)
    if not pool.is_grouped():
        pytest.skip("the kernel has no simple quotas, or the pool is older than them")
    return pool


@pytest.fixture
def team(server):
    """Makes teams, and removes what they have."""
    made = []

    def make(**limits):
        made.append(Team(server.url, **limits))
        return made[-1]

    yield make
    for one in made:
        one.clear()


def fill(path, mib: int) -> int:
    """Writes to a file until it has that size or there is no room; the bytes written."""
    written = 0
    try:
        with path.open("wb", buffering=0) as file:
            while written < mib * MIB:
                written += file.write(os.urandom(MIB))
            os.fsync(file.fileno())
    except OSError as error:
        assert error.errno in (errno.EDQUOT, errno.ENOSPC), error
    return written


def volume(team, pool):
    made = team.call("POST", "/volumes", {"name": f"v-{uuid.uuid4()}"})
    assert made.status_code == 201, made.text
    made = made.json()
    return made, pool.root / "volumes" / made["volumeID"]


def test_a_subvolume_in_a_volume_shares_its_limit(team, pool):
    made, path = volume(team(diskMb=64), pool)
    nested = path / "content/nested"
    btrfs("subvolume", "create", nested)
    btrfs("subvolume", "create", nested / "deeper")
    written = fill(nested / "a", 100) + fill(nested / "deeper/b", 100) + fill(path / "content/c", 100)
    assert written <= 64 * MIB
    group = f"1/{pool.number(path)}"
    assert written // 2 < pool.groups()[group] <= 64 * MIB


def test_a_volume_with_subvolumes_is_deleted_with_them(team, pool):
    one = team(diskMb=64)
    made, path = volume(one, pool)

    def own():
        # Sandboxes that the server makes ahead have subvolumes too, and come and go.
        return {name for name in pool.subvolumes() if made["volumeID"] in name}

    before = own()
    nested = path / "content/nested"
    for directory in [nested, nested / "deeper", nested / "deeper/deepest", path / "content/other"]:
        btrfs("subvolume", "create", directory)
    btrfs("subvolume", "snapshot", "-r", nested, path / "content/read-only")
    # A full one cannot refuse to be deleted.
    assert 32 * MIB < fill(nested / "deeper/a", 100) <= 64 * MIB
    assert len(own()) == len(before) + 5
    assert one.call("DELETE", f"/volumes/{made['volumeID']}").status_code == 204
    assert not path.exists()
    assert before and not own()


def test_a_sandbox_with_subvolumes_is_deleted_with_them(team, pool):
    one = team(diskMb=64)
    sandbox = one.create()
    path = pool.root / "sandboxes" / sandbox
    nested = path / "upper/nested"
    btrfs("subvolume", "create", nested)
    assert fill(nested / "a", 100) <= 64 * MIB
    assert one.call("DELETE", f"/sandboxes/{sandbox}").status_code == 204
    wait_until(lambda: not path.exists(), what="the sandbox is gone")
    assert not any(sandbox in name for name in pool.subvolumes())


def test_limits_of_an_earlier_version_are_moved_to_groups(server, team, pool):
    made, path = volume(team(diskMb=64), pool)
    number = pool.number(path)
    # As an earlier version left it: a limit of the subvolume alone, and one in it without any.
    btrfs("qgroup", "remove", f"0/{number}", f"1/{number}", pool.root)
    pool.sync()
    btrfs("qgroup", "destroy", f"1/{number}", pool.root) if f"1/{number}" in pool.groups() else None
    btrfs("qgroup", "limit", "64M", f"0/{number}", pool.root)
    btrfs("subvolume", "create", path / "content/nested")
    assert fill(path / "content/nested/a", 100) == 100 * MIB, "the attack succeeds there"
    (path / "content/nested/a").unlink()
    server.stop()
    server.start()
    assert fill(path / "content/nested/a", 100) <= 64 * MIB


def test_snapshots_of_a_team_have_a_size_on_disk(team, pool):
    one = team(snapshotsMb=120, diskMb=64, concurrentSandboxes=2)
    sandbox = one.create()
    upper = pool.root / "sandboxes" / sandbox / "upper/home/user/data"
    upper.parent.mkdir(parents=True, exist_ok=True)
    taken = 0
    for _ in range(8):
        fill(upper, 48)
        pool.sync()
        answer = one.call("POST", f"/sandboxes/{sandbox}/snapshots", {})
        if answer.status_code != 201:
            break
        taken += 1
    assert (answer.status_code, taken) == (400, 2), answer.text
    assert "may take 120 MiB of disk" in answer.json()["message"]
    assert one.call("POST", f"/sandboxes/{sandbox}/fork", {}).status_code == 400
    # What it may still write of its own comes on top, and no more.
    assert pool.groups()[one.account] <= (120 + 2 * 64) * MIB
    # Data that a snapshot needs counts when its sandbox is gone, and no longer when the snapshot is.
    assert one.call("DELETE", f"/sandboxes/{sandbox}").status_code == 204
    wait_until(lambda: not upper.exists(), what="the sandbox is gone")
    assert pool.groups()[one.account] >= 80 * MIB
    one.clear()
    wait_until(lambda: pool.groups()[one.account] < MIB, what="the space is free")


def test_memory_of_paused_sandboxes_has_a_limit(server, team):
    """Thirty sandboxes of a team that may run two held all the memory they wanted while they were paused."""
    one = team(concurrentSandboxes=2, pausedRamMb=300, maxRamMb=512)
    sandboxes = []
    for _ in range(4):
        sandboxes.append(one.create())
        hold_memory(server, one, sandboxes[-1], 120)
        assert one.call("POST", f"/sandboxes/{sandboxes[-1]}/pause").status_code == 204
        assert frozen_memory(server, sandboxes) <= 300 * MIB
    modes = [one.pause_mode(sandbox) for sandbox in sandboxes]
    assert modes[0] == "filesystem" and modes[-1] == "full", modes
    # Nothing of their files is lost.
    for sandbox in sandboxes[:2]:
        assert one.call("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 600}).status_code == 201
        assert Sandbox.connect(sandbox, api_key=one.key).files.read("name") == sandbox


@pytest.mark.parametrize("point", ["shutdown.recorded", "shutdown.killed", "pause.recorded"])
def test_a_server_that_dies_while_memory_is_released_keeps_the_files(server, team, tmp_path_factory, point):
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    file = tmp_path_factory.mktemp("crash") / "point"
    file.touch()
    os.environ["SANDCOVE_CRASH_FILE"] = str(file)
    try:
        server.stop()
        server.start()
        one = team(pausedInMemory=1)
        sandboxes = [one.create(), one.create()]
        for sandbox in sandboxes:
            Sandbox.connect(sandbox, api_key=one.key).files.write("name", sandbox)
        assert one.call("POST", f"/sandboxes/{sandboxes[0]}/pause").status_code == 204
        file.write_text(point)
        with pytest.raises(requests.ConnectionError):
            one.call("POST", f"/sandboxes/{sandboxes[1]}/pause")
        server.process.wait(timeout=300)
        file.write_text("")
        server.start()
        for sandbox in sandboxes:
            one.call("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 600})
            assert Sandbox.connect(sandbox, api_key=one.key).files.read("name") == sandbox
    finally:
        del os.environ["SANDCOVE_CRASH_FILE"]
        file.write_text("")
        server.stop()
        server.start()


def hold_memory(server, team, sandbox, mib):
    box = Sandbox.connect(sandbox, api_key=team.key)
    box.files.write("name", sandbox)
    box.commands.run(f"head -c {mib}M /dev/urandom > /dev/shm/held", user="root")


def frozen_memory(server, sandboxes) -> int:
    """Bytes that the control groups of frozen sandboxes are charged for."""
    from harness.accountant import slots

    return sum(slot.memory for slot in slots(server.data_dir).values() if slot.sandbox in sandboxes and slot.is_frozen)
