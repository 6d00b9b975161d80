"""A template whose own code runs in its warm process, and attacks from there: on its own, and as a fork that enters a sandbox.

The code is loaded by Python at its start (a `.pth` file). What it finds out is inherited by the kernels of its sandboxes, which
tell it.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from e2b_code_interpreter import Sandbox

from builds import Builds
from harness import volatile
from harness.server import Server, wait_until

HOSTILE = r'''
import builtins, ctypes, os, socket, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWCGROUP, NEWUSER, NEWNET = 0x20000, 0x2000000, 0x10000000, 0x40000000
PTRACE_ATTACH = 16


def outcome(result):
    return "worked" if result >= 0 else os.strerror(ctypes.get_errno())


def capabilities():
    return next(line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff"))


def links():
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            pass
    return found


def processes():
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def new_interface():
    """Asks for a dummy interface, which takes rights over the network namespace; the error of the answer."""
    asked = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    name = b"evil0\0\0\0"
    info = struct.pack("HH", 4 + 4 + 6 + 2, 18) + struct.pack("HH", 10, 1) + b"dummy\0" + b"\0\0"
    body = struct.pack("BxHiII", 0, 0, 0, 0, 0) + struct.pack("HH", 4 + len(name), 3) + name + info
    asked.send(struct.pack("IHHII", 16 + len(body), 16, 0x1 | 0x4 | 0x400, 1, 0) + body)
    answer = asked.recv(4096)
    return os.strerror(-struct.unpack("i", answer[16:20])[0])


def own(name):
    return os.open(f"/proc/self/ns/{name}", os.O_RDONLY)


def attack():
    found = {
        "capabilities": capabilities(),
        "links": links(),
        "processes": processes(),
        "mount": outcome(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)),
        "a user namespace": outcome(libc.unshare(NEWUSER)),
        "a network namespace": outcome(libc.unshare(NEWNET)),
        "a control group namespace": outcome(libc.unshare(NEWCGROUP)),
        "a namespace of any kind": outcome(libc.setns(own("uts"), 0)),
        "a mount namespace": outcome(libc.setns(own("mnt"), NEWNS)),
        "root of the host": os.path.exists("/layers") or os.path.exists("/proc/1/root/layers"),
    }
    try:
        found["an interface"] = new_interface()
    except OSError as error:
        found["an interface"] = error.strerror
    return found


def attack_neighbours():
    return {
        "trace the first process": outcome(libc.ptrace(PTRACE_ATTACH, 1, 0, 0)),
        "kill the first process": outcome(libc.kill(1, 9)),
        "stop every process": sorted({outcome(libc.kill(pid, 19)) for pid in range(1, 400) if pid != os.getpid()}),
        "become the owner of a sandbox": outcome(libc.setresuid(1_000_000_000, 1_000_000_000, 1_000_000_000)),
    }


def before_giving_up(original):
    """As the fork, in the sandbox, with all rights over it."""

    def replacement(kept, program):
        inside = attack()
        inside["first process"] = open("/proc/1/cmdline").read()
        inside["files of the first process"] = os.listdir("/proc/1/root")
        builtins.HOSTILE["inside"] = inside
        original(kept, program)

    return replacement


def forked():
    warm = sys.modules.get("sandcove_kernel.warm")
    if warm and not hasattr(warm, "attacked"):
        warm.attacked = True
        builtins.HOSTILE["links of the fork"] = links()
        warm._give_up = before_giving_up(warm._give_up)


if "--warm=3" in sys.orig_argv:
    builtins.HOSTILE = {"warm": attack() | attack_neighbours()}
    os.register_at_fork(after_in_child=forked)
'''


@dataclass
class Hostile:
    """A template that attacks, and the server that has it."""

    server: Server
    template: str

    @property
    def data_dir(self) -> Path:
        return self.server.data_dir

    def box(self, **options) -> Sandbox:
        return Sandbox.create(self.template, **options)


@pytest.fixture(scope="module", params=["of a team", "of the server"])
def hostile(request, server):
    """A hostile template: one that a team has built, or a server whose `code-interpreter-v1` is hostile."""
    yield from of_team(server) if request.param == "of a team" else of_server(server)


def of_team(server):
    builds = Builds(server)
    try:
        yield Hostile(server, builds.build(with_module(builds, "hostile", HOSTILE)).template_id)
    finally:
        builds.clear()


def with_module(builds, name: str, code: str):
    """A template whose Python loads this code at its start."""
    packages = "$(python3 -c 'import site; print(site.getsitepackages()[0])')"
    code = base64.b64encode(code.encode()).decode()
    return (
        builds.template()
        .from_template("code-interpreter-v1")
        .run_cmd(f"echo {code} | base64 -d > {packages}/{name}.py", user="root")
        .run_cmd(f"echo 'import {name}' > {packages}/{name}.pth", user="root")
    )


def of_server(server):
    own = Server(Path(f"{server.data_dir}.hostile"))
    own.variables = {"SANDCOVE_SPARES": "1", "SANDCOVE_LANGUAGES": "lean"}
    before = dict(os.environ)
    try:
        own.start()
        os.environ.update(own.env)
        sandbox = Sandbox.create()
        ran = sandbox.run_code("import site; print(site.getsitepackages()[0])")
        sandbox.kill()
        packages = "".join(ran.logs.stdout).strip().lstrip("/")
        layers = [layer for layer in (own.data_dir / "pool/layers").iterdir() if (layer / packages).is_dir()]
        assert layers, f"a layer has {packages}"
        for layer in layers:
            (layer / packages / "hostile.py").write_text(HOSTILE)
            (layer / packages / "hostile.pth").write_text("import hostile\n")
        # The next start makes a new warm process, and new sandboxes ahead.
        own.stop()
        own.start()
        yield Hostile(own, "code-interpreter-v1")
    finally:
        os.environ.clear()
        os.environ.update(before)
        own.stop()
        subprocess.run([own.binary, "purge", "--yes", "--data-dir", own.data_dir], check=True, capture_output=True)
        shutil.rmtree(own.data_dir, ignore_errors=True)


@pytest.fixture(scope="module")
def told(hostile):
    """A sandbox with a fork of the warm process, and what the hostile code found out."""
    kept = []

    def is_forked():
        # Until the warm process is ready, interpreters start without it, and in ignorance.
        sandbox = hostile.box(timeout=1800)
        ran = sandbox.run_code("import builtins, json; print(json.dumps(getattr(builtins, 'HOSTILE', None)))")
        assert ran.error is None, ran.error.traceback
        found = json.loads("".join(ran.logs.stdout))
        kept.append((sandbox, found)) if found else sandbox.kill()
        return bool(found)

    wait_until(is_forked, what="a fork of the warm process")
    yield kept[0]
    kept[0][0].kill()


@pytest.fixture(scope="module")
def sandbox(told):
    return told[0]


@pytest.fixture(scope="module")
def found(told):
    return told[1]


@pytest.fixture(params=["warm", "inside"])
def place(request, found):
    """What it found in the warm process itself, and as a fork in a sandbox before it gives up its rights."""
    return found[request.param]


def test_the_code_ran_where_it_was_to_run(found):
    assert set(found) == {"warm", "inside", "links of the fork"}
    assert "sandcove-agent" in found["inside"]["first process"]
    assert "home" in found["inside"]["files of the first process"]


def test_a_warm_process_has_one_capability(found):
    CAP_SYS_ADMIN = 1 << 21
    assert int(found["warm"]["capabilities"], 16) == CAP_SYS_ADMIN


def test_no_descriptor_leads_to_the_host(found):
    for link in [*found["warm"]["links"], *found["links of the fork"]]:
        assert "cgroup.procs" not in link and "/pool/" not in link, link
        harmless = ("pipe:", "socket:", "anon_inode:", "pid:[", "net:[", "user:[", "uts:[", "mnt:[", "/dev/null", "/memfd:log")
        assert link.startswith(harmless), link


def test_only_itself_is_seen_by_a_warm_process(found):
    assert len(found["warm"]["processes"]) == 1


@pytest.mark.parametrize(
    "attack",
    [
        "mount",
        "a user namespace",
        "a network namespace",
        "a control group namespace",
        "a namespace of any kind",
        "a mount namespace",
        "an interface",
    ],
)
def test_nothing_that_the_kernel_has_holes_in_is_reached(place, attack):
    assert place[attack] in {"Operation not permitted", "Function not implemented"}


@pytest.mark.parametrize("attack", ["trace the first process", "kill the first process", "become the owner of a sandbox"])
def test_the_first_process_of_its_namespace_is_out_of_reach(found, attack):
    assert found["warm"][attack] in {"Operation not permitted", "No such process", "Invalid argument"}


def test_nothing_else_in_its_namespace_can_be_stopped(found):
    assert set(found["warm"]["stop every process"]) <= {"Operation not permitted", "No such process"}


def test_the_file_system_of_the_host_is_not_there(place):
    assert place["root of the host"] is False


def test_sandboxes_outlive_their_warm_process(hostile):
    """Their PID namespaces are made in that of the warm process, whose first process is another."""
    sandbox = hostile.box(timeout=1800)
    try:
        sandbox.run_code("kept = 7")
        warm = {path: volatile.record(path) for path in volatile.matching(hostile.data_dir, "run/warm*/jail.json")}
        for record in warm.values():
            # One that has just been replaced has ended already.
            with suppress(ProcessLookupError):
                os.kill(record["pid"], signal.SIGKILL) if record else None
        assert any(warm.values())
        wait_until(lambda: not any(path.exists() for path in warm), what="the warm processes are replaced")
        assert sandbox.run_code("kept").text == "7"
    finally:
        sandbox.kill()


def test_forks_are_in_the_control_group_of_their_sandbox(hostile, sandbox):
    """Although the warm process is not told what its group is."""
    run = hostile.data_dir / "run" / sandbox.sandbox_id / "jail.json"
    record = json.loads(run.read_text())
    namespace = os.readlink(f"/proc/{record['pid']}/ns/pid")
    groups = {Path(f"/proc/{record['pid']}/cgroup").read_text()}
    groups |= {volatile.text(process / "cgroup") for process in volatile.processes() if volatile.link(process / "ns/pid") == namespace}
    # What has ended meanwhile has no group.
    assert len(groups - {None}) == 1


#: A warm-up that takes all memory it can get, and one that never ends.
GREEDY = """
import sys
if "--warm=3" in sys.orig_argv:
    kept = []
    while True:
        kept.append(bytearray(16 << 20))
"""


def test_a_warm_up_that_takes_all_memory_hurts_nobody(server, monkeypatch):
    """It is ended at the memory of one sandbox and given up after some tries. Sandboxes start their interpreters themselves."""
    # Clients may still have those of the server above.
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    builds = Builds(server)
    logged = server.log.stat().st_size
    try:
        built = builds.build(with_module(builds, "greedy", GREEDY), memory_mb=512)

        def interpreter() -> dict:
            return builds.call("GET", f"/templates/{built.template_id}").json()["interpreter"]

        wait_until(lambda: interpreter()["state"] == "failed", what="the warm process is given up")
        sandbox = Sandbox.create(built.template_id, timeout=1800)
        try:
            assert sandbox.run_code("1 + 1").text == "2"
        finally:
            sandbox.kill()
        # What is released twice may be another sandbox's by then.
        assert b"released twice" not in server.log.read_bytes()[logged:]
    finally:
        builds.clear()
