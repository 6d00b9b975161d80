"""An upgrade on the data directory of an earlier release: SANDCOVE_TEST_OLD_RELEASE names that release's `sandcove`.

A git worktree of the release's commit, with `make build PROFILE=dev` in it, has the program. The data of earlier releases is read in CI too, without sandboxes, by
crates/server/tests/server/upgrade.rs.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import requests
from e2b import Sandbox, Secret, Template, Volume
from e2b_code_interpreter import Sandbox as Interpreter

from durability import pause_state
from harness import volatile
from harness.server import API_KEY, Server, wait_until

OLD = Path(os.environ.get("SANDCOVE_TEST_OLD_RELEASE", ""))
# Without it, paused sandboxes keep no memory on disk.
CRIU = Path(os.environ.get("SANDCOVE_TEST_CRIU", "/usr/local/lib/sandcove-criu"))
HAS_CRIU = (CRIU / "bin/criu").exists()
COUNT = "i=0; while :; do i=$((i + 1)); echo $i > /tmp/count; sleep 0.1; done"
pytestmark = pytest.mark.skipif(not OLD.is_file(), reason="SANDCOVE_TEST_OLD_RELEASE is not set")


@pytest.fixture(autouse=True)
def _server_runs():
    """The tests' own server is not needed here."""


def sandcove(program: Path, server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments, "--data-dir", server.data_dir], capture_output=True, text=True, timeout=600)


