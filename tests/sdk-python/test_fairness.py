"""One sandbox takes all it can get of what all share. Others, the server and the host keep what they need."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from e2b import CommandExitException, Sandbox

from harness import volatile
from harness.census import programs
from harness.hogs import HOGS, Neighbour, hog
from harness.kernel_log import kernel_log
from harness.server import API_KEY, instance_of, wait_until

CGROUPS = Path("/sys/fs/cgroup")
IS_V2 = (CGROUPS / "cgroup.controllers").exists()


def python(code):
    return f"python3 - <<'END'\n{code}\nEND"


def number(path) -> int:
    return int(Path(path).read_text())


def parent(server, controller: str) -> Path:
    """The control group of all sandboxes of this server."""
    name = f"sandcove{instance_of(server.data_dir)}"
    return CGROUPS / name if IS_V2 else CGROUPS / controller / name


def record(server, sandbox) -> dict:
    return json.loads((server.data_dir / "run" / sandbox.sandbox_id / "jail.json").read_text())


def group(server, sandbox, controller: str) -> Path:
    return parent(server, controller) / f"s{record(server, sandbox)['slot']}"


def is_demoted(server, sandbox) -> bool:
    return number(group(server, sandbox, "cpu") / "cpu.idle") == 1


def becomes(demoted: bool, server, sandbox) -> None:
    # On a host that is busy with other things a hog gets little to burn.
    wait_until(lambda: is_demoted(server, sandbox) == demoted, 600, "a demotion" if demoted else "a restoration")


def processes(group: Path) -> list[int]:
    return [int(pid) for pid in (volatile.text(group / "cgroup.procs") or "").split()]


def hogs_in(server, sandbox) -> list[int]:
    """Host pids of a hog's processes. Their command lines are not read: that waits for a process that is forking."""
    return [pid for pid in processes(group(server, sandbox, "pids")) if volatile.text(f"/proc/{pid}/comm") == "python3\n"]


def end_hog(server, sandbox) -> None:
    # Until there is none: one that forks may have a child that was not listed.
    def is_over() -> bool:
        found = hogs_in(server, sandbox)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    wait_until(is_over, what="the end of the hog")


