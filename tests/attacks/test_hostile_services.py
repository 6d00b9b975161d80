"""Answers by which a service in a sandbox attacks the server between it and its clients. The same service listens where anybody's
would, in the interpreter's place, and in the agent's, which it has stopped and had close its socket.

The oracle is the server: it goes on answering, and has neither grown nor kept descriptors. A client gets an answer of one request or
an error."""

import re
import socket
from pathlib import Path

import pytest
from e2b import Sandbox

from harness.census import resident_mib
from harness.server import open_descriptors, wait_until

from witness import is_up

SOURCE = Path(__file__).parent / "programs/hostile_service.py"
ANSWERS = re.findall(r'^    "([a-z0-9-]+)": ', SOURCE.read_text(), re.M)
PORTS = {"a service": 8080, "the interpreter": 49999, "the agent": 49983}
# How much of an answer a client takes before it has seen enough.
ENOUGH = 8 << 20
GROWTH_MIB = 48


@pytest.fixture(scope="module", params=PORTS)
def hostile(request, server):
    box = Sandbox.create(timeout=3600)
    box.files.write("/tmp/hostile_service.py", SOURCE.read_text())
    port = PORTS[request.param]
    where = f"--take {port}" if port == 49983 else str(port)
    # Of a shell in the background: once the agent is stopped, nobody reports for it.
    box.commands.run(f"nohup python3 /tmp/hostile_service.py {where} >/tmp/said 2>&1 &", user="root")
    is_there(server, box, port)
    yield box, port
    box.kill()
    assert is_up(server)


def is_there(server, box, port):
    """Waits for the hostile service, and in the agent's place asks it to take that first."""
    ports = [8081, port] if port == 49983 else [port]
    wait_until(lambda: any(b"fine" in ask(server, box, one, "fine") for one in ports), 120, "the hostile service")


def ask(server, box, port, path, seconds=2):
    """One request on a connection of its own; what comes back, up to `ENOUGH`."""
    answer = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        token = box._envd_access_token or ""
        client.sendall(
            f"GET /{path} HTTP/1.1\r\nHost: {port}-{box.sandbox_id}.localhost\r\nX-Access-Token: {token}\r\nConnection: close\r\n\r\n".encode()
        )
        client.settimeout(seconds)
        try:
            while len(answer) < ENOUGH and (piece := client.recv(1 << 16)):
                answer += piece
        except OSError:
            pass
    return answer


@pytest.mark.parametrize("name", ANSWERS)
def test_answer(server, hostile, name):
    box, port = hostile
    memory = resident_mib(server.pid)
    answers = [ask(server, box, port, name, seconds=0.5) for _ in range(2)]
    for answer in answers:
        assert answer.count(b"HTTP/1.1 ") <= 1 + answer.count(b"HTTP/1.1 103"), "one request, one answer"
        head = answer.partition(b"\r\n\r\n")[0].lower()
        assert b"\nx-stolen" not in head
        assert not answer or re.match(rb"HTTP/1\.1 [1-5]\d\d ", answer)
    wait_until(lambda: b"fine" in ask(server, box, port, "fine"), 120, "an answer to the next request")
    assert is_up(server)
    assert resident_mib(server.pid) - memory < GROWTH_MIB


def test_no_descriptor_is_kept(server, hostile):
    box, port = hostile
    before = open_descriptors(server.pid)
    for name in ANSWERS:
        ask(server, box, port, name, seconds=0.05)
    # Connections to services are kept for a while, but not one for each request.
    wait_until(lambda: open_descriptors(server.pid) <= before + 32, 120, f"{before} descriptors, not {open_descriptors(server.pid)}")


def test_a_sandbox_whose_agent_was_taken_is_killed_all_the_same(server):
    box, other = Sandbox.create(timeout=1800), Sandbox.create(timeout=1800)
    try:
        box.files.write("/tmp/hostile_service.py", SOURCE.read_text())
        box.commands.run("nohup python3 /tmp/hostile_service.py --take 49983 >/tmp/said 2>&1 &", user="root")
        is_there(server, box, 49983)
        assert other.commands.run("echo here").stdout == "here\n"
        box.set_timeout(600)
    finally:
        assert box.kill()
        assert other.kill()
    assert not Sandbox.list().next_items() or box.sandbox_id not in {one.sandbox_id for one in Sandbox.list().next_items()}
