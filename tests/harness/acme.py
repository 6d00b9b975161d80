"""An authority that issues certificates by ACME, and the DNS that it checks domains with. Both are on the loopback interface.

The authority is Pebble, a server for tests by the people of Let's Encrypt, as Debian has it. The DNS knows one domain, and asks the server
that the domain is left to, if it is.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import http.server
import json
import os
import socket
import ssl
import struct
import subprocess
import threading
import urllib.request
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

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


class PersistentAuthority:
    """An authority that checks domains by `dns-persist-01`, which Pebble does not know. It serves HTTPS, and reads what clients sign without a
    look at the signatures. `records` is the DNS."""

    IDENTITY = "authority.example"

    def __init__(self, directory: Path) -> None:
        self.records: dict[str, str] = {}
        self.orders: list[dict] = []
        # Of its own server, and of those that it issues.
        self.ca, self.root = directory / "authority.pem", directory / "root.pem"
        key, root_key = directory / "authority.key", directory / "root.key"
        request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "90"]
        for certificate, its_key, name, is_ca in [(self.ca, key, "acme", "FALSE"), (self.root, root_key, "root", "TRUE")]:
            names = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", f"basicConstraints=critical,CA:{is_ca}"]
            subprocess.run([*request, *names, "-out", certificate, "-keyout", its_key], check=True, capture_output=True)
        self._signer = x509.load_pem_x509_certificate(self.root.read_bytes()), serialization.load_pem_private_key(root_key.read_bytes(), None)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.base = f"https://127.0.0.1:{self._server.server_port}"
        self.account = f"{self.base}/account/1"

    @property
    def url(self) -> str:
        return f"{self.base}/dir"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def is_allowed(self, domain: str) -> bool:
        """Whether the record of a domain lets the account have certificates for it and all names below it."""
        issuer, *parameters = [part.strip() for part in self.records.get(f"_validation-persist.{domain}.", "").split(";")]
        return issuer == self.IDENTITY and f"accounturi={self.account}" in parameters and "policy=wildcard" in parameters

    def answer(self, path: str, payload: dict) -> tuple[int, dict | str, dict[str, str]]:
        """Status, body and headers for a request of ACME (RFC 8555)."""
        kind, _, number = path.strip("/").partition("/")
        order = self.orders[int(number.split("/")[0])] if number and kind != "account" else None
        if kind == "dir":
            names = {"newNonce": "nonce", "newAccount": "new-account", "newOrder": "new-order", "revokeCert": "revoke", "keyChange": "key"}
            return 200, {name: f"{self.base}/{path}" for name, path in names.items()} | {"meta": {"caaIdentities": [self.IDENTITY]}}, {}
        if kind == "nonce":
            return 200, "", {}
        if kind == "new-account":
            return 201, {"status": "valid"}, {"Location": self.account}
        if kind == "new-order":
            self.orders.append({"status": "pending", "identifiers": payload["identifiers"], "failed": False})
            order, number = self.orders[-1], str(len(self.orders) - 1)
            return 201, self._shown(order, number), {"Location": f"{self.base}/order/{number}"}
        if kind == "order":
            return 200, self._shown(order, number), {}
        if kind == "authz":
            return 200, self._authorization(order, *number.split("/")), {}
        if kind == "challenge":
            domain = order["identifiers"][0]["value"].removeprefix("*.")
            order["status"] = "ready" if self.is_allowed(domain) else "invalid"
            return 200, self._authorization(order, *number.split("/"))["challenges"][0], {}
        if kind == "finalize":
            order |= {"status": "valid", "certificate": self._issue(payload["csr"])}
            return 200, self._shown(order, number), {}
        if kind == "certificate":
            return 200, order["certificate"], {}
        return 404, {"type": "urn:ietf:params:acme:error:malformed"}, {}

    def _shown(self, order: dict, number: str) -> dict:
        count = len(order["identifiers"])
        urls = {"finalize": f"{self.base}/finalize/{number}", "authorizations": [f"{self.base}/authz/{number}/{index}" for index in range(count)]}
        done = {"certificate": f"{self.base}/certificate/{number}"} if order["status"] == "valid" else {}
        return {"status": order["status"], "identifiers": order["identifiers"], **urls, **done}

    def _authorization(self, order: dict, number: str, index: str) -> dict:
        name = order["identifiers"][int(index)]["value"]
        status = {"pending": "pending", "invalid": "invalid"}.get(order["status"], "valid")
        challenge = {"type": "dns-persist-01", "url": f"{self.base}/challenge/{number}/{index}", "status": status, "issuer-domain-names": [self.IDENTITY]}
        if status == "invalid":
            challenge["error"] = {"type": "urn:ietf:params:acme:error:unauthorized", "detail": "no record names the account"}
        wildcard = {"wildcard": True} if name.startswith("*.") else {}
        return {"identifier": {"type": "dns", "value": name.removeprefix("*.")}, "status": status, "challenges": [challenge], **wildcard}

    def _issue(self, request: str) -> str:
        certificate, key = self._signer
        csr = x509.load_der_x509_csr(base64.urlsafe_b64decode(request + "=" * (-len(request) % 4)))
        names = csr.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        now = datetime.datetime.now(datetime.timezone.utc)
        built = x509.CertificateBuilder().subject_name(csr.subject).issuer_name(certificate.subject).public_key(csr.public_key())
        built = built.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
        built = built.not_valid_after(now + datetime.timedelta(days=90)).add_extension(names, critical=False)
        return built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode() + self.root.read_text()

    def _handler(self) -> type:
        authority = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
                payload = body.get("payload", "")
                payload = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)) or b"{}")
                status, answer, headers = authority.answer(self.path, payload)
                text = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
                self.send_response(status)
                kind = "application/pem-certificate-chain" if isinstance(answer, str) else "application/json" if status < 400 else "application/problem+json"
                for name, value in {"Content-Type": kind, "Replay-Nonce": os.urandom(8).hex(), "Content-Length": str(len(text)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(text)

            do_GET = do_HEAD = do_POST

            def log_message(self, *_) -> None:
                pass

        return Handler
