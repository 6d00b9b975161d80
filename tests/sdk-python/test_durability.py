"""Servers die; sandboxes and what was promised about them do not. And nothing is left of what is gone."""

import json
import os
import signal
import subprocess
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import requests
from e2b import GuestUnresponsiveException, Sandbox, SandboxNotFoundException
from e2b_code_interpreter import Sandbox as Interpreter

from durability import clear, everything_listed, fill, pause_state, running, stored
from harness import volatile
from harness.census import resident_mib
from harness.server import host_counts, host_resources, instance_of, open_descriptors, settled_counts, wait_until


@pytest.mark.parametrize("how", ["kill9", "stop"])
def test_a_restarted_server_finds_its_sandboxes(server, how):
    interpreter = Interpreter.create(timeout=1800)
    plain = Sandbox.create(timeout=1800)
    short = Sandbox.create(timeout=8)
    deadline = time.monotonic() + 8
    interpreter.run_code("kept = 'in memory'")
    interpreter.files.write("kept", "on disk")
    ticker = plain.commands.run("i=0; while true; do i=$((i+1)); echo $i; sleep 0.1; done", background=True, timeout=0)
    before = plain.commands.list()[-1]

    getattr(server, how)()
    server.start()

    assert interpreter.run_code("kept").text == "in memory"
    assert Interpreter.connect(interpreter.sandbox_id).files.read("kept") == "on disk"
    again = Sandbox.connect(plain.sandbox_id)
    assert ticker.pid in [process.pid for process in again.commands.list()]
    assert before.pid == ticker.pid
    stream = again.commands.connect(ticker.pid, timeout=0)
    assert next(out for out, _, _ in stream if out), "the command goes on and can be listened to"
    stream.disconnect()

    wait_until(lambda: time.monotonic() > deadline, what="the short timeout")
    wait_until(lambda: not short.is_running(), what="the timeout is still kept")
    with pytest.raises(SandboxNotFoundException):
        short.get_info()
    assert interpreter.kill() and plain.kill()


def test_a_sandbox_killed_while_the_server_was_down_is_gone(server):
    sandbox = Sandbox.create(timeout=1800)
    before = host_resources(server.data_dir)
    server.kill9()
    for pid in before["processes"]:
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    server.start()
    assert not sandbox.is_running()
    with pytest.raises(SandboxNotFoundException):
        sandbox.get_info()
    wait_until(lambda: sandbox.sandbox_id not in host_resources(server.data_dir)["run directories"], what="sweep")


def test_fifty_at_once_leave_nothing(server):
    before = settle(server)
    descriptors = open_descriptors(server.pid)

    def live(_):
        sandbox = Sandbox.create(timeout=1800)
        try:
            return sandbox.commands.run("echo $((6 * 7))").stdout
        finally:
            assert sandbox.kill()

    with ThreadPoolExecutor(50) as pool:
        assert list(pool.map(live, range(50))) == ["42\n"] * 50
    wait_until(lambda: host_counts(server.data_dir) == before, what="everything is given back")
    wait_until(lambda: open_descriptors(server.pid) <= descriptors + 60, what="descriptors are closed")
    assert [s for s in Sandbox.list().next_items()] == []


def test_a_network_ends_with_its_sandbox_after_a_connection_to_a_port(server):
    """The server enters the network of a sandbox to connect to its ports."""
    before = settle(server)
    with Sandbox.create(timeout=1800) as sandbox:
        sandbox.commands.run("python3 -m http.server 8000", background=True)
        # The sandbox's successor in the pool is made, and then it is the last whose network is entered.
        settled_counts(server.data_dir)
        ask = lambda: requests.get(server.url, headers={"Host": sandbox.get_host(8000)}, timeout=60).status_code  # noqa: E731
        wait_until(lambda: ask() == 200, what="the port is served")
    wait_until(lambda: host_counts(server.data_dir) == before, what="everything is given back")


