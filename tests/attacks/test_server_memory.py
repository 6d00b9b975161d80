"""Attacks on the memory of the server, by sandboxes that answer without end. The oracle is the size of its processes on the host."""

import json
import threading
from contextlib import contextmanager

import requests
from e2b import Sandbox

from harness.census import resident_mib
from harness.server import API_KEY

# What a server may grow by.
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
