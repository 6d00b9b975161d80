"""The `sandcove` command beside a running server: forwarded ports, keys, code that runs once."""

import json
import os
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("SANDCOVE_BIN", str(ROOT / "target/release/sandcove"))

# Answers GET with what it was asked, echoes the bytes of an upgraded connection, and streams on /slow.
SERVICE = r"""
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade") == "echo":
            self.send_response(101); self.send_header("Connection", "Upgrade"); self.send_header("Upgrade", "echo")
            self.end_headers()
            while data := self.connection.recv(4096):
                self.connection.sendall(data)
            self.close_connection = True
            return
        body = f"{self.path} {self.headers.get('X-Access-Token')}".encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
ThreadingHTTPServer(("127.0.0.1", 8080), Handler).serve_forever()
"""


def sandcove(server, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [BINARY, *arguments, "--data-dir", str(server.data_dir)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@contextmanager
def forwarded(server, sandbox_id: str, port: int):
    command = [BINARY, "sandbox", "forward", sandbox_id, f"{port}:0", "--data-dir", str(server.data_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            local, _, remote = process.stdout.readline().strip().partition(" -> ")
            assert remote == f"{sandbox_id}:{port}"
            yield int(local.rsplit(":", 1)[1])
        finally:
            process.terminate()
    assert process.returncode == 0, "a forward that is told to end has not failed"


@pytest.fixture
def service(sandbox):
    sandbox.files.write("/home/user/service.py", SERVICE)
    sandbox.commands.run("python3 service.py", background=True)
    sandbox.commands.run("until curl -s http://127.0.0.1:8080/ >/dev/null; do sleep 0.05; done")
    return sandbox


def test_a_service_is_reached_through_a_local_port(server, service):
    with forwarded(server, service.sandbox_id, 8080) as port:
        answer = requests.get(f"http://localhost:{port}/a%20b?c=d", timeout=10)
        assert answer.text == "/a%20b?c=d None", "the sandbox's own token is not for programs in it"
        big = os.urandom(5_000_000)
        assert requests.post(f"http://localhost:{port}/", data=big, timeout=30).content == big


def test_an_upgraded_connection_passes_both_ways(server, service):
    with forwarded(server, service.sandbox_id, 8080) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as stream:
            stream.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += stream.recv(1)
            assert head.startswith(b"HTTP/1.1 101")
            for message in (b"\x00\xff", b"more"):
                stream.sendall(message)
                assert stream.recv(100) == message


def test_a_forwarded_agent_needs_no_token(server, sandbox):
    with forwarded(server, sandbox.sandbox_id, 49983) as port:
        url = f"http://127.0.0.1:{port}/files?path=f.txt&username=user"
        assert requests.post(url, files={"file": b"text"}, timeout=10).status_code == 200
    assert sandbox.files.read("f.txt") == "text"


def test_a_port_nobody_listens_on_is_a_502(server, sandbox):
    with forwarded(server, sandbox.sandbox_id, 8081) as port:
        assert requests.get(f"http://127.0.0.1:{port}/", timeout=10).status_code == 502


def test_forwarding_for_nobody_fails(server):
    done = sandcove(server, "sandbox", "forward", "inobody", "8080:0")
    assert done.returncode == 1
    assert "404" in done.stderr


def test_a_key_is_shown_once_works_and_ends(server):
    def status(key: str) -> int:
        return requests.get(f"{server.url}/v2/sandboxes", headers={"X-API-Key": key}, timeout=10).status_code

    made = json.loads(sandcove(server, "keys", "create", "for a test", "--json").stdout)
    assert status(made["key"]) == 200
    listed = sandcove(server, "keys", "list", "--json").stdout
    assert made["key"][4:] not in listed
    (key,) = [key for key in json.loads(listed) if key["id"] == made["id"]]
    assert key["name"] == "for a test"
    assert sandcove(server, "keys", "delete", made["id"]).stdout == made["id"] + "\n"
    assert status(made["key"]) == 401
    assert sandcove(server, "keys", "delete", made["id"]).returncode == 1


def test_the_key_of_the_command_itself_stays(server):
    own = json.loads((Path(server.data_dir) / "server.json").read_text())["apiKey"]
    keys = json.loads(sandcove(server, "keys", "list", "--json").stdout)
    (key,) = [key for key in keys if own.endswith(key["mask"]["maskedValueSuffix"])]
    done = sandcove(server, "keys", "delete", key["id"])
    assert done.returncode == 1
    assert "SANDCOVE_API_KEY" in done.stderr


def test_run_says_what_a_template_without_interpreter_needs(server):
    done = sandcove(server, "run", "-c", "1+1", "--template", "base")
    assert done.returncode == 1
    assert "has no code interpreter: use `--template code-interpreter-v1`" in done.stderr


def test_run_prints_and_fails_as_the_code_does(server):
    done = sandcove(server, "run", "-c", "print('out'); 20 + 22")
    assert (done.returncode, done.stdout) == (0, "out\n42\n")
    done = sandcove(server, "run", "-c", "1 / 0")
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr


def test_a_pool_that_cannot_be_mounted_is_told_and_kept(tmp_path):
    image = tmp_path / "pool.img"
    image.write_bytes(b"made by another kernel" * 1000)
    serve = [BINARY, "serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]
    done = subprocess.run(serve, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert f"failed to mount `{image}`" in done.stderr
    assert image.read_bytes().startswith(b"made by another kernel")