def test_dead_spares_are_not_missed(server):
    """Sandboxes made ahead may die like any process; a start then makes its own."""
    spares = lambda: volatile.matching(server.data_dir, "run/spare*x*")  # noqa: E731
    wait_until(spares, what="there are spares")
    settle(server)
    slots = {path.name.split("x")[1] for path in spares()}
    groups = [group for group in groups_of(instance_of(server.data_dir)) if group.name.startswith("s") and group.name[1:] in slots]
    victims = {pid for group in groups for pid in (volatile.text(group / "cgroup.procs") or "").split()}
    assert victims
    for pid in victims:
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    for _ in range(3):
        with Interpreter.create(timeout=1800) as interpreter:
            assert interpreter.run_code("40 + 2").text == "42"
    settle(server)


def test_a_crashed_creation_leaves_nothing(server):
    """The server dies in the middle of many creations: what was not acknowledged is swept, what was is there."""
    before = settle(server)
    acknowledged = []

    def create(_):
        try:
            acknowledged.append(Sandbox.create(timeout=1800, request_timeout=300))
        except Exception:
            pass

    with ThreadPoolExecutor(16) as pool:
        futures = [pool.submit(create, n) for n in range(16)]
        wait_until(lambda: len(acknowledged) >= 3, what="a few are acknowledged")
        server.kill9()
        for future in futures:
            future.result()
    server.start()
    for sandbox in acknowledged:
        assert sandbox.commands.run("echo here").stdout == "here\n"
    listed = {one.sandbox_id for one in Sandbox.list().next_items()}
    assert {sandbox.sandbox_id for sandbox in acknowledged} <= listed
    for sandbox_id in listed:
        Sandbox.kill(sandbox_id)
    wait_until(lambda: host_counts(server.data_dir) == before, what="everything is given back")


def test_a_normal_stop_leaves_only_what_sandboxes_need(server):
    settle(server)
    instance = instance_of(server.data_dir)
    sandbox = Sandbox.create(timeout=1800)
    sandbox.files.write("kept", "on disk")
    server.stop()
    slots, left = what_is_left(server)
    assert len(slots) == 1, "the spare shells and the warm processes are gone"
    assert left["links"] == {f"scv{instance}-{slot[1:]}" for slot in slots}
    assert left["run directories"] == left["uppers"] == {sandbox.sandbox_id}
    assert left["processes"]
    assert f"table inet sandcove{instance}" in tables(), "a sandbox never runs without its firewall"

    server.start()
    assert sandbox.files.read("kept") == "on disk"
    assert sandbox.kill()
    server.stop()
    slots, left = what_is_left(server)
    assert not slots
    for kind in ["processes", "cgroups", "links", "run directories", "uppers"]:
        assert not left[kind], kind
    assert not groups_of(instance)
    assert f"table inet sandcove{instance}" not in tables()
    server.start()
    assert Sandbox.create(timeout=1800).kill()


def what_is_left(server):
    """The slots that have control groups, and everything else; after a stop nothing of it is on its way out."""
    assert not volatile.matching(server.data_dir, "run/warm*")
    left = host_resources(server.data_dir)
    return {Path(group).name for group in left["cgroups"]}, left


def groups_of(instance) -> list[Path]:
    """The control groups of a server, and those of its sandboxes. Walked and not globbed: groups vanish meanwhile."""
    found = [Path(above) for above, _, _ in os.walk("/sys/fs/cgroup") if above.endswith(f"/sandcove{instance}")]
    return found + [group for one in found for group in volatile.matching(one, "*") if group.is_dir()]


def tables():
    return subprocess.run(["nft", "list", "tables"], check=True, capture_output=True, text=True).stdout.splitlines()


def settle(server):
    for one in Sandbox.list().next_items():
        Sandbox.kill(one.sandbox_id)
    wait_until(lambda: not host_resources(server.data_dir)["run directories"], what="earlier sandboxes are gone")
    return settled_counts(server.data_dir)


