"""What depends on the kernel and on control groups of version 2, as a user sees it and as the host does. Nothing here has a time limit below
minutes: the machine is emulated."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from e2b import CommandExitException, Volume
from e2b_code_interpreter import Sandbox

from harness.server import host_counts, instance_of, wait_until

CGROUPS = Path("/sys/fs/cgroup")
MINUTES = {"timeout": 900, "request_timeout": 900}
# Counts in memory and not in a file.
COUNTER = "i=0; while true; do i=$((i+1)); echo $i >/dev/shm/count; sleep 0.2; done"


@pytest.fixture(scope="module")
def box(server):
    box = Sandbox.create(timeout=7200, request_timeout=900)
    yield box
    # The last test has ended all of them, with the server.
    if server.healthy():
        box.kill(request_timeout=900)


def record(server, box) -> dict:
    return json.loads((server.data_dir / "run" / box.sandbox_id / "jail.json").read_text())


def parent(server) -> Path:
    return CGROUPS / f"sandcove{instance_of(server.data_dir)}"


def group(server, box) -> Path:
    return parent(server) / f"s{record(server, box)['slot']}"


def value(path: Path, key: str) -> int:
    return next(int(line.split()[1]) for line in path.read_text().splitlines() if line.split()[0] == key)


def count(box) -> int:
    return int(box.commands.run("cat /dev/shm/count 2>/dev/null || echo 0", **MINUTES).stdout or 0)


def go_on(server, box):
    """Checks that a counter runs, and returns a number that it has passed."""
    before = count(box)
    wait_until(lambda: count(box) > before, 600, "a counter that goes on")
    return before


def test_the_host_has_one_hierarchy_of_version_2():
    assert (CGROUPS / "cgroup.controllers").exists()
    assert not [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup " in line]


def test_doctor_finds_nothing_missing(server):
    done = subprocess.run([server.binary, "doctor", "--json", "--data-dir", server.data_dir], capture_output=True, text=True)
    found = json.loads(done.stdout)
    print(json.dumps(found, indent=1))
    assert done.returncode == 0
    checks = found if isinstance(found, list) else found["checks"]
    by_name = {check["name"]: check for check in checks}
    for name in ("cgroups", "fairness", "btrfs", "overlayfs", "nftables", "connection limit"):
        assert by_name[name]["status"] == "ok", by_name[name]
    assert "version 2" in by_name["cgroups"]["found"]


def test_all_sandboxes_together_leave_a_reserve(server):
    memory = int((parent(server) / "memory.max").read_text())
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert total // 2 <= memory <= total - (256 << 20)
    assert 0 < int((parent(server) / "pids.max").read_text()) < int(Path("/proc/sys/kernel/pid_max").read_text())
    assert {"cpu", "io", "memory", "pids"} <= set((parent(server) / "cgroup.subtree_control").read_text().split())


def test_limits_of_a_sandbox_are_those_of_its_group(server, box):
    limits = record(server, box)["limits"]
    here = group(server, box)
    assert int((here / "memory.max").read_text()) == limits["memory_mib"] << 20
    assert int((here / "pids.max").read_text()) == limits["pids"]
    assert (here / "cpu.max").read_text().split() == [str(limits["cpus"] * 100_000), "100000"]


def test_code_commands_and_files(box):
    assert box.run_code("import pandas as pd; kept = pd.DataFrame({'a': [1, 2]}); int(kept.a.sum())", **MINUTES).text == "3"
    box.files.write("note", "from outside")
    assert box.commands.run("cat note", **MINUTES).stdout == "from outside"
    with pytest.raises(CommandExitException):
        box.commands.run("exit 3", **MINUTES)


def test_a_sandbox_sees_its_own_limits_as_the_machine_s(server, box):
    seen = box.commands.run("cat /proc/self/cgroup", **MINUTES).stdout
    assert seen == "0::/\n"
    metrics = []
    wait_until(lambda: metrics.extend(box.get_metrics(request_timeout=900)) or metrics, 600, "metrics")
    assert metrics[-1].mem_total == record(server, box)["limits"]["memory_mib"] << 20


def test_processor_time_memory_and_disk_are_counted(server, box):
    burner = box.commands.run("while true; do :; done", background=True, timeout=0, request_timeout=900)
    box.commands.run("head -c 60000000 /dev/urandom >big; sync; head -c 50000000 /dev/urandom >/dev/shm/held", **MINUTES)

    def counted() -> bool:
        last = box.get_metrics(request_timeout=900)[-1:]
        return any(one.cpu_used_pct > 5 and one.mem_used > 50_000_000 and one.disk_used > 50_000_000 for one in last)

    wait_until(counted, 900, "metrics of what was used")
    assert int((group(server, box) / "memory.current").read_text()) > 50_000_000
    burner.kill()
    box.commands.run("rm big /dev/shm/held", **MINUTES)


def test_a_sandbox_that_burns_gives_way_and_is_restored(server, box):
    is_idle = group(server, box) / "cpu.idle"
    wait_until(lambda: is_idle.read_text() == "0\n", 900, "the end of an earlier demotion")
    burners = [box.commands.run("while true; do :; done", background=True, timeout=0, request_timeout=900) for _ in range(2)]
    wait_until(lambda: is_idle.read_text() == "1\n", 900, "a demotion")
    for burner in burners:
        burner.kill()
    wait_until(lambda: is_idle.read_text() == "0\n", 900, "a restoration")
    assert (group(server, box) / "cpu.weight").read_text() == "100\n"


def test_memory_is_limited_and_others_live(server, box):
    events = group(server, box) / "memory.events"
    before = value(events, "oom_kill")
    with pytest.raises(CommandExitException) as caught:
        box.commands.run("python3 -c 'held = bytearray(3 << 30)'", **MINUTES)
    assert caught.value.exit_code != 0
    assert value(events, "oom_kill") > before
    assert box.commands.run("echo here", **MINUTES).stdout == "here\n"
    assert box.run_code("len(kept)", **MINUTES).text == "2"


@pytest.fixture
def swap(server):
    """Swap of the host, which programs on the host do get: on the system's disk, because btrfs keeps none."""
    file = Path("/swap")
    subprocess.run(["dd", "if=/dev/zero", f"of={file}", "bs=1M", "count=512", "status=none"], check=True)
    file.chmod(0o600)
    for command in ("mkswap", "swapon"):
        subprocess.run([command, file], check=True)
    yield
    subprocess.run(["swapoff", file], check=True)
    file.unlink()


