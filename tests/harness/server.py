"""A `sandcove serve` under test: started, killed and started again like a user's, on a data directory of its own."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from harness import volatile

ROOT = Path(__file__).resolve().parents[2]
API_KEY = "e2b_" + "5a" * 20
ADMIN_TOKEN = "admin-of-the-tests"
#: As a script starts a server: with these signals ignored.
IN_THE_BACKGROUND = ["sh", "-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh"]
# Tests count what there is, so the pool does not follow demand.
SETTINGS = {"SANDCOVE_API_KEY": API_KEY, "SANDCOVE_ADMIN_TOKEN": ADMIN_TOKEN, "SANDCOVE_POOL_MEMORY": "0"}


# No condition is given up earlier: a machine that is busy is ten times as slow as one that is not.
MIN_DEADLINE_S = 120
# Names of ports that were given out, held for as long as this process lives.
RESERVED: list[socket.socket] = []


def free_port() -> int:
    """A port that nobody listens on, and that no other run of tests on this host is given.

    The kernel gives outgoing connections none of these, so that a server that stops and starts again finds its port free.
    """
    outgoing, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = range(max(outgoing - 10_000, 1024), outgoing) if outgoing > 2048 else range(61_000, 65_536)
    for port in random.SystemRandom().sample(ports, len(ports)):
        name = socket.socket(socket.AF_UNIX)
        try:
            # An address without a file, which goes with the process.
            name.bind(f"\0sandcove-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            name.close()
            continue
        RESERVED.append(name)
        return port
    raise AssertionError("no port is free")


class Server:
    # Those that were started, for the report of a test that fails.
    started: list[Server] = []

    def __init__(self, data_dir: Path, port: int | None = None) -> None:
        self.binary = Path(os.environ.get("SANDCOVE_BIN", ROOT / "target/release/sandcove"))
        self.data_dir = data_dir
        self.port = port or free_port()
        # Where tests may have a registry of images without TLS.
        self.registry_port = int(os.environ.get("SANDCOVE_TEST_REGISTRY_PORT", "0")) or free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.log = data_dir / "test-server.log"
        # A command that starts it in another network.
        self.within: list[str] = []
        # More of its environment.
        self.variables: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        """What a user pastes into the shell."""
        return {"E2B_API_URL": self.url, "E2B_SANDBOX_URL": self.url, "E2B_VOLUME_API_URL": self.url, "E2B_API_KEY": API_KEY}

    @property
    def registries(self) -> dict[str, str]:
        """The setting that lets the server pull from the tests' registry."""
        return {"SANDCOVE_INSECURE_REGISTRIES": f"127.0.0.1:{self.registry_port}"}

    def start(self, deadline_s: float = 900) -> None:
        """Starts it and waits until it answers. The first start of a data directory prepares the templates."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        if self not in Server.started:
            Server.started.append(self)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*IN_THE_BACKGROUND, *self.within, self.binary, "serve", "--listen", f"127.0.0.1:{self.port}", "--data-dir", str(self.data_dir)],
                env={**os.environ, **SETTINGS, **self.registries, **self.variables},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + deadline_s
        # An earlier server may answer at the same address until it is gone.
        while not (self.has_written() and self.healthy()):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"server did not start:\n{self.tail()}")
            time.sleep(0.02)

    def has_written(self) -> bool:
        """Whether this process, and not an earlier one, is the server of the data directory."""
        try:
            return json.loads((self.data_dir / "server.json").read_text())["pid"] == self.pid or bool(self.within)
        except (OSError, ValueError):
            return False

    def healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=60) as answer:
                return answer.status == 200
        except (urllib.error.URLError, http.client.HTTPException, OSError):
            return False

    def kill9(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """A normal stop: sandboxes stay."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=180)

    def tail(self, lines: int = 40) -> str:
        """The end of its log."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 64 * 1024))
                return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
        except OSError as error:
            return f"no log: {error}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid


def languages_of(data_dir: Path) -> dict[str, str]:
    """Where the languages beyond the lean ones stand."""
    return json.loads((data_dir / "languages.json").read_text())


def wait_for_languages(data_dir: Path, deadline_s: float = 1200) -> None:
    """Waits until sandboxes that are created have all languages. They are built in the background."""
    wait_until(lambda: languages_of(data_dir)["state"] != "building", deadline_s, "the layer of further languages")
    assert languages_of(data_dir) == {"state": "ready"}


def instance_of(data_dir: Path) -> str | None:
    """The number that names of this data directory's resources hold."""
    claims = volatile.matching("/run/sandcove", "*")
    return next((claim.name for claim in claims if volatile.text(claim) == str(data_dir)), None)


def is_forked(server: Server, sandbox) -> bool:
    """Whether a sandbox has a fork of a warm process: its user namespace lies in another sandbox's or template's, and not right below
    the host's. One that was made before the process was warm has none.
    """
    parent_of = 0xB702  # NS_GET_PARENT
    record = json.loads((server.data_dir / "run" / sandbox.sandbox_id / "jail.json").read_text())
    with open(f"/proc/{record['pid']}/ns/user") as own:
        with open(fcntl.ioctl(own.fileno(), parent_of)) as parent, open("/proc/self/ns/user") as host:
            return os.fstat(parent.fileno()).st_ino != os.fstat(host.fileno()).st_ino


