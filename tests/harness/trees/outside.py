"""The oracle outside: what the host's kernel says about the processes of a sandbox, in terms that do not change with a resume.

Numbers of processes are those inside; sockets, pipes and other things without a name are numbered in the order in which they are met,
so that it shows who shares what with whom.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import signal
from pathlib import Path

STATUS = ["Name", "Umask", "Uid", "Gid", "Groups", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "CapInh", "CapPrm", "CapEff", "CapBnd",
          "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "Threads", "Cpus_allowed_list", "Mems_allowed_list", "THP_enabled",
          "Speculation_Store_Bypass"]  # fmt: skip
# Fields of `stat` by their numbers behind the name: flags and times are left out.
STAT = {"exit signal": 35, "nice": 16, "real-time priority": 37, "policy": 38}
FDINFO = re.compile(r"^(pos|flags|eventfd-count|sigmask|clockid|ticks|it_interval|settime flags|tfd|inotify|Pid|NSpid|seals|lock|scm_fds)\b")
SYSCALL_IOPRIO_GET = 252
libc = ctypes.CDLL(None, use_errno=True)


def processes(data_dir: Path, sandbox_id: str) -> dict[int, Path]:
    """Directories below the host's `/proc`, by the numbers inside."""
    record = json.loads((data_dir / "run" / sandbox_id / "jail.json").read_text())
    namespace = os.readlink(f"/proc/{record['pid']}/ns/pid")
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "ns/pid") == namespace:
                found[inside(process)] = process
        except (OSError, ValueError):
            # It is gone.
            continue
    # A dead process has no namespaces, but a parent.
    own = {process.name: number for number, process in found.items()}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            status = (process / "status").read_text()
            if "State:\tZ" in status and re.search(r"^PPid:\t(\d+)", status, re.M)[1] in own:
                found[inside(process)] = process
        except (OSError, ValueError):
            continue
    return found


def inside(process: Path) -> int:
    status = (process / "status").read_text()
    return int(re.search(r"^NSpid:.*?(\d+)$", status, re.M)[1])


