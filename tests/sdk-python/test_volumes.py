"""Volumes through the official package: files that outlive sandboxes and are seen by several at once."""

import io
import secrets
import uuid

import pytest
import requests
from e2b import Sandbox, SandboxException, Volume
from e2b.exceptions import NotFoundException, VolumeException
from harness.server import ADMIN_TOKEN


@pytest.fixture
def volume():
    volume = Volume.create(f"test-{uuid.uuid4()}")
    yield volume
    Volume.destroy(volume.volume_id)


def test_a_volume_is_made_found_and_destroyed():
    name = f"test-{uuid.uuid4()}"
    volume = Volume.create(name)
    with pytest.raises(VolumeException, match="already exists"):
        Volume.create(name)
    assert Volume.get_info(volume.volume_id).name == name
    assert Volume.connect(volume.volume_id).exists("/")
    assert volume.volume_id in {listed.volume_id for listed in Volume.list()}
    assert Volume.destroy(volume.volume_id)
    assert not Volume.destroy(volume.volume_id)
    with pytest.raises(NotFoundException):
        Volume.get_info(volume.volume_id)
    assert volume.volume_id not in {listed.volume_id for listed in Volume.list()}


def test_files_are_kept_without_any_sandbox(volume):
    data = secrets.token_bytes(3 << 20)
    with pytest.raises(NotFoundException):
        volume.write_file("/a/b.bin", data)
    made = volume.make_dir("/a/deep", force=True, mode=0o750)
    assert (made.type.value, made.mode, made.uid, made.gid) == ("directory", 0o750, 1000, 1000)
    written = volume.write_file("/a/b.bin", data, uid=0, gid=0, mode=0o600)
    assert (written.size, written.mode, written.uid) == (len(data), 0o600, 0)
    assert volume.read_file("/a/b.bin", format="bytes") == data
    assert b"".join(volume.read_file("/a/b.bin", format="stream")) == data
    volume.write_file("/a/b.bin", io.BytesIO(b"from a stream"))
    assert volume.read_file("/a/b.bin") == "from a stream"
    assert volume.update_metadata("/a/b.bin", mode=0o640).mode == 0o640
    assert [entry.path for entry in volume.list("/", depth=2)] == ["/a", "/a/b.bin", "/a/deep"]
    volume.remove("/a")
    assert not volume.exists("/a")


def test_several_sandboxes_see_the_same_files(volume):
    volume.write_file("/from-outside", "hello")
    one = Sandbox.create(timeout=1800, volume_mounts={"/data": volume})
    two = Sandbox.create(timeout=1800, volume_mounts={"/home/user/shared": volume.name})
    try:
        assert [(mount["name"], mount["path"]) for mount in one.get_info().volume_mounts] == [(volume.name, "/data")]
        assert " /data " in one.commands.run("cat /proc/mounts").stdout
        assert one.commands.run("cat /data/from-outside").stdout == "hello"
        one.commands.run("mkdir /data/made && echo 1 > /data/made/by-one && id -u")
        assert two.files.read("/home/user/shared/made/by-one") == "1\n"
        # Owners are the same everywhere.
        assert volume.get_info("/made/by-one").uid == 1000
        assert two.commands.run("stat -c %U /home/user/shared/made/by-one").stdout == "user\n"
        two.commands.run("echo 2 >> /home/user/shared/made/by-one")
        assert one.commands.run("cat /data/made/by-one").stdout == "1\n2\n"
        one.commands.run("sudo chown root:root /data/made/by-one && sudo chmod 600 /data/made/by-one")
        assert two.commands.run("sudo cat /home/user/shared/made/by-one").stdout == "1\n2\n"
    finally:
        one.kill()
        two.kill()
    # What the sandboxes wrote is there after them, and after a pause in between.
    assert volume.read_file("/made/by-one") == "1\n2\n"


def test_a_paused_sandbox_finds_its_volume_again(volume):
    sandbox = Sandbox.create(timeout=1800, volume_mounts={"/data": volume})
    try:
        sandbox.commands.run("echo before > /data/file")
        sandbox.pause()
        volume.write_file("/file", "meanwhile")
        sandbox.connect()
        assert sandbox.files.read("/data/file") == "meanwhile"
    finally:
        sandbox.kill()


