"""Programs that take all of something for as long as they run, and what it is like to be their neighbour.

Each runs as root in a sandbox of its own. What must not happen: that others, or the host, notice much of it.
"""

from __future__ import annotations

import http.client
import json
import time
from contextlib import contextmanager
from urllib.parse import urlsplit

from e2b import Sandbox

# Runs `work(n)` in so many processes.
SEVERAL = """
import os
def several(count, work):
    for n in range(count):
        if os.fork() == 0: work(n)
    while True:
        try: os.wait()
        except ChildProcessError: return
"""

HOGS = {
    "16 busy loops": SEVERAL
    + """
def burn(n):
    while True: pass
several(16, burn)
""",
    "fork bomb": """
import os
while True:
    try: os.fork()
    except OSError: pass
""",
    "disk writer": """
block = bytes(1 << 20)
while True:
    try:
        with open("/home/user/big", "wb", buffering=0) as file:
            for _ in range(512): file.write(block)
    except OSError: pass
""",
    "sync, 8 at once": SEVERAL
    + """
def flush(n):
    with open(f"/home/user/sync{n}", "wb", buffering=0) as file:
        while True:
            file.write(b"x")
            os.sync()
several(8, flush)
""",
    "fsync, 8 at once": SEVERAL
    + """
def flush(n):
    with open(f"/home/user/fsync{n}", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
            os.fsync(file.fileno())
several(8, flush)
""",
    "empty files": """
import os, shutil
while True:
    os.makedirs("/home/user/empty", exist_ok=True)
    try:
        for n in range(100_000): os.close(os.open(f"/home/user/empty/{n}", os.O_CREAT | os.O_WRONLY))
    except OSError: pass
    shutil.rmtree("/home/user/empty", ignore_errors=True)
""",
    "names that are not there": SEVERAL
    + """
def ask(n):
    count = 0
    while True:
        count += 1
        try: os.stat(f"/home/user/none-{n}-{count}")
        except OSError: pass
several(4, ask)
""",
    "descriptors": SEVERAL
    + """
def hold(n):
    while True:
        held = []
        try:
            while True: held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError: pass
        for one in held: os.close(one)
several(8, hold)
""",
    "what starts kernel helpers": SEVERAL
    + """
import socket
def ask(n):
    while True:
        for family in range(1, 46):
            try: socket.socket(family, socket.SOCK_DGRAM, family).close()
            except OSError: pass
        with open(f"/tmp/program{n}", "wb") as file: file.write(bytes([0x90 + n] * 64))
        os.chmod(f"/tmp/program{n}", 0o755)
        if (child := os.fork()) == 0:
            try: os.execv(f"/tmp/program{n}", ["x"])
            finally: os._exit(1)
        os.waitpid(child, 0)
several(4, ask)
""",
    "log flood": """
import sys
while True:
    sys.stdout.write("all work and no play\\n" * 1000)
    sys.stdout.flush()
""",
    "memory": """
import os
while True:
    if (child := os.fork()) == 0:
        held = bytearray()
        while True: held.extend(bytes(16 << 20))
    os.waitpid(child, 0)
""",
    "pipes": SEVERAL
    + """
import fcntl
def fill(n):
    while True:
        held = []
        try:
            while True:
                ends = os.pipe()
                held += ends
                try: fcntl.fcntl(ends[1], 1031, 1 << 20)
                except OSError: pass
                os.set_blocking(ends[1], False)
                try: os.write(ends[1], bytes(1 << 20))
                except BlockingIOError: pass
        except OSError: pass
        for one in held: os.close(one)
several(4, fill)
""",
    "inotify": """
import ctypes, os
libc = ctypes.CDLL(None)
os.makedirs("/home/user/watched", exist_ok=True)
instances = []
while (one := libc.inotify_init1(0o4000)) >= 0 and len(instances) < 500:
    instances.append(one)
    libc.inotify_add_watch(one, b"/home/user/watched", 0xFFF)
while True:
    os.close(os.open("/home/user/watched/file", os.O_CREAT | os.O_WRONLY))
    os.unlink("/home/user/watched/file")
""",
}


def unleash(sandbox: Sandbox, name: str) -> None:
    """Starts a hog; nobody reads what it prints."""
    sandbox.files.write("/tmp/hog.py", HOGS[name])
    sandbox.commands.run("exec python3 /tmp/hog.py", user="root", background=True, timeout=0).disconnect()


@contextmanager
def hog(name: str, template: str = "base"):
    """A sandbox with a hog in it."""
    # Ended by the server, should this process be.
    sandbox = Sandbox.create(template, timeout=1800)
    try:
        unleash(sandbox, name)
        yield sandbox
    finally:
        sandbox.kill()


class Neighbour:
    """A sandbox that is asked what 1+1 is, and the server, over one connection each and with as little work as can be on this side."""

    def __init__(self, url: str, key: str) -> None:
        self.sandbox = Sandbox.create("code-interpreter-v1", timeout=3600)
        address = urlsplit(url)
        self.code, self.api = (http.client.HTTPConnection(address.hostname, address.port, timeout=300) for _ in range(2))
        self.key = {"X-API-Key": key}
        token = self.sandbox._envd_access_token
        self.headers = {
            "E2b-Sandbox-Id": self.sandbox.sandbox_id,
            "E2b-Sandbox-Port": "49999",
            "Content-Type": "application/json",
            **({"X-Access-Token": token} if token else {}),
        }

    def add(self) -> float:
        """Milliseconds until 1+1 is 2."""
        status, body, took = self.ask(self.code, "POST", "/execute", self.headers, json.dumps({"code": "1+1"}))
        events = [json.loads(line) for line in body.splitlines() if line.strip()]
        if status != 200 or [event.get("text") for event in events if event["type"] == "result"] != ["2"]:
            raise AssertionError(f"1+1 was answered with {status} {body!r}")
        return took

    def health(self) -> float:
        return self.ok("/health")

    def list(self) -> float:
        return self.ok("/v2/sandboxes")

    def ok(self, path: str) -> float:
        status, body, took = self.ask(self.api, "GET", path, self.key, None)
        if status >= 300:
            raise AssertionError(f"{path} was answered with {status} {body!r}")
        return took

    @staticmethod
    def ask(connection, method: str, path: str, headers: dict, body: str | None) -> tuple[int, bytes, float]:
        start = time.perf_counter()
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        return answer.status, content, (time.perf_counter() - start) * 1000

    def close(self) -> None:
        self.code.close()
        self.api.close()
        self.sandbox.kill()
