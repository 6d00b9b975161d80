"""What the kernel offers a sandbox beside files and processes: requests of devices, sockets and their options, dumps,
terminals, and what `/proc` and `/sys` say of the host. Each attack has a control that shows that it would work elsewhere, or a look
from outside."""

import array
import contextlib
import fcntl
import json
import os
import re
import struct
import subprocess
import uuid
from pathlib import Path

import pytest
from e2b import CommandExitException, Sandbox, Volume

from flavours import Terminal
from harness import volatile
from harness.kernel_log import kernel_log
from harness.server import wait_until

NOT_PERMITTED, NOT_IMPLEMENTED = 1, 38
IOCTL, SETSOCKOPT = 16, 54
# `error(number, *arguments)`: the error of a system call, 0 if it has none.
PRELUDE = """
import ctypes, json, os, pty, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def error(number, *arguments):
    ctypes.set_errno(0)
    arguments = [a if isinstance(a, ctypes.Array) else ctypes.c_long(a) for a in arguments]
    return ctypes.get_errno() if libc.syscall(ctypes.c_long(number), *arguments) == -1 else 0
room = (ctypes.c_char * 4096)()
"""


def run(sandbox, code, user="root"):
    """Runs Python in the sandbox; what it printed."""
    sandbox.files.write("/tmp/attack.py", PRELUDE + code)
    return sandbox.commands.run("python3 /tmp/attack.py", user=user, timeout=600).stdout


def errors(sandbox, setup, attempts, user="root"):
    """The errors of several calls, by their names; arguments are Python."""
    calls = ", ".join(f"{name!r}: error({arguments})" for name, arguments in attempts.items())
    return json.loads(run(sandbox, f"{setup}\nprint(json.dumps({{{calls}}}))", user))


@pytest.fixture(scope="module")
def box(server):
    """A sandbox for the whole file, for tests that leave it as they found it."""
    box = Sandbox.create(timeout=7200)
    yield box
    box.kill()


@contextlib.contextmanager
def setting(path, value):
    """Changes a setting of this host for a while."""
    before = Path(path).read_text()
    Path(path).write_text(value)
    try:
        yield
    finally:
        Path(path).write_text(before)


def test_a_volume_takes_no_requests_of_its_file_system(server):
    """A subvolume that a sandbox makes in a volume would have no limit, and would outlive the volume."""
    volume = Volume.create(f"surface-{uuid.uuid4()}")
    sandbox = Sandbox.create(timeout=1800, volume_mounts={"/data": volume})
    try:
        sandbox.commands.run("head -c 1000000 /dev/urandom > /data/one && sync -f /data", user="root")
        found = errors(
            sandbox,
            "at = os.open('/data', os.O_RDONLY)\none = os.open('/data/one', os.O_RDONLY)\n"
            "two = os.open('/data/two', os.O_RDWR | os.O_CREAT)\n"
            "name = (ctypes.c_char * 4096)(); name[8:14] = b'nested'",
            {
                "make a subvolume": f"{IOCTL}, at, 0x5000940e, name",
                "the same, with a bit that the kernel does not read": f"{IOCTL}, at, 0x15000940e, name",
                "make a snapshot": f"{IOCTL}, at, 0x50009417, name",
                "write everything to disk": f"{IOCTL}, at, 0x9408, 0",
                "ask for the space of the pool": f"{IOCTL}, at, 0xc0109414, room",
                "ask for the disks of the pool": f"{IOCTL}, at, 0x8400941f, room",
                "find paths by inode": f"{IOCTL}, at, 0xd0009412, room",
                "rewrite a file": f"{IOCTL}, one, 0x50009402, room",
                # The control: a request of the same type that cp makes.
                "share blocks": f"{IOCTL}, two, 0x40049409, one",
            },
        )
        assert found.pop("share blocks") == 0
        assert set(found.values()) == {NOT_IMPLEMENTED}, found
        assert sandbox.commands.run("cmp /data/one /data/two && ls /data").stdout.split() == ["one", "two"]
    finally:
        sandbox.kill()
        Volume.destroy(volume.volume_id)


