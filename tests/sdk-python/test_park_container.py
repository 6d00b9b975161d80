"""A server that is the first process of a container: what ends it ends all processes, so a stop brings the memory of paused sandboxes to disk."""

import os
import signal
from pathlib import Path

import pytest
from e2b_code_interpreter import Sandbox

from durability import clear, pause_state
from harness import volatile
from harness.server import wait_until
from test_park import CRIU

pytestmark = pytest.mark.skipif(not (CRIU / "bin/criu").exists(), reason="CRIU is not there: packaging/criu/fetch fetches it")
# The namespaces that an engine makes and that make a difference here.
CONTAINER = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]


@pytest.fixture
def contained(server):
    """The server in a container, until the test ends."""
    clear(server)
    server.stop()
    # Nothing is parked before the stop.
    server.variables |= {"SANDCOVE_CRIU": str(CRIU), "SANDCOVE_PARK_AFTER": "never"}
    server.within = CONTAINER
    server.start()
    yield server
    stop(server)
    server.within = []
    for name in ("SANDCOVE_CRIU", "SANDCOVE_PARK_AFTER"):
        server.variables.pop(name)
    server.start()
    clear(server)


def first_process(server) -> int | None:
    """The first process of the container, by its number outside."""
    return next(iter(volatile.children(server.pid)), None)


def is_on_disk(server, sandbox) -> bool:
    """Whether the memory of a sandbox is stored in the pool, which may be mounted in the container only."""
    pool = Path(f"/proc/{first_process(server)}/root{server.data_dir}/pool")
    assert (pool / "sandboxes").is_dir()
    return (pool / "parked" / sandbox.sandbox_id / "manifest.json").exists()


def stop(server):
    """Ends the container as an engine does: its first process gets the signal."""
    if (first := first_process(server)) is not None:
        os.kill(first, signal.SIGTERM)
    server.process.wait(timeout=180)


def test_memory_outlives_the_container(contained):
    sandbox = Sandbox.create(timeout=1800)
    sandbox.run_code("counter = 41")
    child = sandbox.commands.run("sleep 5000", background=True)
    sandbox.pause()
    assert pause_state(contained, sandbox) == "full"
    assert not is_on_disk(contained, sandbox)

    first = first_process(contained)
    stop(contained)
    wait_until(lambda: not Path(f"/proc/{first}").exists(), what="the end of the container")
    contained.start()
    assert is_on_disk(contained, sandbox)
    sandbox.connect(timeout=1800)
    assert sandbox.run_code("counter + 1").text == "42"
    assert child.pid in [process.pid for process in sandbox.commands.list()]