def memory_of_the_host() -> int:
    return int(re.search(r"MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text())[1]) << 10


@pytest.fixture(scope="module")
def neighbour(server):
    neighbour = Neighbour(server.url, API_KEY)
    yield neighbour
    neighbour.close()


def test_all_sandboxes_together_leave_room_on_the_host(server):
    most = min(number("/proc/sys/kernel/pid_max"), number("/proc/sys/kernel/threads-max"))
    assert 1024 < number(parent(server, "pids") / "pids.max") <= most * 3 // 4
    memory = number(parent(server, "memory") / ("memory.max" if IS_V2 else "memory.limit_in_bytes"))
    reserve = memory_of_the_host() - memory
    assert reserve >= min(512 << 20, memory_of_the_host() // 2 - 4096)


def test_process_numbers_are_not_scarce():
    assert number("/proc/sys/kernel/pid_max") > 32768


BOMB = """
import os, time
made = 0
try:
    while made < 20000:
        if os.fork() == 0:
            time.sleep(600); os._exit(0)
        made += 1
except OSError as error:
    print("stopped at", made, error.errno, flush=True)
    time.sleep(600)
"""
FORKS = "import os\nmade = [os.fork() or os._exit(0) for _ in range(200)]\nprint(len(made))"


def test_a_fork_bomb_at_its_limit_leaves_others_and_the_host_able_to_fork(server, sandbox):
    sandbox.files.write("/tmp/bomb.py", BOMB)
    handle = sandbox.commands.run("exec python3 /tmp/bomb.py", user="root", background=True, timeout=0)
    said = next(out for out, _, _ in handle if out)
    made = int(re.match(r"stopped at (\d+) 11", said)[1])
    assert 500 < made < 1024, said
    other = Sandbox.create(timeout=1800)
    try:
        assert other.commands.run(python(FORKS), user="root").stdout == "200\n"
    finally:
        other.kill()
    assert subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True).stdout == "200\n"
    assert server.healthy()


def test_a_sandbox_that_burns_processors_is_demoted_and_restored(server):
    quiet = Sandbox.create("base", timeout=1800)
    try:
        with hog("16 busy loops") as loud:
            becomes(True, server, loud)
            assert not is_demoted(server, quiet)
            assert quiet.commands.run("echo hello").stdout == "hello\n"
            assert loud.commands.run("echo hello").stdout == "hello\n"
            end_hog(server, loud)
            becomes(False, server, loud)
            assert not is_demoted(server, quiet)
    finally:
        quiet.kill()


def test_a_demoted_sandbox_is_paused_resumed_and_demoted_again(server):
    with hog("16 busy loops") as loud:
        becomes(True, server, loud)
        loud.pause()
        assert not is_demoted(server, loud)
        loud.connect()
        becomes(True, server, loud)


def test_a_restarted_server_goes_on_watching(server):
    with hog("16 busy loops") as loud:
        becomes(True, server, loud)
        server.kill9()
        server.start()
        becomes(True, server, loud)
        end_hog(server, loud)
        becomes(False, server, loud)


def score(pid) -> int:
    return number(f"/proc/{pid}/oom_score_adj")


def spawner_of(server) -> int:
    # A child of this server: that of an earlier one may live on with its sandboxes.
    return programs(server)["spawner"]


def may_protect() -> bool:
    """Whether root may do so here: it takes CAP_SYS_RESOURCE."""
    return int(re.search(r"^CapEff:\t(\w+)", Path("/proc/self/status").read_text(), re.M)[1], 16) >> 24 & 1 == 1


def test_the_server_is_killed_last_when_memory_runs_out(server, sandbox):
    assert score(server.pid) == score(spawner_of(server)) == (-900 if may_protect() else score("self"))
    sandbox.commands.run("sleep 600", background=True, timeout=0)
    # All slots: also those of warm processes and of sandboxes that are made ahead.
    pids = [pid for one in volatile.matching(parent(server, "pids"), "s*") for pid in processes(one)]
    assert record(server, sandbox)["pid"] in pids
    assert [pid for pid in pids if int(volatile.text(f"/proc/{pid}/oom_score_adj") or 0) < 0] == []


def test_a_sandbox_cannot_protect_its_processes(sandbox):
    command = "echo 200 >/proc/self/oom_score_adj && echo raised; echo {} >/proc/self/oom_score_adj && echo lowered"
    for wanted in (-1, -900, -1000):
        output = sandbox.commands.run(f"({command.format(wanted)}) 2>/dev/null || true", user="root").stdout
        assert output == "raised\n"


def test_the_precedence_of_the_server_is_not_inherited(server, sandbox):
    def niceness(pid) -> set[int]:
        found = set()
        for task in volatile.names(f"/proc/{pid}/task"):
            with suppress(ProcessLookupError):
                found.add(os.getpriority(os.PRIO_PROCESS, int(task)))
        return found

    assert niceness(server.pid) == niceness(spawner_of(server)) == {-5}
    sandbox.commands.run("sleep 600", background=True, timeout=0)
    seen = [niceness(pid) for pid in processes(group(server, sandbox, "pids"))]
    assert any(seen) and all(min(one) >= 0 for one in seen if one)


MANY_AND_ONE_TOO_LARGE = """
import os, time
for _ in range(50):
    if os.fork() == 0:
        os.closerange(0, 3)
        time.sleep(60); os._exit(0)
held = bytearray()
while True: held.extend(bytes(16 << 20))
"""




def kills(server, sandbox) -> int:
    file = "memory.events" if IS_V2 else "memory.oom_control"
    text = (group(server, sandbox, "memory") / file).read_text()
    return int(re.search(r"^oom_kill (\d+)$", text, re.M)[1])


def test_a_sandbox_at_its_memory_limit_does_not_fill_the_log_of_the_kernel(server, sandbox):
    added = kernel_log()
    with pytest.raises(CommandExitException):
        sandbox.commands.run(python(MANY_AND_ONE_TOO_LARGE), user="root", timeout=600)
    assert kills(server, sandbox) >= 1
    assert not [line for line in added() if "[  pid  ]" in line]


# Sends what nobody reads, over many sockets, and says how many bytes that were.
UNREAD = {
    "TCP": """
import resource, socket, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
listener = socket.create_server(("127.0.0.1", 0), backlog=100)
held, sent, stuck = [], 0, 0
end = time.monotonic() + 30
while time.monotonic() < end and len(held) < 2000:
    one = socket.create_connection(listener.getsockname())
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
    other, _ = listener.accept()
    held += [one, other]
    one.setblocking(False)
    try:
        while time.monotonic() < end: sent += one.send(bytes(1 << 16))
    except (BlockingIOError, OSError): pass
print(sent, flush=True)
time.sleep(600)
""",
    "UDP": """
import resource, socket, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
held, sent = [], 0
end = time.monotonic() + 30
while time.monotonic() < end and len(held) < 2000:
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    one.bind(("127.0.0.1", 0))
    held.append(one)
    for _ in range(200):
        try: sent += sender.sendto(bytes(60_000), one.getsockname())
        except OSError: pass
print(sent, flush=True)
time.sleep(600)
""",
}


def buffered(protocol: str) -> int:
    """Bytes that sockets of a protocol hold on the whole host."""
    text = Path("/proc/net/sockstat").read_text()
    return int(re.search(rf"^{protocol}: .*\bmem (\d+)", text, re.M)[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("protocol", UNREAD)
def test_data_that_nobody_reads_is_limited(server, sandbox, protocol):
    limit = record(server, sandbox)["limits"]["memory_mib"] << 20
    before = buffered(protocol)
    sandbox.files.write("/tmp/unread.py", UNREAD[protocol])
    handle = sandbox.commands.run("exec python3 /tmp/unread.py", user="root", background=True, timeout=0)
    sent = int(next(out for out, _, _ in handle if out))
    assert sent > 8 << 20, f"it sends something: {sent}"
    most = limit if IS_V2 else limit // 8 + (16 << 20)
    # The kernel counts for the whole host, on which other programs may hold something for a while. This one holds what it has.
    wait_until(lambda: 1 << 20 < buffered(protocol) - before < most, what=f"{protocol} holds something of {sent} and at most {most >> 20} MiB")
    assert server.healthy()


STREAMING = """
import http.server, itertools
class Stream(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        for _ in itertools.count(): self.wfile.write(b"x" * 65536)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("", 8000), Stream).serve_forever()
"""


def test_answers_that_nobody_reads_are_limited(server, sandbox):
    """What the server's sockets hold of streams whose clients read nothing. The clients' own buffers are theirs."""
    sandbox.files.write("/tmp/stream.py", STREAMING)
    sandbox.commands.run("exec python3 /tmp/stream.py", background=True, timeout=0)
    head = f"GET / HTTP/1.1\r\nHost: {sandbox.get_host(8000)}\r\n\r\n".encode()
    streams = 8

    def opened() -> socket.socket:
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(head)
        return client

    def is_served(client: socket.socket) -> bool:
        client.settimeout(60)
        return client.recv(12) == b"HTTP/1.1 200"

    wait_until(lambda: is_served(opened()), what="the service answers")
    clients = [opened() for _ in range(streams)]
    try:
        ports = {client.getsockname()[1] for client in clients}
        assert all(map(is_served, clients))

        def unsent() -> list[int]:
            lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
            # An address and port of either end in hex; the queue of bytes that were written.
            own = [line.split() for line in lines]
            return [int(one[4].split(":")[0], 16) for one in own if int(one[2].split(":")[1], 16) in ports and int(one[1].split(":")[1], 16) == server.port]

        settled = [unsent()]

        def is_settled() -> bool:
            time.sleep(0.5)
            settled.append(unsent())
            return settled[-1] == settled[-2]

        wait_until(is_settled, what="nothing more is taken")
        assert len(settled[-1]) == streams and min(settled[-1]) > 0 and max(settled[-1]) < 1 << 20, settled[-1]
    finally:
        for client in clients:
            client.close()


@pytest.mark.parametrize("name", HOGS)
def test_a_neighbour_of_a_hog_gets_right_answers(server, neighbour, name):
    with hog(name) as loud:
        wait_until(lambda: hogs_in(server, loud), what="the hog runs")
        started = time.monotonic()
        answers = 0
        # A short while, and some answers however long they take.
        while answers < 20 or time.monotonic() - started < 1:
            neighbour.add()
            neighbour.health()
            neighbour.list()
            answers += 1
        # One that is killed for its memory begins anew, and others fork.
        wait_until(lambda: hogs_in(server, loud), what="the hog still runs")
    assert server.healthy()


def test_a_sync_returns(sandbox):
    assert sandbox.commands.run("echo x > /home/user/file && timeout 600 sync && echo done", timeout=900).stdout == "done\n"