def test_terminals_inject_nothing_and_change_no_line_discipline(box):
    found = errors(
        box,
        "controller, terminal = pty.openpty()",
        {
            "size": f"{IOCTL}, terminal, 0x5413, room",
            "attributes": f"{IOCTL}, terminal, 0x5401, room",
            "unread bytes": f"{IOCTL}, terminal, 0x541b, room",
            "type for others": f"{IOCTL}, terminal, 0x5412, room",
            "type for others, with a bit that the kernel does not read": f"{IOCTL}, terminal, 0x100005412, room",
            "paste on the console": f"{IOCTL}, terminal, 0x541c, room",
            "take the console": f"{IOCTL}, terminal, 0x541d, 0",
            # 27 is the discipline that needs no module.
            "line discipline": f"{IOCTL}, terminal, 0x5423, (ctypes.c_int * 1)(27)",
        },
    )
    controls = [found.pop(name) for name in ("size", "attributes", "unread bytes")]
    assert controls == [0, 0, 0]
    assert set(found.values()) == {NOT_PERMITTED}, found


def test_requests_of_sockets_load_no_modules(box):
    found = errors(
        box,
        "one = socket.socket()\ns = one.fileno()",
        {
            "bridges": f"{IOCTL}, s, 0x8940, room",
            "bridges too": f"{IOCTL}, s, 0x8941, room",
            "make a bridge": f"{IOCTL}, s, 0x89a0, room",
            "VLANs": f"{IOCTL}, s, 0x8982, room",
            "frame relay": f"{IOCTL}, s, 0x8980, room",
            "wireless": f"{IOCTL}, s, 0x8b01, room",
            "interfaces": f"{IOCTL}, s, 0x8912, room",
        },
    )
    assert found.pop("interfaces") == 0
    assert set(found.values()) == {NOT_IMPLEMENTED}, found


def test_options_of_sockets_load_no_modules_and_take_nothing_shared(box):
    found = errors(
        box,
        "one, two = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "tcp, udp = one.fileno(), two.fileno()\nroom[0:3] = b'tls'\n"
        "instruction = (ctypes.c_uint64 * 1)(6)\nprogram = (ctypes.c_uint64 * 2)(1, ctypes.addressof(instruction))",
        {
            "protocol on top of TCP": f"{SETSOCKOPT}, tcp, 6, 31, room, 3",
            "key of a router": f"{SETSOCKOPT}, tcp, 6, 14, room, 216",
            "key with an algorithm by name": f"{SETSOCKOPT}, tcp, 6, 38, room, 4096",
            "tunnel in UDP": f"{SETSOCKOPT}, udp, 17, 100, (ctypes.c_int * 1)(2), 4",
            "a compiled program": f"{SETSOCKOPT}, tcp, 1, 26, program, 16",
            "flow labels": f"{SETSOCKOPT}, tcp, 41, 32, room, 32",
            "no delay": f"{SETSOCKOPT}, tcp, 6, 1, (ctypes.c_int * 1)(1), 4",
            "timestamps": f"{SETSOCKOPT}, udp, 1, 29, (ctypes.c_int * 1)(1), 4",
        },
    )
    controls = [found.pop(name) for name in ("no delay", "timestamps")]
    assert controls == [0, 0]
    assert set(found.values()) == {NOT_PERMITTED}, found