def test_a_running_sandbox_uses_no_swap_and_a_paused_one_may(server, swap):
    box = Sandbox.create("base", timeout=7200, request_timeout=900)
    here = group(server, box)
    # Most of what the sandbox may use, and more than that.
    assert box.commands.run("python3 -c 'held = bytearray(400 << 20)'; echo $?", **MINUTES).stdout == "0\n"
    assert box.commands.run("python3 -c 'held = bytearray(700 << 20)'; echo $?", **MINUTES).stdout == "137\n"
    assert int((here / "memory.swap.current").read_text()) == 0
    box.commands.run("head -c 100000000 /dev/urandom >/dev/shm/held", **MINUTES)
    box.pause(request_timeout=900)
    wait_until(lambda: int((here / "memory.swap.current").read_text()) > 50_000_000, 900, "memory in the swap")
    box.connect(timeout=7200, request_timeout=900)
    assert box.commands.run("wc -c </dev/shm/held", **MINUTES).stdout == "100000000\n"
    assert box.kill(request_timeout=900)


def test_processes_are_limited(server, box):
    # More than the limit, which a shell alone survives.
    bomb = "import os, time\nfor n in range(100_000):\n    try:\n        if not os.fork():\n            time.sleep(600)\n" \
        "    except OSError:\n        print('refused')\n        break\n"  # fmt: skip
    box.files.write("bomb.py", bomb)
    limit = record(server, box)["limits"]["pids"]
    done = box.commands.run("timeout 600 python3 bomb.py; pkill -f '^python3 bomb.py'; true", **MINUTES)
    assert "refused" in done.stdout
    assert value(group(server, box) / "pids.events", "max") > 0
    wait_until(lambda: int((group(server, box) / "pids.current").read_text()) < limit // 2, 600, "the end of the bomb")


def test_a_pause_freezes_and_keeps_memory(server, box):
    box.commands.run(COUNTER, background=True, timeout=0, request_timeout=900)
    wait_until(lambda: count(box) > 3, 600, "a counter that counts")
    here = group(server, box)
    box.pause(request_timeout=900)
    assert value(here / "cgroup.events", "frozen") == 1
    box.connect(timeout=7200, request_timeout=900)
    assert value(here / "cgroup.events", "frozen") == 0
    assert go_on(server, box) > 3
    assert box.run_code("len(kept)", **MINUTES).text == "2"


def test_snapshots_become_sandboxes(box):
    box.files.write("kept", "in the snapshot")
    snapshot = box.create_snapshot(request_timeout=900)
    copy = Sandbox.create(snapshot.snapshot_id, timeout=3600, request_timeout=900)
    assert copy.files.read("kept") == "in the snapshot"
    assert copy.run_code("6 * 7", **MINUTES).text == "42"
    assert copy.kill(request_timeout=900)


def test_volumes_are_shared(server):
    volume = Volume.create("shared", request_timeout=900)
    boxes = [Sandbox.create("base", timeout=3600, volume_mounts={"/mnt/shared": volume}, request_timeout=900) for _ in range(2)]
    boxes[0].files.write("/mnt/shared/file", "one for both")
    assert boxes[1].files.read("/mnt/shared/file") == "one for both"
    for one in boxes:
        assert one.kill(request_timeout=900)
    Volume.destroy(volume.volume_id, request_timeout=900)


def test_neighbours_and_the_host_are_out_of_reach(server, box):
    other = Sandbox.create("base", timeout=3600, request_timeout=900)
    script = "import socket,sys\ntry:\n    socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)\n    print('reached')\n" \
        "except OSError:\n    print('refused')\n"  # fmt: skip
    for one in (box, other):
        one.files.write("/tmp/reach.py", script)
    other.commands.run("python3 -m http.server 8000", background=True, timeout=0, request_timeout=900)
    address = other.commands.run("hostname -I", **MINUTES).stdout.split()[0]
    reach = f"python3 /tmp/reach.py {address} 8000"
    # From within, so that the wall is what refuses from outside.
    wait_until(lambda: "reached" in other.commands.run(reach, **MINUTES).stdout, 600, "a server in the neighbour")
    assert "refused" in box.commands.run(reach, **MINUTES).stdout
    assert "refused" in box.commands.run(f"python3 /tmp/reach.py 10.0.2.15 {server.port}", **MINUTES).stdout
    assert other.kill(request_timeout=900)


def test_memory_goes_to_disk_and_back(server):
    """CRIU, with the freezer of version 2."""
    server.stop()
    server.variables["SANDCOVE_PARK_AFTER"] = "0"
    server.start()
    box = Sandbox.create("base", timeout=7200, request_timeout=900)
    box.commands.run(COUNTER, background=True, timeout=0, request_timeout=900)
    wait_until(lambda: count(box) > 3, 600, "a counter that counts")
    jail = server.data_dir / "run" / box.sandbox_id / "jail.json"
    box.pause(request_timeout=900)
    wait_until(lambda: not jail.exists(), 900, "the end of the processes")
    assert (server.data_dir / "pool/parked" / box.sandbox_id / "manifest.json").exists()
    box.connect(timeout=7200, request_timeout=900)
    assert go_on(server, box) > 3
    assert box.kill(request_timeout=900)


def test_sandboxes_outlive_the_server(server):
    box = Sandbox.create("base", timeout=7200, request_timeout=900)
    box.commands.run(COUNTER, background=True, timeout=0, request_timeout=900)
    wait_until(lambda: count(box) > 3, 600, "a counter that counts")
    server.kill9()
    server.start()
    assert go_on(server, box) > 3
    assert box.kill(request_timeout=900)


def test_the_last_sandboxes_leave_nothing(server):
    """The server ends all sandboxes, as with `sandcove down --all`."""
    box, here = Sandbox.create("base", timeout=7200, request_timeout=900), parent(server)
    assert group(server, box).is_dir()
    os.kill(server.pid, signal.SIGUSR1)
    server.process.wait(timeout=900)
    assert not here.exists()
    assert not [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f"{server.data_dir}/" in line]
    assert not any(host_counts(server.data_dir)[kind] for kind in ("processes", "links", "loop devices"))
