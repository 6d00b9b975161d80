"""Attacks on the memory of the server, by clients that do not read what they have asked for, and sandboxes that answer without end. The oracle is the
size of its processes on the host."""

import json
import socket
import threading
import time
from contextlib import contextmanager

import pytest
import requests
from e2b import Sandbox

from harness.census import resident_mib
from harness.server import API_KEY

# What answers that wait may take, and a server beside.
MAX_MIB = 800


@contextmanager
def grown(server):
    """By how much the server's processes grow at most meanwhile, MiB."""
    before, most, end = resident_mib(server.pid), [0.0], threading.Event()

    def look():
        while not end.wait(0.05):
            most[0] = max(most[0], resident_mib(server.pid) - before)
            if most[0] > 4 * MAX_MIB:
                return

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        end.set()
        thread.join()


@pytest.fixture
def labelled():
    """Sandboxes with long labels: their list has a MiB."""
    boxes = [Sandbox.create(timeout=600, metadata={"label": "x" * 65_000}) for _ in range(16)]
    yield boxes
    for box in boxes:
        box.kill()


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def literal(name: bytes, value: bytes) -> bytes:
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def unread_lists(server, streams: int) -> socket.socket:
    """A connection of HTTP/2 that asks for the list so often and reads nothing."""
    block = b"\x82\x86" + b"\x44\x0a/sandboxes" + b"\x41\x01x" + literal(b"x-api-key", API_KEY.encode())
    client = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.sendall(PREFACE + b"".join(frame(1, 5, stream, block) for stream in range(1, 2 * streams, 2)))
    return client


def test_answers_that_nobody_reads_take_a_bounded_part_of_memory(server, labelled):
    with grown(server) as most:
        clients = [unread_lists(server, 150) for _ in range(10)]
        # All that comes of them is there when the size has not changed for a while.
        last = time.monotonic() + 180
        before = -1.0
        while time.monotonic() < last and not (before == most[0] > 0):
            before = most[0]
            time.sleep(15)
    for client in clients:
        client.close()
    assert most[0] < MAX_MIB, f"{most[0]:.0f} MiB"


class Tools:
    """The tools of `/mcp`."""

    def __init__(self, server) -> None:
        self.url = f"{server.url}/mcp"
        self.session = requests.Session()
        self.session.headers.update({"X-API-Key": API_KEY, "Accept": "application/json"})
        settings = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "attack", "version": "1"}}
        answer = self.post("initialize", settings)
        self.session.headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]

    def post(self, method, parameters):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
        answer = self.session.post(self.url, data=json.dumps(message), headers={"Content-Type": "application/json"}, timeout=300)
        assert answer.status_code == 200, answer.text
        return answer

    def call(self, tool, **arguments):
        return self.post("tools/call", {"name": tool, "arguments": arguments}).json()["result"]


def test_a_file_of_any_size_is_read_by_tools_in_part(server):
    box = Sandbox.create(timeout=600)
    box.commands.run("echo begin > large && truncate -s 3G large")
    with grown(server) as most:
        result = Tools(server).call("read_file", sandbox_id=box.sandbox_id, path="/home/user/large")
    box.kill()
    assert most[0] < 200, f"{most[0]} MiB"
    said = result["content"][0]["text"]
    assert said.startswith("begin\n") and said.endswith(f"[{(3 << 30) - 50_000} more bytes are left out]")