class Names:
    """Numbers for things without a name, in the order in which they are met."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def of(self, target: str) -> str:
        match = re.match(r"(socket|pipe|anon_inode|/memfd|mnt|net|user|pid|ipc|uts|cgroup|time)\S*:\[(\d+)\]", target)
        if not match:
            # A deleted file may get another hidden name.
            return target
        return self.known.setdefault(target, f"{match[1]} {sum(name.startswith(match[1]) for name in self.known.values())}")


def describe(found: dict[int, Path], wanted: set[int]) -> dict[str, object]:
    """The processes `wanted`, by number and what is said about them."""
    names, numbers = Names(), {int(process.name): number for number, process in found.items()}
    state: dict[str, object] = {}
    for number in sorted(wanted & found.keys()):
        for key, value in one(found[number], numbers, names).items():
            state[f"{number} {key}"] = value
    return state


def one(process: Path, numbers: dict[int, int], names: Names) -> dict[str, object]:
    said: dict[str, object] = {}
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)
    said |= {name: status[name].strip() for name in STATUS if name in status}
    said |= {name: without_ticks(said[name]) for name in ("ShdPnd", "SigBlk") if name in said}
    said["Uid"], said["Gid"] = (re.sub(r"\d+", lambda id: str(int(id[0]) % 65536), status[name]) for name in ("Uid", "Gid"))
    said["Groups"] = re.sub(r"\d+", lambda id: str(int(id[0]) % 65536), said.get("Groups", ""))
    dead, state = status["State"][0] == "Z", status["State"][0]
    said["state"] = state if state in "ZTt" else "alive"
    stat = (process / "stat").read_text().rsplit(") ", 1)[1].split()
    said |= {name: stat[index] for name, index in STAT.items()}
    said["parent"] = numbers.get(int(stat[1]), "outside")
    said["group"], said["session"] = numbers.get(int(stat[2]), "?"), numbers.get(int(stat[3]), "?")
    said["terminal"] = [stat[4], numbers.get(int(stat[5]), "none")]
    if dead:
        # Its other attributes are those of whoever has made it.
        return {"Name": said["Name"], "state": "Z", "parent": said["parent"], "exit code": stat[49]}
    for name in ("cmdline", "environ", "oom_score_adj", "timerslack_ns", "coredump_filter", "personality"):
        said[name] = hashlib.sha256((process / name).read_bytes()).hexdigest()[:12] if name in ("cmdline", "environ") else text(process / name)
    # What is taken from memory: where the arguments lie.
    said["limits"] = text(process / "limits")
    said["timers"] = re.sub(r"(pid\.)\d+", r"\1", text(process / "timers") or "")
    for name in ("cwd", "root", "exe"):
        said[name] = names.of(os.readlink(process / name))
    for name in ("user", "pid", "net", "ipc", "uts", "mnt"):
        said[f"namespace {name}"] = names.of(os.readlink(process / "ns" / name))
    said["threads"] = sorted(
        [text(thread / "comm"), libc.syscall(SYSCALL_IOPRIO_GET, 1, int(thread.name)), thread_mask(thread)]
        for thread in (process / "task").iterdir()
    )
    for fd in sorted((process / "fd").iterdir(), key=lambda fd: int(fd.name)):
        info = [normal(line) for line in (process / "fdinfo" / fd.name).read_text().splitlines() if FDINFO.match(line)]
        # A file that is deleted and of whose name there is another one gets a hidden name.
        said[f"fd {fd.name}"] = [names.of(os.readlink(fd).replace(".cr_link (deleted)", " (deleted)")), *sorted(info)]
    said["mapped"] = mapped(process)
    return said


def normal(line: str) -> str:
    """A line of `fdinfo` without what may differ: numbers of devices, flags that say how it was opened, events that are always on."""
    line = re.sub(r"\s+pos:\w+ ino:\w+ sdev:\w+$", "", line)
    line = re.sub(r"^(inotify wd:\d+) .*( mask:\w+) .*", r"\1\2", line)
    line = re.sub(r"^(NS)?[Pp]id:\s.*", "Pid", line)
    line = re.sub(r"^lock:\s+\d+: (\w+\s+\w+\s+\w+) -?\d+ \S+ ", r"lock \1 ", line)
    line = re.sub(r"(?<=^flags:\t)\d+", lambda flags: oct(int(flags[0], 8) & ~0o20300000), line)
    return re.sub(r"(?<=events:)\s*\w+", lambda events: hex(int(events[0], 16) & ~0x18), line)


def without_ticks(mask: str) -> str:
    """A set of signals. That of a timer that ticks is on the way at times, and blocked while its handler runs."""
    return hex(int(mask, 16) & ~(1 << signal.SIGVTALRM - 1))


def thread_mask(thread: Path) -> list[str]:
    status = (thread / "status").read_text()
    masks = [without_ticks(mask) for mask in re.findall(r"^(?:SigPnd|SigBlk):\t(.*)", status, re.M)]
    return masks + re.findall(r"^Cpus_allowed_list:\t(.*)", status, re.M)


def mapped(process: Path) -> list[str]:
    """Mappings that are shared, and the files of private ones; private memory comes and goes with what a language needs."""
    lines = set()
    for line in (process / "maps").read_text().splitlines():
        addresses, rights, offset, _, _, *path = line.split(maxsplit=5)
        if path and not path[0].startswith("["):
            name = path[0].replace("/memfd:/dev/zero", "/dev/zero")
            lines.add(" ".join([addresses, rights, offset, name] if rights.endswith("s") else ["private", name]))
    return sorted(lines)


def text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def files(root: Path) -> dict[str, list]:
    """Everything below a directory: mode, owner, size, content."""
    found = {}
    for directory, names, entries in os.walk(root):
        for name in [*names, *entries]:
            path = Path(directory, name)
            stat = path.lstat()
            content = ""
            if path.is_symlink():
                content = os.readlink(path)
            elif path.is_file():
                content = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
            # The time of a file that is mapped and shared changes when its pages are written.
            found[str(path.relative_to(root))] = [oct(stat.st_mode), stat.st_uid % 65536, stat.st_gid % 65536, stat.st_size, stat.st_nlink, content]
    return found
