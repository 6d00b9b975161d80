"""The Debian package, in systems of its own: SANDCOVE_TEST_PACKAGE names the file that `make dist` has made.

Each system is a new root of a release. Programs run in it with the host's kernel, so that what the package does is done for real; services are
not started by the package, as there is no systemd.

No other server should start or stop on this host meanwhile: the firewall's tables are the host's, and the `nft` of a Debian 12 host has crashed while a
server in a system of Debian 13 had its own there.
"""

import fcntl
import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from harness.server import ROOT, free_port, wait_until

PACKAGE = Path(os.environ.get("SANDCOVE_TEST_PACKAGE", ""))
# The package's own. A purge ends the spawners of this directory that it sees, and a system sees the processes of this host.
DATA_DIR = Path("/var/lib/sandcove")
CACHE = os.environ.get("SANDCOVE_TEMPLATE_CACHE", "")
# Where the servers of a host say which number each has: control groups, interfaces and the table of the firewall are named by it.
CLAIMS = Path("/run/sandcove")
# Nothing of the tests' own server and clients.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
pytestmark = pytest.mark.skipif(not PACKAGE.is_file(), reason="SANDCOVE_TEST_PACKAGE is not set")


# Becomes the first process of a mount namespace whose root is the system: in a mere chroot, the kernel creates no user namespaces.
HOLD = """
set -e
mount --bind "$1" "$1"
cd "$1"
for name in proc sys dev; do mount --rbind /$name $name; done
mkdir -p cache former
[ -z "$2" ] || mount --bind "$2" cache
pivot_root . former
umount --lazy /former
echo ready
exec sleep infinity
"""


def claim(owner: Path) -> Path:
    """Claims a number for `owner`, a directory, as servers do (`crates/isolate/src/instance.rs`)."""
    CLAIMS.mkdir(exist_ok=True)
    for number in range(8):
        path = CLAIMS / str(number)
        with path.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            file.seek(0)
            before = file.read()
            if not before or not Path(before).is_dir():
                file.truncate(0)
                file.write(str(owner))
                return path
    raise AssertionError("servers of this host have all numbers")


def is_in_use() -> bool:
    """Whether a server of this host has the data directory."""
    for process in Path("/proc").glob("[0-9]*"):
        # Some end meanwhile.
        with suppress(OSError):
            if (process / "cmdline").read_bytes().split(b"\0")[1:3] == [b"__spawner", bytes(DATA_DIR / "pool")]:
                return True
    return False


class System:
    """A root directory with a release of Debian, and a mount namespace in which it is the root."""

    def __init__(self, release: str, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.claim = claim(root)
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "--include=ca-certificates,init-system-helpers", release, root], check=True)
        # The system sees no claims of this host. Its server gets the number that was claimed for it: all before are taken.
        (root / CLAIMS.relative_to("/")).mkdir()
        for number in range(int(self.claim.name)):
            (root / CLAIMS.relative_to("/") / str(number)).write_text("/")
        policy = root / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        (root / "etc/resolv.conf").write_bytes(Path("/etc/resolv.conf").read_bytes())
        # Authorities that this host trusts beside the usual ones: templates have them too.
        shutil.copytree("/usr/local/share/ca-certificates", root / "usr/local/share/ca-certificates", dirs_exist_ok=True)
        hold = ["unshare", "--mount", "--propagation", "private", "sh", "-c", HOLD, "hold", root, CACHE]
        self.holder = subprocess.Popen(hold, stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline() == "ready\n"
        self.run("update-ca-certificates")

    def inside(self, *command: str) -> list[str]:
        """The command line that runs a command in the system."""
        return ["nsenter", f"--target={self.holder.pid}", "--mount", "--wd=/", *command]

    def run(self, *command: str, check: bool = True):
        done = subprocess.run(self.inside(*command), capture_output=True, text=True, timeout=1200, env=ENVIRONMENT)
        assert not check or done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}{self.log()}"
        return done

    def log(self) -> str:
        """What the server wrote last."""
        log = self.root / "server.log"
        return log.read_text()[-3000:] if log.exists() else ""

    def install(self, package: Path) -> None:
        shutil.copy(package, self.root / "package.deb")
        self.run("sh", "-c", "apt-get -qq update && apt-get -qq --yes --no-install-recommends install /package.deb")

    def leftovers(self) -> list[str]:
        """What servers of the system have left in the kernel, which is this host's too."""
        name = f"sandcove{self.claim.name}"
        groups = [str(group) for pattern in (name, f"*/{name}") for group in Path("/sys/fs/cgroup").glob(pattern)]
        tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout.splitlines()
        return [*self.mounts(), *groups, *(table for table in tables if table.endswith(f" {name}"))]

    def mounts(self) -> list[str]:
        found = [line.split()[4] for line in Path(f"/proc/{self.holder.pid}/mountinfo").read_text().splitlines()]
        return [mount for mount in found if mount.startswith("/var/")]

    def close(self) -> None:
        self.holder.kill()
        self.holder.wait()
        shutil.rmtree(self.root)
        self.claim.unlink()


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def system(request):
    if is_in_use():
        pytest.fail(f"a server of this host has {DATA_DIR}, and a purge in a system would end it: `sandcove down --all` first")
    system = System(request.param, Path(f"/var/lib/sandcove-test-package-{os.getpid()}-{request.param}"))
    yield system
    system.close()


