"""Sandboxes that are hostile to those who store their memory: processes that share what is written once for each of them, that have more descriptors
than anybody looks at, and watches that take long to add again. The oracle is the host: the size of the images, and the processor time of the server."""

import os
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2b_code_interpreter import Sandbox as CodeInterpreter

from harness import volatile
from harness.server import wait_until
from harness.teams import Team
from test_snapshot_memory import CRIU, memories, nothing_is_left, with_criu  # noqa: F401

pytestmark = pytest.mark.skipif(not (CRIU / "bin/criu").exists(), reason="CRIU is not there: packaging/criu/fetch fetches it")
GIB = 1 << 30
# Most of it is CRIU's, and what it takes for a tree like these that is harmless.
MAX_SECONDS = 30


def attack(sandbox, program):
    """Runs a program that goes on once it has printed a line."""
    sandbox.files.write("/home/user/attack.py", program)
    process = sandbox.commands.run("ulimit -n $(ulimit -Hn); exec python3 attack.py 2>&1", background=True, timeout=0)
    said = ""
    for out, _, _ in process:
        said += out or ""
        if "\n" in said:
            break
    assert said.startswith("ready"), said


@contextmanager
def watched(server):
    """What the images of snapshots take at most meanwhile, bytes."""
    root, seen, end = server.data_dir / "pool/snapshot-memory", [0], threading.Event()

    def look():
        while not end.wait(0.02):
            sizes = []
            for directory, _, names in os.walk(root):
                for name in names:
                    try:
                        sizes.append(os.lstat(os.path.join(directory, name)).st_size)
                    except OSError:
                        pass
            seen[0] = max(seen[0], sum(sizes))

    thread = threading.Thread(target=look)
    thread.start()
    yield seen
    end.set()
    thread.join()


def processor_seconds(server):
    """Processor time of the server's processes, and of programs that they have run."""
    total = 0
    for pid in volatile.parts(server.pid):
        total += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def small(server):
    """A sandbox of a team whose sandboxes are small: 512 MiB of memory, and as much disk. Their images have 2.5 GiB at most."""
    team = Team(server.url, maxRamMb=512, diskMb=512)
    yield CodeInterpreter.create(timeout=1800, api_key=team.key)
    team.clear()


SHARED = """
import mmap, os, time
memory = mmap.mmap(-1, 100 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(memory), 4096):
    memory[at:at + 8] = at.to_bytes(8, "little")
for _ in range(60):
    if os.fork() == 0:
        time.sleep(10000)
print("ready", flush=True)
time.sleep(10000)
"""
DELETED = """
import fcntl, os, time
FICLONE = 0x40049409
with open("/home/user/large", "wb") as file:
    for _ in range(150):
        file.write(os.urandom(1 << 20))
large = open("/home/user/large", "rb")
os.unlink("/home/user/large")
files = []
for number in range(40):
    files.append(open(f"/home/user/{number}", "w+b"))
    fcntl.ioctl(files[-1], FICLONE, large.fileno())
    os.unlink(f"/home/user/{number}")
print("ready", flush=True)
time.sleep(10000)
"""


@pytest.mark.parametrize("program", ["SHARED", "DELETED"])
def test_memory_on_disk_is_as_large_as_the_sandbox_allows(server, small, program):
    attack(small, globals()[program])
    with watched(server) as seen:
        small.create_snapshot()
    assert seen[0] < 3.5 * GIB, f"images took {seen[0] / GIB:.1f} GiB"
    assert small.run_code("6 * 7").text == "42"
    # What was written is gone.
    wait_until(lambda: memories(server) == [], what="the images are removed")


LOCKS = """
import fcntl, os, time
for number in range(250):
    if os.fork() == 0:
        own = open(f"/tmp/lock-{number}", "w")
        fcntl.lockf(own, fcntl.LOCK_EX)
        for _ in range(900):
            os.dup(0)
        open(f"/tmp/done-{number}", "w").close()
        time.sleep(10000)
while len([name for name in os.listdir("/tmp") if name.startswith("done-")]) < 250:
    time.sleep(0.1)
print("ready", flush=True)
time.sleep(10000)
"""
WATCHES = """
import ctypes, os, time
libc = ctypes.CDLL(None)
inotify = libc.inotify_init()
os.mkdir("/tmp/watched")
for number in range(2000):
    path = f"/tmp/watched/{number}" + "x" * 200
    open(path, "w").close()
    libc.inotify_add_watch(inotify, path.encode(), 2)
copies = [os.dup(inotify) for _ in range(900)]
for _ in range(100):
    if os.fork() == 0:
        time.sleep(10000)
print("ready", flush=True)
time.sleep(10000)
"""
NUMBERS = """
import ctypes, os, time
libc = ctypes.CDLL(None)
for _ in range(8):
    inotify = libc.inotify_init()
    for number in range((1 << 20) - 10):
        libc.inotify_rm_watch(inotify, libc.inotify_add_watch(inotify, b"/tmp", 2))
        if number % 4000 == 0:
            os.read(inotify, 1 << 20)
    libc.inotify_add_watch(inotify, b"/tmp", 2)
    while True:
        try:
            os.set_blocking(inotify, False)
            os.read(inotify, 1 << 20)
        except BlockingIOError:
            break
print("ready", flush=True)
time.sleep(10000)
"""


@pytest.mark.parametrize("program", [LOCKS, WATCHES, NUMBERS], ids=["locks", "watches", "numbers"])
def test_looking_at_processes_takes_little_of_the_host(server, program):
    sandbox = CodeInterpreter.create(timeout=1800)
    attack(sandbox, program)
    before, began = processor_seconds(server), time.monotonic()
    snapshot = sandbox.create_snapshot()
    after_snapshot = processor_seconds(server)
    copy = CodeInterpreter.create(snapshot.snapshot_id, timeout=1800)
    spent = processor_seconds(server) - before
    print("snapshot", after_snapshot - before, "all", spent, "took", time.monotonic() - began)
    assert spent < MAX_SECONDS
    assert [one.run_code("6 * 7").text for one in (sandbox, copy)] == ["42", "42"]
    wait_until(server.healthy, what="the server answers")