def test_calls_that_change_what_is_shared_are_refused(box):
    found = errors(
        box,
        "import mmap\npages = mmap.mmap(-1, 1 << 20)\nat = ctypes.addressof(ctypes.c_char.from_buffer(pages))",
        {
            "merge memory": "28, at, 1 << 20, 12",
            "merge all memory": "157, 67, 1, 0, 0, 0",
            "own a core": "157, 62, 1, 0, 0, 0",
            "huge pages": "9, 0, 2 << 20, 3, 0x40022, -1, 0",
            "a file of huge pages": "319, room, 4",
            "shared memory of huge pages": "29, 0, 2 << 20, 0o5600",
            "give memory back": "28, at, 1 << 20, 4",
            "a name": "157, 15, room, 0, 0, 0",
            "a file in memory": "319, room, 0",
        },
    )
    controls = [found.pop(name) for name in ("give memory back", "a name", "a file in memory")]
    assert controls == [0, 0, 0]
    assert set(found.values()) == {NOT_PERMITTED}, found


def test_rare_calls_and_values_are_not_there(box):
    found = errors(
        box,
        "",
        {
            "vmsplice": "278, 1, 0, 0, 0",
            "remap_file_pages": "216, 0, 0, 0, 0, 0",
            "tee": "276, 0, 1, 1, 0",
            "mincore": "27, 0, 0, room",
            "set_mempolicy": "238, 0, 0, 0",
            "get_robust_list": "274, 0, room, room",
            "kcmp": "312, os.getpid(), os.getpid(), 0, 0, 0",
            "pidfd_getfd": "438, 0, 0, 0",
            "process_madvise": "440, 0, 0, 0, 0, 0",
            "process_mrelease": "448, 0, 0",
            "io_uring_setup": "425, 1, room",
            "fanotify_init": "300, 0, 0",
            "memory for another system": "135, 0x0008",
            "executable data": "135, 0x0400000",
            "as it is": "135, 0xffffffff",
            "the same addresses": "135, 0x0040000",
        },
    )
    controls = [found.pop(name) for name in ("as it is", "the same addresses")]
    assert controls == [0, 0]
    assert set(found.values()) == {NOT_IMPLEMENTED}, found
    assert box.commands.run("setarch -R echo fixed").stdout == "fixed\n"


EXTENTS = 0xC020_660B  # FS_IOC_FIEMAP
NOT_ON_DISK = 0x2 | 0x4


def is_on_disk(path):
    """Whether all data of a file has a place on disk; data that is only in memory has none."""
    request = array.array("B", struct.pack("=QQIIII", 0, 2**64 - 1, 0, 0, 16, 0) + bytes(16 * 56))
    with open(path, "rb") as file:
        fcntl.ioctl(file, EXTENTS, request)
    (count,) = struct.unpack_from("=I", request, 20)
    flags = [struct.unpack_from("=I", request, 32 + 56 * n + 40)[0] for n in range(count)]
    return count > 0 and not any(flag & NOT_ON_DISK for flag in flags)


def test_a_sync_in_a_sandbox_writes_nothing_of_the_host(box, server):
    file = server.data_dir / "of-the-host-and-not-on-disk"
    try:
        file.write_bytes(os.urandom(1 << 20))
        try:
            before = is_on_disk(file)
        except OSError:
            pytest.skip("the file system of the data directory does not say where data is")
        if before:
            pytest.skip("the file system of the data directory finds places at once")

        def is_left_alone() -> bool:
            """Whether a new file is still in memory after syncs in the sandbox, as it never is if they reach the host. Other programs of
            the host may write it to disk meanwhile, and so does the kernel after half a minute.
            """
            file.unlink()
            file.write_bytes(os.urandom(1 << 20))
            assert run(box, "os.sync(); print(error(162))") == "0\n"
            box.commands.run("sync", user="root")
            return not is_on_disk(file)

        wait_until(is_left_alone, 300, "a file that a sync in the sandbox leaves in memory")
        # What a program needs instead.
        box.commands.run("echo x > /tmp/durable && sync /tmp/durable && sync -f /tmp/durable", user="root")
        os.sync()
        assert is_on_disk(file), "the control"
    finally:
        file.unlink(missing_ok=True)