def test_links_made_inside_lead_to_no_file_of_the_host(volume):
    sandbox = Sandbox.create(timeout=1800, volume_mounts={"/data": volume})
    try:
        sandbox.commands.run(
            "ln -s /etc/passwd /data/absolute && ln -s ../../../../../../etc/passwd /data/relative"
            " && ln -s / /data/root && ln -s /proc/1/root /data/magic && mkfifo /data/pipe"
            " && python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/data/socket\")'"
        )
        for path in ["/absolute", "/relative", "/root/etc/passwd", "/magic/etc/passwd", "/pipe"]:
            with pytest.raises((NotFoundException, VolumeException, SandboxException)):
                volume.read_file(path)
        for path in ["/pipe", "/socket"]:
            with pytest.raises(VolumeException, match="is not a file"):
                volume.read_file(path)
        link = volume.get_info("/absolute")
        assert (link.type.value, link.target) == ("symlink", "/etc/passwd")
        # Written over a link means in its place.
        volume.write_file("/absolute", "mine")
        assert sandbox.commands.run("cat /data/absolute").stdout == "mine"
        assert "root:" in sandbox.commands.run("cat /etc/passwd").stdout
        # Programs on a volume do not change who runs them, whoever put them there.
        sandbox.commands.run("sudo cp /usr/bin/id /data/id && sudo chmod 4755 /data/id")
        assert sandbox.commands.run("/data/id -u").stdout == "1000\n"
    finally:
        sandbox.kill()
        for name in ["root", "magic", "relative", "pipe", "socket"]:
            volume.remove(name)


def test_what_cannot_be_mounted_is_refused(volume):
    for mounts in [{"/data": "no-such-volume"}, {"relative": volume}, {"/proc/x": volume}, {"/a/../b": volume}]:
        with pytest.raises(SandboxException, match="400"):
            Sandbox.create(timeout=1800, volume_mounts=mounts)


def test_no_link_leads_a_volume_to_where_it_may_not_be(volume):
    box = Sandbox.create(timeout=1800)
    box.commands.run("ln -s /proc /to-proc; ln -s /dev/pts /to-pts; ln -s ../run /opt/run; mkdir -p /usr/data; ln -s /usr/data /to-data", user="root")
    snapshot = box.create_snapshot()
    box.kill()
    for path in ["/to-proc/sys", "/to-proc/1/ns", "/to-pts", "/to-proc/self/fd/11/x"]:
        with pytest.raises(SandboxException):
            Sandbox.create(snapshot.snapshot_id, timeout=1800, volume_mounts={path: volume})
    try:
        # In many images `/var/run` is such a link.
        for path, found in [("/to-data/below/it", "/usr/data/below/it"), ("/opt/run/below", "/run/below")]:
            honest = Sandbox.create(snapshot.snapshot_id, timeout=1800, volume_mounts={path: volume})
            assert f" {found} " in honest.commands.run("cat /proc/mounts").stdout
            honest.kill()
    finally:
        Sandbox.delete_snapshot(snapshot.snapshot_id)


def test_a_volume_can_be_destroyed_under_a_sandbox():
    volume = Volume.create(f"test-{uuid.uuid4()}")
    sandbox = Sandbox.create(timeout=1800, volume_mounts={"/data": volume})
    try:
        sandbox.commands.run("echo 1 > /data/file")
        assert Volume.destroy(volume.volume_id)
        assert sandbox.commands.run("ls /data; echo still here").stdout.endswith("still here\n")
    finally:
        sandbox.kill()


def test_a_full_volume_says_so_and_a_team_has_volumes_of_its_own(server, volume):
    def admin(path, body):
        answer = requests.post(server.url + path, json=body, headers={"X-Admin-Token": ADMIN_TOKEN}, timeout=120)
        assert answer.status_code == 201, answer.text
        return answer.json()

    team = admin("/admin/teams", {"name": f"t {uuid.uuid4()}", "limits": {"diskMb": 32}})
    key = admin(f"/admin/teams/{team['id']}/api-keys", {"name": "test"})["key"]
    small = Volume.create("small", api_key=key)
    try:
        small.write_file("/fits", b"x" * (1 << 20))
        with pytest.raises(VolumeException, match="507"):
            small.write_file("/too-large", secrets.token_bytes(48 << 20))
        # What was there still is, and nothing of the other is.
        assert [entry.path for entry in small.list("/")] == ["/fits"]
        small.remove("/fits")
        # One team's volume is not there for another, by name or id.
        with pytest.raises(NotFoundException):
            Volume.connect(volume.volume_id, api_key=key)
        with pytest.raises(SandboxException, match="not found"):
            Sandbox.create(timeout=1800, volume_mounts={"/data": volume.name}, api_key=key)
        assert [listed.name for listed in Volume.list(api_key=key)] == ["small"]
    finally:
        Volume.destroy(small.volume_id, api_key=key)
