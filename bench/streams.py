"""How fast a sandbox takes and gives large files, and how long one command takes through the official SDK.

    streams.py [--size MB] [--rounds N] [--data-dir DIR] [--template NAME]
    as root on the server's host, with a server running, E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY set, and `e2b` installed

Every file goes up and comes down once a round, one stream at a time: by the SDK, and by a plain HTTP client that does as little
as it can, so that the rest is the server's. The largest resident size of the agent is read from outside, by the kernel's own
mark. A command is compared to what a round trip to another process costs here, over loopback, by the same HTTP client. Prints
Markdown.
"""

from __future__ import annotations

import argparse
import datetime
import http.client
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
from e2b import Sandbox

PIECE = os.urandom(1 << 20)
# Answers every request with nothing, as soon as it has its head.
RESPONDER = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := connection.recv(65536):
        if data.endswith(b"\\r\\n\\r\\n"):
            connection.sendall(b"HTTP/1.1 204 No Content\\r\\n\\r\\n")
"""


class Agent:
    """The first process of a sandbox, seen from the host."""

    def __init__(self, data_dir: Path, sandbox_id: str) -> None:
        pid = json.loads((data_dir / "run" / sandbox_id / "jail.json").read_text())["pid"]
        self.process = Path(f"/proc/{pid}")

    def forget_peak(self) -> None:
        (self.process / "clear_refs").write_text("5")

    def peak_mib(self) -> float:
        line = next(line for line in (self.process / "status").read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024


class Plain:
    """A client that only moves bytes."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.address = urlsplit(os.environ["E2B_SANDBOX_URL"])
        self.headers = {
            "E2b-Sandbox-Id": sandbox.sandbox_id,
            "E2b-Sandbox-Port": "49983",
            "X-Access-Token": sandbox._envd_access_token or "",
        }

    def request(self, method: str, path: str, headers: dict[str, str], body=None) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self.address.hostname, self.address.port)
        connection.request(method, f"/files?path={quote(path)}&username=user", body, self.headers | headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.read(500)!r}")
        return answer

    def up(self, path: str, pieces: int) -> None:
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(pieces * len(PIECE))}
        self.request("POST", path, headers, (PIECE for _ in range(pieces))).read()

    def down(self, path: str) -> int:
        answer, buffer, total = self.request("GET", path, {"Accept-Encoding": "identity"}), bytearray(1 << 20), 0
        while read := answer.readinto(buffer):
            total += read
        return total


def timed(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def streams(sandbox: Sandbox, agent: Agent, source: Path, rounds: int) -> list[tuple[str, float, float]]:
    size = source.stat().st_size
    plain = Plain(sandbox)

    def sdk_up() -> None:
        with source.open("rb") as file:
            sandbox.files.write("/home/user/f", file)

    def sdk_down() -> None:
        total = sum(len(piece) for piece in sandbox.files.read("/home/user/f", format="stream"))
        assert total == size, total

    def plain_down() -> None:
        assert plain.down("/home/user/f") == size

    content = source.read_bytes()
    cases = {
        "up, SDK, from a file": sdk_up,
        "up, SDK, from memory (multipart)": lambda: sandbox.files.write("/home/user/f", content, request_timeout=300),
        "up, plain client": lambda: plain.up("/home/user/f", size // len(PIECE)),
        "up over an existing file, plain client": lambda: plain.up("/home/user/f", size // len(PIECE)),
        "down, SDK": sdk_down,
        "down, plain client": plain_down,
    }
    rows = []
    for name, work in cases.items():
        times, peak = [], 0.0
        for _ in range(rounds):
            if name.startswith("up") and "existing" not in name:
                sandbox.commands.run("rm -f /home/user/f; sync", timeout=120)
            agent.forget_peak()
            times.append(timed(work))
            peak = max(peak, agent.peak_mib())
        rows.append((name, size / 1e9 / statistics.median(times), peak))
    return rows


def round_trips(sandbox: Sandbox, count: int) -> dict[str, list[float]]:
    with subprocess.Popen([sys.executable, "-c", RESPONDER], stdout=subprocess.PIPE, text=True) as responder:
        port = int(responder.stdout.readline())
        with httpx.Client() as client:
            works = {
                "GET by httpx of a process that answers at once": lambda: client.get(f"http://127.0.0.1:{port}/"),
                "`echo` by the SDK": lambda: sandbox.commands.run("echo hello"),
            }
            for work in works.values():
                for _ in range(20):
                    work()
            # One after the other, so that whatever else goes on here hits both.
            samples = {name: [] for name in works}
            for _ in range(count):
                for name, work in works.items():
                    samples[name].append(timed(work) * 1e3)
        responder.terminate()
    return samples


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=1000, metavar="MB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--commands", type=int, default=200)
    parser.add_argument("--data-dir", default=os.environ.get("SANDCOVE_DATA_DIR", "/var/lib/sandcove"))
    parser.add_argument("--template", default="base")
    wishes = parser.parse_args()
    print(f"{datetime.date.today()}, {os.cpu_count()} cores, Linux {platform.release()}, median of {wishes.rounds}\n")
    with Sandbox.create(wishes.template, timeout=3600) as sandbox, tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        agent = Agent(Path(wishes.data_dir), sandbox.sandbox_id)
        trips = round_trips(sandbox, wishes.commands)
        source = Path(place, "source")
        with source.open("wb") as file:
            for _ in range(wishes.size * 10**6 // len(PIECE)):
                file.write(PIECE)
        rows = streams(sandbox, agent, source, wishes.rounds)
    print(f"| {wishes.size} MB, one stream | GB/s | agent's largest resident size, MiB |\n| --- | ---: | ---: |")
    for name, speed, peak in rows:
        print(f"| {name} | {speed:.2f} | {peak:.1f} |")
    print(f"\n| {wishes.commands} each, in turn | p50, ms | p90, ms |\n| --- | ---: | ---: |")
    for name, times in trips.items():
        tenths = statistics.quantiles(times, n=10)
        print(f"| {name} | {tenths[4]:.2f} | {tenths[8]:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
