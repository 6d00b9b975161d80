"""Targets of suites: services that say what they were sent, over HTTP, TLS and websockets, and servers of tools."""

import base64
import hashlib
import json
import os
import socket
import ssl
import struct
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from neutral import ENVIRONMENT


class Target(BaseHTTPRequestHandler):
    """Answers with what it was sent, begins sessions and gives tokens."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode("latin1")
        headers = {name.lower(): value for name, value in self.headers.items()}
        number = len([path for _, path, *_ in self.server.asked if path == self.path]) + 1
        self.server.asked.append((self.command, self.path, headers, body))
        status, reply = 200, {"method": self.command, "path": self.path, "headers": headers, "body": body}
        if self.path.startswith("/token/"):
            reply = {"access_token": f"token {number}", "expires_in": int(self.path.rsplit("/", 1)[1])}
        elif self.path == "/no-token":
            status, reply = 401, {"error": "invalid_client"}
        elif self.path == "/session":
            reply = {"id": f"s{number}"}
        elif self.path.startswith("/busy/"):
            status = 429 if number <= int(self.path.rsplit("/", 1)[1]) else 200
        elif self.path == "/empty":
            status, reply = 429, {"error": {"code": "insufficient_quota", "message": "you exceeded your quota"}}
        text = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        if status == 429:
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = do_POST

    def log_message(self, *_):
        pass


@contextmanager
def target(tls=None):
    """A target, with the requests it got in `asked`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Target)
    server.asked = []
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.url = f"{'https' if tls else 'http'}://localhost:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def openssl(*arguments, directory):
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


def certificates(directory):
    """Makes an authority, and a server and a client that it vouches for."""
    request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    openssl(*request, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority",
            "-addext", "keyUsage=keyCertSign,cRLSign", directory=directory)
    for name in ("server", "client"):
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}", directory=directory)
        (directory / f"{name}.ext").write_text("subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                "-extfile", f"{name}.ext", "-out", f"{name}.pem", directory=directory)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem", directory / "server.key")
    return context


class Socket:
    """A service of websockets: each message is answered by the texts that `replies` makes of it."""

    def __init__(self, replies):
        self.replies, self.opened, self.got = replies, [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"ws://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        stream = connection.makefile("rwb")
        path = stream.readline().decode().split()[1]
        headers = {}
        while (line := stream.readline().decode().strip()):
            name, value = line.split(":", 1)
            headers[name.lower()] = value.strip()
        self.opened.append((path, headers))
        if path == "/refused":
            stream.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            stream.flush()
            return connection.close()
        accept = hashlib.sha1((headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        answer = f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {base64.b64encode(accept).decode()}\r\n"
        if chosen := headers.get("sec-websocket-protocol"):
            answer += f"Sec-WebSocket-Protocol: {chosen.split(',')[0]}\r\n"
        stream.write(answer.encode() + b"\r\n")
        stream.flush()
        try:
            while (message := self.read(stream)) is not None:
                self.got.append(message)
                for text in self.replies(message):
                    # A ping between messages is nothing that a client shows.
                    for kind, data in ((0x89, b"p"), (0x81, text.encode())):
                        length = bytes([len(data)]) if len(data) < 126 else b"\x7e" + struct.pack(">H", len(data))
                        stream.write(bytes([kind]) + length + data)
                    stream.flush()
        except (OSError, ValueError):
            pass
        connection.close()

    def read(self, stream):
        """The next text of the client; nothing when it goes."""
        while True:
            head = stream.read(2)
            if len(head) < 2 or head[0] & 15 == 8:
                return None
            length = head[1] & 127
            length = struct.unpack(">H", stream.read(2))[0] if length == 126 else length
            mask, data = stream.read(4), stream.read(length)
            if head[0] & 15 == 1:
                return bytes(byte ^ mask[at % 4] for at, byte in enumerate(data)).decode()

    def close(self):
        self.listener.close()


def programs(sandcove):
    """The command, and the real promptfoo where PROMPTFOO_ENTRYPOINT names it: the same tests are true for both."""
    entry = os.environ.get("PROMPTFOO_ENTRYPOINT")
    return [sandcove, *([["node", entry]] if entry else [])]


def run(program, directory, suite, **environment):
    """Runs a suite: (exit code, rows, what was printed)."""
    (directory / "promptfooconfig.yaml").write_text(json.dumps({"prompts": ["Say {{x}}"], "tests": [{"vars": {"x": "hi"}}], **suite}))
    out = directory / "out.json"
    out.unlink(missing_ok=True)
    env = {**os.environ, **ENVIRONMENT, "PROMPTFOO_CONFIG_DIR": str(directory / "home"), "PROMPTFOO_REQUEST_BACKOFF_MS": "10", **environment}
    done = subprocess.run(
        [*program, "eval", "-o", str(out), "--no-cache", "--no-table", "--no-progress-bar"],
        cwd=directory, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )
    rows = json.loads(out.read_text())["results"]["results"] if out.exists() else None
    return done.returncode, rows, done.stdout + done.stderr
