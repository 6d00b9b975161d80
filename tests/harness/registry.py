"""A registry of OCI images on loopback, with the ways in which registries refuse, redirect and fail.

    with Registry() as registry:
        reference = registry.push("team/image", images.debian_like())
        Template().from_image(reference)
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from harness.images import INDEX_TYPE, Image, digest_of, index

TOKEN = "a-token-of-the-registry"


@dataclass
class Request:
    """One that the registry got."""

    method: str
    path: str
    authorization: str | None
    # The host that the client meant.
    host: str | None


@dataclass
class Repository:
    """What has been pushed under one name, and who may read it."""

    # By tag and by digest: media type and document.
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    # How it asks for credentials: not at all, `basic` or `token`.
    asks: str | None = None
    # Name and password; nobody has them if there are none, and everybody gets a token then.
    account: tuple[str, str] | None = None
    # What is wrong with a tag or digest, of those below.
    faults: dict[str, Callable[[Answer, bytes], None]] = field(default_factory=dict)


class Answer(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    registry: Registry

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        url = urlsplit(self.path)
        self.registry.requests.append(Request(self.command, self.path, self.headers.get("Authorization"), self.headers.get("Host")))
        if url.path == "/token":
            self.token(parse_qs(url.query))
        elif url.path in ("/v2", "/v2/"):
            asks = self.registry.asks
            self.refuse(asks, "") if asks and not self.headers.get("Authorization") else self.say(200, b"{}")
        elif url.path.startswith("/moved/"):
            self.say(200, self.registry.moved[url.path.removeprefix("/moved/")], "application/octet-stream")
        else:
            self.content(url.path)

    def token(self, query: dict[str, list[str]]) -> None:
        name = query.get("scope", ["::"])[0].split(":")[1]
        repository = self.registry.repositories.get(name)
        given = self.headers.get("Authorization")
        if repository and repository.account and given != basic(*repository.account):
            # Docker Hub refuses wrong credentials here; without any it gives out tokens that open nothing.
            if given:
                return self.error(401, "UNAUTHORIZED")
            return self.say(200, json.dumps({"token": "of-nobody", "expires_in": 60}).encode())
        self.say(200, json.dumps({"token": f"{TOKEN}-{name}", "expires_in": 60}).encode())

    def content(self, path: str) -> None:
        name, kind, what = path.removeprefix("/v2/").rsplit("/", 2)
        repository = self.registry.repositories.get(name)
        if repository is None:
            return self.error(404, "NAME_UNKNOWN")
        if repository.asks and not self.is_allowed(repository, name):
            return self.refuse(repository.asks, name)
        media_type, data = "application/octet-stream", repository.blobs.get(what)
        if kind == "manifests":
            media_type, data = repository.manifests.get(what, ("", None))
        if data is None:
            return self.error(404, "MANIFEST_UNKNOWN" if kind == "manifests" else "BLOB_UNKNOWN")
        if fault := repository.faults.get(what):
            return fault(self, data)
        self.say(200, data, media_type, {"Docker-Content-Digest": digest_of(data)})

    def is_allowed(self, repository: Repository, name: str) -> bool:
        given = self.headers.get("Authorization")
        if repository.asks == "basic":
            return repository.account is not None and given == basic(*repository.account)
        return given == f"Bearer {TOKEN}-{name}"

    def refuse(self, asks: str, name: str) -> None:
        realm = f'Bearer realm="{self.registry.url}/token",service="tests"' if asks == "token" else 'Basic realm="tests"'
        scope = f',scope="repository:{name}:pull"' if asks == "token" and name else ""
        self.error(401, "UNAUTHORIZED", {"WWW-Authenticate": f"{realm}{scope}"})

    def error(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        document = {"errors": [{"code": code, "message": code.lower()}]}
        self.say(status, json.dumps(document).encode(), headers=headers)

    def say(self, status: int, data: bytes, media_type: str = "application/json", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for header, value in {"Content-Type": media_type, "Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(header, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


# Faults, for `Repository.faults`.


def truncated(answer: Answer, data: bytes) -> None:
    """The connection ends in the middle."""
    answer.send_response(200)
    answer.send_header("Content-Length", str(len(data)))
    answer.end_headers()
    answer.wfile.write(data[: len(data) // 2])
    answer.close_connection = True


def altered(answer: Answer, data: bytes) -> None:
    """The length is right and the digest is not."""
    answer.say(200, data[:-1] + bytes([data[-1] ^ 1]), "application/octet-stream")


def endless(answer: Answer, _: bytes) -> None:
    """As much as the client takes."""
    answer.send_response(200)
    answer.send_header("Connection", "close")
    answer.end_headers()
    piece = bytes(1 << 20)
    try:
        for _ in range(1 << 16):
            answer.wfile.write(piece)
            answer.registry.sent += len(piece)
    except OSError:
        pass
    answer.close_connection = True


def silent(answer: Answer, _: bytes) -> None:
    """Nothing, until the registry ends."""
    answer.registry.ended.wait(600)
    answer.close_connection = True


def status(code: int) -> Callable[[Answer, bytes], None]:
    return lambda answer, _: answer.error(code, "DENIED" if code in (401, 403) else "UNKNOWN")


def redirected(to: str) -> Callable[[Answer, bytes], None]:
    """To an address, in which `{digest}` stands for the digest."""
    return lambda answer, data: answer.say(307, b"", headers={"Location": to.replace("{digest}", digest_of(data))})


def at_first(fault: Callable[[Answer, bytes], None]) -> Callable[[Answer, bytes], None]:
    """The first time only."""
    before = []

    def answer_with(answer: Answer, data: bytes) -> None:
        if not before:
            before.append(True)
            return fault(answer, data)
        answer.say(200, data, "application/octet-stream")

    return answer_with


def late(seconds: float) -> Callable[[Answer, bytes], None]:
    def answer_with(answer: Answer, data: bytes) -> None:
        time.sleep(seconds)
        answer.say(200, data, "application/octet-stream")

    return answer_with


class Registry:
    """A registry that is open while the context is."""

    def __init__(self, port: int = 0) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[Request] = []
        # What `/moved/<digest>` answers with.
        self.moved: dict[str, bytes] = {}
        # Whether `/v2/` asks for credentials, and of which kind.
        self.asks: str | None = None
        self.sent = 0
        self.ended = threading.Event()
        handler = type("Answer", (Answer,), {"registry": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def __enter__(self) -> Registry:
        threading.Thread(target=self._server.serve_forever, args=[0.05], daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()

    def push(self, name: str, *images: Image, tag: str = "latest") -> str:
        """Publishes an image, or several of different architectures under one index; returns the reference."""
        repository = self.repositories.setdefault(name, Repository())
        for image in images:
            repository.blobs |= {digest_of(blob): blob for blob in [*image.blobs, image.configuration]}
            repository.manifests[digest_of(image.manifest)] = (image.manifest_type, image.manifest)
        top = (images[0].manifest_type, images[0].manifest) if len(images) == 1 else (INDEX_TYPE, index(*images))
        repository.manifests[tag] = repository.manifests[digest_of(top[1])] = top
        return f"{self.host}/{name}:{tag}"

    def fetched(self, name: str, kind: str = "blobs") -> list[str]:
        """The blobs or manifests of a repository that were asked for with GET."""
        start = f"/v2/{name}/{kind}/"
        return [request.path.removeprefix(start) for request in self.requests if request.method == "GET" and request.path.startswith(start)]
