"""Stores the processes of a paused sandbox on disk with CRIU, and restores them beside the original. By hand: the server is asked for
nothing and notices nothing. What was learned from it is in docs/decisions/0025-memory-on-disk.md.

`packaging/criu/fetch` fetches CRIU; SANDCOVE_TEST_CRIU names another directory.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

PROGRAM = os.environ.get("SANDCOVE_TEST_CRIU", "/usr/local/lib/sandcove-criu") + "/criu"
# The parts of a sandbox's file system that its builder makes anew, beside overlays and what is below /sys.
BUILT = ("/dev", "/sys", "/proc/vmstat", "/proc/sys/kernel/random/boot_id")
PARTS_OF_SYS = ("class/net", "devices/system/cpu", "devices/system/node", "devices/virtual/net")
DEVICES = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0), ("fuse", 10, 229))
LINKS = (("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"),
         ("stderr", "/proc/self/fd/2"))
# What both directions have in common. The control groups and the network are ours.
OPTIONS = ("--tcp-established", "--file-locks", "--manage-cgroups=ignore", "--empty-ns", "net", "--ext-unix-sk", "-v4")
# Root inside may ping and listen anywhere, as in a new sandbox (crates/isolate/src/jail/network.rs).
HOOK = """#!/bin/sh
[ "$CRTOOLS_SCRIPT_ACTION" = setup-namespaces ] || exit 0
nsenter --target "$CRTOOLS_INIT_PID" --net sh -c '
  ip link set lo up && ip address add 192.0.2.1/32 dev lo && sysctl -qw net.ipv4.ip_unprivileged_port_start=0 &&
  sysctl -qw net.ipv4.ping_group_range="0 2147483647"'
"""


class Refused(Exception):
    """CRIU's first error."""


@dataclass
class Checkpoint:
    """A sandbox on disk."""

    images: str
    # The first host id of the sandbox, and the directories that it was built from.
    id_base: int
    layers: list[str]
    upper: str
    programs: str
    # Files that are mapped from the mounts of a warm process, by CRIU's name for them.
    foreign: dict[str, str]
    # Seconds for which the processes stood still, and bytes on disk.
    frozen_s: float
    size: int


def dump(data_dir: Path, sandbox_id: str, layers: list[str], images: Path) -> Checkpoint:
    """Stores a paused sandbox, which stays as it is. Raises `Refused` when CRIU cannot."""
    pid = json.loads((data_dir / f"run/{sandbox_id}/jail.json").read_text())["pid"]
    shutil.rmtree(images, ignore_errors=True)
    images.mkdir(parents=True)
    mounts = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    built = []
    for mount in mounts:
        path, kind = mount[4], mount[mount.index("-") + 1]
        if path != "/" and (path in BUILT or kind in ("overlay", "sysfs")):
            built += ["--external", f"mnt[{path}]:{key(path)}"]
    group = frozen_group(pid)
    refuse_stopped(group)
    foreign = foreign_files(group, {int(mount[0]) for mount in mounts})
    command = [
        # The network namespace belongs to the user namespace above the sandbox's, which CRIU does not store.
        "nsenter", f"--net=/proc/{pid}/ns/net", PROGRAM, "dump", "--tree", str(pid), "--images-dir", str(images), "-o", "log",
        *OPTIONS, "--leave-running", "--freeze-cgroup", str(group), "--network-lock", "skip", "--ghost-limit", "1G",
        *built, *(f"--external={name}" for name in foreign),
    ]
    run(command, images / "log")
    separate_network(images / "inventory.img")
    rearm_timers(images / "files.img")
    programs = [
        directory for directory in (data_dir / "libexec").iterdir()
        # Other tests leave some that are damaged.
        if (directory / "sandcove-agent").exists()
        and (directory / "sandcove-agent").stat().st_size == os.stat(f"/proc/{pid}/exe").st_size
    ]
    return Checkpoint(
        images=str(images), id_base=int(Path(f"/proc/{pid}/uid_map").read_text().split()[1]), layers=layers,
        upper=str(data_dir / "pool/sandboxes" / sandbox_id), programs=str(programs[0]), foreign=foreign,
        frozen_s=frozen_time(images / "stats-dump"), size=sum(file.stat().st_size for file in images.iterdir()),
    )


