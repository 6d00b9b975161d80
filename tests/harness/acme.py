"""An authority that issues certificates by ACME, and the DNS that it checks domains with. Both are on the loopback interface.

The authority is Pebble, a server for tests by the people of Let's Encrypt, as Debian has it. The DNS knows one domain, and asks the server
that the domain is left to, if it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import struct
import subprocess
import threading
import urllib.request
from pathlib import Path

from . import debian
from .server import free_port, wait_until

A, TXT = 1, 16


def question(name: str, kind: int, number: int = 7) -> bytes:
    """A DNS message that asks for the records of one kind."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)


def name_in(message: bytes) -> str:
    """The name that a DNS message asks about."""
    labels, at = [], 12
    while length := message[at]:
        labels.append(message[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return ".".join(labels).lower()


def ask(address: tuple[str, int], message: bytes, over_tcp: bool = False) -> bytes:
    """The answer of the server at `address`."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if over_tcp else socket.SOCK_DGRAM) as client:
        client.settimeout(120)
        client.connect(address)
        if not over_tcp:
            client.send(message)
            return client.recv(4096)
        client.sendall(struct.pack(">H", len(message)) + message)
        with client.makefile("rb") as answers:
            return answers.read(struct.unpack(">H", answers.read(2))[0])


class Dns:
    """A name server at `address` for everybody. Questions below `zones` go to the server at `target`; nothing else exists."""

    def __init__(self, address: tuple[str, int], target: tuple[str, int]) -> None:
        self.zones: list[str] = []
        self.target = target
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(address)
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def address(self) -> str:
        return "{}:{}".format(*self.socket.getsockname())

    def _serve(self) -> None:
        while True:
            try:
                message, client = self.socket.recvfrom(4096)
            except OSError:
                return
            # A server that does not answer holds up nobody else.
            threading.Thread(target=self._answer, args=(message, client), daemon=True).start()

    def _answer(self, message: bytes, client: tuple[str, int]) -> None:
        name = name_in(message)
        with contextlib.suppress(OSError):
            if any(name == zone or name.endswith(f".{zone}") for zone in self.zones):
                self.socket.sendto(ask(self.target, message), client)
            else:
                none = struct.pack(">HHHHHH", struct.unpack(">H", message[:2])[0], 0x8183, 1, 0, 0, 0)
                self.socket.sendto(none + message[12 : 12 + len(name) + 6], client)

    def close(self) -> None:
        self.socket.close()


class Authority:
    """Pebble. It forgets everything when it stops."""

    def __init__(self, directory: Path, dns: str) -> None:
        self.directory, self.dns = directory, dns
        self.port, self.management = free_port(), free_port()
        self.ca = directory / "pebble.pem"
        self.log = directory / "pebble.log"
        self._process: subprocess.Popen[bytes] | None = None
        request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "90", "-subj", "/CN=acme"]
        key = directory / "pebble.key"
        names = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
        subprocess.run([*request, *names, "-out", self.ca, "-keyout", key], check=True, capture_output=True)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/dir"

    def start(self, lifetime_s: int = 90 * 24 * 3600) -> None:
        settings = {
            "listenAddress": f"127.0.0.1:{self.port}",
            "managementListenAddress": f"127.0.0.1:{self.management}",
            "certificate": str(self.ca),
            "privateKey": str(self.directory / "pebble.key"),
            "certificateValidityPeriod": lifetime_s,
        }
        config = self.directory / "pebble.json"
        config.write_text(json.dumps({"pebble": settings}))
        environment = {**os.environ, "PEBBLE_VA_NOSLEEP": "1", "PEBBLE_AUTHZREUSE": "0", "PEBBLE_WFE_NONCEREJECT": "0"}
        with self.log.open("wb") as log:
            program = [debian.unpacked("pebble", "bin/pebble"), "-config", config, "-dnsserver", self.dns]
            self._process = subprocess.Popen(program, stdout=log, stderr=log, env=environment)
        wait_until(self._answers, what="the authority answers")

    def _answers(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        try:
            return bool(self.root())
        except OSError:
            return False

    def root(self) -> str:
        """The certificate that those it issues are trusted by."""
        trusting = ssl.create_default_context(cafile=self.ca)
        with urllib.request.urlopen(f"https://127.0.0.1:{self.management}/roots/0", context=trusting, timeout=60) as answer:
            return answer.read().decode()

    @property
    def orders(self) -> int:
        """Orders that were made since it was started."""
        return self.log.read_text().count("POST /order-plz")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