CRASHES = """
import resource, signal
os.makedirs('/tmp/crashes', exist_ok=True); os.chmod('/tmp/crashes', 0o777); os.chdir('/tmp/crashes')
def limit(of): return lambda: resource.setrlimit(resource.RLIMIT_CORE, (of, of))
def prlimit(): resource.prlimit(0, resource.RLIMIT_CORE, (0, 0))
dumped = 0
for prepare in [lambda: None, limit(0), limit(resource.RLIM_INFINITY), prlimit, lambda: os.setresuid(1000, 1000, 1000)]:
    child = os.fork()
    if child == 0:
        try: prepare()
        finally: os.kill(os.getpid(), signal.SIGSEGV)
    dumped += os.WCOREDUMP(os.waitpid(child, 0)[1])
print(dumped, os.listdir('.'), resource.getrlimit(resource.RLIMIT_CORE))
"""


def crash_outside(tmp_path):
    """A process outside of sandboxes, with an id that no sandbox has, that would be dumped."""
    command = "ulimit -c unlimited; kill -SEGV $$"
    tmp_path.chmod(0o777)
    subprocess.run(["setpriv", "--reuid=1999999999", "--regid=1999999999", "--clear-groups", "sh", "-c", command], cwd=tmp_path, check=False)  # fmt: skip


def test_no_dump_of_a_sandbox_is_piped_to_a_helper_of_the_host(box, tmp_path):
    """The kernel runs the helper as the host's root, with the memory of the sandbox as its input."""
    seen, helper = Path(f"/tmp/dumps-{uuid.uuid4()}"), Path(f"/tmp/dump-{uuid.uuid4()}")
    helper.write_text(f'#!/bin/sh\necho "$1" >>{seen}\nexec cat >/dev/null\n')
    helper.chmod(0o755)
    seen.touch()
    try:
        with setting("/proc/sys/kernel/core_pattern", f"|{helper} %u"):
            assert run(box, CRASHES) == "0 [] (1, 1)\n"
            crash_outside(tmp_path)
            wait_until(lambda: "1999999999" in seen.read_text(), what="the helper runs for a process outside")
        ours = [int(uid) for uid in seen.read_text().split() if int(uid) != 1999999999]
        assert not [uid for uid in ours if uid >= 1_000_000_000]
    finally:
        for file in (seen, helper):
            file.unlink(missing_ok=True)


def test_no_dump_is_left_in_a_directory_either(box, tmp_path):
    with setting("/proc/sys/kernel/core_pattern", "core"):
        assert run(box, CRASHES) == "0 [] (1, 1)\n"
        crash_outside(tmp_path)
        assert [file.name[:4] for file in tmp_path.iterdir()] == ["core"]


def test_sudo_has_no_complaint(box):
    """It sets the limit of core files to 0, and says so when it cannot."""
    ran = box.commands.run("sudo true", user="user")
    assert (ran.stdout, ran.stderr) == ("", "")


TERMINALS = """
import resource, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
taken = []
try:
    while len(taken) < 5000: taken.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))
except OSError: pass
print(len(taken), flush=True)
time.sleep(600)
"""


def test_one_sandbox_does_not_take_all_terminals(server):
    greedy, other = Sandbox.create(timeout=1800), Sandbox.create(timeout=1800)
    try:
        greedy.files.write("/tmp/terminals.py", PRELUDE + TERMINALS)
        said = []
        hog = greedy.commands.run("python3 /tmp/terminals.py", user="root", background=True, timeout=0)
        for stdout, _, _ in hog:
            said.append(stdout)
            break
        taken = int("".join(said))
        assert 100 < taken <= 256
        assert int(Path("/proc/sys/kernel/pty/nr").read_text()) >= taken
        terminal = Terminal(other)
        terminal.type("echo $((40 + 2)); exit\n")
        terminal.says("42")
        assert terminal.wait().exit_code == 0
    finally:
        greedy.kill()
        other.kill()


