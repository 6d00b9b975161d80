"""Attacks through a volume: on the file system of the host below it, and from one sandbox on another that has it too."""

import os
import uuid

import pytest
from e2b import CommandExitException, Sandbox, Volume

from conftest import Attacker
from programs import names
from witness import Witness


@pytest.fixture(scope="module")
def volume(server):
    volume = Volume.create(f"attacks-{uuid.uuid4()}")
    yield volume
    Volume.destroy(volume.volume_id)


@pytest.fixture(scope="module")
def box(volume):
    box = Sandbox.create(timeout=7200, volume_mounts={"/data": volume})
    yield box
    box.kill()


@pytest.fixture(scope="module")
def attacker(box, build):
    return Attacker(box, build)


def on_the_host(server, volume):
    return server.data_dir / "pool/volumes" / volume.volume_id


def subvolumes(server):
    """The roots of subvolumes have this inode in btrfs; nobody makes one but the server."""
    pool = server.data_dir / "pool"

    def is_subvolume(path):
        try:
            return os.stat(path).st_ino == 256
        except FileNotFoundError:
            return False  # It is gone meanwhile.

    return {path for path, _, _ in os.walk(pool / "volumes") if is_subvolume(path)}


@pytest.mark.parametrize("name", names("volumes"))
def test_attack(server, volume, box, attacker, name):
    witness, before = Witness(server.data_dir, box.sandbox_id), subvolumes(server)
    process, verdict = attacker.run("volumes", name)
    try:
        assert verdict.startswith("held: "), verdict
        assert subvolumes(server) == before
        assert not witness.complaints()
        assert Volume.get_info(volume.volume_id)
    finally:
        attacker.end(process)


@pytest.fixture
def other(volume):
    other = Sandbox.create(timeout=1800, volume_mounts={"/data": volume})
    yield other
    other.kill()


def run(box, command, user="root"):
    try:
        return box.commands.run(command, user=user, timeout=600).stdout
    except CommandExitException as failed:
        return failed.stdout + failed.stderr


def test_a_program_with_set_user_id_gives_nothing_to_users_of_another(box, other):
    run(box, "cp /usr/bin/id /data/suid; chown 0:0 /data/suid; chmod 6755 /data/suid")
    assert run(other, "stat -c %u:%a /data/suid") == "0:6755\n", "the bits are there"
    assert run(other, "/data/suid -u; /data/suid -g", user="user") == "1000\n1000\n"


def test_a_program_with_capabilities_gives_nothing_to_users_of_another(box, other):
    attribute = "0x0100000280000000000000000000000000000000"  # CAP_SETUID, effective
    run(box, "cp /usr/bin/python3 /data/capable")
    run(box, f"python3 -c \"import os; os.setxattr('/data/capable', 'security.capability', bytes.fromhex('{attribute[2:]}'))\"")
    said = run(other, "/data/capable -c 'import os; os.setuid(0)'", user="user")
    assert "Operation not permitted" in said or "Permission denied" in said, said


def test_files_on_the_host_are_no_programs_of_root(server, volume, box):
    """Whatever bits they have: the pool is mounted so that the host ignores them, and other accounts of the host do not get there."""
    run(box, "cp /usr/bin/id /data/on-the-host; chown 0:0 /data/on-the-host; chmod 4755 /data/on-the-host")
    [file] = on_the_host(server, volume).rglob("on-the-host")
    mount = max(
        (line for line in open("/proc/self/mountinfo") if str(file).startswith(line.split()[4].rstrip("/") + "/")),
        key=lambda line: len(line.split()[4]),
    )
    guarded = any(parent.stat().st_mode & 0o077 == 0 for parent in file.parents)
    assert "nosuid" in mount.split()[5].split(",") or guarded, mount


@pytest.mark.parametrize(
    "path",
    ["/../../../../etc/passwd", "/..%2f..%2f..%2fetc/passwd", "//etc/passwd", "/./../content/../../", "/link/etc/passwd",
     "/proc-link/environ", "/\x00/etc/passwd", "/.", "/" + "a/" * 3000, "/" + "a" * 5000],
)  # fmt: skip
def test_no_path_leaves_the_volume(server, volume, box, path):
    run(box, "ln -sfn / /data/link; ln -sfn /proc/self /data/proc-link")
    import requests

    answer = requests.get(
        f"{server.url}/volumecontent/{volume.volume_id}/file",
        params={"path": path}, headers={"Authorization": f"Bearer {volume.token}"}, timeout=120,
    )  # fmt: skip
    assert answer.status_code in (400, 404, 409, 414, 431), answer.text
    assert "root:" not in answer.text
