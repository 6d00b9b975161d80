"""Parking: the memory of a paused sandbox goes to disk, its processes end, and a connect goes on where it was, over a stop of the server
too. CRIU is fetched by `packaging/criu/fetch`."""

import array
import fcntl
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from e2b import Sandbox, Volume
from e2b_code_interpreter import Sandbox as CodeInterpreter

from durability import clear, crash_file, fill, pause_state, running, told  # noqa: F401
from harness.server import API_KEY, host_resources, wait_until
from harness.teams import Team
from test_crashes import dies

NS_GET_OWNER_UID = 0xB704
CRIU = Path(os.environ.get("SANDCOVE_TEST_CRIU", "/usr/local/lib/sandcove-criu"))
pytestmark = pytest.mark.skipif(not (CRIU / "bin/criu").exists(), reason="CRIU is not there: packaging/criu/fetch fetches it")


@pytest.fixture(scope="module", autouse=True)
def parking(server):
    """The server parks what is paused at once."""
    clear(server)
    server.stop()
    server.variables |= {"SANDCOVE_CRIU": str(CRIU), "SANDCOVE_PARK_AFTER": "0"}
    server.start()
    yield
    server.stop()
    for name in ("SANDCOVE_CRIU", "SANDCOVE_PARK_AFTER"):
        server.variables.pop(name)
    server.start()


def detail(server, sandbox):
    return requests.get(f"{server.url}/sandboxes/{sandbox.sandbox_id}", headers={"X-API-KEY": API_KEY}).json()


def logs(server, sandbox):
    url = f"{server.url}/v2/sandboxes/{sandbox.sandbox_id}/logs"
    return [entry["message"] for entry in requests.get(url, headers={"X-API-KEY": API_KEY}).json()["logs"]]


def processes(server, sandbox):
    """Whether the sandbox has processes."""
    return (server.data_dir / "run" / sandbox.sandbox_id / "jail.json").exists()


def park(server, sandbox):
    """Pauses a sandbox and waits until its processes are gone."""
    sandbox.pause()
    wait_until(lambda: not processes(server, sandbox), what="the end of the processes")
    assert (server.data_dir / "pool/parked" / sandbox.sandbox_id / "manifest.json").exists()
    assert pause_state(server, sandbox) == "full"


START = """
import os, socket, subprocess, random, numpy
counter = 41
listener = socket.create_server(("127.0.0.1", 5000))
client = socket.create_connection(("127.0.0.1", 5000))
peer, _ = listener.accept()
client.sendall(b"on its way")
file = open("/home/user/open", "w+")
file.write("unwritten ")
array = numpy.arange(1_000_000)
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
"""
GO_ON = """
counter += 1
received = peer.recv(99)
client.sendall(b"after")
file.write("and written"); file.flush()
child.stdin.write(b"echo"); child.stdin.flush()
(counter, received, peer.recv(99), open("/home/user/open").read(), int(array.sum()), os.read(child.stdout.fileno(), 9))
"""
EXPECTED = "(42, b'on its way', b'after', 'unwritten and written', 499999500000, b'echo')"


