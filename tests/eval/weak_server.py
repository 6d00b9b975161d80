"""A server of the E2B dialect with holes, for tests of the red team: its sandboxes are processes and nothing else.

Code runs as a process of this host: with its network, its /tmp, the key of the server in its environment, and without an end for what it
leaves behind. `Holes` closes them one by one, as far as a process can.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

KEY = "e2b_" + secrets.token_hex(20)

# A process that has no network, no key, and a /tmp and processes of its own.
UNSHARED = {"network": ["--net"], "tmp": ["--mount", "--propagation", "private"], "processes": ["--pid", "--fork", "--mount-proc", "--kill-child"]}


@dataclass
class Holes:
    """The holes that are open."""

    network: bool = True
    token: bool = True
    tmp: bool = True
    processes: bool = True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=None):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def read(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_GET(self):
        sandbox = self.path.removeprefix("/sandboxes/")
        if self.path.startswith("/v2/sandboxes"):
            return self.answer(200, []) if self.headers.get("X-API-Key") == KEY else self.answer(401, {"message": "no"})
        if sandbox in self.server.sandboxes:
            return self.answer(200, {"sandboxID": sandbox, "state": "running", "memoryMB": 512, "cpuCount": 2})
        return self.answer(404, {"message": "no such thing"})

    def do_POST(self):
        body = self.read()
        if self.path == "/v2/sandboxes":
            sandbox = "i" + secrets.token_hex(10)
            self.server.sandboxes[sandbox] = []
            return self.answer(201, {"sandboxID": sandbox, "templateID": "base", "clientID": "c", "envdVersion": "0.1.0"})
        if self.path == "/execute":
            return self.execute(json.loads(body))
        return self.answer(404, {"message": "no such call"})

    def do_DELETE(self):
        processes = self.server.sandboxes.pop(self.path.removeprefix("/sandboxes/"), None)
        for process in processes or []:
            try:
                # Whatever made a session of its own outlives this.
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        self.answer(204 if processes is not None else 404)

    def execute(self, body):
        sandbox = self.headers.get("E2b-Sandbox-Id") or self.headers.get("Host", "").split(".")[0].split("-", 1)[-1]
        holes = self.server.holes
        environment = dict(body.get("env_vars") or {}, PATH=os.environ["PATH"], HOME="/tmp", WEAK_SERVER=self.server.name)
        if holes.token:
            environment["E2B_API_KEY"] = KEY
        command = [sys.executable, "-c", body["code"]]
        closed = [name for name in UNSHARED if not getattr(holes, name)]
        if closed:
            flags = [flag for name in closed for flag in UNSHARED[name]]
            setup = "mount -t tmpfs none /tmp && " if "tmp" in closed else ""
            command = ["unshare", *flags, "sh", "-c", f'{setup}exec "$@"', "sh", *command]
        process = subprocess.Popen(command, env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True)
        self.server.sandboxes.setdefault(sandbox, []).append(process)
        out, error = process.communicate()
        events = [{"type": kind, "text": text.decode(errors="replace"), "timestamp": "2026-01-02T03:04:05.000000+00:00"}
                  for kind, text in (("stdout", out), ("stderr", error)) if text]  # fmt: skip
        if process.returncode:
            last = error.decode(errors="replace").strip().splitlines()[-1:] or ["Killed"]
            name, _, value = last[0].partition(": ")
            events.append({"type": "error", "name": name, "value": value, "traceback": error.decode(errors="replace")})
        events.append({"type": "end_of_execution"})
        data = b"".join(json.dumps(event).encode() + b"\n" for event in events)
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class WeakServer(ThreadingHTTPServer):
    """Runs in a thread until it is closed."""

    daemon_threads = True

    def __init__(self, holes: Holes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.holes = holes
        self.sandboxes: dict[str, list[subprocess.Popen]] = {}
        # In the environment of everything that it starts.
        self.name = secrets.token_hex(16)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"WEAK_SERVER={self.name}".encode() in environ.read_bytes():
                    os.kill(int(environ.parent.name), signal.SIGKILL)
            except (OSError, ValueError):
                pass