@contextlib.contextmanager
def restored(checkpoint: Checkpoint) -> Iterator[int]:
    """The host pid of the first process of a copy, which ends with the context."""
    copy = Path(checkpoint.upper).parents[1] / f"criu-{os.getpid()}"
    subprocess.run(["btrfs", "-q", "subvolume", "snapshot", checkpoint.upper, copy], check=True)
    plan = json.dumps({**asdict(checkpoint), "upper": str(copy)})
    pid = None
    try:
        # CRIU is in a mount namespace that goes with it.
        done = subprocess.run(["unshare", "--mount", sys.executable, __file__, plan], capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise Refused(done.stderr.strip())
        pid = int(done.stdout)
        yield pid
    finally:
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            while Path(f"/proc/{pid}/root/proc").exists():
                time.sleep(0.01)
        subprocess.run(["btrfs", "-q", "subvolume", "delete", copy], check=True)


def key(path: str) -> str:
    return path.strip("/").replace("/", "_")


def run(command: list[str], log: Path, pass_fds: tuple[int, ...] = ()) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, pass_fds=pass_fds)
    if done.returncode == 0:
        return
    errors = re.findall(r"Error \(.*?\): (.*)", log.read_text(errors="replace") if log.exists() else done.stderr)
    # Its own limit of open files, which it says every time where root may not raise limits.
    reasons = [error for error in errors if "RLIMIT_NOFILE" not in error]
    raise Refused(reasons[0] if reasons else done.stderr or f"exit status {done.returncode}")


def frozen_group(pid: int) -> Path:
    """The control group that the pause has frozen, of either version."""
    groups = dict(line.split(":")[1:] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines())
    if "freezer" in groups:
        return Path("/sys/fs/cgroup/freezer") / groups["freezer"].lstrip("/")
    return Path("/sys/fs/cgroup") / groups[""].lstrip("/")


def refuse_stopped(group: Path) -> None:
    """With control groups of version 1, a process that attaches to one that was stopped and then frozen waits until it is thawed: CRIU would
    never end. It may be possible with version 2, which was not tried."""
    for process in (group / "cgroup.procs").read_text().split():
        for thread in Path(f"/proc/{process}/task").iterdir():
            # Its state is that of all frozen ones; where it waits is not. What an earlier dump has left in `ptrace_stop` has no tracer.
            waits_in = (thread / "wchan").read_text()
            traced = "TracerPid:\t0\n" not in (thread / "status").read_text()
            if waits_in == "do_signal_stop" or traced:
                raise Refused(f"process {process} is stopped")


def foreign_files(group: Path, own: set[int]) -> dict[str, str]:
    """The files that processes of the group have mapped or execute from mounts that are not the sandbox's. A fork of a warm process
    has the code that it was loaded with: the same layers, mounted elsewhere."""
    found = {}
    for process in (group / "cgroup.procs").read_text().split():
        links = [f"/proc/{process}/exe", *(f"/proc/{process}/map_files/{name}" for name in os.listdir(f"/proc/{process}/map_files"))]
        for link in links:
            path = os.readlink(link)
            if not path.startswith("/") or path.startswith(("/memfd:", "/dev/zero", "/SYSV")):
                continue
            descriptor = os.open(link, os.O_PATH)
            mount = int(re.search(r"mnt_id:\s*(\d+)", Path(f"/proc/self/fdinfo/{descriptor}").read_text())[1])
            if mount not in own:
                found[f"file[{mount:x}:{os.fstat(descriptor).st_ino:x}]"] = path
            os.close(descriptor)
    return found


def separate_network(inventory: Path) -> None:
    """Has the restored processes get a network namespace of their own.

    CRIU was in the sandbox's when it stored them, so the images say that the namespace is CRIU's. It has to be new, and to belong to the
    new user namespace: only then may the restored processes repair their TCP connections.
    """
    data = inventory.read_bytes()
    magic, body = data[:4], data[8 : 8 + struct.unpack("<I", data[4:8])[0]]
    fields = []
    for number, value in decode(body):
        # `root_ids`, the namespaces of CRIU; in it `net_ns_id`.
        if number == 3:
            value = encode([(inner, 0xFFFF if inner == 6 else content) for inner, content in decode(value)])
        fields.append((number, value))
    body = encode(fields)
    inventory.write_bytes(magic + struct.pack("<I", len(body)) + body)


