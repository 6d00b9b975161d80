"""The state after a start command: sandboxes of a template continue from it, with memory, as often as they are created. CRIU is fetched by
`packaging/criu/fetch`.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from e2b import Volume, wait_for_port
from test_park import CRIU

from builds import Builds
from harness import volatile
from harness.server import wait_until

pytestmark = pytest.mark.skipif(not (CRIU / "bin/criu").exists(), reason="CRIU is not there: packaging/criu/fetch fetches it")

# Says the same random text for as long as it lives, and how often it was asked.
SERVICE = """
import http.server, secrets
TOKEN, asked = secrets.token_hex(8), 0
class Service(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global asked
        asked += 1
        self.send_response(200); self.end_headers(); self.wfile.write(f"{TOKEN} {asked}".encode())
http.server.HTTPServer(("", 8123), Service).serve_forever()
"""
START = "date +%N >> /srv/runs; exec python3 /srv/service.py"


@pytest.fixture(scope="module")
def builds(server):
    server.stop()
    server.variables |= {"SANDCOVE_CRIU": str(CRIU)}
    server.start()
    builds = Builds(server)
    yield builds
    builds.clear()
    server.stop()
    server.variables.pop("SANDCOVE_CRIU")
    server.start()


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    directory = tmp_path_factory.mktemp("context")
    (directory / "service.py").write_text(SERVICE)
    return directory


def described(builds, context, start=START):
    template = builds.base(context).copy("service.py", "/srv/service.py").run_cmd("chown -R user /srv", user="root")
    return template.set_start_cmd(start, wait_for_port(8123))


@pytest.fixture(scope="module")
def built(builds, context):
    return builds.build(described(builds, context))


def said(box) -> tuple[str, int]:
    """The text of the service in a sandbox, and how often it was asked."""
    text, asked = box.commands.run("curl -s http://localhost:8123/").stdout.split()
    return text, int(asked)


def collect(builds) -> None:
    """Deletes what no build has, once no build is in progress."""
    wait_until(lambda: builds.call("POST", "/templates/gc", {"dryRun": False}).status_code == 200, what="a deletion by hand")


def memories(server) -> list[str]:
    return sorted(name for name in os.listdir(server.data_dir / "pool/snapshot-memory") if name.startswith("t-"))


def pooled(server) -> int:
    return len(pids(server))


def pids(server) -> list[int]:
    """First processes of pooled sandboxes that were restored: others have no record before a client has them."""
    records = [volatile.record(path) for path in volatile.matching(server.data_dir, "run/spare*/jail.json")]
    return [record["pid"] for record in records if record]


def test_every_sandbox_continues_from_the_same_state(builds, built, server):
    assert "[finalize] Memory of the start command kept" in built.text
    # Those of the pool, and those that are made because it has no more.
    with ThreadPoolExecutor(6) as threads:
        boxes = list(threads.map(lambda _: builds.box(built), range(6)))
    texts = {said(box)[0] for box in boxes}
    assert len(texts) == 1
    assert [said(box)[1] for box in boxes] == [2] * 6
    # It ran once, when the template was built.
    assert {box.commands.run("wc -l < /srv/runs").stdout for box in boxes} == {"1\n"}
    # And they are sandboxes of their own.
    assert [box.commands.run("echo $E2B_SANDBOX_ID; cat /run/e2b/.E2B_SANDBOX_ID").stdout.split() for box in boxes] == [[box.sandbox_id] * 2 for box in boxes]
    assert len({box.commands.run("cat /proc/sys/kernel/random/uuid").stdout for box in boxes}) == 6
    boxes[0].commands.run("echo own > /srv/own")
    assert all(box.commands.run("ls /srv").stdout == "runs\nservice.py\n" for box in boxes[1:])
    boxes[1].pause()
    boxes[1].connect(timeout=1800)
    assert said(boxes[1]) == (texts.pop(), 3)
    for box in boxes:
        box.kill()


def test_it_outlives_the_server(builds, built, server):
    text, _ = said(builds.box(built))
    wait_until(lambda: pooled(server) > 0, what="a pooled sandbox")
    processes = pids(server)
    server.kill9()
    server.start()
    # Those of the pool are no client's, and end with their server.
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in processes), what="the pooled sandboxes are gone")
    assert said(builds.box(built)) == (text, 1)
    # The pool has sandboxes in this state, too.
    wait_until(lambda: pooled(server) > 0, what="a pooled sandbox")
    assert said(builds.box(built)) == (text, 1)
    assert len(memories(server)) == 1


def test_builds_of_the_same_share_it_and_the_last_one_takes_it_along(builds, context, server):
    before = set(memories(server))
    name = builds.name()
    template = described(builds, context, f"echo shared; {START}")
    first = builds.build(template, name)
    (state,) = set(memories(server)) - before
    again = builds.build(template, name)
    assert "CACHED [finalize] Template is ready" in again.lines()
    assert set(memories(server)) - before == {state}
    assert said(builds.box(f"{first.template_id}:{first.build_id}"))[0] == said(builds.box(again))[0]
    for box in builds._boxes:
        box.kill()
    assert builds.delete(name).status_code == 204
    collect(builds)
    assert set(memories(server)) == before
    assert not (server.data_dir / "pool/snapshots" / state).exists()


def test_nothing_is_left_of_a_state_that_no_build_has(builds, context, server, tmp_path):
    before = set(memories(server))
    crash_file = tmp_path / "point"
    crash_file.write_text("")
    server.stop()
    server.variables["SANDCOVE_CRASH_FILE"] = str(crash_file)
    server.start()
    try:
        name = builds.name()
        crash_file.write_text("build.started")
        info = builds.start(described(builds, context, f"echo dies; {START}"), name)
        wait_until(lambda: server.process.poll() is not None, what="death between the snapshot and its row")
        assert len(set(memories(server)) - before) == 1
        crash_file.write_text("")
        server.start()
        # The build begins again, and has the state that it has taken itself.
        assert builds.ended(info).status.value == "ready"
        assert len(set(memories(server)) - before) == 1
        # A build that is taken back meanwhile has none: the server goes on, and deletes it with other garbage.
        crash_file.write_text("wait build.started")
        taken_back = builds.start(described(builds, context, f"echo taken back; {START}"))
        wait_until(lambda: crash_file.read_text() == "there", what="arrival between the snapshot and its row")
        assert len(set(memories(server)) - before) == 2
        assert builds.delete(taken_back.template_id).status_code == 204
        crash_file.write_text("")
        collect(builds)
        assert len(set(memories(server)) - before) == 1
        assert builds.delete(name).status_code == 204
        collect(builds)
        assert set(memories(server)) == before
    finally:
        crash_file.write_text("")
        server.stop()
        server.variables.pop("SANDCOVE_CRASH_FILE")
        server.start()


def test_where_it_does_not_fit_the_start_command_runs(builds, built, server):
    text, _ = said(builds.box(built))
    volume = Volume.create(f"v-{built.build_id[:8]}")
    box = builds.box(built, volume_mounts={"/mnt/data": volume})
    assert said(box)[0] != text
    box.kill()
    Volume.destroy(volume.volume_id)
    # Memory that is damaged is not used either.
    (state,) = memories(server)
    pages = next((server.data_dir / "pool/snapshot-memory" / state).glob("pages-*.img"))
    server.stop()
    whole = pages.read_bytes()
    pages.write_bytes(whole[:-4096] + bytes(4096))
    server.start()
    box = builds.box(built)
    assert said(box)[0] != text and box.commands.run("wc -l < /srv/runs").stdout == "1\n"


def test_what_cannot_be_stored_is_named_and_the_template_works(builds, context):
    watching = "python3 -c 'import ctypes, time; c = ctypes.CDLL(None); c.inotify_add_watch(c.inotify_init(), b\"/srv\", 2); time.sleep(1e6)' & "
    built = builds.build(described(builds, context, f"{watching} sleep 1; {START}"))
    assert "memory of the start command cannot be kept, each sandbox runs it: " in built.text and "inotify" in built.text
    one, other = builds.box(built), builds.box(built)
    assert said(one)[0] != said(other)[0]
