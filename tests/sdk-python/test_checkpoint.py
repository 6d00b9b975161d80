"""Memory on disk: what the processes of a sandbox can be stored with, and that all goes on in a copy beside the original. CRIU is called by
hand (`harness/criu.py`); the server has no part in it. Each program checks its own state in every step and counts the steps."""

import json
import os
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest
from e2b import Sandbox
from e2b_code_interpreter import Sandbox as CodeInterpreter

from harness import criu
from harness.server import wait_until

pytestmark = pytest.mark.skipif(not os.access(criu.PROGRAM, os.X_OK), reason="CRIU is not there: packaging/criu/fetch fetches it")

PRELUDE = """
import ctypes, fcntl, mmap, os, select, signal, socket, struct, subprocess, sys, tempfile, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def go_on(step):
    count = 0
    while True:
        step(count)
        count += 1
        with open("/home/user/steps.new", "w") as file:
            file.write(str(count))
        os.rename("/home/user/steps.new", "/home/user/steps")
        time.sleep(0.02)
"""

# Programs, by what is special about them.
GO_ON = {
    "memory": """
        blocks = {n: os.urandom(1 << 16) for n in range(200)}
        sums = {n: hash(block) for n, block in blocks.items()}
        def step(count):
            assert all(hash(block) == sums[n] for n, block in blocks.items())
    """,
    "threads": """
        numbers, lock = [0] * 8, threading.Condition()
        def work(n):
            while True:
                with lock:
                    lock.wait()
                    numbers[n] += 1
        for n in range(8):
            threading.Thread(target=work, args=(n,), daemon=True).start()
        def step(count):
            before = sum(numbers)
            while sum(numbers) == before:
                with lock:
                    lock.notify_all()
                time.sleep(0.001)
    """,
    "a pipe to a child": """
        cat = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        def step(count):
            os.write(cat.stdin.fileno(), b"%d" % count)
            assert os.read(cat.stdout.fileno(), 99) == b"%d" % count
    """,
    "data in a pipe": """
        reader, writer = os.pipe()
        os.write(writer, b"x" * 5000)
        def step(count):
            os.write(writer, b"x")
            assert os.read(reader, 1) == b"x"
            assert struct.unpack("i", fcntl.ioctl(reader, 0x541B, b"    "))[0] == 5000
    """,
    "a TCP connection inside": """
        server = socket.create_server(("127.0.0.1", 5000))
        client = socket.create_connection(("127.0.0.1", 5000))
        peer, _ = server.accept()
        peer.sendall(b"y" * 3000)
        def step(count):
            client.sendall(b"%d" % count)
            assert peer.recv(99) == b"%d" % count
            assert len(client.recv(3000, socket.MSG_PEEK)) == 3000
    """,
    "a TCP connection over IPv6": """
        server = socket.create_server(("::1", 5000), family=socket.AF_INET6)
        client = socket.create_connection(("::1", 5000))
        peer, _ = server.accept()
        def step(count):
            client.sendall(b"%d" % count)
            assert peer.recv(99) == b"%d" % count
    """,
    "UDP": """
        one, two = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
        one.bind(("127.0.0.1", 5000)), two.connect(("127.0.0.1", 5000))
        def step(count):
            two.send(b"%d" % count)
            assert one.recv(99) == b"%d" % count
    """,
    "unix sockets": """
        pairs = [socket.socketpair(type=kind) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)]
        for name in ("/home/user/socket", "\\0abstract"):
            server, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
            server.bind(name), server.listen(), client.connect(name)
            pairs.append((client, server.accept()[0]))
        def step(count):
            for one, two in pairs:
                one.send(b"%d" % count)
                assert two.recv(99) == b"%d" % count
    """,
    "a deleted file": """
        file = open("/home/user/deleted", "w+b", buffering=0)
        file.write(b"z" * 100_000)
        os.unlink("/home/user/deleted")
        def step(count):
            assert os.pread(file.fileno(), 200_000, 0) == b"z" * 100_000
    """,
    "a position in a file": """
        file = open("/home/user/lines", "ab", buffering=0)
        def step(count):
            assert file.tell() == 5 * count
            file.write(b"line\\n")
    """,
    "a shared mapping of a file": """
        with open("/home/user/mapped", "w+b") as file:
            file.truncate(1 << 16)
            shared = mmap.mmap(file.fileno(), 1 << 16)
        def step(count):
            assert struct.unpack_from("Q", shared)[0] == count
            struct.pack_into("Q", shared, 0, count + 1)
            assert open("/home/user/mapped", "rb").read(8) == shared[:8]
    """,
    "memory that is shared with a child": """
        shared, turn, back = mmap.mmap(-1, 4096), os.pipe(), os.pipe()
        if os.fork() == 0:
            while os.read(turn[0], 1):
                struct.pack_into("Q", shared, 0, struct.unpack_from("Q", shared)[0] + 1)
                os.write(back[1], b"x")
        def step(count):
            os.write(turn[1], b"x"), os.read(back[0], 1)
            assert struct.unpack_from("Q", shared)[0] == count + 1
    """,
    "memfd, /dev/shm and System V": """
        memory = os.memfd_create("data")
        os.write(memory, b"memory")
        with open("/dev/shm/data", "w") as file:
            file.write("shm")
        segment = libc.shmget(7, 4096, 0o1600)
        libc.shmat.restype = ctypes.c_void_p
        address = libc.shmat(segment, None, 0)
        ctypes.memmove(address, b"segment", 7)
        def step(count):
            assert os.pread(memory, 99, 0) == b"memory" and open("/dev/shm/data").read() == "shm"
            assert ctypes.string_at(address, 7) == b"segment"
    """,
    "epoll with an event": """
        epoll, event = select.epoll(), libc.eventfd(0, 0)
        epoll.register(event, select.EPOLLIN)
        def step(count):
            os.write(event, struct.pack("Q", 1))
            assert epoll.poll() == [(event, select.EPOLLIN)] and os.read(event, 8)
    """,
    "epoll with a timer": """
        epoll, timer = select.epoll(), libc.timerfd_create(1, 0)
        libc.timerfd_settime(timer, 0, struct.pack("4q", 0, 10_000_000, 0, 10_000_000), None)
        epoll.register(timer, select.EPOLLIN)
        def step(count):
            assert epoll.poll() == [(timer, select.EPOLLIN)] and os.read(timer, 8)
    """,
    "epoll with a signal": """
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        signals = libc.signalfd(-1, struct.pack("Q", 1 << (signal.SIGUSR1 - 1)) + bytes(120), 0)
        epoll = select.epoll()
        epoll.register(signals, select.EPOLLIN)
        def step(count):
            os.kill(os.getpid(), signal.SIGUSR1)
            assert epoll.poll() == [(signals, select.EPOLLIN)] and os.read(signals, 128)
    """,
    "a FIFO": """
        os.mkfifo("/home/user/fifo")
        fifo = os.open("/home/user/fifo", os.O_RDWR)
        def step(count):
            os.write(fifo, b"%d" % count)
            assert os.read(fifo, 99) == b"%d" % count
    """,
    "a shell in a terminal": """
        import pty
        child, terminal = pty.fork()
        if child == 0:
            os.execvp("bash", ["bash", "--norc"])
        os.write(terminal, b"stty -echo; export COUNT=0; PS1=\\n")
        def step(count):
            os.write(terminal, b"COUNT=$((COUNT+1)); echo =$COUNT=\\n")
            text = b""
            while b"=%d=" % (count + 1) not in text:
                text += os.read(terminal, 999)
    """,
    "locks": """
        one, two = open("/home/user/flock", "w"), open("/home/user/posix", "w")
        fcntl.flock(one, fcntl.LOCK_EX), fcntl.lockf(two, fcntl.LOCK_EX)
        def step(count):
            if count % 20 == 0:
                code = "import fcntl; [getattr(fcntl, f)(open('/home/user/' + n, 'w'), 6) for f, n in [%r]]"
                for pair in (("flock", "flock"), ("lockf", "posix")):
                    assert subprocess.run([sys.executable, "-c", code % (pair,)], stderr=-3).returncode == 1
    """,
    "a pending signal": """
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        os.kill(os.getpid(), signal.SIGUSR2)
        def step(count):
            assert signal.sigpending() == {signal.SIGUSR2}
    """,
    "an interval timer": """
        ticks = []
        signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        def step(count):
            before = len(ticks)
            while len(ticks) == before:
                time.sleep(0.001)
    """,
    "a dead child": """
        dead = subprocess.Popen(["true"])
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        def step(count):
            assert open(f"/proc/{dead.pid}/stat").read().split()[2] == "Z"
    """,
    "a directory that was deleted": """
        os.mkdir("/home/user/gone"), os.chdir("/home/user/gone"), os.rmdir("/home/user/gone")
        def step(count):
            assert os.readlink("/proc/self/cwd") == "/home/user/gone (deleted)"
    """,
    "a daemon in a session of its own": """
        if os.fork():
            os._exit(0)
        os.setsid()
        session = os.getpid()
        if os.fork():
            signal.pause()
        def step(count):
            assert os.getsid(0) == session
    """,
    "a netlink socket": """
        netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        netlink.bind((0, 0))
        def step(count):
            # RTM_GETLINK of the first interface: one answer.
            netlink.send(struct.pack("IHHII", 32, 18, 1, count, 0) + struct.pack("BxHiII", 0, 0, 1, 0, 0))
            assert struct.unpack_from("IHHI", netlink.recv(65536))[1::2] == (16, count)
    """,
    "a file of /proc": """
        file = open("/proc/meminfo")
        def step(count):
            file.seek(0)
            assert "MemTotal" in file.read()
    """,
    "a Node server": """
        import urllib.request
        code = "let n = 0; require('http').createServer((_, a) => a.end(String(n++))).listen(5000, '127.0.0.1', () => console.log(1))"
        node = subprocess.Popen(["node", "-e", code], stdout=subprocess.PIPE)
        node.stdout.readline()
        def step(count):
            assert urllib.request.urlopen("http://127.0.0.1:5000").read() == b"%d" % count
    """,
    "a huge file that is sparse": """
        file = open("/home/user/sparse", "w+b")
        file.truncate(1 << 40)
        def step(count):
            assert os.fstat(file.fileno()).st_size == 1 << 40
    """,
}
# Programs that cannot be stored, with the reason that CRIU gives.
REFUSED = {
    "a stopped child": (
        """
        stopped = subprocess.Popen(["sleep", "1000"])
        os.kill(stopped.pid, signal.SIGSTOP)
        def step(count):
            pass
        """,
        "is stopped",
    ),
    "a process that traces another": (
        """
        child = os.fork()
        if child == 0:
            libc.ptrace(0, 0, 0, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
        os.waitpid(child, os.WUNTRACED)
        def step(count):
            assert os.path.exists(f"/proc/{child}")
        """,
        "is stopped",
    ),
    "a POSIX message queue": (
        """
        libc = ctypes.CDLL("librt.so.1")
        assert libc.mq_open(b"/queue", os.O_RDWR | os.O_CREAT, 0o600, None) >= 0
        def step(count):
            pass
        """,
        "mqueue|mount|/queue|queue",
    ),
}


