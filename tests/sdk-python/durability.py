"""What the tests of crashes and of durability share."""

import contextlib
import os
import subprocess

import pytest
import requests
from e2b import Sandbox

from harness.server import API_KEY, host_counts, host_resources, settled_counts, wait_until


def everything_listed():
    paginator, all_of_them = Sandbox.list(), []
    while paginator.has_next:
        all_of_them.extend(paginator.next_items())
    return all_of_them


def clear(server):
    """Removes every sandbox and snapshot."""
    for one in everything_listed():
        Sandbox.kill(one.sandbox_id)
    while snapshots := Sandbox.list_snapshots().next_items():
        for one in snapshots:
            Sandbox.delete_snapshot(one.snapshot_id)
    wait_until(lambda: not host_resources(server.data_dir)["run directories"], what="earlier sandboxes are gone")


def running(**options):
    """One with a file to know it by."""
    sandbox = Sandbox.create(timeout=1800, **options)
    sandbox.files.write("kept", sandbox.sandbox_id)
    return sandbox


def stored():
    """One of which only files are kept."""
    sandbox = running()
    sandbox.pause(mode="filesystem")
    return sandbox


def pause_state(server, sandbox) -> str:
    """`running`, or what a pause keeps: `full` or `filesystem`; else what the server says, which cannot read while its disk is full."""
    answer = requests.get(f"{server.url}/sandboxes/{sandbox.sandbox_id}", headers={"X-API-KEY": API_KEY}).json()
    return answer.get("pauseMode") or answer.get("state") or answer["message"]


def told(server, sandbox) -> str:
    """What its events say it is: each of them can follow on the one before, so that none is missing and none is twice."""
    url = f"{server.url}/events/sandboxes/{sandbox.sandbox_id}?orderAsc=true&limit=100"
    events = requests.get(url, headers={"X-API-KEY": API_KEY}).json()
    state, after = "", {"create": "running", "pause": "paused", "resume": "running", "kill": "killed"}
    before = {"create": [""], "pause": ["running"], "resume": ["paused"], "kill": ["running", "paused"]}
    for label in (event["eventLabel"] for event in events):
        if label in after:
            assert state in before[label], [event["eventLabel"] for event in events]
            state = after[label]
    return state


def fill(path):
    """Takes all room there is, to the last block, without writing it."""
    # On btrfs, what was deleted before gives its room back in the background; what a sandbox still has open, not even then.
    for what in ("subvolume", "filesystem"):
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(["btrfs", what, "sync", path.parent], check=False, capture_output=True, timeout=10)
    with path.open("wb") as file:
        size, step = 0, 1 << 34
        while step >= 1 << 12:
            try:
                os.posix_fallocate(file.fileno(), size, step)
                size += step
            except OSError:
                step //= 2


@pytest.fixture(scope="module")
def crash_file(server, tmp_path_factory):
    """What is written there is the point at which the server dies. All that is left of all that in the end is nothing."""
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    file = tmp_path_factory.mktemp("crash") / "point"
    file.touch()
    os.environ["SANDCOVE_CRASH_FILE"] = str(file)
    clear(server)
    server.stop()
    server.start()
    before = settled_counts(server.data_dir)
    yield file
    del os.environ["SANDCOVE_CRASH_FILE"]
    clear(server)
    server.stop()
    server.start()
    wait_until(lambda: host_counts(server.data_dir) == before, what="everything is given back")
