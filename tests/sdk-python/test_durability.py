"""Servers die; sandboxes and what was promised about them do not. And nothing is left of what is gone."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from e2b import Sandbox, SandboxNotFoundException
from e2b_code_interpreter import Sandbox as Interpreter

from harness.server import host_counts, host_resources, open_descriptors, settled_counts, wait_until


@pytest.mark.parametrize("how", ["kill9", "stop"])
def test_a_restarted_server_finds_its_sandboxes(server, how):
    interpreter = Interpreter.create(timeout=300)
    plain = Sandbox.create(timeout=300)
    short = Sandbox.create(timeout=8)
    deadline = time.monotonic() + 8
    interpreter.run_code("kept = 'in memory'")
    interpreter.files.write("kept", "on disk")
    ticker = plain.commands.run("i=0; while true; do i=$((i+1)); echo $i; sleep 0.1; done", background=True)
    before = plain.commands.list()[-1]

    getattr(server, how)()
    server.start()

    assert interpreter.run_code("kept").text == "in memory"
    assert Interpreter.connect(interpreter.sandbox_id).files.read("kept") == "on disk"
    again = Sandbox.connect(plain.sandbox_id)
    assert ticker.pid in [process.pid for process in again.commands.list()]
    assert before.pid == ticker.pid
    ticks = []
    with pytest.raises(Exception):
        again.commands.connect(ticker.pid, timeout=2).wait(on_stdout=ticks.append)
    assert ticks, "the command goes on and can be listened to"

    wait_until(lambda: time.monotonic() > deadline, 20, "the short timeout")
    wait_until(lambda: not short.is_running(), 10, "the timeout is still kept")
    with pytest.raises(SandboxNotFoundException):
        short.get_info()
    assert interpreter.kill() and plain.kill()


def test_a_sandbox_killed_while_the_server_was_down_is_gone(server):
    import os
    import signal

    sandbox = Sandbox.create(timeout=300)
    before = host_resources(server.data_dir)
    server.kill9()
    for pid in before["processes"]:
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    server.start()
    assert not sandbox.is_running()
    with pytest.raises(SandboxNotFoundException):
        sandbox.get_info()
    wait_until(lambda: sandbox.sandbox_id not in host_resources(server.data_dir)["run directories"], what="sweep")


def test_fifty_at_once_leave_nothing(server):
    before = settle(server)
    descriptors = open_descriptors(server.pid)

    def live(_):
        sandbox = Sandbox.create(timeout=120)
        try:
            return sandbox.commands.run("echo $((6 * 7))").stdout
        finally:
            assert sandbox.kill()

    with ThreadPoolExecutor(50) as pool:
        assert list(pool.map(live, range(50))) == ["42\n"] * 50
    wait_until(lambda: host_counts(server.data_dir) == before, 60, "everything is given back")
    wait_until(lambda: open_descriptors(server.pid) <= descriptors + 60, 30, "descriptors are closed")
    assert [s for s in Sandbox.list().next_items()] == []


def test_a_crashed_creation_leaves_nothing(server):
    """The server dies in the middle of many creations: what was not acknowledged is swept, what was is there."""
    before = settle(server)
    acknowledged = []

    def create(_):
        try:
            acknowledged.append(Sandbox.create(timeout=300, request_timeout=20))
        except Exception:
            pass

    with ThreadPoolExecutor(16) as pool:
        futures = [pool.submit(create, n) for n in range(16)]
        wait_until(lambda: len(acknowledged) >= 3, what="a few are acknowledged")
        server.kill9()
        for future in futures:
            future.result()
    server.start()
    for sandbox in acknowledged:
        assert sandbox.commands.run("echo here").stdout == "here\n"
    listed = {one.sandbox_id for one in Sandbox.list().next_items()}
    assert {sandbox.sandbox_id for sandbox in acknowledged} <= listed
    for sandbox_id in listed:
        Sandbox.kill(sandbox_id)
    wait_until(lambda: host_counts(server.data_dir) == before, 60, "everything is given back")


def settle(server):
    for one in Sandbox.list().next_items():
        Sandbox.kill(one.sandbox_id)
    wait_until(lambda: not host_resources(server.data_dir)["run directories"], 30, "earlier sandboxes are gone")
    return settled_counts(server.data_dir)