def layers(server, *names):
    """Directories of the newest layers of these names, topmost first."""
    found = server.data_dir / "pool/layers"
    return [str(max(found.glob(f"{name}-*"), key=lambda path: path.stat().st_mtime)) for name in names]


def root_of(server, sandbox) -> Path:
    record = json.loads((server.data_dir / "run" / sandbox.sandbox_id / "jail.json").read_text())
    return Path(f"/proc/{record['pid']}/root")


def steps(root: Path) -> int:
    try:
        return int((root / "home/user/steps").read_text())
    except FileNotFoundError:
        return 0


def begin(server, sandbox, program):
    sandbox.files.write("/home/user/program.py", PRELUDE + textwrap.dedent(program) + "\ngo_on(step)\n")
    sandbox.commands.run("python3 /home/user/program.py >/home/user/output 2>&1", background=True, timeout=0)
    wait_until(lambda: steps(root_of(server, sandbox)) > 3, what="the first steps of the program")


@pytest.fixture
def sandbox(server):
    with Sandbox.create("base", timeout=3600) as sandbox:
        yield sandbox


def dump(server, sandbox, tmp_path, *names) -> criu.Checkpoint:
    for attempt in range(5):
        sandbox.pause()
        try:
            return criu.dump(server.data_dir, sandbox.sandbox_id, layers(server, *names), tmp_path / "images")
        except criu.Refused as refused:
            # An answer of the kernel was on its way at that moment.
            if "netlink: The socket has data to read" not in str(refused) or attempt == 4:
                raise
            sandbox.connect()
            shutil.rmtree(tmp_path / "images", ignore_errors=True)
    raise AssertionError("five answers were on their way")