def test_memory_survives_a_stop_of_the_server_and_the_end_of_all_processes(server):
    sandbox = CodeInterpreter.create(timeout=1800)
    assert not sandbox.run_code(START).error
    ticker = sandbox.commands.run("i=0; while true; do i=$((i+1)); echo $i > ticks; sleep 0.05; done", background=True, timeout=0)
    wait_until(lambda: sandbox.files.exists("ticks"), what="the first tick")
    park(server, sandbox)
    before = int(Path(server.data_dir / "pool/sandboxes" / sandbox.sandbox_id / "upper/home/user/ticks").read_text() or 0)
    server.stop()
    wait_until(lambda: not host_resources(server.data_dir)["processes"], what="the end of all processes")
    server.start()
    assert pause_state(server, sandbox) == "full"
    sandbox = CodeInterpreter.connect(sandbox.sandbox_id, timeout=1800)
    execution = sandbox.run_code(GO_ON)
    assert not execution.error, execution.error
    assert execution.text == EXPECTED
    assert ticker.pid in [process.pid for process in sandbox.commands.list()]
    wait_until(lambda: int(sandbox.files.read("ticks") or before) > before, what="the process that goes on")
    # Its own network, control groups and user namespace, those of a new slot.
    record = json.loads((server.data_dir / "run" / sandbox.sandbox_id / "jail.json").read_text())
    with open(f"/proc/{record['pid']}/ns/user") as namespace:
        owner = array.array("I", [0])
        fcntl.ioctl(namespace.fileno(), NS_GET_OWNER_UID, owner)
    assert owner[0] == os.stat(f"/proc/{record['pid']}").st_uid >= 1_000_000_000
    assert sandbox.commands.run("cat /proc/self/cgroup").stdout.count(":/\n") >= 1
    assert sorted(sandbox.commands.run("ls /sys/class/net").stdout.split()) == ["eth0", "lo"]
    assert not list((server.data_dir / "pool/parked").glob(f"{sandbox.sandbox_id}*"))
    # All of it once more.
    sandbox.run_code("counter = 41; client.sendall(b'on its way'); file.seek(0); file.truncate(); file.write('unwritten ')")
    park(server, sandbox)
    sandbox = CodeInterpreter.connect(sandbox.sandbox_id, timeout=1800)
    execution = sandbox.run_code(GO_ON)
    assert (execution.error, execution.text) == (None, EXPECTED)
    # What a new context takes is there, too.
    context = sandbox.create_code_context()
    assert sandbox.run_code("6 * 7", context=context).text == "42"
    sandbox.kill()
    wait_until(lambda: not (server.data_dir / "run" / sandbox.sandbox_id).exists(), what="the end of the sandbox")


def frozen_with_a_process():
    """One with a process to know its memory by."""
    sandbox = running()
    sandbox.commands.run("sleep infinity", background=True, timeout=0)
    return sandbox


def stored_in_memory(server):
    """One whose memory is on disk."""
    sandbox = frozen_with_a_process()
    park(server, sandbox)
    return sandbox


def is_whole_and_ends(server, sandbox):
    """Goes on with a sandbox, and kills it: nothing is lost, and nothing stays."""
    sandbox.connect(timeout=1800)
    assert goes_on(sandbox)
    assert sandbox.files.read("kept") == sandbox.sandbox_id
    Sandbox.kill(sandbox.sandbox_id)
    wait_until(lambda: host_resources(server.data_dir)["uppers"] == set(), what="its files are gone")
    wait_until(lambda: os.listdir(server.data_dir / "pool/parked") == [], what="its memory is gone")


def goes_on(sandbox) -> bool:
    return any(process.cmd.endswith("bash") and "sleep infinity" in process.args for process in sandbox.commands.list())


def connect(sandbox):
    sandbox.connect(timeout=1800)


# Where the server dies, whether the memory is on disk by then, and what the sandbox is afterwards.
POINTS = [
    ("park.dumped", False, "full"),
    ("park.written", False, "full"),
    ("park.published", False, "full"),
    ("park.recorded", False, "full"),
    ("park.ended", False, "full"),
    ("restore.restored", True, "full"),
    ("restore.recorded", True, "full"),
    ("restore.runs", True, "full"),
    ("resume.recorded", True, "running"),
]


@pytest.mark.parametrize("point, is_parked, after", POINTS)
def test_the_server_dies_and_no_memory_is_lost(server, crash_file, point, is_parked, after):
    if is_parked:
        sandbox = stored_in_memory(server)
        assert not dies(server, crash_file, point, connect, sandbox)
    else:
        sandbox = frozen_with_a_process()
        crash_file.write_text(point)
        # Answered at once; the server dies of what it does in the background.
        sandbox.pause()
        wait_until(lambda: server.process.poll() is not None, what=f"death at {point}")
    crash_file.write_text("")
    server.variables["SANDCOVE_PARK_AFTER"] = "never"
    server.start()
    assert pause_state(server, sandbox) == after
    assert told(server, sandbox) == ("running" if after == "running" else "paused")
    is_whole_and_ends(server, sandbox)
    server.stop()
    server.variables["SANDCOVE_PARK_AFTER"] = "0"
    server.start()


