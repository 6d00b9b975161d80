"""Attacks from inside a sandbox, each named for what it tries. They run as root inside, which any user can become."""

from pathlib import Path

import pytest
from e2b import CommandExitException, Sandbox

from harness.server import ADMIN_TOKEN, API_KEY


def attempt(sandbox, command, **options):
    """Runs an attack; returns everything it printed and whether it claims success."""
    try:
        result = sandbox.commands.run(command, user="root", timeout=600, **options)
        return result.stdout + result.stderr, True
    except CommandExitException as refused:
        return refused.stdout + refused.stderr, False


def refused(sandbox, command):
    output, succeeded = attempt(sandbox, command)
    assert not succeeded, f"worked: {command}\n{output}"
    return output


def python(code):
    return f"python3 - <<'END'\n{code}\nEND"


def test_host_environment_cannot_be_read(sandbox, server):
    # What the server's own processes have: the key and the token that it was started with.
    own = Path(f"/proc/{server.pid}/environ").read_bytes()
    assert API_KEY.encode() in own and ADMIN_TOKEN.encode() in own
    output, _ = attempt(sandbox, "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'")
    assert "PATH=" in output, "it reads something"
    for secret in (API_KEY, ADMIN_TOKEN, "SANDCOVE_", str(server.data_dir), "sandcove serve"):
        assert secret not in output


def test_only_own_processes_are_seen(sandbox, server):
    output, _ = attempt(sandbox, "ls /proc | grep -E '^[0-9]+$' | wc -l")
    assert int(output) < 30
    refused(sandbox, f"test -d /proc/{server.pid}/task && grep -q sandcove /proc/{server.pid}/cmdline")


def test_host_files_cannot_be_reached(sandbox, server):
    # Files that are on the host and in no sandbox.
    marker = server.data_dir / "of-the-host"
    marker.write_text("do-not-leak")
    for path in [server.data_dir, marker, server.binary.resolve()]:
        assert path.exists()
        for root in ["", "/proc/1/root", "/proc/self/root/../..", "/proc/1/cwd/../../../../.."]:
            refused(sandbox, f"ls {root}{path}")
    output, _ = attempt(sandbox, f"find / -xdev -name {marker.name} 2>/dev/null; cat /proc/1/mountinfo /proc/self/mountinfo")
    assert marker.name not in output and " / " in output


def test_mounts_are_refused(sandbox, tmp_path):
    for command in [
        "mount -t tmpfs none /mnt",
        "mount --bind / /mnt",
        "mount -o remount,rw /proc/sys",
        "mount -t proc proc /mnt",
        "mount -t overlay overlay -o lowerdir=/,upperdir=/tmp,workdir=/tmp /mnt",
        "umount /proc/sys",
        "umount -l /run/sandcove",
        "umount /",
    ]:
        said = refused(sandbox, command)
        assert any(word in said for word in ("permitted", "denied", "superuser")), (command, said)


def test_new_namespaces_are_refused(sandbox):
    for flag in ["--user --map-root-user", "--mount", "--pid --fork", "--net", "--ipc", "--uts", "--cgroup", "--time"]:
        refused(sandbox, f"unshare {flag} true")
    refused(sandbox, "nsenter --target 1 --mount --pid true")


def test_clone_with_namespace_flags_is_refused(sandbox):
    output, _ = attempt(
        sandbox,
        python(
            """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name, number, *arguments in [
    ("clone newuser", 56, 0x10000000 | 17, 0, 0, 0, 0), ("clone3", 435, 0, 0), ("unshare", 272, 0x10000000),
    ("setns", 308, 3, 0), ("bpf", 321, 0, 0, 0), ("perf_event_open", 298, 0, 0, 0, 0, 0), ("keyctl", 250, 0, 0, 0),
    ("userfaultfd", 323, 0), ("io_uring_setup", 425, 1, 0), ("init_module", 175, 0, 0, 0), ("kexec_load", 246, 0, 0, 0, 0),
    ("open_by_handle_at", 304, 0, 0, 0), ("mount", 165, 0, 0, 0, 0, 0), ("fsopen", 430, 0, 0), ("open_tree", 428, 0, 0, 0),
    ("move_mount", 429, 0, 0, 0, 0, 0), ("pivot_root", 155, 0, 0), ("reboot", 169, 0, 0, 0, 0), ("swapon", 167, 0, 0),
    ("settimeofday", 164, 0, 0), ("ptrace host", 101, 16, 1 << 21, 0, 0),
]:
    ctypes.set_errno(0)
    result = libc.syscall(number, *[ctypes.c_long(a) for a in arguments])
    print(name, result, ctypes.get_errno())
    if result == 0: os._exit(0) if name == "clone newuser" else None
"""
        ),
    )
    lines = [line for line in output.splitlines() if line]
    assert len(lines) == 21, output
    for line in lines:
        name, result, errno = line.rsplit(" ", 2)
        assert int(result) == -1 and int(errno) in (1, 38, 3, 22), line  # EPERM, ENOSYS, ESRCH (no such pid), EINVAL


