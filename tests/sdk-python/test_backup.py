"""`sandcove backup` beside a server that runs, and `sandcove restore` into another data directory."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from e2b import Sandbox, Secret, Volume

from durability import pause_state
from harness.server import API_KEY, Server

# It has no layer that is built in the background.
TEMPLATE = "base"
# Without it, paused sandboxes keep no memory on disk.
CRIU = Path(os.environ.get("SANDCOVE_TEST_CRIU", "/usr/local/lib/sandcove-criu"))
HAS_CRIU = (CRIU / "bin/criu").exists()


def sandcove(server, *arguments):
    return subprocess.run([server.binary, *arguments], capture_output=True, text=True, timeout=600)


def mounts(directory: Path) -> list[str]:
    return [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if f"{directory}/" in line]


@pytest.fixture(scope="module")
def contents(server):
    """A sandbox that runs, two that are paused, one of them with its memory, a snapshot, a volume, a secret, and a key of its own."""
    if HAS_CRIU:
        server.stop()
        server.variables["SANDCOVE_CRIU"] = str(CRIU)
        server.start()
    secret = Secret.create("backed-up", value="sk-backed-up")
    volume = Volume.create("backed-up")
    volume.write_file("/in-volume", "of the volume")
    running = Sandbox.create(TEMPLATE, timeout=1800, volume_mounts={"/mnt/data": volume})
    running.commands.run("echo before > kept; ln -s /etc/passwd link; mkfifo pipe; truncate -s 1T sparse; rm /etc/motd; chmod 4755 kept", user="root", cwd="/home/user")
    stored = Sandbox.create(TEMPLATE, timeout=1800, metadata={"is": "stored"})
    stored.files.write("kept", "of files")
    stored.pause(mode="filesystem")
    frozen = Sandbox.create(TEMPLATE, timeout=1800)
    frozen.commands.run("read line < /dev/zero", background=True, envs={"SENTINEL": "in memory"})
    snapshot = running.create_snapshot(name="backed-up")
    frozen.pause()
    if HAS_CRIU:
        parked = sandcove(server, "sandbox", "park", frozen.sandbox_id, "--data-dir", server.data_dir)
        assert parked.returncode == 0, parked.stderr
    key = sandcove(server, "keys", "create", "backed-up", "--data-dir", server.data_dir).stdout.strip()
    yield {"volume": volume, "running": running, "stored": stored, "frozen": frozen, "snapshot": snapshot, "key": key}
    for sandbox in (running, stored, frozen):
        sandbox.kill()
    Sandbox.delete_snapshot(snapshot.snapshot_id)
    Volume.destroy(volume.volume_id)
    Secret.destroy(secret.secret_id)
    sandcove(server, "keys", "delete", "backed-up", "--data-dir", server.data_dir)
    if HAS_CRIU:
        server.stop()
        server.variables.pop("SANDCOVE_CRIU")
        server.start()


@pytest.fixture(scope="module")
def backup(server, contents, tmp_path_factory):
    """A backup that was made while the server ran and a sandbox wrote files, and its summary."""
    writing = contents["running"].commands.run("while :; do date > /tmp/now; mv /tmp/now /tmp/then; done", background=True)
    file = tmp_path_factory.mktemp("backup") / "sandcove.tar.zst"
    made = sandcove(server, "backup", file, "--no-server-templates", "--json", "--data-dir", server.data_dir)
    writing.kill()
    assert made.returncode == 0, made.stderr
    return file, json.loads(made.stdout)


@pytest.fixture
def directory(server):
    directory = Path(f"/var/lib/sandcove-test-backup-{os.getpid()}")
    assert not directory.exists()
    yield directory
    if directory.exists():
        purged = sandcove(server, "purge", "--data-dir", directory, "--yes")
        assert purged.returncode == 0, purged.stderr
        shutil.rmtree(directory, ignore_errors=True)


def test_a_backup_is_taken_beside_the_server_and_leaves_nothing(server, contents, backup):
    file, summary = backup
    assert summary["counts"]["runningSandboxes"] >= 1 and summary["counts"]["pausedSandboxes"] >= 2
    assert summary["counts"]["snapshots"] >= 1 and summary["counts"]["volumes"] >= 1
    assert summary["bytes"] == file.stat().st_size and file.stat().st_mode & 0o777 == 0o600
    assert contents["running"].is_running()
    assert not (server.data_dir / "pool/backup").exists() and not list((server.data_dir / "server").glob("backup.db*"))
    again = sandcove(server, "backup", file, "--data-dir", server.data_dir)
    assert again.returncode == 1 and "exists; choose another name" in again.stderr


def test_everything_is_there_in_another_data_directory(server, contents, backup, directory):
    file, _ = backup
    restored = sandcove(server, "restore", file, "--json", "--data-dir", directory)
    assert restored.returncode == 0, restored.stderr
    assert json.loads(restored.stdout)["counts"]["volumes"] >= 1
    assert not mounts(directory)
    again = sandcove(server, "restore", file, "--data-dir", directory)
    assert again.returncode == 1 and "is not empty" in again.stderr and "hint:" in again.stderr

    other = Server(directory)
    other.variables = {"SANDCOVE_LANGUAGES": "lean", "SANDCOVE_SPARES": "0", "SANDCOVE_CRIU": str(CRIU)}
    other.start()
    try:
        at = {"api_url": other.url, "sandbox_url": other.url, "api_key": API_KEY}
        states = {name: pause_state(other, contents[name]) for name in ("running", "stored", "frozen")}
        assert states == {"running": "filesystem", "stored": "filesystem", "frozen": "full" if HAS_CRIU else "filesystem"}
        # What ran has its files, links and holes, and its volume.
        running = Sandbox.connect(contents["running"].sandbox_id, **at)
        shown = running.commands.run(
            "cat kept; readlink link; test -p pipe; test ! -e /etc/motd; stat -c '%s %a' sparse kept; cat /mnt/data/in-volume",
            cwd="/home/user", user="root",
        ).stdout
        assert shown.split("\n") == ["before", "/etc/passwd", f"{1 << 40} 644", "7 4755", "of the volume"]
        assert Sandbox.connect(contents["stored"].sandbox_id, **at).files.read("kept") == "of files"
        frozen = Sandbox.connect(contents["frozen"].sandbox_id, **at)
        found = frozen.commands.run("grep -laz 'SENTINEL=in memory' /proc/[0-9]*/environ || true", user="root").stdout
        assert bool(found) == HAS_CRIU
        made = Sandbox.create(contents["snapshot"].snapshot_id, timeout=600, **at)
        assert made.files.read("kept") == "before\n"
        assert [secret.name for secret in Secret.list(**at).next_items()] == ["backed-up"]
        for name in ("secrets.key", "parked.key"):
            assert (directory / name).read_bytes() == (server.data_dir / name).read_bytes()
        # A key that the backup knows as a digest only.
        assert Sandbox.list(api_url=other.url, api_key=contents["key"]).next_items()
        again = directory.parent / f"{directory.name}.again"
        sandcove(server, "backup", again, "--no-server-templates", "--data-dir", directory)
        assert again.stat().st_size > 0
        again.unlink()
    finally:
        sandcove(server, "down", "--all", "--data-dir", directory)
        other.stop()


def test_a_damaged_backup_is_refused_and_leaves_nothing(server, backup, directory, tmp_path):
    file, _ = backup
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    damaged, short, other = tmp_path / "damaged", tmp_path / "short", tmp_path / "other"
    damaged.write_bytes(content)
    short.write_bytes(file.read_bytes()[: -len(content) // 3])
    other.write_bytes(b"not a backup" * 100)
    for wrong, text in ((damaged, "damaged"), (short, "damaged"), (other, "not a backup")):
        refused = sandcove(server, "restore", wrong, "--data-dir", directory)
        assert refused.returncode == 1 and text in refused.stderr, refused.stderr
        assert not directory.exists() and not mounts(directory)