# Everything in the kernel's directories that is no process's, as far as it can be read.
EVERYTHING = """
import os
for top in ["/proc", "/sys"]:
    for directory, names, files in os.walk(top):
        if top == directory:
            names[:] = [n for n in names if not n.isdigit() and n not in ("self", "thread-self", "net")]
            files = [n for n in files if n != "mounts"]
        for name in names + files: print(os.path.join(directory, name))
        for name in files:
            path = os.path.join(directory, name)
            try:
                at = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                print(os.read(at, 65536).decode(errors="replace"))
                os.close(at)
            except OSError: pass
"""


def facts_of_the_host():
    """Names of this host's disks, devices and files, and how it was booted."""
    facts = {name for kind in ("class/block", "bus/pci/devices", "bus/virtio/devices") for name in volatile.names(f"/sys/{kind}")}
    machine = [Path("/sys/class/dmi/id") / name for name in ("product_name", "product_serial", "product_uuid", "board_serial")]
    for path in [*volatile.matching("/sys/class/block", "*/loop/backing_file"), *machine, Path("/proc/cmdline")]:
        facts.add((volatile.text(path) or "").strip())
    # Short ones are parts of other words.
    return {fact for fact in facts if len(fact) > 2 and not fact.isdigit()}


def test_disks_and_devices_of_the_host_have_no_name_inside(box, server):
    facts = facts_of_the_host()
    assert len(facts) > 3, facts
    box.files.write("/tmp/everything.py", EVERYTHING)
    output = box.commands.run("python3 /tmp/everything.py", user="root", timeout=1200).stdout
    assert "/proc/cpuinfo" in output and "/sys/class/net/eth0" in output, "it reads something"
    found = {fact for fact in facts if re.search(rf"(?<![\w.-]){re.escape(fact)}(?![\w.-])", output)}
    assert not found
    assert str(server.data_dir) not in output


@pytest.mark.parametrize(
    "name",
    ["buddyinfo", "cgroups", "cmdline", "config.gz", "consoles", "devices", "diskstats", "interrupts", "iomem", "ioports", "kallsyms",
     "kcore", "key-users", "keys", "kpagecgroup", "kpagecount", "kpageflags", "locks", "misc", "modules", "mtrr", "pagetypeinfo",
     "partitions", "sched_debug", "schedstat", "slabinfo", "softirqs", "swaps", "timer_list", "vmallocinfo", "zoneinfo"],
)  # fmt: skip
def test_what_the_kernel_counts_for_all_is_hidden(box, name):
    ran = box.commands.run(f"head -c 4096 /proc/{name} 2>/dev/null | wc -c", user="root")
    assert ran.stdout == "0\n"


def test_the_hosts_memory_and_disks_at_work_do_not_show(box):
    host = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    inside = dict(line.split() for line in box.commands.run("cat /proc/vmstat").stdout.splitlines())
    assert int(host["pgfault"]) > 0 and set(inside.values()) == {"0"}
    assert box.commands.run("ls -A /proc/pressure /proc/bus /proc/fs /proc/irq /proc/driver 2>/dev/null | grep -v :", user="root").stdout.strip() == ""  # fmt: skip


def test_mounts_do_not_say_where_the_host_keeps_its_data(box, server):
    mounts = [line for line in box.commands.run("cat /proc/self/mountinfo").stdout.splitlines() if " - " in line]
    assert len(mounts) > 5
    assert str(server.data_dir) not in "\n".join(mounts)
    root = next(line for line in Path("/proc/self/mountinfo").read_text().splitlines() if line.split()[4] == "/")
    device = root.split(" - ")[1].split()[1]
    assert device not in "\n".join(line for line in mounts if " devtmpfs " not in line)


@pytest.mark.parametrize(
    "command",
    ["ps aux", "ps -o tty= -p $$", "top -b -n 1", "free", "vmstat", "vmstat -s", "uptime", "w", "lscpu", "nproc", "df", "ip address",
     "ip route", "lsblk", "mount", "getconf _NPROCESSORS_ONLN"],
)  # fmt: skip
def test_tools_that_read_the_kernels_files_work(box, command):
    ran = box.commands.run(command, user="user")
    assert ran.exit_code == 0 and ran.stderr == ""