@pytest.mark.parametrize("name", GO_ON)
def test_a_copy_goes_on_with(server, sandbox, tmp_path, name):
    begin(server, sandbox, GO_ON[name])
    checkpoint = dump(server, sandbox, tmp_path, "base")
    done = steps(root_of(server, sandbox))
    with criu.restored(checkpoint) as pid:
        copy = Path(f"/proc/{pid}/root")
        assert (copy / "home/user/output").read_text() == ""
        wait_until(lambda: steps(copy) > done + 10 or (copy / "home/user/output").read_text(), what="steps of the copy")
        assert (copy / "home/user/output").read_text() == ""
        assert steps(root_of(server, sandbox)) == done
    # The original was stored and goes on too.
    sandbox.connect()
    wait_until(lambda: steps(root_of(server, sandbox)) > done, what="steps of the original")


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_and_stays(server, sandbox, tmp_path, name):
    program, reason = REFUSED[name]
    begin(server, sandbox, program)
    with pytest.raises(criu.Refused, match=reason):
        dump(server, sandbox, tmp_path, "base")
    done = steps(root_of(server, sandbox))
    sandbox.connect()
    wait_until(lambda: steps(root_of(server, sandbox)) > done, what="steps of the original")


def test_a_kernel_that_was_forked_from_the_warm_one_goes_on(server, tmp_path):
    with CodeInterpreter.create(timeout=3600) as sandbox:
        sandbox.run_code("import pandas\nfrom random import random\ncount = 41\nfile = open('/home/user/log', 'w')\nfile.write('a')")
        checkpoint = dump(server, sandbox, tmp_path, "code-interpreter", "base")
        # The processes that came from outside of the sandbox are there, with the files that they were loaded from.
        assert checkpoint.foreign
        with criu.restored(checkpoint) as pid:
            code = "count += 1\nfile.write('b')\nfile.flush()\nprint(count, open(file.name).read(), pandas.Series([1, 2]).sum())"
            assert execute(pid, code) == ["42 ab 3\n"]
        sandbox.connect()
        assert sandbox.run_code("count").text == "41"


def execute(pid: int, code: str) -> list[str]:
    """What code prints that runs in a copy, which only its own network reaches."""
    request = ["curl", "--silent", "--max-time", "120", "http://127.0.0.1:49999/execute", "--json", json.dumps({"code": code})]
    command = ["nsenter", "--target", str(pid), "--net", *request]
    answers = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [answer["text"] for answer in map(json.loads, filter(None, answers)) if answer["type"] == "stdout"]
