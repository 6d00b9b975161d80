"""The witness: what the host sees of a sandbox, and of itself, before and after an attack. Nothing here asks the sandbox."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from functools import cached_property
from pathlib import Path

# Ids of sandboxes begin here on the host (isolate/src/instance.rs).
FIRST_ID = 1_000_000_000
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
# Settings by which others have taken hosts over, and those that a sandbox would change for itself.
SETTINGS = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/domainname",
    "/proc/sys/kernel/poweroff_cmd",
    "/proc/sys/kernel/ctrl-alt-del",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/net/ipv4/ping_group_range",
    "/proc/sys/user/max_user_namespaces",
    "/proc/irq/default_smp_affinity",
    "/sys/kernel/uevent_helper",
    "/sys/kernel/mm/ksm/run",
    "/sys/devices/system/cpu/online",
)
SYSTEM = re.compile(r"/(proc|sys|dev|boot|etc|usr)?(/|$)")
# Kinds of descriptor that no sandbox gets.
FORBIDDEN = re.compile(r"\[?(bpf|perf_event|userfaultfd|io_uring|fanotify|fscontext|secretmem|landlock-host)|^/sys/fs/cgroup|kvm|^net:|^mnt:")


def read(path: str | Path) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError as error:
        return str(error.errno)


def of_the_host() -> dict[str, object]:
    """What no sandbox may change."""
    return {
        **{path: read(path) for path in SETTINGS},
        # Without how much of them is used, which changes by itself.
        "swaps": [line.split()[:3] for line in read("/proc/swaps").splitlines()],
        # Those of the system: servers of other tests mount pools meanwhile.
        "mounts": [line for line in read("/proc/self/mountinfo").splitlines() if SYSTEM.match(line.split()[4])],
        "formats": sorted(os.listdir("/proc/sys/fs/binfmt_misc")) if os.path.isdir("/proc/sys/fs/binfmt_misc") else [],
    }


def is_up(server) -> bool:
    """Whether the server answers, for which a busy machine may need a while."""
    deadline = time.monotonic() + 60
    while not server.healthy():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def clock() -> float:
    """The clock against the one that nobody can set."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


class Witness:
    """Looks at one sandbox from the host."""

    def __init__(self, data_dir: Path, sandbox_id: str) -> None:
        self.record = json.loads((data_dir / "run" / sandbox_id / "jail.json").read_text())
        self.init = self.record["pid"]
        self.ids = int(read(f"/proc/{self.init}/uid_map").split()[1])

    @cached_property
    def namespaces(self) -> dict[str, str]:
        return {kind: self._namespace(self.init, kind) for kind in NAMESPACES}

    @staticmethod
    def _namespace(pid: int, kind: str) -> str:
        try:
            return os.readlink(f"/proc/{pid}/ns/{kind}")
        except OSError:
            return ""

    def processes(self) -> list[int]:
        own = self.namespaces["pid"]
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and self._namespace(int(name), "pid") == own]

    def group(self, controller: str) -> Path:
        """The control group of PID 1, for `controller` where hierarchies are several."""
        for line in read(f"/proc/{self.init}/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                return Path(f"/sys/fs/cgroup/{controller}{path}")
        path = next(line[3:] for line in read(f"/proc/{self.init}/cgroup").splitlines() if line.startswith("0::"))
        return Path(f"/sys/fs/cgroup{path}")

    def memory(self) -> int:
        group = self.group("memory")
        file = next(file for file in (group / "memory.current", group / "memory.usage_in_bytes") if file.exists())
        return int(file.read_text())

    def program(self) -> str:
        """The file that PID 1 runs, as the host has it."""
        with open(f"/proc/{self.init}/exe", "rb") as program:
            return hashlib.file_digest(program, "sha256").hexdigest()

    def mounts(self) -> list[str]:
        return read(f"/proc/{self.init}/mountinfo").splitlines()

    def links(self) -> list[str]:
        """Network interfaces, routes and packet sockets of the sandbox."""
        net = f"/proc/{self.init}/net"
        devices = [line.split(":")[0].strip() for line in read(f"{net}/dev").splitlines()[2:]]
        return [*devices, read(f"{net}/route"), read(f"{net}/packet").count("\n") > 1]

    def complaints(self) -> list[str]:
        """What is wrong with the sandbox's processes."""
        return [f"{pid}: {wrong}" for pid in self.processes() for wrong in self._wrong_with(pid)]

    @staticmethod
    def _stat(pid: int) -> list[str]:
        """The fields of a process after its name; none if it has ended."""
        fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return fields if len(fields) > 39 else []

    def _is_ending(self, pid: int) -> bool:
        exiting = 0x4  # PF_EXITING
        stat = self._stat(pid)
        return not stat or stat[0] in "ZX" or int(stat[6]) & exiting != 0

    def _wrong_with(self, pid: int):
        status = dict(line.split(":\t", 1) for line in read(f"/proc/{pid}/status").splitlines() if ":\t" in line)
        stat = self._stat(pid)
        if "Seccomp" not in status or not stat or stat[0] in "ZX":
            return
        for kind, expected in self.namespaces.items():
            if (seen := self._namespace(pid, kind)) not in ("", expected):
                yield f"is in another {kind} namespace: {seen}"
        if not all(self.ids <= int(id) < self.ids + 65536 for id in status["Uid"].split() + status["Gid"].split()):
            yield f"has ids beyond its range: {status['Uid']}"
        # SYS_MODULE, SYS_RAWIO, SYS_ADMIN, SYS_BOOT, SYS_RESOURCE, SYS_TIME, MKNOD, NET_ADMIN, MAC_*, SYSLOG, PERFMON, BPF.
        dangerous = sum(1 << bit for bit in (12, 16, 17, 21, 22, 24, 25, 27, 32, 33, 34, 38, 39))
        if int(status["CapBnd"], 16) & dangerous or int(status["CapPrm"], 16) & dangerous:
            yield f"has dangerous capabilities: {status['CapPrm']}"
        if status["Seccomp"] != "2":
            yield "has no filter of system calls"
        nice, policy = int(stat[16]), int(stat[38])
        if nice < 0 or policy in (1, 2, 6):
            yield f"runs with nice {nice} and policy {policy}"
        if pid != self.init and int(read(f"/proc/{pid}/oom_score_adj")) < 0:
            yield "is spared when memory runs out"
        # None of a process that has ended meanwhile.
        groups = [line.split(":", 2) for line in read(f"/proc/{pid}/cgroup").splitlines() if line.count(":") >= 2]
        for _, controllers, path in groups:
            if controllers and not re.search(r"/sandcove\w*/.*s\d+", path) and "sandcove" in read(f"/proc/{self.init}/cgroup"):
                init = next((one for one in read(f"/proc/{self.init}/cgroup").splitlines() if f":{controllers}:" in one), "")
                # One that is ending has none any more.
                if not init.endswith(path) and not self._is_ending(pid):
                    yield f"left its control group: {controllers}:{path}"
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            return
        for descriptor in descriptors:
            try:
                target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
            except OSError:
                continue
            foreign = target not in self.namespaces.values() and FORBIDDEN.search(target.removeprefix("anon_inode:"))
            if pid != self.init and foreign:
                yield f"has {target} open"


def keys_of(ids: int) -> list[str]:
    """What the kernel's keyrings hold for users of a sandbox."""
    users = [line.split(":")[0].strip() for line in read("/proc/key-users").splitlines()]
    return [user for user in users if user.isdigit() and ids <= int(user) < ids + 65536]
