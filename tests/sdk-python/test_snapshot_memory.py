"""Snapshots and forks with memory: processes go on in other sandboxes where they were, each with an identity and random numbers of its own,
beside the sandbox that they are from. CRIU is fetched by `packaging/criu/fetch`."""

import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from e2b import Sandbox, Volume
from e2b_code_interpreter import Sandbox as CodeInterpreter

from durability import clear, crash_file, pause_state, running  # noqa: F401
from harness.server import API_KEY, host_resources, snapshot_files, wait_until
from test_crashes import dies
from test_park import CRIU, EXPECTED, GO_ON, START, logs

pytestmark = pytest.mark.skipif(not (CRIU / "bin/criu").exists(), reason="CRIU is not there: packaging/criu/fetch fetches it")
HEADERS = {"X-API-KEY": API_KEY}


@pytest.fixture(scope="module", autouse=True)
def with_criu(server):
    clear(server)
    server.stop()
    server.variables |= {"SANDCOVE_CRIU": str(CRIU), "SANDCOVE_PARK_AFTER": "never"}
    server.start()
    yield
    clear(server)
    server.stop()
    for name in ("SANDCOVE_CRIU", "SANDCOVE_PARK_AFTER"):
        server.variables.pop(name)
    server.start()


@pytest.fixture(autouse=True)
def nothing_is_left(server):
    """All sandboxes and snapshots are removed in the end, and then nothing is left of them."""
    yield
    clear(server)
    wait_until(lambda: memories(server) == [], what="the memory of snapshots is gone")
    wait_until(lambda: snapshot_files(server.data_dir) == [], what="the files of snapshots are gone")
    wait_until(lambda: host_resources(server.data_dir)["uppers"] == set(), what="the files of sandboxes are gone")


def memories(server):
    return os.listdir(server.data_dir / "pool/snapshot-memory")


def kept_memory(server, sandbox):
    """The memory of the newest snapshot of a sandbox, as the list says."""
    snapshots = requests.get(f"{server.url}/snapshots?sandboxID={sandbox.sandbox_id}", headers=HEADERS).json()
    return snapshots[0].get("keptMemory")


def ticking():
    """One with a process that counts."""
    sandbox = running()
    sandbox.commands.run("i=0; while true; do i=$((i+1)); echo $i > ticks; sleep 0.05; done", background=True, timeout=0)
    wait_until(lambda: sandbox.files.exists("ticks") and ticks(sandbox) > 3, what="the first ticks")
    return sandbox


def ticks(sandbox):
    return int(sandbox.files.read("ticks") or 0)


def ticks_on(sandbox, past):
    """Whether the counter goes on from `past`: it neither stands still nor began anew."""
    wait_until(lambda: ticks(sandbox) > past, what="the counter goes on")
    return True


def is_ticking(sandbox):
    return any("sleep 0.05" in " ".join(process.args) for process in sandbox.commands.list())


def test_a_snapshot_with_memory_is_used_again_and_again_beside_its_sandbox(server):
    sandbox = CodeInterpreter.create(timeout=1800)
    assert not sandbox.run_code(START).error
    ticker = sandbox.commands.run("i=0; while true; do i=$((i+1)); echo $i > ticks; sleep 0.05; done", background=True, timeout=0)
    wait_until(lambda: sandbox.files.exists("ticks") and ticks(sandbox) > 0, what="the first tick")
    before = ticks(sandbox)
    snapshot = sandbox.create_snapshot().snapshot_id
    memory = kept_memory(server, sandbox)
    assert memory["place"] == "disk" and memory["bytes"] > 1 << 20
    assert any("snapshot taken, with" in text and "MiB of memory" in text for text in logs(server, sandbox))
    # It goes on, with all that it has.
    execution = sandbox.run_code(GO_ON)
    assert (execution.error, execution.text) == (None, EXPECTED)
    assert ticks_on(sandbox, before)
    copies = [CodeInterpreter.create(snapshot, timeout=1800) for _ in range(2)]
    for copy in copies:
        execution = copy.run_code(GO_ON)
        assert not execution.error, execution.error
        assert execution.text == EXPECTED
        assert ticker.pid in [process.pid for process in copy.commands.list()]
        assert ticks_on(copy, before)
        # What a new context takes is there, too.
        assert copy.run_code("6 * 7", context=copy.create_code_context()).text == "42"
    # They share nothing: what one does, the others do not see.
    copies[0].run_code("counter = 1000")
    assert [one.run_code("counter").text for one in (*copies, sandbox)] == ["1000", "42", "42"]


