"""What the kernel counts for users and not for control groups. One sandbox takes all it can get; then another of the same
template, whose interpreters were forked from the same process, and the host itself must still get what they need."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from e2b import Sandbox

from harness.server import is_forked, wait_until

# Each takes up to `most` of something and prints how much that was.
INSTANCES = """
import ctypes
libc = ctypes.CDLL(None)
taken = 0
while taken < most and libc.inotify_init1(0) >= 0: taken += 1
"""
# The same file counts once for every instance that watches it.
WATCHES = """
import ctypes, os, tempfile
libc = ctypes.CDLL(None)
place = tempfile.mkdtemp()
files = [os.path.join(place, str(n)).encode() for n in range(500)]
for file in files: open(file, "w").close()
taken, full = 0, False
while taken < most and not full:
    instance = libc.inotify_init1(0)
    if instance < 0: break
    for file in files:
        full = taken >= most or libc.inotify_add_watch(instance, file, 2) < 0
        if full: break
        taken += 1
"""
# A blocked signal above 31 is queued every time it is sent.
SIGNALS = """
import ctypes, os, signal
libc = ctypes.CDLL(None)
signal.pthread_sigmask(signal.SIG_BLOCK, {40})
taken = 0
while taken < most and libc.sigqueue(os.getpid(), 40, None) == 0: taken += 1
"""
QUEUES = """
import os, tempfile
taken = 0
try:
    for taken in range(most): open(f"/dev/mqueue/q{os.getpid()}x{taken}", "x").close()
    taken = most
except OSError: pass
"""
# Watches first: they need a few instances.
KINDS = {"watches": WATCHES, "instances": INSTANCES, "signals": SIGNALS, "queues": QUEUES}
# What a working program may need; a tenth of that for the host, where others may have taken some already.
ENOUGH = {"instances": 100, "watches": 10_000, "signals": 1000, "queues": 2}
HOLD = "\nimport time\nprint(taken, flush=True)\ntime.sleep(7200)"


def program(kind: str, most: int) -> str:
    return f"most = {most}\n{KINDS[kind]}\nprint(taken)"


@pytest.fixture(scope="module", params=["base", "code-interpreter-v1"])
def greedy(request, server):
    """A sandbox in which processes of two users hold all that these can get, and how much that is."""
    sandbox = Sandbox.create(request.param, timeout=7200)

    def shares_a_process() -> bool:
        nonlocal sandbox
        if not is_forked(server, sandbox):
            # Made before the process to fork from was warm.
            sandbox.kill()
            sandbox = Sandbox.create(request.param, timeout=7200)
        return is_forked(server, sandbox)

    if request.param != "base":
        wait_until(shares_a_process, what="a sandbox with a forked interpreter")
    held = {}
    for kind, code in KINDS.items():
        held[kind] = 0
        for user in ["root", "user"]:
            sandbox.files.write(f"/tmp/{kind}.py", f"most = 10 ** 7\n{code}{HOLD}")
            handle = sandbox.commands.run(
                f"ulimit -n $(ulimit -Hn) -i $(ulimit -Hi); exec python3 /tmp/{kind}.py",
                user=user,
                background=True,
                timeout=0,
            )
            held[kind] += int(next(out for out, _, _ in handle if out))
    yield request.param, held
    sandbox.kill()


@pytest.mark.parametrize("kind", KINDS)
def test_one_sandbox_leaves_enough_for_another(greedy, kind):
    template, held = greedy
    assert held[kind] > 0, "the attack takes something"
    other = Sandbox.create(template, timeout=1800)
    try:
        other.files.write("/tmp/take.py", program(kind, ENOUGH[kind]))
        taken = other.commands.run("python3 /tmp/take.py", user="root").stdout
        assert int(taken) == ENOUGH[kind], f"the other one holds {held}"
        watch = other.files.watch_dir("/tmp")
        other.files.write("/tmp/seen", "x")
        wait_until(watch.get_new_events, what="an event of the other one")
        watch.stop()
    finally:
        other.kill()


@pytest.mark.parametrize("kind", ["instances", "watches", "signals"])
def test_one_sandbox_leaves_enough_for_the_host(greedy, kind, server):
    most = ENOUGH[kind] // 10
    done = subprocess.run([sys.executable, "-c", program(kind, most)], capture_output=True, text=True, timeout=1200)
    assert done.stdout == f"{most}\n", f"{greedy}: {done.stderr}"
    assert server.healthy()


# With a sandbox that was not forked from a shared process nobody else is counted.
@pytest.mark.parametrize("greedy", ["code-interpreter-v1"], indirect=True)
def test_there_is_room_for_a_thousand_sandboxes_that_take_all_they_can_get(greedy):
    _, held = greedy
    for kind, limit in [("instances", "max_user_instances"), ("watches", "max_user_watches")]:
        with open(f"/proc/sys/fs/inotify/{limit}") as file:
            assert held[kind] * 1000 <= int(file.read()), json.dumps(held)


# Files that a process of a sandbox holds open, and connections that it has closed before their data was taken.
FILES = "held = [open('/dev/null') for _ in range(10_000)]\nprint(len(held), flush=True)"
ORPHANS = """
import socket
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
listener.bind(("127.0.0.1", 0)); listener.listen(1000)
held = []
for _ in range(500):
    sender = socket.create_connection(listener.getsockname())
    held.append(listener.accept()[0])
    sender.setblocking(False)
    sender.send(b"x" * 100_000)
    sender.close()
print(len(held), flush=True)
"""


def files_of_the_host() -> int:
    return int(Path("/proc/sys/fs/file-nr").read_text().split()[0])


def orphans_of_the_host() -> int:
    return int(re.search(r"^TCP: .*\borphan (\d+)", Path("/proc/net/sockstat").read_text(), re.M)[1])


@pytest.mark.parametrize(
    ("code", "counted", "number", "maximum", "factor"),
    [(FILES, files_of_the_host, 10_000, "fs/file-max", 1 << 30), (ORPHANS, orphans_of_the_host, 500, "net/ipv4/tcp_max_orphans", 1 << 14)],
    ids=["files", "orphans"],
)
def test_shared_counters_are_out_of_reach(server, sandbox, code, counted, number, maximum, factor):
    before = counted()
    sandbox.files.write("/tmp/take.py", code + "\nimport time\ntime.sleep(600)")
    handle = sandbox.commands.run("ulimit -n $(ulimit -Hn); exec python3 /tmp/take.py", user="root", background=True, timeout=0)
    assert int(next(out for out, _, _ in handle if out)) == number
    # Other programs of the host end some of their own meanwhile.
    assert counted() - before > number // 2, "the host counts them"
    assert int(Path("/proc/sys", maximum).read_text()) > number * factor
    handle.kill()