def get(server: Server, path: str):
    answer = requests.get(f"{server.url}{path}", headers={"X-API-Key": API_KEY}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def programs(server: Server) -> set[str]:
    return {path.name for path in (server.data_dir / "libexec").iterdir()}


def programs_of(server: Server, name: str) -> str:
    """Name of the directory with the programs that a sandbox was started with."""
    return volatile.record(server.data_dir / "run" / name / "jail.json")["programs"]


def makers_of_the_pool(server: Server) -> set[str]:
    """Process ids of the servers that made the pooled sandboxes and warm interpreters there are; they are part of their names."""
    names = {path.name for kind in ("spare", "warm") for path in volatile.matching(server.data_dir / "run", f"{kind}*x*")}
    return {re.sub("^[a-z]+([0-9]+)x.*", r"\1", name) for name in names}


def count(sandbox: Sandbox) -> int:
    return int(sandbox.files.read("/tmp/count") or 0)


@pytest.fixture(scope="module")
def server():
    """A server of the earlier release."""
    directory = Path(f"/var/lib/sandcove-test-upgrade-{os.getpid()}")
    server = Server(directory)
    current, server.binary = server.binary, OLD
    server.variables = {"SANDCOVE_LANGUAGES": "lean", **({"SANDCOVE_CRIU": str(CRIU)} if HAS_CRIU else {})}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.env.items():
            patch.setenv(name, value)
        try:
            server.start(deadline_s=1800)
            yield server
        finally:
            server.stop()
            purged = sandcove(current, server, "purge", "--yes")
            assert purged.returncode == 0, purged.stderr
            shutil.rmtree(directory, ignore_errors=True)


def test_everything_outlives_an_upgrade(server):
    new = Server(server.data_dir).binary
    secret = Secret.create("upgraded", value="of-a-test")
    volume = Volume.create("upgraded")
    volume.write_file("/in-volume", "of the volume")
    Template.build(Template().from_template("base").run_cmd("echo built > /home/user/built"), "upgraded:prod", cpu_count=1, memory_mb=512)
    running = Sandbox.create("base", timeout=3600, volume_mounts={"/mnt/data": volume}, metadata={"is": "running"})
    running.commands.run(COUNT, background=True, timeout=0)
    kernel = Interpreter.create(timeout=3600)
    kernel.run_code("kept = 41")
    stored = Sandbox.create("upgraded:prod", timeout=3600)
    stored.files.write("kept", "of files")
    stored.pause(mode="filesystem")
    frozen, parked = (Interpreter.create(timeout=3600) for _ in range(2))
    for sandbox in (frozen, parked):
        sandbox.run_code("kept = 41")
        sandbox.pause()
    if HAS_CRIU:
        done = sandcove(OLD, server, "sandbox", "park", parked.sandbox_id)
        assert done.returncode == 0, done.stderr
    snapshot = kernel.create_snapshot(name="upgraded-snapshot")
    key = sandcove(OLD, server, "keys", "create", "upgraded").stdout.strip()
    hook = {"name": "upgraded", "url": "https://example.com/hook", "events": ["sandbox.lifecycle.killed"], "signatureSecret": "of-a-test"}
    requests.post(f"{server.url}/events/webhooks", json=hook, headers={"X-API-Key": API_KEY}, timeout=60).raise_for_status()

    def listed() -> dict:
        sandboxes = get(server, "/v2/sandboxes?state=running,paused")
        return {
            "sandboxes": {one["sandboxID"]: (one["state"], one["startedAt"], one.get("metadata")) for one in sandboxes},
            "ends": {one["sandboxID"]: one["endAt"] for one in sandboxes if one["state"] == "running"},
            "snapshots": {one["snapshotID"] for one in get(server, "/snapshots")},
            "templates": {(one["templateID"], one["buildID"]) for one in get(server, "/templates") if "upgraded" in one["aliases"]},
            "volumes": get(server, "/volumes"),
            "secrets": get(server, "/secrets"),
            "webhooks": get(server, "/events/webhooks"),
            "events": {one["id"] for one in get(server, "/events/sandboxes?limit=100")},
            "kinds": [pause_state(server, one) for one in (running, kernel, stored, frozen, parked)],
        }

    before = listed()
    wait_until(lambda: makers_of_the_pool(server) == {str(server.pid)}, what="there is a pool of the earlier release")
    (old_programs,) = programs(server)
    counted = count(running)
    server.stop()

    server.binary = new
    server.start(deadline_s=1800)
    assert listed() == before
    assert Sandbox.list(api_key=key).next_items(), "a key is a digest in the database"
    # What runs went on without a server, with the programs it has.
    assert count(running) > counted
    assert programs_of(server, running.sandbox_id) == old_programs
    assert running.commands.run("cat /mnt/data/in-volume").stdout == "of the volume"
    assert kernel.run_code("kept + 1").text == "42"
    assert Interpreter.connect(frozen.sandbox_id).run_code("kept + 1").text == "42"
    memory_kept = Interpreter.connect(parked.sandbox_id).run_code("kept + 1")
    assert memory_kept.text == "42", memory_kept.error
    assert Sandbox.connect(stored.sandbox_id).files.read("kept") == "of files"
    copy = Interpreter.create(snapshot.snapshot_id, timeout=3600)
    if HAS_CRIU:
        assert copy.run_code("kept + 1").text == "42"
    built = Sandbox.create("upgraded:prod", timeout=3600)
    assert built.files.read("built") == "built\n"
    # What is made now has the new programs, also when it was pooled.
    assert len(programs(server)) == 2
    assert programs_of(server, built.sandbox_id) != old_programs
    wait_until(lambda: makers_of_the_pool(server) == {str(server.pid)}, what="the pool is renewed")

    # Sandboxes of the earlier release are the new server's in every respect.
    running.pause()
    running = Sandbox.connect(running.sandbox_id, timeout=3600)
    counted = count(running)
    wait_until(lambda: count(running) > counted, what="the counter goes on")
    if HAS_CRIU:
        kernel.pause()
        done = sandcove(new, server, "sandbox", "park", kernel.sandbox_id)
        assert done.returncode == 0, done.stderr
        assert Interpreter.connect(kernel.sandbox_id, timeout=3600).run_code("kept + 1").text == "42"
    fresh = kernel.create_snapshot()
    with Sandbox.create(fresh.snapshot_id, timeout=600) as second:
        assert second.commands.run("echo runs").stdout == "runs\n"
    volume.write_file("/later", "written later")
    assert running.commands.run("cat /mnt/data/later").stdout == "written later"

    # The earlier release refuses what the new one has changed, and leaves what runs alone.
    server.stop()
    server.binary = OLD
    with pytest.raises(RuntimeError, match="the database was written by a newer sandcove"):
        server.start()
    counted = count_without_server(server, running)
    server.binary = new
    server.start()
    assert count(running) >= counted
    assert kernel.run_code("kept + 1").text == "42"

    # Programs of the earlier release go with the last sandbox that has them.
    for one in (snapshot, fresh):
        Sandbox.delete_snapshot(one.snapshot_id)
    for one in (running, kernel, stored, frozen, parked, copy):
        one.kill()
    server.stop()
    server.start()
    wait_until(lambda: old_programs not in programs(server), what="the programs of the earlier release are deleted")
    built.kill()
    Volume.destroy(volume.volume_id)
    Secret.destroy(secret.secret_id)


def count_without_server(server: Server, sandbox: Sandbox) -> int:
    """The counter in a sandbox, read by its process in the host."""
    pid = volatile.record(server.data_dir / "run" / sandbox.sandbox_id / "jail.json")["pid"]
    return int(Path(f"/proc/{pid}/root/tmp/count").read_text() or 0)