def test_paused_sandboxes_survive_the_server_and_the_host(server):
    """First only the server goes, then everything that runs: as in a reboot."""
    clear(server)
    full, files = running(metadata={"a": "b"}), stored()
    full.commands.run("head -c 1000000 /dev/urandom > /dev/shm/memory")
    memory = full.commands.run("sha256sum /dev/shm/memory").stdout
    full.pause()
    server.kill9()
    server.start()
    assert (pause_state(server, full), pause_state(server, files)) == ("full", "filesystem")
    full.connect(timeout=1800)
    assert full.commands.run("sha256sum /dev/shm/memory").stdout == memory
    full.pause()

    server.kill9()
    end_everything(server)
    server.start()
    for sandbox in [full, files]:
        assert pause_state(server, sandbox) == "filesystem"
        sandbox.connect(timeout=1800)
        assert sandbox.files.read("kept") == sandbox.sandbox_id
    assert full.get_info().metadata == {"a": "b"}
    assert full.commands.run("ls /dev/shm").stdout == "", "memory is gone, and the API says so"
    assert full.kill() and files.kill()


def test_a_paused_sandbox_that_loses_its_processes_keeps_its_files(server):
    sandbox = running()
    sandbox.pause()
    record = json.loads((server.data_dir / "run" / sandbox.sandbox_id / "jail.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    thaw(record["slot"], server)
    wait_until(lambda: pause_state(server, sandbox) == "filesystem", what="the loss is noticed")
    sandbox.connect(timeout=1800)
    assert sandbox.files.read("kept") == sandbox.sandbox_id
    assert sandbox.kill()


def test_a_paused_sandbox_whose_processes_were_killed_goes_on_from_its_files(server):
    """With version 1 of control groups they end only when they run again."""
    sandbox = running()
    sandbox.pause()
    record = json.loads((server.data_dir / "run" / sandbox.sandbox_id / "jail.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    sandbox.connect(timeout=1800)
    assert sandbox.files.read("kept") == sandbox.sandbox_id
    assert sandbox.kill()


def test_memory_with_an_agent_that_hangs_is_not_resumed(server):
    sandbox = running()
    record = json.loads((server.data_dir / "run" / sandbox.sandbox_id / "jail.json").read_text())
    os.kill(record["pid"], signal.SIGSTOP)
    # One that was heard within 5 s is not checked.
    time.sleep(6)
    sandbox.pause()
    assert sandbox.get_info().envd_unresponsive_at_pause
    server.stop()
    server.start()
    with pytest.raises(GuestUnresponsiveException):
        sandbox.connect()
    sandbox.connect(timeout=1800, on_resume="reboot")
    assert sandbox.files.read("kept") == sandbox.sandbox_id
    assert sandbox.get_info().envd_unresponsive_at_pause is None
    assert sandbox.kill()


def end_everything(server):
    resources = host_resources(server.data_dir)
    for pid in resources["processes"]:
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    for group in resources["cgroups"]:
        thaw_group(Path(group))
    wait_until(lambda: not host_resources(server.data_dir)["processes"], what="all processes are gone")


def thaw(slot, server):
    for group in host_resources(server.data_dir)["cgroups"]:
        if Path(group).name == f"s{slot}":
            thaw_group(Path(group))


def thaw_group(group):
    """A frozen process of version 1 dies only when it is thawed."""
    for file, value in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")]:
        # Without its processes a group may be removed at any time.
        with suppress(OSError):
            if (group / file).exists():
                (group / file).write_text(value)


def test_pausing_again_and_again_changes_nothing(server):
    """A thousand times with SANDCOVE_TEST_PAUSES=1000."""
    sandbox = Interpreter.create(timeout=3600)
    # Without processes that come and go: those of the host are counted meanwhile.
    tick = "import time\nwhile True: print(time.time_ns(), flush=True); time.sleep(0.01)"
    pid = sandbox.commands.run(f"python3 -c '{tick}' > ticks", background=True, timeout=0).pid
    sandbox.commands.run(
        "head -c 3000000 /dev/urandom | tee /dev/shm/memory > disk; truncate -s 50M sparse; printf x | dd of=sparse bs=1 seek=30M conv=notrunc"
    )
    sandbox.run_code("import os; total = 0; held = open('disk', 'rb'); held.seek(1_234_567)")
    state = "(os.getpid(), held.tell(), held.read(8).hex(), held.seek(-8, 1), len(os.listdir('/proc/self/fd')))"

    def everything():
        return sandbox.commands.run("sha256sum disk sparse /dev/shm/memory").stdout, sandbox.run_code(state).text

    first = everything()
    # The server makes spares for a while after its start.
    before = settled_counts(server.data_dir)
    descriptors, memory = open_descriptors(server.pid), resident_mib(server.pid)
    rounds = int(os.environ.get("SANDCOVE_TEST_PAUSES", "20"))
    for round in range(rounds):
        assert sandbox.pause()
        sandbox.connect(timeout=3600)
        if round % 10 == 0:
            assert sandbox.run_code("total += 1; total").text == str(round // 10 + 1)
        if round % 100 == 0:
            assert everything() == first
            print(f"after {round} pauses the server has {resident_mib(server.pid):.1f} MiB")
    assert everything() == first
    assert pid in [process.pid for process in sandbox.commands.list()]
    ticks = len(sandbox.files.read("ticks"))
    wait_until(lambda: len(sandbox.files.read("ticks")) > ticks, what="the process goes on")
    print(f"after {rounds} pauses the server has {resident_mib(server.pid):.1f} MiB, {memory:.1f} before")
    wait_until(lambda: host_counts(server.data_dir) == before, what="nothing more than before")
    wait_until(lambda: open_descriptors(server.pid) <= descriptors + 10, what="descriptors are closed")
    wait_until(lambda: resident_mib(server.pid) < memory + 20, what="memory is given back")
    sandbox.kill()


def test_many_paused_sandboxes_survive_a_restart(server):
    """A thousand of them with SANDCOVE_TEST_PAUSED=1000; those kept as files hold nothing but disk."""
    many = int(os.environ.get("SANDCOVE_TEST_PAUSED", "12"))

    def make(number):
        sandbox = running()
        sandbox.pause(mode="filesystem" if number % 2 else "full")
        return sandbox

    with ThreadPoolExecutor(4) as pool:
        sandboxes = list(pool.map(make, range(many)))
    server.kill9()
    began = time.monotonic()
    server.start()
    print(f"{many} paused sandboxes found again in {time.monotonic() - began:.2f} s")
    assert {one.sandbox_id: one.state for one in everything_listed()} == {one.sandbox_id: "paused" for one in sandboxes}
    for sandbox in sandboxes[:2] + sandboxes[-2:]:
        sandbox.connect(timeout=1800)
        assert sandbox.files.read("kept") == sandbox.sandbox_id
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda sandbox: sandbox.kill(), sandboxes))


def test_a_full_disk_is_an_error_and_tears_nothing(server):
    sandbox, files = running(), stored()
    content = os.urandom(5_000_000)
    sandbox.files.write("content", content)
    snapshot = sandbox.create_snapshot()
    filler = server.data_dir / "pool/filler"
    try:
        fill(filler)
        with pytest.raises(Exception, match="(?i)no space|not enough|quota|disk|full|507"):
            sandbox.files.write("more", os.urandom(50_000_000))
        refused = []
        for act in [
            sandbox.create_snapshot,
            lambda: sandbox.pause(),
            lambda: sandbox.connect(timeout=1800),
            lambda: files.connect(timeout=1800),
            lambda: sandbox.fork(timeout=1800),
            lambda: Sandbox.create(snapshot.snapshot_id, timeout=1800).files.read("content", format="bytes"),
        ]:
            try:
                act()
            except Exception as error:
                refused.append(error)
        for error in refused:
            assert not isinstance(error, TimeoutError) and str(error), error
    finally:
        filler.unlink(missing_ok=True)
    for one in [sandbox, files]:
        one.connect(timeout=1800)
        assert one.files.read("kept") == one.sandbox_id
    assert bytes(sandbox.files.read("content", format="bytes")) == content
    copy = Sandbox.create(sandbox.create_snapshot(name=f"full-{uuid.uuid4().hex[:8]}").snapshot_id, timeout=1800)
    assert bytes(copy.files.read("content", format="bytes")) == content
    clear(server)