def test_a_sandbox_of_a_snapshot_is_another_sandbox(server):
    sandbox = CodeInterpreter.create(timeout=1800, envs={"MINE": "source", "GONE": "1"}, metadata={"of": "source"})
    assert sandbox.run_code("import os; os.environ['MINE'], os.environ['E2B_SANDBOX_ID']").text == f"('source', '{sandbox.sandbox_id}')"
    snapshot = sandbox.create_snapshot().snapshot_id
    copy = CodeInterpreter.create(snapshot, timeout=1800, envs={"MINE": "copy"}, metadata={"of": "copy"})
    assert copy.sandbox_id != sandbox.sandbox_id
    # The restored agent takes the new token, and refuses that of the sandbox that it was.
    tokens = [one._envd_access_token for one in (sandbox, copy)]
    assert len(set(tokens)) == 2
    url = f"{server.url}/files?path=/run/e2b/.E2B_SANDBOX_ID&username=root"
    routed = {"E2b-Sandbox-Id": copy.sandbox_id, "E2b-Sandbox-Port": "49983"}
    answers = [requests.get(url, headers=routed | {"X-Access-Token": token}) for token in tokens]
    assert [answer.status_code for answer in answers] == [401, 200]
    assert answers[1].text == copy.sandbox_id
    variables = "echo $E2B_SANDBOX_ID $E2B_TEMPLATE_ID $MINE ${GONE-none}; cat /run/e2b/.E2B_TEMPLATE_ID"
    template = snapshot.split(":")[0]
    assert copy.commands.run(variables).stdout == f"{copy.sandbox_id} {template} copy none\n{template}"
    assert copy.commands.run("curl -s http://events.e2b.local/me").stdout == f'{{"sandboxID":"{copy.sandbox_id}"}}'
    inside = copy.run_code("os.environ['MINE'], os.environ['E2B_SANDBOX_ID'], os.environ.get('GONE')")
    assert inside.text == f"('copy', '{copy.sandbox_id}', None)"
    # An address of its own, the network of its own, and the time of now.
    address = "ip -4 -o addr show eth0 | awk '{print $4}'"
    assert copy.commands.run(address).stdout != sandbox.commands.run(address).stdout
    assert abs(int(copy.commands.run("date +%s").stdout) - int(sandbox.commands.run("date +%s").stdout)) < 60
    assert copy.get_info().metadata == {"of": "copy"}
    assert sandbox.run_code("os.environ['MINE'], os.environ['E2B_SANDBOX_ID']").text == f"('source', '{sandbox.sandbox_id}')"
    # It lives on as any other: paused and connected, then a snapshot of its own.
    assert not copy.run_code("grown = 'here'").error
    copy.pause()
    copy.connect(timeout=1800)
    second = CodeInterpreter.create(copy.create_snapshot().snapshot_id, timeout=1800)
    assert second.run_code("grown").text == "here"
    assert second.commands.run("echo $MINE $E2B_SANDBOX_ID").stdout == f"{second.sandbox_id}\n"


RANDOM = """
import os, random, secrets, uuid, numpy
(random.random(), numpy.random.rand(), str(uuid.uuid4()), os.urandom(16).hex(), secrets.token_hex(8))
"""


@pytest.mark.parametrize("has_run", [True, False], ids=["used kernel", "unused kernel"])
def test_ten_forks_have_memory_and_ten_different_random_numbers(server, has_run):
    sandbox = CodeInterpreter.create(timeout=1800)
    if has_run:
        assert not sandbox.run_code("counter = 41").error
        assert not sandbox.run_code(RANDOM).error
    sandbox.files.write("index.html", "the same process")
    sandbox.commands.run("python3 -m http.server 8000", background=True, timeout=0)
    sandbox.commands.run("i=0; while true; do i=$((i+1)); echo $i > ticks; sleep 0.05; done", background=True, timeout=0)
    wait_until(lambda: requests.get(server.url, headers=to(sandbox, 8000)).ok, what="the server inside")
    wait_until(lambda: sandbox.files.exists("ticks") and ticks(sandbox) > 3, what="the first ticks")
    before = ticks(sandbox)
    forks = [one for one in Sandbox.fork(sandbox.sandbox_id, count=10, timeout=1800)]
    assert len({fork.sandbox_id for fork in forks} | {sandbox.sandbox_id}) == 11
    everyone = [CodeInterpreter.connect(fork.sandbox_id, timeout=1800) for fork in forks] + [sandbox]
    assert len({one._envd_access_token for one in everyone}) == 11
    for fork in everyone:
        assert requests.get(server.url, headers=to(fork, 8000)).text == "the same process"
        assert ticks_on(fork, before)
        if has_run:
            assert fork.run_code("counter").text == "41"
    numbers = [re.findall(r"[\w.-]+", fork.run_code(RANDOM).text) for fork in everyone]
    for kind in zip(*numbers, strict=True):
        assert len(set(kind)) == 11, kind
    assert not any("cannot be restored" in text for fork in forks for text in logs(server, fork))
    wait_until(lambda: memories(server) == [], what="the memory that the forks are from is gone")


