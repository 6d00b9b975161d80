"""A server in a container, as those of Docker with version 2 of control groups: what is mounted is the container's group, which has its
processes and cannot have controllers for groups below it before they have moved."""

import json
import os
from pathlib import Path

import pytest
from e2b import Sandbox

from harness.server import Server, instance_of

CGROUPS = Path("/sys/fs/cgroup")
CONTAINER = CGROUPS / "container"
ENTER = """
echo $$ >/sys/fs/cgroup/container/cgroup.procs
exec unshare --cgroup --mount --propagation=slave sh -c 'umount /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec "$@"' sh "$@"
"""


@pytest.fixture(scope="module")
def contained():
    CONTAINER.mkdir()
    (CONTAINER / "memory.max").write_text(str(2 << 30))
    server = Server(Path(os.environ["SANDCOVE_TEST_DATA_DIR"]))
    server.within = ["sh", "-c", ENTER, "sh"]
    server.start()
    os.environ.update(server.env)
    yield server
    server.stop()


def test_sandboxes_in_a_container_have_their_limits(contained):
    box = Sandbox.create("base", timeout=3600, request_timeout=900)
    assert box.commands.run("echo here", timeout=900, request_timeout=900).stdout == "here\n"
    record = json.loads((contained.data_dir / "run" / box.sandbox_id / "jail.json").read_text())
    parent = CONTAINER / f"sandcove{instance_of(contained.data_dir)}"
    limits, group = record["limits"], parent / f"s{record['slot']}"
    assert int((group / "memory.max").read_text()) == limits["memory_mib"] << 20
    assert int((group / "pids.max").read_text()) == limits["pids"]
    # All of them together leave a reserve of what the container has.
    assert int((parent / "memory.max").read_text()) < 2 << 30
    assert box.kill(request_timeout=900)


def test_the_processes_of_the_container_stay_in_it(contained):
    assert (CONTAINER / "cgroup.procs").read_text() == ""
    assert str(contained.pid) in (CONTAINER / "sandcove-container/cgroup.procs").read_text().split()