def snapshot_files(data_dir) -> list[str]:
    """Names of the files of snapshots and forks. Those of cached build steps, which stay for days, begin with `s-`."""
    return [name for name in os.listdir(data_dir / "pool/snapshots") if not name.startswith("s-")]


def slots_of_the_server(data_dir: Path) -> set[int]:
    """Slots of warm interpreters of templates and of sandboxes that are made ahead: they are the server's own, and come and go
    when it likes.
    """
    run = data_dir / "run"
    records = [volatile.record(path) for path in volatile.matching(run, "warm*/jail.json")]
    return {record["slot"] for record in records if record} | {
        int(path.name.split("x")[1]) for path in volatile.matching(run, "spare*x*")
    }


def host_resources(data_dir: Path) -> dict[str, set[str]]:
    """Everything on this host that a sandbox of this data directory could leave behind."""
    instance = instance_of(data_dir)
    own = ("warm", "spare")
    not_ours = slots_of_the_server(data_dir)
    processes = processes_of(instance)
    # Walked and not globbed: groups of this and other servers vanish meanwhile.
    cgroups = {
        f"{above}/{name}": int(name[1:])
        for above, names, _ in os.walk("/sys/fs/cgroup")
        if above.endswith(f"/sandcove{instance}")
        for name in names
        if name.startswith("s")
    }
    links = {path.name: int(path.name.rsplit("-", 1)[1]) for path in volatile.matching("/sys/class/net", f"scv{instance}-*")}
    # With the slash: another data directory's name may begin like this one's.
    inside = f"{data_dir}/"
    mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if inside in line}
    loops = volatile.matching("/sys/block", "loop*/loop/backing_file")
    uppers, run = volatile.names(data_dir / "pool/sandboxes"), data_dir / "run"
    # Those made while all this was read, too.
    not_ours |= slots_of_the_server(data_dir)
    ours = {process for process, slot in processes.items() if slot not in not_ours}
    return {
        "processes": {process.name for process in ours},
        "namespaces": set().union(*(namespaces_of(process) for process in ours)),
        "cgroups": {group for group, slot in cgroups.items() if slot not in not_ours},
        "links": {link for link, slot in links.items() if slot not in not_ours},
        "mounts": mounts,
        "loop devices": {str(loop) for loop in loops if inside in (volatile.text(loop) or "")},
        # A pool that is not mounted holds nothing.
        "uppers": {name for name in uppers if not name.startswith(own)},
        "run directories": {name for name in volatile.names(run) if not name.startswith(own) and (run / name).is_dir()},
    }


def processes_of(instance: str | None) -> dict[Path, int]:
    """Processes whose user id lies in the id ranges of an instance, which are those of its sandboxes, and their slots."""
    first = 1_000_000_000 + int(instance or 0) * 2048 * 65536
    found = {}
    for process in volatile.processes():
        uid = re.search(r"^Uid:\t(\d+)", volatile.text(process / "status") or "", re.M)
        if uid and first <= int(uid[1]) < first + 2048 * 65536:
            found[process] = (int(uid[1]) - first) // 65536
    return found


def namespaces_of(process: Path) -> set[str]:
    """Those that are not the host's own."""
    kinds = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"]
    found = {volatile.link(process / "ns" / kind) for kind in kinds}
    return {one for one in found if one} - {volatile.link(f"/proc/1/ns/{kind}") for kind in kinds}


def host_counts(data_dir: Path) -> dict[str, int]:
    """How much of everything there is."""
    return {kind: len(things) for kind, things in host_resources(data_dir).items()}


def settled_counts(data_dir: Path, deadline_s: float = 180) -> dict[str, int]:
    """The counts once they have not changed for two seconds."""
    end = time.monotonic() + deadline_s
    last, since = host_counts(data_dir), time.monotonic()
    while time.monotonic() - since < 2:
        assert time.monotonic() < end, f"the host does not come to rest: {last}"
        time.sleep(0.1)
        if (now := host_counts(data_dir)) != last:
            last, since = now, time.monotonic()
    return last


def open_descriptors(pid: int) -> int:
    """Descriptors of a server, in all its processes but the spawner."""
    return sum(len(os.listdir(f"/proc/{part}/fd")) for part in [*volatile.parts(pid), *volatile.egress(pid)])


def wait_until(condition, deadline_s: float = MIN_DEADLINE_S, what: str = "condition") -> None:
    """Polls `condition` until it holds; never a bare sleep."""
    deadline_s = max(deadline_s, MIN_DEADLINE_S)
    begin = time.monotonic()
    while not condition():
        waited = time.monotonic() - begin
        if waited > deadline_s:
            raise AssertionError(f"{what} did not come true within {deadline_s} s")
        # What takes its time is not asked so often: the machine has other things to do.
        time.sleep(0.02 if waited < 5 else 0.2)
