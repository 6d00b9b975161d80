"""The unit of the installation guide, as it is printed there, with systemd as PID 1."""

import os
import re
import subprocess
import urllib.request
from pathlib import Path

import pytest
from e2b import Sandbox

from harness.server import API_KEY, instance_of, wait_until

GUIDE = Path(__file__).resolve().parents[2] / "docs/operations/install.md"
UNITS = Path("/etc/systemd/system")
CGROUPS = Path("/sys/fs/cgroup")
URL = "http://127.0.0.1:3000"
DATA_DIR = Path(os.environ["SANDCOVE_TEST_DATA_DIR"])
LONG = {"request_timeout": 900}
COUNTER = "i=0; while true; do i=$((i+1)); echo $i >/dev/shm/count; sleep 0.2; done"


def systemctl(*arguments: str) -> str:
    return subprocess.run(["systemctl", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def main_pid() -> int:
    return int(systemctl("show", "--property=MainPID", "--value", "sandcove"))


def answers() -> bool:
    try:
        with urllib.request.urlopen(f"{URL}/health", timeout=60) as answer:
            return answer.status == 200
    except OSError:
        return False


def count(box) -> int:
    return int(box.commands.run("cat /dev/shm/count 2>/dev/null || echo 0", timeout=900, **LONG).stdout or 0)


def goes_on(box) -> bool:
    before = count(box)
    wait_until(lambda: count(box) > before, 600, "a counter that goes on")
    return True


@pytest.fixture(scope="module")
def unit():
    """The service, started as the guide says."""
    text = re.search(r"```ini\n(\[Unit\].*?)```", GUIDE.read_text(), re.S)[1]
    Path("/usr/local/bin/sandcove").symlink_to(os.environ["SANDCOVE_BIN"])
    (UNITS / "sandcove.service").write_text(text)
    settings = Path("/etc/sandcove/sandcove.toml")
    settings.parent.mkdir()
    settings.write_text(f'listen = "127.0.0.1:3000"\ndata-dir = "{DATA_DIR}"\napi-key = "{API_KEY}"\nlanguages = "lean"\n')
    settings.chmod(0o600)
    systemctl("daemon-reload")
    systemctl("enable", "--now", "sandcove")
    wait_until(answers, 1800, "an answer of the service")
    os.environ.update({"E2B_API_URL": URL, "E2B_SANDBOX_URL": URL, "E2B_API_KEY": API_KEY})
    yield
    subprocess.run(["sandcove", "down", "--all", "--data-dir", DATA_DIR], check=True, timeout=900)


@pytest.fixture(scope="module")
def box(unit):
    box = Sandbox.create("base", timeout=7200, **LONG)
    box.commands.run(COUNTER, background=True, timeout=0, **LONG)
    wait_until(lambda: count(box) > 3, 600, "a counter that counts")
    return box


def parent() -> Path:
    return CGROUPS / f"sandcove{instance_of(DATA_DIR)}"


def test_systemd_finds_no_fault_with_the_unit(unit):
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", "sandcove.service"], capture_output=True, text=True)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "sandcove" in line]) == (0, [])


def test_processes_of_sandboxes_are_in_groups_of_their_own(box):
    in_unit = (CGROUPS / "system.slice/sandcove.service/cgroup.procs").read_text().split()
    assert str(main_pid()) in in_unit
    in_sandboxes = {pid for procs in parent().glob("s*/cgroup.procs") for pid in procs.read_text().split()}
    assert in_sandboxes and not in_sandboxes & set(in_unit)


def test_controllers_stay_when_systemd_reorders_its_groups(box):
    wanted = {"cpu", "io", "memory", "pids"}
    for change in (["daemon-reload"], ["restart", "systemd-journald"], ["set-property", "--runtime", "dbus.service", "IOWeight=50"]):
        systemctl(*change)
        assert wanted <= set((CGROUPS / "cgroup.subtree_control").read_text().split()), change
        assert all((group / "memory.max").read_text() != "max\n" for group in parent().glob("s*") if group.is_dir())


def test_sandboxes_outlive_a_restart_of_the_unit(box):
    before = main_pid()
    systemctl("restart", "sandcove")
    wait_until(answers, 1800, "an answer of the service")
    assert main_pid() != before
    assert goes_on(box)


def test_a_server_that_was_killed_is_started_again_and_finds_its_sandboxes(box):
    before = main_pid()
    os.kill(before, 9)
    wait_until(lambda: main_pid() not in (0, before) and answers(), 1800, "a new server")
    assert goes_on(box)


def test_a_stopped_unit_leaves_sandboxes_running(box):
    systemctl("stop", "sandcove")
    assert systemctl("show", "--property=ActiveState", "--value", "sandcove") == "inactive"
    assert any((group / "cgroup.procs").read_text() for group in parent().glob("s*") if group.is_dir())
    systemctl("start", "sandcove")
    wait_until(answers, 1800, "an answer of the service")
    assert goes_on(box)


def test_the_last_sandbox_leaves_no_group(box):
    assert box.kill(**LONG)
    here = parent()
    subprocess.run(["sandcove", "down", "--all", "--data-dir", DATA_DIR], check=True, timeout=900)
    wait_until(lambda: not here.exists(), 900, "the end of the groups")