def rearm_timers(files: Path) -> None:
    """Has periodic timers (timerfd) go on that had expired and not been read when they were stored: the kernel says of such a timer that
    it has no time left, and for CRIU that is one which is off. It gets the shortest time, and expires once more at the restore."""
    data = files.read_bytes()
    out, at = data[:8], 8
    while at < len(data):
        (size,) = struct.unpack("<I", data[at : at + 4])
        fields = decode(data[at + 4 : at + 4 + size])
        at += 4 + size
        # `tfd`; in it the number of expirations, what is left and the interval.
        for index, (number, value) in enumerate(fields):
            if number == 12:
                timer = dict(decode(value))
                if timer[7] == timer[8] == 0 and (timer[9] or timer[10]):
                    timer[5], timer[8] = max(timer[5] - 1, 0), 1
                fields[index] = (number, encode(list(timer.items())))
        body = encode(fields)
        out += struct.pack("<I", len(body)) + body
    files.write_bytes(out)


def decode(data: bytes) -> list[tuple[int, int | bytes]]:
    """The fields of a protobuf message that has only integers and nested bytes."""
    fields, at = [], 0

    def integer() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(data):
        tag = integer()
        value = integer()
        if tag & 7 == 2:
            at, value = at + value, data[at : at + value]
        fields.append((tag >> 3, value))
    return fields


def encode(fields: list[tuple[int, int | bytes]]) -> bytes:
    def integer(value: int) -> bytes:
        low, rest = value & 127, value >> 7
        return bytes([low | 128]) + integer(rest) if rest else bytes([low])

    parts = []
    for number, value in fields:
        if isinstance(value, bytes):
            parts += [integer(number << 3 | 2), integer(len(value)), value]
        else:
            parts += [integer(number << 3), integer(value)]
    return b"".join(parts)


def frozen_time(file: Path) -> float:
    """Seconds for which processes stood still, from CRIU's statistics."""
    data = file.read_bytes()
    statistics = dict(decode(data[12 : 12 + struct.unpack("<I", data[8:12])[0]]))
    return dict(decode(statistics[1]))[2] / 1e6


# What follows runs in a mount namespace of its own, as `python3 criu.py PLAN`.

libc = ctypes.CDLL(None, use_errno=True)
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
AT_EMPTY_PATH, OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH, MOUNT_ATTR_IDMAP = 0x1000, 1, 4, 0x10_0000
CLONE_NEWUSER, PR_SET_SECUREBITS, NO_SETUID_FIXUP = 0x1000_0000, 28, 4


class MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_namespace")]