def quickstart(system: System) -> tuple[list[str], list[str]]:
    """What the program of the first page prints in the system, with the official package installed as the page says, and what the page says."""
    page = (ROOT / "docs/getting-started.md").read_text()
    ((program, expected),) = re.findall(r"^```python\n(from .*?)^```\s+```text\n(.*?)^```", page, re.M | re.S)
    commands = re.search(r"^\$ (python3 -m venv .*)\n\$ (pip install .*)$", page, re.M)
    (system.root / "root/program.py").write_text(f"{program}sandbox.kill()\n")
    system.run("apt-get", "-qq", "--yes", "--no-install-recommends", "install", "python3-venv")
    # This host may be behind a proxy of its own authority, which the package of a Python index knows only by this variable.
    variables = "export PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_RETRIES=10 PIP_TIMEOUT=60 PIP_QUIET=1"
    done = system.run("bash", "-euc", "\n".join(["cd /root", variables, *commands.groups(), 'eval "$(sandcove env)"', "python3 program.py"]))
    return done.stdout.split(), expected.split()


def test_it_is_installed_serves_and_is_removed_without_a_trace(system):
    system.install(PACKAGE)
    assert re.match(r"sandcove \d+\.\d+", system.run("sandcove", "--version").stdout)
    for file in ("usr/share/man/man1/sandcove-run.1.gz", "usr/share/bash-completion/completions/sandcove", "etc/sandcove/sandcove.env"):
        assert (system.root / file).exists(), file
    unit = (system.root / "usr/lib/systemd/system/sandcove.service").read_text()
    assert "ExecStart=/usr/bin/sandcove serve" in unit and "Type=notify" in unit
    assert "sandcove.service" in os.listdir(system.root / "etc/systemd/system/multi-user.target.wants")

    # As the unit does it, without systemd.
    listen = f"127.0.0.1:{free_port()}"
    environment = {**ENVIRONMENT, "SANDCOVE_LISTEN": listen, "SANDCOVE_LANGUAGES": "lean", "SANDCOVE_SPARES": "0"}
    environment |= {"SANDCOVE_TEMPLATE_CACHE": "/cache"} if CACHE else {}

    def started(deadline_s: float) -> subprocess.Popen:
        with (system.root / "server.log").open("ab") as log:
            server = subprocess.Popen(system.inside("sandcove", "serve"), env=environment, stderr=log)

        def answers() -> bool:
            assert server.poll() is None, system.log()
            return system.run("sandcove", "status", check=False).returncode == 0

        wait_until(answers, deadline_s, "an answer of the server")
        return server

    server = started(1200)
    try:
        assert system.run("sandcove", "run", "-c", "print(6 * 7)").stdout.strip() == "42"
        printed, expected = quickstart(system)
        assert printed == expected
        box = system.run("sandcove", "sandbox", "create", "-d", "base", "--timeout", "1800").stdout.strip().split()[-1]
        system.run("sandcove", "sandbox", "exec", box, "sh", "-c", "echo kept > /home/user/kept")
        # The upgrade replaces the program. The sandbox goes on, and the new server finds it.
        system.run("sh", "-c", "dpkg --install /package.deb")
        server.terminate()
        server.wait(timeout=180)
        server = started(600)
        assert system.run("sandcove", "sandbox", "exec", box, "cat", "/home/user/kept").stdout == "kept\n"
        system.run("sandcove", "sandbox", "pause", box)
    finally:
        server.terminate()
        server.wait(timeout=180)

    removed = system.run("apt-get", "-qq", "--yes", "remove", "sandcove")
    assert (system.root / "var/lib/sandcove/server/sandcove.db").exists(), removed.stderr
    assert system.leftovers() == [] and (system.root / "etc/sandcove/sandcove.toml").exists()
    system.run("apt-get", "-qq", "--yes", "purge", "sandcove")
    for left in ("var/lib/sandcove", "etc/sandcove", "usr/bin/sandcove", "etc/systemd/system/multi-user.target.wants/sandcove.service"):
        assert not os.path.lexists(system.root / left), left
    assert system.leftovers() == []