# Each takes a while to fill the disk, so those are left out at which nothing is written any more.
@pytest.mark.parametrize(
    "point, is_parked", [("park.dumped", False), ("park.written", False), ("park.published", False), ("restore.restored", True)]
)
def test_the_disk_is_full_and_no_memory_is_lost(server, crash_file, point, is_parked):
    sandbox = stored_in_memory(server) if is_parked else frozen_with_a_process()
    filler = server.data_dir / "pool/filler"
    crash_file.write_text(f"wait {point}")
    with ThreadPoolExecutor() as pool:
        # A pause is answered at once, and the memory stored in the background.
        answer = pool.submit(connect if is_parked else Sandbox.pause, sandbox)
        try:
            wait_until(lambda: crash_file.read_text() == "there", what=f"arrival at {point}")
            fill(filler)
            crash_file.write_text("")
            # An error is right, and so is success.
            answer.exception(timeout=120)
            wait_until(lambda: detail(server, sandbox)["state"] == ("paused" if answer.exception() or not is_parked else "running"),
                       what="a state that stays")  # fmt: skip
        finally:
            crash_file.write_text("")
            filler.unlink(missing_ok=True)
    is_whole_and_ends(server, sandbox)


def test_what_cannot_be_stored_stays_frozen_and_says_why(server):
    sandbox = frozen_with_a_process()
    stopped = sandbox.commands.run("sleep infinity & kill -STOP $!; echo $! > stopped; wait", background=True, timeout=0)
    wait_until(lambda: sandbox.files.exists("stopped") and sandbox.files.read("stopped"), what="the number of the process")
    wait_until(lambda: "T" in sandbox.commands.run("ps -o stat= -p $(cat stopped)").stdout, what="a stopped process")
    sandbox.pause()
    wait_until(lambda: any("is stopped" in text for text in logs(server, sandbox)), what="the refusal")
    assert processes(server, sandbox)
    answer = requests.post(f"{server.url}/sandboxes/{sandbox.sandbox_id}/park", headers={"X-API-KEY": API_KEY})
    assert answer.status_code == 409 and "is stopped" in answer.json()["message"]
    assert detail(server, sandbox)["keptMemory"]["place"] == "host"
    sandbox.connect(timeout=1800)
    assert goes_on(sandbox) and stopped.pid in [process.pid for process in sandbox.commands.list()]
    sandbox.kill()


# Sends a descriptor to itself, and receives it when it was frozen for a while.
RECEIVES_LATER = """
import os, socket, time
sender, receiver = socket.socketpair()
socket.send_fds(sender, [b"x"], [os.open("kept", os.O_RDONLY)])
open("sent", "w").write("yes")
before = time.monotonic()
while time.monotonic() - before < 0.5:
    before = time.monotonic()
    time.sleep(0.005)
_, [received], _, _ = socket.recv_fds(receiver, 1, 1)
open("received", "w").write(os.read(received, 99).decode())
time.sleep(1e9)
"""
# Sends one that it never receives, and counts.
NEVER_RECEIVES = """
import os, socket, time
sender, receiver = socket.socketpair()
socket.send_fds(sender, [b"x"], [0])
file = open("count", "w")
while True:
    file.write("x"); file.flush()
    time.sleep(0.001)
"""


def test_processes_in_the_middle_of_something_go_on_until_they_can_be_stored(server, crash_file):
    """A browser was not parked when a descriptor was on its way between two of its processes."""
    sandbox = frozen_with_a_process()
    sandbox.files.write("program.py", RECEIVES_LATER)
    sandbox.commands.run("python3 program.py", background=True, timeout=0)
    wait_until(lambda: sandbox.files.exists("sent"), what="the descriptor on its way")
    crash_file.write_text("wait pause.frozen")
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(sandbox.pause)
        try:
            wait_until(lambda: crash_file.read_text() == "there", what="frozen processes")
            time.sleep(1)
        finally:
            crash_file.write_text("")
        answer.result(timeout=120)
    wait_until(lambda: not processes(server, sandbox), what="the end of the processes")
    assert detail(server, sandbox)["keptMemory"]["place"] == "disk"
    sandbox.connect(timeout=1800)
    assert sandbox.files.read("received") == sandbox.sandbox_id
    is_whole_and_ends(server, sandbox)