def checked(result: int, action: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{action}: {os.strerror(ctypes.get_errno())}")
    return result


def restore(plan: Checkpoint) -> int:
    """Builds the file systems of a sandbox as `crates/isolate/src/jail` does, and restores the processes in them."""
    stage, base = Path("/mnt"), plan.id_base
    mount("--make-rprivate", "/")
    mount("-t", "tmpfs", "stage", stage)
    work = stage / "work"
    work.mkdir()
    namespace = user_namespace(base)
    names = []
    for index, layer in enumerate(plan.layers):
        names.append(str(attach(layer, stage / f"layers/{index}", namespace)))
    upper = attach(plan.upper, stage / "upper", namespace)
    root = stage / "root"
    root.mkdir()
    with owning_files_as(base):
        options = f"lowerdir={':'.join(names)},upperdir={upper}/upper,workdir={upper}/work,redirect_dir=on"
        checked(libc.mount(b"sandcove", bytes(root), b"overlay", 4, options.encode()), "mount the root")
    given = {"dev": devices(stage / "dev", base), "run_sandcove": programs(stage, plan.programs), **system(stage, base)}
    for path, text in (("proc_vmstat", "pgpgin 0\n"), ("proc_sys_kernel_random_boot_id", "0\n")):
        (stage / path).write_text(text)
        os.chown(stage / path, base, base)
        given[path] = stage / path
    hook = work / "hook"
    hook.write_text(HOOK)
    hook.chmod(0o755)
    # The owner of the log does not exist inside, so CRIU cannot make it.
    log = os.memfd_create("log")
    os.fchmod(log, 0o600)
    inherited = {"/memfd:log": log}
    for name, path in plan.foreign.items():
        inherited[name] = os.open(f"{root}{path}", os.O_RDONLY)
    command = [
        PROGRAM, "restore", "--images-dir", plan.images, "--work-dir", str(work), "-o", "log", *OPTIONS, "--restore-detached",
        "--pidfile", "pid", "--root", str(root), "--action-script", str(hook),
        *(f"--external=mnt[{name}]:{path}" for name, path in given.items()),
        *(f"--inherit-fd=fd[{descriptor}]:{name}" for name, descriptor in inherited.items()),
    ]
    try:
        run(command, work / "log", tuple(inherited.values()))
    finally:
        shutil.copy(work / "log", f"{plan.images}/restore.log")
    return int((work / "pid").read_text())


def mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def user_namespace(base: int) -> int:
    """A user namespace with the ids of the sandbox, for the mounts."""
    ready, unshared = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(unshared, b"x" if libc.unshare(CLONE_NEWUSER) == 0 else b"")
        signal.pause()
    os.read(ready, 1)
    for file in ("uid_map", "gid_map"):
        Path(f"/proc/{child}/{file}").write_text(f"0 {base} 65536\n")
    namespace = os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return namespace


def attach(source: str, target: Path, namespace: int) -> Path:
    """Mounts a directory whose files belong to the ids of the namespace."""
    target.mkdir(parents=True)
    tree = checked(libc.syscall(OPEN_TREE, -100, source.encode(), OPEN_TREE_CLONE | os.O_CLOEXEC), f"open {source}")
    attributes = MountAttributes(set=MOUNT_ATTR_IDMAP, user_namespace=namespace)
    size = ctypes.sizeof(attributes)
    checked(libc.syscall(MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, ctypes.byref(attributes), size), "map ids")
    checked(libc.syscall(MOVE_MOUNT, tree, b"", -100, bytes(target), MOVE_MOUNT_F_EMPTY_PATH), f"mount {target}")
    return target


@contextlib.contextmanager
def owning_files_as(base: int) -> Iterator[None]:
    checked(libc.prctl(PR_SET_SECUREBITS, NO_SETUID_FIXUP, 0, 0, 0), "keep rights")
    libc.setfsgid(base), libc.setfsuid(base)
    yield
    libc.setfsuid(0), libc.setfsgid(0)
    checked(libc.prctl(PR_SET_SECUREBITS, 0, 0, 0, 0), "restore rights")


def devices(target: Path, base: int) -> Path:
    target.mkdir()
    mount("-t", "tmpfs", "none", "-o", f"nosuid,noexec,mode=755,size=64k,uid={base},gid={base}", target)
    mask = os.umask(0)
    for name, major, minor in DEVICES:
        os.mknod(target / name, 0o20666, os.makedev(major, minor))
    for name in ("pts", "shm", "mqueue"):
        (target / name).mkdir(0o755)
    for name, to in LINKS:
        (target / name).symlink_to(to)
    os.umask(mask)
    for entry in target.iterdir():
        os.chown(entry, base, base, follow_symlinks=False)
    return target


def programs(stage: Path, source: str) -> Path:
    for name in ("programs", "empty", "merged"):
        (stage / name).mkdir()
    mount("-t", "tmpfs", "none", stage / "programs")
    shutil.copytree(source, stage / "programs", dirs_exist_ok=True)
    mount("-t", "overlay", "none", "-o", f"ro,nosuid,nodev,lowerdir={stage}/programs:{stage}/empty", stage / "merged")
    return stage / "merged"


def system(stage: Path, base: int) -> dict[str, Path]:
    whole, cover = stage / "whole-sys", stage / "sys"
    whole.mkdir(), cover.mkdir()
    mount("-t", "sysfs", "none", "-o", "ro,nosuid,nodev,noexec", whole)
    mount("-t", "tmpfs", "none", "-o", f"nosuid,nodev,noexec,mode=755,uid={base},gid={base}", cover)
    for directory in PARTS_OF_SYS:
        (cover / directory).mkdir(parents=True)
    return {"sys": cover, **{key(f"/sys/{part}"): whole / part for part in PARTS_OF_SYS}}


if __name__ == "__main__":
    try:
        print(restore(Checkpoint(**json.loads(sys.argv[1]))))
    except Refused as refused:
        sys.exit(str(refused))