def test_ss_lists_sockets_by_files(box):
    """Its other way loads modules of protocols."""
    service = box.commands.run("python3 -m http.server 8765 --bind 127.0.0.1", background=True, timeout=0)
    box.commands.run("until (exec 3<>/dev/tcp/127.0.0.1/8765) 2>/dev/null; do sleep 0.05; done")
    try:
        assert "127.0.0.1:8765" in box.commands.run("ss -ltn").stdout
    finally:
        service.kill()


PSUTIL = """
import psutil, warnings
warnings.simplefilter("error")
psutil.cpu_percent(0.1), psutil.cpu_times(), psutil.cpu_stats(), psutil.getloadavg(), psutil.swap_memory(), psutil.boot_time()
psutil.disk_io_counters(), psutil.net_io_counters(), psutil.net_if_stats(), psutil.net_connections(), psutil.disk_partitions()
for process in psutil.process_iter():
    try: process.as_dict()
    except psutil.NoSuchProcess: pass
print(psutil.cpu_count() > 0, psutil.virtual_memory().total > 0, psutil.disk_usage("/").total > 0)
"""


def test_psutil_works(interpreter):
    ran = interpreter.run_code(PSUTIL)
    assert ran.error is None, ran.error
    assert "".join(ran.logs.stdout) == "True True True\n"


@pytest.mark.parametrize("user", ["user", "root"])
def test_ping_works_without_raw_sockets(box, user):
    for address in ["127.0.0.1", "::1"]:
        ran = box.commands.run(f"ping -n -c 1 -W 60 {address}", user=user)
        assert " 0% packet loss" in ran.stdout and ran.stderr == ""
    echo = """
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as s:
    s.settimeout(60)
    s.sendto(bytes([8, 0, 0, 0, 0, 0, 0, 1]) + b"hello", ("127.0.0.1", 0))
    print(s.recv(100)[8:].decode())
"""
    assert run(box, echo, user=user) == "hello\n"
    with pytest.raises(CommandExitException) as refused:
        run(box, "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)", user=user)
    assert "Errno 38" in refused.value.stderr or "Errno 1]" in refused.value.stderr


def logged_refusals(lines):
    """Numbers of the calls that sandboxes were refused."""
    records = [re.search(r"type=1326 .*\buid=(\d+) .*\bsyscall=(\d+)", line) for line in lines]
    return [int(record[2]) for record in records if record and int(record[1]) >= 1_000_000_000]


@pytest.mark.parametrize("is_on", [False, True])
def test_refused_calls_are_logged_if_the_operator_asks_for_it(server, is_on):
    if "errno" not in Path("/proc/sys/kernel/seccomp/actions_logged").read_text():
        pytest.skip("this host logs no errors of seccomp")
    if subprocess.run(["pidof", "auditd"], check=False, stdout=subprocess.DEVNULL).returncode == 0:
        pytest.skip("the audit daemon of this host takes the records")
    server.stop()
    server.variables = {"SANDCOVE_SECCOMP_LOG": "1" if is_on else "0"}
    server.start()
    sandbox = Sandbox.create(timeout=7200)
    try:
        added = kernel_log()
        seen = []

        def refused_calls_are_in_the_log():
            # Once is not enough: the kernel limits the rate of its log.
            run(sandbox, "print(error(425, 1, room), error(272, 0))")
            seen.extend(logged_refusals(added()))
            return {425, 272} <= set(seen)

        if is_on:
            wait_until(refused_calls_are_in_the_log, what=f"the refused calls in the kernel's log, not only {set(seen)}")
        else:
            assert not refused_calls_are_in_the_log() and not set(seen) & {425, 272}
    finally:
        sandbox.kill()
        server.stop()
        server.variables = {}
        server.start()