def test_who_asks_again_and_again_gets_no_sandbox_that_runs_while_it_is_paused(server):
    sandbox = frozen_with_a_process()
    sandbox.files.write("program.py", NEVER_RECEIVES)
    sandbox.commands.run("python3 program.py", background=True, timeout=0)
    count = server.data_dir / "pool/sandboxes" / sandbox.sandbox_id / "upper/home/user/count"
    wait_until(lambda: count.exists() and count.stat().st_size, what="the first count")
    sandbox.pause()
    wait_until(lambda: any("not received" in text for text in logs(server, sandbox)), what="the refusal")
    before = count.stat().st_size
    for _ in range(3):
        answer = requests.post(f"{server.url}/sandboxes/{sandbox.sandbox_id}/park", headers={"X-API-KEY": API_KEY})
        assert answer.status_code == 409 and "not received" in answer.json()["message"]
    assert count.stat().st_size == before
    sandbox.connect(timeout=1800)
    assert goes_on(sandbox)
    wait_until(lambda: count.stat().st_size > before, what="the next count")
    sandbox.kill()


def test_memory_on_disk_has_a_limit_for_each_team(server):
    """One team filled the pool with the memory of its paused sandboxes."""
    team = Team(server.url, pausedDiskMb=100)
    root = server.data_dir / "pool/parked"

    def hold() -> Sandbox:
        sandbox = Sandbox.create(timeout=1800, api_key=team.key)
        held = "import os, time; data = os.urandom(60 << 20); open('held', 'w').write('60'); time.sleep(1e9)"
        sandbox.commands.run(f'python3 -c "{held}"', background=True, timeout=0)
        wait_until(lambda: sandbox.files.exists("held") and sandbox.files.read("held") == "60", what="60 MiB of memory")
        return sandbox

    def memory(sandbox) -> dict:
        return team.call("GET", f"/sandboxes/{sandbox.sandbox_id}").json()["keptMemory"]

    def size() -> int:
        return sum(file.stat().st_size for file in root.glob("*/*"))

    try:
        before = size()
        first, second = hold(), hold()
        first.pause()
        wait_until(lambda: memory(first)["place"] == "disk", what="the first one on disk")
        assert 60 << 20 <= memory(first)["bytes"] <= 100 << 20
        second.pause()

        def log() -> str:
            return team.call("GET", f"/v2/sandboxes/{second.sandbox_id}/logs").text

        wait_until(lambda: "may take 100 MiB of disk" in log(), what="the refusal")
        answer = team.call("POST", f"/sandboxes/{second.sandbox_id}/park")
        assert answer.status_code == 409 and "may take 100 MiB of disk (`pausedDiskMb`)" in answer.json()["message"]
        assert memory(second)["place"] == "host" and processes(server, second)
        assert size() - before <= 100 << 20 and not list(root.glob(f"{second.sandbox_id}*"))
        first.kill()
        # It is parked now without being asked.
        wait_until(lambda: memory(second)["place"] == "disk", what="the second one on disk")
        assert size() - before <= 100 << 20
        second.connect(timeout=1800)
        assert any("urandom" in argument for process in second.commands.list() for argument in process.args)
    finally:
        team.clear()


def test_memory_that_is_damaged_is_not_restored_and_the_files_are(server):
    sandbox = stored_in_memory(server)
    pages = next((server.data_dir / "pool/parked" / sandbox.sandbox_id).glob("pages-*.img"))
    with pages.open("r+b") as file:
        file.write(b"damage")
    sandbox.connect(timeout=1800)
    assert not goes_on(sandbox)
    assert sandbox.files.read("kept") == sandbox.sandbox_id
    assert any("cannot be restored" in text and "damaged" in text for text in logs(server, sandbox))
    url = f"{server.url}/events/sandboxes/{sandbox.sandbox_id}?orderAsc=true"
    events = requests.get(url, headers={"X-API-KEY": API_KEY}).json()
    assert [event["eventLabel"] for event in events] == ["create", "pause", "update", "resume"]
    assert events[2]["eventData"]["pause_mode"] == "filesystem"
    sandbox.kill()


# A digest of what the interpreter has loaded: most of it is memory that it shares with the warm process of its template.
LOADED = """
import hashlib, marshal, sys, types
def loaded():
    digest = hashlib.sha256()
    for name, module in sorted(sys.modules.items()):
        if not name.startswith(("numpy", "pandas")):
            continue
        for key, value in sorted(vars(module).items()):
            if isinstance(value, types.FunctionType):
                digest.update(marshal.dumps(value.__code__))
    return digest.hexdigest()
import pandas
"""


