"""A stand-in for services of others, as `veris-e2b` wants it: a SOCKS5 proxy that takes every host to one service, and that service, which
answers for all of them and writes down what it was asked.

    python -m harness.twin LOG USER PASSWORD PORT CERTIFICATE KEY REQUESTS TWIN
"""

from __future__ import annotations

import asyncio
import http.server
import json
import ssl
import sys
import threading
from pathlib import Path

from .socks import Proxy

SERVICE = "127.0.0.1"


class Gateway(Proxy):
    port: int

    def destination(self, host: str, port: int) -> tuple[str | None, int]:
        return SERVICE, self.port


class Answer(http.server.BaseHTTPRequestHandler):
    """Says which twin it is of."""

    requests: Path
    twin: str

    def do_GET(self) -> None:
        length = int(self.headers.get("content-length", 0))
        row = {"method": self.command, "host": self.headers["host"], "path": self.path, "status": 200, "body": self.rfile.read(length).decode()}
        with self.requests.open("a") as log:
            log.write(json.dumps(row) + "\n")
        body = json.dumps({"veris_sandbox_id": self.twin, **row}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


async def main(log: str, user: str, password: str, port: str, certificate: str, key: str, requests: str, twin: str) -> None:
    Answer.requests, Answer.twin = Path(requests), twin
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    gateway = Gateway(log, user, password)
    service = http.server.ThreadingHTTPServer((SERVICE, 0), Answer)
    service.socket = tls.wrap_socket(service.socket, server_side=True)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    gateway.port = service.server_port
    await asyncio.start_server(gateway.serve, "0.0.0.0", int(port))
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