def test_devices_cannot_be_made_or_opened(sandbox):
    refused(sandbox, "mknod /tmp/disk b 253 0")
    refused(sandbox, "mknod /tmp/mem c 1 1")
    output, _ = attempt(sandbox, "ls /dev")
    assert not {"vda", "sda", "mem", "kmsg", "kvm", "loop0"} & set(output.split())


def test_kernel_knobs_are_read_only(sandbox):
    for path in ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/sys/power/state"]:
        refused(sandbox, f"echo x > {path}")
    # Hidden by the null device, where the kernel has it.
    trigger, _ = attempt(sandbox, "stat -c %t:%T /proc/sysrq-trigger")
    assert trigger == "1:3\n" or "No such file" in trigger
    output, _ = attempt(sandbox, "head -c 64 /proc/kcore | wc -c; dmesg | head -1")
    assert output.startswith("0") or "No such file" in output or "cannot open" in output


def test_agent_binary_cannot_be_replaced(sandbox):
    refused(sandbox, "cp /bin/true /run/sandcove/sandcove-agent")
    refused(sandbox, python("import os\nos.open('/proc/1/exe', os.O_WRONLY)"))


def test_cgroup_limits_cannot_be_lifted(sandbox):
    output, _ = attempt(sandbox, "find / -name 'memory.limit_in_bytes' -o -name 'memory.max' -o -name release_agent 2>/dev/null")
    assert output.strip() == ""


def test_memory_is_limited(sandbox):
    with pytest.raises(CommandExitException):
        sandbox.commands.run(python("b = bytearray()\nwhile True: b.extend(b'x' * (64 << 20))"), timeout=600)
    assert sandbox.commands.run("echo alive").stdout == "alive\n"


def test_a_fork_bomb_stays_inside(sandbox, server):
    bomb = python(
        """
import os, signal, time
made = []
try:
    while len(made) < 20000:
        child = os.fork()
        if child == 0:
            time.sleep(6000); os._exit(0)
        made.append(child)
except OSError as error:
    print("stopped at", len(made), error.errno)
for child in made:
    os.kill(child, signal.SIGKILL)
"""
    )
    output, _ = attempt(sandbox, bomb)
    assert "stopped at" in output
    assert server.healthy()


def test_the_internet_can_be_switched_off():
    sandbox = Sandbox.create(timeout=1800, allow_internet_access=False)
    try:
        # The mirror that its packages come from, which answers every other sandbox.
        mirror = "$(grep -rhoE 'https?://[^ ]+' /etc/apt/sources.list /etc/apt/sources.list.d | head -1)"
        refused(sandbox, f'test -n "{mirror}" || exit 0; curl -s --max-time 3 {mirror}')
    finally:
        sandbox.kill()


def test_one_sandbox_cannot_read_anothers_files(sandbox):
    other = Sandbox.create(timeout=1800)
    try:
        other.files.write("/tmp/secret-of-the-other", "x")
        refused(sandbox, "cat /tmp/secret-of-the-other")
        output, _ = attempt(sandbox, "find / -name secret-of-the-other 2>/dev/null")
        assert output == ""
    finally:
        other.kill()


def test_ids_inside_are_nobody_outside(sandbox):
    """Root inside is an ordinary, otherwise unused user on the host."""
    output, _ = attempt(sandbox, "cat /proc/self/uid_map")
    inside, outside, count = output.split()
    assert inside == "0" and int(outside) >= 1_000_000_000 and count == "65536"


def test_the_token_guards_the_agent(sandbox, server):
    import requests

    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
    for token in [None, "wrong", ""]:
        extra = {} if token is None else {"X-Access-Token": token}
        answer = requests.post(
            f"{server.url}/process.Process/List", json={}, headers={**headers, **extra}, timeout=120
        )
        assert answer.status_code == 401