def to(sandbox, port):
    return {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(port)}


TERMINAL = """
import os, pty, time
master, slave = pty.openpty()
os.write(slave, b"one\\ntwo\\n")
open("written", "w").close()
while not os.path.exists("asked"):
    time.sleep(0.05)
open("new", "w").write(repr(os.read(master, 99)))
os.rename("new", "read")
time.sleep(9999)
"""


def test_output_of_a_terminal_that_nobody_has_read_stays_as_it_was(server):
    """CRIU reads it, and writes it again to the terminal of the sandbox that goes on, which added a carriage return to each line."""
    sandbox = Sandbox.create(timeout=1800)
    sandbox.files.write("terminal.py", TERMINAL)
    sandbox.commands.run("python3 terminal.py", background=True, timeout=0)
    wait_until(lambda: sandbox.files.exists("written"), what="the output")
    (fork,) = Sandbox.fork(sandbox.sandbox_id, count=1, timeout=1800)
    fork = Sandbox.connect(fork.sandbox_id, timeout=1800)
    for one in (fork, sandbox):
        one.files.write("asked", "")
        wait_until(lambda one=one: one.files.exists("read"), what="what was read")
        assert one.files.read("read") == repr(b"one\r\ntwo\r\n")


def test_files_only_is_honoured(server):
    sandbox = ticking()
    answer = requests.post(f"{server.url}/sandboxes/{sandbox.sandbox_id}/snapshots", headers=HEADERS, json={"memory": False})
    assert answer.status_code == 201 and "keptMemory" not in answer.json()
    assert memories(server) == []
    copy = Sandbox.create(answer.json()["snapshotID"], timeout=1800)
    assert copy.files.read("kept") == sandbox.sandbox_id
    assert not is_ticking(copy) and is_ticking(sandbox)
    assert Sandbox.delete_snapshot(answer.json()["snapshotID"])


def test_what_cannot_be_stored_goes_on_and_the_snapshot_has_its_files_and_says_why(server):
    sandbox = ticking()
    sandbox.commands.run("ipcmk --semaphore 1", timeout=60)
    snapshot = sandbox.create_snapshot().snapshot_id
    assert kept_memory(server, sandbox) is None and memories(server) == []
    assert any("memory cannot be stored on disk" in text and "semaphores of System V" in text for text in logs(server, sandbox))
    assert ticks_on(sandbox, ticks(sandbox))
    events = requests.get(f"{server.url}/events/sandboxes/{sandbox.sandbox_id}", headers=HEADERS).json()
    assert [event["eventData"]["snapshot_mode"] for event in events if event["eventLabel"] == "checkpoint"] == ["filesystem"]
    copy = Sandbox.create(snapshot, timeout=1800)
    assert copy.files.read("kept") == sandbox.sandbox_id and not is_ticking(copy)
    # Without the semaphores, it can be.
    sandbox.commands.run("ipcrm --all=sem", timeout=60)
    copy = Sandbox.create(sandbox.create_snapshot().snapshot_id, timeout=1800)
    assert is_ticking(copy)


def test_memory_that_does_not_fit_is_not_restored_and_the_files_are(server):
    sandbox = ticking()
    snapshot = sandbox.create_snapshot().snapshot_id
    # With volumes that its processes do not have mounted.
    volume = Volume.create(f"memory-{os.getpid()}")
    copy = Sandbox.create(snapshot, timeout=1800, volume_mounts={"/data": volume})
    assert copy.files.read("kept") == sandbox.sandbox_id and not is_ticking(copy)
    assert any("cannot be restored" in text and "other volumes" in text for text in logs(server, copy))
    copy.kill()
    Volume.destroy(volume.volume_id)
    # Changed by somebody else: a server looks at it before the first restore.
    server.stop()
    pages = next((server.data_dir / "pool/snapshot-memory" / memories(server)[0]).glob("pages-*.img"))
    content = pages.read_bytes()
    pages.write_bytes(b"damage" + content[6:])
    server.start()
    copy = Sandbox.create(snapshot, timeout=1800)
    assert copy.files.read("kept") == sandbox.sandbox_id and not is_ticking(copy)
    assert any("cannot be restored" in text and "damaged" in text for text in logs(server, copy))
    events = requests.get(f"{server.url}/events/sandboxes/{copy.sandbox_id}?orderAsc=true", headers=HEADERS).json()
    assert [event["eventLabel"] for event in events] == ["create", "update"]
    assert events[1]["eventData"]["start_mode"] == "filesystem"
    pages.write_bytes(content)
    # Whole again: it survives a restart of the server, and its sandbox.
    sandbox.kill()
    server.stop()
    server.start()
    assert is_ticking(Sandbox.create(snapshot, timeout=1800))