def test_memory_of_a_template_is_on_disk_once(server):
    def files(sandbox) -> dict[str, os.stat_result]:
        root = server.data_dir / "pool/parked" / sandbox.sandbox_id
        return {file.name: file.stat() for file in root.iterdir()}

    def own_bytes(sandbox) -> int:
        return sum(file.st_size for name, file in files(sandbox).items() if name != "pages-common.img")

    def check(sandbox) -> None:
        execution = sandbox.run_code("(counter, loaded() == before)")
        assert (execution.error, execution.text) == (None, f"({sandbox.counter}, True)")

    sandboxes = [CodeInterpreter.create(timeout=1800) for _ in range(2)]
    for counter, sandbox in enumerate(sandboxes):
        sandbox.counter = counter
        assert not sandbox.run_code(f"{LOADED}\ncounter, before = {counter}, loaded()").error
        park(server, sandbox)
    first, second = (files(sandbox)["pages-common.img"] for sandbox in sandboxes)
    assert first.st_ino == second.st_ino and first.st_size > 50 << 20
    for sandbox in sandboxes:
        assert own_bytes(sandbox) < 40 << 20
        assert detail(server, sandbox)["keptMemory"]["bytes"] == own_bytes(sandbox)
    # The warm process ends with the server. The next one has other memory, which these are not compared with.
    server.stop()
    server.start()
    for sandbox in sandboxes:
        sandbox.connect(timeout=1800)
        check(sandbox)
        park(server, sandbox)
        assert own_bytes(sandbox) < 40 << 20
    assert files(sandboxes[0])["pages-common.img"].st_ino == first.st_ino
    sandboxes[0].kill()
    # Whoever is left has it.
    sandboxes[1].connect(timeout=1800)
    check(sandboxes[1])
    sandboxes[1].kill()


@pytest.mark.parametrize("point", ["park.dumped", "park.published", "restore.restored", "restore.runs"])
def test_the_server_dies_and_memory_in_common_is_whole(server, crash_file, point):
    """What sandboxes have in common is deleted at each start, and what generations have of it stays."""
    sandbox = CodeInterpreter.create(timeout=1800)
    assert not sandbox.run_code(f"{LOADED}\nbefore = loaded()").error
    if point.startswith("restore"):
        park(server, sandbox)
        assert not dies(server, crash_file, point, connect, sandbox)
    else:
        crash_file.write_text(point)
        sandbox.pause()
        wait_until(lambda: server.process.poll() is not None, what=f"death at {point}")
    crash_file.write_text("")
    server.start()
    sandbox.connect(timeout=1800)
    execution = sandbox.run_code("loaded() == before")
    assert (execution.error, execution.text) == (None, "True")
    sandbox.kill()
    wait_until(lambda: os.listdir(server.data_dir / "pool/parked") == [], what="its memory is gone")


