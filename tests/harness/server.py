"""A `sandcove serve` under test: started, killed and started again like a user's, on a data directory of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
API_KEY = "e2b_" + "5a" * 20
ADMIN_TOKEN = "admin-of-the-tests"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
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
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.within, self.binary, "serve", "--listen", f"127.0.0.1:{self.port}", "--data-dir", str(self.data_dir)],
                env={**os.environ, "SANDCOVE_API_KEY": API_KEY, "SANDCOVE_ADMIN_TOKEN": ADMIN_TOKEN, **self.registries, **self.variables},
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
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def kill9(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """A normal stop: sandboxes stay."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=30)

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

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
    claims = Path("/run/sandcove").iterdir()
    return next((p.name for p in claims if p.is_file() and p.read_text() == str(data_dir)), None)


def snapshot_files(data_dir) -> list[str]:
    """Names of the files of snapshots and forks. Those of cached build steps, which stay for days, begin with `s-`."""
    return [name for name in os.listdir(data_dir / "pool/snapshots") if not name.startswith("s-")]


def host_resources(data_dir: Path) -> dict[str, set[str]]:
    """Everything on this host that a sandbox of this data directory could leave behind."""
    instance = instance_of(data_dir)
    # The warm interpreters of templates are the server's own, and so are the sandboxes that it makes ahead: they stay, and come
    # and go when it likes.
    own = ("warm", "spare")
    run = data_dir / "run"
    not_ours = {json.loads(p.read_text())["slot"] for p in run.glob("warm*/jail.json")}
    not_ours |= {int(p.name.split("x")[1]) for p in run.glob("spare*x*")}
    agents, namespaces = set(), set()
    for stat in Path("/proc").glob("[0-9]*/status"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        # Any process whose user id lies in this instance's id ranges belongs to one of its sandboxes.
        uid = int(re.search(r"^Uid:\t(\d+)", text, re.M).group(1))
        first = 1_000_000_000 + int(instance or 0) * 2048 * 65536
        if first <= uid < first + 2048 * 65536 and (uid - first) // 65536 not in not_ours:
            agents.add(stat.parent.name)
            namespaces |= namespaces_of(stat.parent)
    # Walked and not globbed: groups of this and other servers vanish meanwhile.
    cgroups = {
        f"{above}/{name}"
        for above, names, _ in os.walk("/sys/fs/cgroup")
        if above.endswith(f"/sandcove{instance}")
        for name in names
        if name.startswith("s") and int(name[1:]) not in not_ours
    }
    links = {
        p.name
        for p in Path("/sys/class/net").glob(f"scv{instance}-*")
        if int(p.name.rsplit("-", 1)[1]) not in not_ours
    }
    # With the slash: another data directory's name may begin like this one's.
    inside = f"{data_dir}/"
    mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if inside in line}
    loops = set()
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            if inside in backing.read_text():
                loops.add(str(backing))
        except OSError:
            continue
    return {
        "processes": agents,
        "namespaces": namespaces,
        "cgroups": cgroups,
        "links": links,
        "mounts": mounts,
        "loop devices": loops,
        # A pool that is not mounted holds nothing.
        "uppers": {p.name for p in (data_dir / "pool/sandboxes").glob("*") if not p.name.startswith(own)},
        "run directories": {
            p.name for p in run.iterdir() if p.is_dir() and not p.name.startswith(own)
        },
    }


def namespaces_of(process: Path) -> set[str]:
    """Those that are not the host's own."""
    found = set()
    for kind in ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"]:
        try:
            found.add(os.readlink(process / "ns" / kind))
            found.discard(os.readlink(f"/proc/1/ns/{kind}"))
        except OSError:
            continue
    return found


def host_counts(data_dir: Path) -> dict[str, int]:
    """How much of everything there is."""
    return {kind: len(things) for kind, things in host_resources(data_dir).items()}


def settled_counts(data_dir: Path, deadline_s: float = 60) -> dict[str, int]:
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
    return len(os.listdir(f"/proc/{pid}/fd"))


def wait_until(condition, deadline_s: float = 15, what: str = "condition") -> None:
    """Polls `condition` until it holds; never a bare sleep."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {deadline_s} s")
        time.sleep(0.02)