def test_a_volume_is_there_in_a_fork(server):
    volume = Volume.create(f"forked-{os.getpid()}")
    sandbox = Sandbox.create(timeout=1800, volume_mounts={"/data": volume})
    writer = sandbox.commands.run("exec 3>>/data/open; while true; do echo $E2B_SANDBOX_ID >&3; sleep 0.1; done", background=True, timeout=0)
    wait_until(lambda: sandbox.files.exists("/data/open"), what="the file on the volume")
    fork = Sandbox.fork(sandbox.sandbox_id, timeout=1800)[0]
    assert writer.pid in [process.pid for process in fork.commands.list()]
    sandbox.kill()
    size = fork.files.get_info("/data/open").size
    wait_until(lambda: fork.files.get_info("/data/open").size > size, what="the file grows")
    fork.kill()
    Volume.destroy(volume.volume_id)


def test_requests_that_come_meanwhile_are_answered(server):
    sandbox = Sandbox.create(timeout=1800)
    sandbox.files.write("index.html", "answered")
    sandbox.commands.run("python3 -m http.server 8000", background=True, timeout=0)
    wait_until(lambda: requests.get(server.url, headers=to(sandbox, 8000)).ok, what="the server inside")
    with ThreadPoolExecutor(4) as pool:
        snapshots = pool.submit(lambda: [sandbox.create_snapshot().snapshot_id for _ in range(3)])
        answers = set()
        while not snapshots.done():
            answers |= {one.text for one in pool.map(lambda _: requests.get(server.url, headers=to(sandbox, 8000)), range(3))}
        assert snapshots.result() and answers == {"answered"}
    copies = [Sandbox.create(snapshot, timeout=1800) for snapshot in snapshots.result()]
    for copy in copies:
        assert requests.get(server.url, headers=to(copy, 8000)).text == "answered"


def fork(sandbox):
    """Forks a sandbox. A server whose host process is gone may still answer before it ends, with the error of each fork."""
    (outcome,) = Sandbox.fork(sandbox.sandbox_id)
    if isinstance(outcome, Exception):
        raise outcome


# Where the server dies, and what is asked for.
POINTS = [
    ("snapshot.frozen", Sandbox.create_snapshot),
    ("snapshot.dumped", Sandbox.create_snapshot),
    ("snapshot.taken", Sandbox.create_snapshot),
    ("snapshot.written", Sandbox.create_snapshot),
    ("snapshot.published", Sandbox.create_snapshot),
    ("snapshot.recorded", Sandbox.create_snapshot),
    ("snapshot.written", fork),
    ("snapshot.published", fork),
    ("restore.restored", fork),
    ("restore.recorded", fork),
    ("restore.runs", fork),
    ("create.launched", fork),
]


@pytest.mark.parametrize("point, act", POINTS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_server_dies_and_nothing_is_left_but_what_was_there(server, crash_file, point, act):
    sandbox = ticking()
    before = ticks(sandbox)
    assert not dies(server, crash_file, point, act, sandbox)
    crash_file.write_text("")
    server.start()
    assert pause_state(server, sandbox) == "running"
    assert is_ticking(sandbox) and ticks_on(sandbox, before)
    assert [one["sandboxID"] for one in requests.get(f"{server.url}/v2/sandboxes", headers=HEADERS).json()] == [sandbox.sandbox_id]
    taken = Sandbox.list_snapshots(sandbox_id=sandbox.sandbox_id).next_items()
    assert len(taken) == (point == "snapshot.recorded")
    assert len(memories(server)) == len(taken)
    for one in taken:
        copy = Sandbox.create(one.snapshot_id, timeout=1800)
        assert is_ticking(copy) and ticks_on(copy, before)
        assert Sandbox.delete_snapshot(one.snapshot_id)
    # And it works.
    copy = Sandbox.fork(sandbox.sandbox_id, timeout=1800)[0]
    assert is_ticking(copy) and ticks_on(copy, before)