RESERVED = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
address = libc.mmap(None, 64 << 30, 0, 2 | 0x20, -1, 0)
kept = 41
address not in (None, 2**64 - 1)
"""


def test_memory_that_is_only_reserved_does_not_keep_a_kernel_from_coming_back(server):
    """More than the host has: to be mapped as writable for a moment, it is refused by the kernel."""
    sandbox = CodeInterpreter.create(timeout=1800)
    assert sandbox.run_code(RESERVED).text == "True"
    park(server, sandbox)
    sandbox.connect(timeout=1800)
    execution = sandbox.run_code("kept += 1; libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(64 << 30)), kept")
    assert (execution.error, execution.text) == (None, "(0, 42)")
    sandbox.kill()


def test_traffic_wakes_a_parked_sandbox_with_its_memory(server):
    sandbox = Sandbox.create(timeout=1800, lifecycle={"on_timeout": "pause", "auto_resume": True})
    sandbox.files.write("index.html", "still here")
    sandbox.commands.run("python3 -m http.server 8000", background=True, timeout=0)
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8000"}
    wait_until(lambda: requests.get(server.url, headers=headers).ok, what="the server inside")
    park(server, sandbox)
    # The same process answers.
    assert requests.get(server.url, headers=headers).text == "still here"
    sandbox.kill()


def test_a_link_that_has_expired_wakes_nobody(server):
    sandbox = Sandbox.create(timeout=1800, lifecycle={"on_timeout": "pause", "auto_resume": True})
    sandbox.files.write("kept", "x")
    fresh, old = (sandbox.download_url("kept", use_signature_expiration=seconds) for seconds in (600, -10))
    sandbox.pause()
    assert requests.get(old).status_code == 403
    assert sandbox.get_info().state.value == "paused"
    assert requests.get(fresh).text == "x"
    sandbox.kill()


def test_directories_are_watched_as_before(server):
    sandbox = Sandbox.create(timeout=1800)
    sandbox.files.make_dir("app/src")
    handle = sandbox.files.watch_dir("app", recursive=True)
    park(server, sandbox)
    sandbox.connect()
    sandbox.files.write("app/src/new", "")
    wait_until(lambda: any(event.name == "src/new" for event in handle.get_new_events()), what="an event")
    sandbox.kill()


WATCHES = """
import ctypes, os, struct, threading
libc = ctypes.CDLL(None)
watches = libc.inotify_init()
number = libc.inotify_add_watch(watches, b"/home/user/uploaded", 2)
seen = []
threading.Thread(target=lambda: seen.append(struct.unpack_from("i", os.read(watches, 999))[0] == number)).start()
"""


def test_a_file_that_was_uploaded_is_watched_as_before(server):
    """It is opened without a name and linked. Once the kernel had forgotten the name, parking was refused."""
    sandbox = CodeInterpreter.create(timeout=1800)
    sandbox.files.write("uploaded", "one")
    sandbox.run_code(WATCHES)
    # Dentries and inodes that nobody uses.
    Path("/proc/sys/vm/drop_caches").write_text("2")
    park(server, sandbox)
    sandbox.connect(timeout=1800)
    sandbox.commands.run("echo two > uploaded")
    wait_until(lambda: sandbox.run_code("seen").text == "[True]", what="the change")
    sandbox.kill()


def test_a_volume_is_there_again(server):
    volume = Volume.create(f"parked-{os.getpid()}")
    sandbox = Sandbox.create(timeout=1800, volume_mounts={"/data": volume})
    writer = sandbox.commands.run("exec 3>/data/open; while true; do date >&3; sleep 0.1; done", background=True, timeout=0)
    wait_until(lambda: sandbox.files.exists("/data/open"), what="the file on the volume")
    park(server, sandbox)
    sandbox.connect(timeout=1800)
    assert writer.pid in [process.pid for process in sandbox.commands.list()]
    size = sandbox.files.get_info("/data/open").size
    wait_until(lambda: sandbox.files.get_info("/data/open").size > size, what="the file grows")
    sandbox.kill()
    Volume.destroy(volume.volume_id)


@pytest.fixture
def upgrade(server, tmp_path):
    """Returns a function that goes on with a server whose guest programs are of another version."""
    program = server.binary
    before, after = b"The Python kernel host: an IPython", b"The python kernel host: an IPython"
    content = program.read_bytes()
    assert content.count(before) == 1
    newer = tmp_path / "sandcove"
    newer.write_bytes(content.replace(before, after))
    newer.chmod(0o755)

    def change(program):
        server.stop()
        server.binary = program
        server.start()

    yield lambda: change(newer)
    change(program)
    # What no sandbox has is deleted at a start; the first one still finds sandboxes of the pool.
    change(program)
    assert len(list((server.data_dir / "libexec").iterdir())) == 1


def version(sandbox):
    """The word by which the versions of the guest programs differ."""
    return sandbox.commands.run("head -1 /run/sandcove/python/sandcove_kernel/__init__.py | cut -d' ' -f2").stdout.strip()


def test_memory_survives_an_upgrade(server, upgrade):
    parked, adopted = stored_in_memory(server), frozen_with_a_process()
    upgrade()
    assert version(adopted) == "Python"
    park(server, adopted)
    server.stop()
    wait_until(lambda: not host_resources(server.data_dir)["processes"], what="the end of all processes")
    server.start()
    for sandbox in (parked, adopted):
        sandbox.connect(timeout=1800)
        assert goes_on(sandbox) and version(sandbox) == "Python"
    # They keep their version over the next pause, beside sandboxes of the newer one.
    park(server, parked)
    parked.connect(timeout=1800)
    assert goes_on(parked) and version(parked) == "Python"
    newer = Sandbox.create()
    assert version(newer) == "python"
    assert len(list((server.data_dir / "libexec").iterdir())) == 2
    for sandbox in (parked, adopted, newer):
        sandbox.kill()
