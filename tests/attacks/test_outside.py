"""Attacks from outside on a server with several teams: by paths, headers, bodies, ids and the addresses that it is asked to call. The
calls of the API themselves are tried with another team's credentials in `crates/server/tests/server/walk.rs`."""

import http.client
import json
import random
import secrets
import socket
import string
import uuid

import pytest
import requests
from e2b import Sandbox

from harness.census import resident_mib
from harness.server import API_KEY, wait_until

from witness import is_up


def ask(server, method="GET", path="/sandboxes", headers=None, body=None, key=API_KEY):
    """A request whose path is sent as it is written here."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        data = body.encode() if isinstance(body, str) else body
        for name, value in {"X-API-Key": key, "Content-Type": "application/json", **(headers or {})}.items():
            if value is not None:
                connection.putheader(name, value)
        if data is not None and "Transfer-Encoding" not in (headers or {}):
            connection.putheader("Content-Length", str(len(data)))
        connection.endheaders(data)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    "path",
    ["/admin/teams", "//admin/teams", "/sandboxes/../admin/teams", "/sandboxes/%2e%2e/admin/teams", "/%61dmin/teams", "/ADMIN/teams",
     "/admin%2fteams", "/admin/teams/", "/./admin/teams", "/admin;x/teams", "/\\admin\\teams", "http://127.0.0.1/admin/teams"],
)  # fmt: skip
@pytest.mark.parametrize("header", [{}, {"X-Admin-Token": ""}, {"X-Admin-Token": "admin"}, {"X-Original-URL": "/admin/teams", "X-Rewrite-URL": "/admin/teams"}], ids=["plain", "empty", "guessed", "rewritten"])  # fmt: skip
def test_operators_calls_stay_closed(server, path, header):
    status, body = ask(server, path=path, headers=header)
    assert status in (400, 401, 403, 404), body
    assert b"concurrentSandboxes" not in body


@pytest.mark.parametrize("header", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"])
def test_no_header_changes_the_method(server, box, header):
    ask(server, "GET", f"/sandboxes/{box.sandbox_id}", {header: "DELETE"})
    ask(server, "GET", f"/sandboxes/{box.sandbox_id}?_method=DELETE")
    assert box.is_running()


@pytest.mark.parametrize("header", ["X-Forwarded-For", "X-Real-IP", "Forwarded", "True-Client-IP", "X-Forwarded-User", "X-Remote-User"])
def test_no_header_stands_for_a_key(server, header):
    for value in ["127.0.0.1", "for=127.0.0.1", "root"]:
        assert ask(server, headers={header: value}, key=None)[0] == 401


@pytest.mark.parametrize(
    "key",
    ["", " ", "e2b_", "e2b_" + "0" * 40, "e2b_" + "5a" * 19, "E2B_" + "5A" * 20, API_KEY + "\t" + "x", API_KEY.upper(), API_KEY[:-1],
     "' OR 1=1 --", "e2b_%", "*", "null", "undefined", "e2b_" + "5a" * 20000],
)  # fmt: skip
def test_no_other_key_opens(server, key):
    assert ask(server, key=key)[0] in (400, 401, 431)


def test_ids_are_not_guessed(server, box):
    """Neither by chance nor by the way in which a wrong one is refused."""
    alphabet = string.ascii_lowercase + string.digits
    near = [box.sandbox_id[:-1] + c for c in alphabet if c != box.sandbox_id[-1]]
    far = ["i" + "".join(random.choices(alphabet, k=20)) for _ in range(36)]
    answers = {(status, body.replace(id.encode(), b"ID")) for id in near + far for status, body in [ask(server, path=f"/sandboxes/{id}")]}
    assert len(answers) == 1 and answers.pop()[0] == 404


@pytest.mark.parametrize("spelling", [str.upper, str.title, lambda id: id + "-x-y", lambda id: id + "%00", lambda id: id + "/", lambda id: id + "."])
def test_an_id_has_one_spelling(server, box, spelling):
    assert ask(server, path=f"/sandboxes/{spelling(box.sandbox_id)}")[0] in (400, 404)


BODIES = {
    "deep": "[" * 200_000,
    "deep objects": '{"metadata":' * 100_000,
    "a huge number": '{"templateID":"base","timeout":' + "9" * 100_000 + "}",
    "an exponent": '{"templateID":"base","timeout":1e308}',
    "not a number": '{"templateID":"base","timeout":NaN}',
    "two templates": '{"templateID":"base","templateID":"no-such-template"}',
    "half a surrogate": '{"templateID":"\\ud800"}',
    "a zero": '{"templateID":"base\\u0000"}',
    "a prototype": '{"templateID":"no-such","__proto__":{"x":1},"constructor":1}',
    "many members": '{"templateID":"no-such",' + ",".join(f'"k{n}":1' for n in range(100_000)) + "}",
    "an array": "[1]",
    "utf-16": '{"templateID":"base"}'.encode("utf-16"),
    "invalid utf-8": b'{"templateID":"\xff\xfe"}',
    "too large": b'{"templateID":"' + b"a" * (17 << 20) + b'"}',
}


@pytest.mark.parametrize("name", BODIES)
def test_no_body_breaks_the_server(server, name):
    memory = resident_mib(server.pid)
    try:
        status, body = ask(server, "POST", "/sandboxes", body=BODIES[name])
    except (BrokenPipeError, ConnectionError):
        status = 413
    if status == 201:
        requests.delete(f"{server.url}/sandboxes/{json.loads(body)['sandboxID']}", headers={"X-API-Key": API_KEY}, timeout=120)
    assert status in (201, 400, 404, 413) and (status != 201 or name in ("an exponent", "many members", "a prototype"))
    assert resident_mib(server.pid) - memory < 64


@pytest.mark.parametrize(
    "name",
    ["X: " + "a" * (1 << 20), "\r\n".join(f"X-{n}: y" for n in range(5000)), "X: a\rX-API-Key: b", "X\x00: y", "X : y", " X: y",
     "Content-Length: 99999999999999999999", "Content-Length: 4\r\nContent-Length: 4, 5", "Transfer-Encoding: chunked, identity", "Expect: 200-ok"],
    ids=["a megabyte", "five thousand", "a carriage return", "a zero", "a space", "folded", "a length", "lengths", "codings", "an expectation"],
)  # fmt: skip
def test_no_head_breaks_the_server(server, name):
    answer = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        try:
            client.sendall(f"GET /sandboxes HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{name}\r\n\r\n".encode("latin-1"))
            client.settimeout(3)
            while piece := client.recv(65536):
                answer += piece
        except OSError:
            pass
    assert answer.count(b"HTTP/1.1") <= 1 and (not answer or answer.split(b" ")[1] in (b"400", b"401", b"413", b"417", b"431"))


@pytest.mark.parametrize("count", [1, 100])
def test_no_flood_of_resets_breaks_the_server(server, count):
    """CVE-2023-44487: streams of HTTP/2 that are opened and reset at once."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    # `:method GET`, `:scheme http`, `:path /`, `:authority` as a literal.
    block = b"\x82\x86\x84\x41\x01x"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        try:
            client.sendall(preface)
            for stream in range(1, 400 * count, 2):
                number = stream.to_bytes(4)
                client.sendall(len(block).to_bytes(3) + b"\x01\x05" + number + block + b"\x00\x00\x04\x03\x00" + number + b"\x00\x00\x00\x08")
        except OSError:
            pass
    assert is_up(server)


UNKNOWN = "iaaaaaaaaaaaaaaaaaaaa"


@pytest.fixture(scope="module")
def team(admin):
    """Another team: its key."""
    made = admin("POST", "/admin/teams", {"name": f"attacker {uuid.uuid4()}"})
    assert made.status_code == 201, made.text
    return admin("POST", f"/admin/teams/{made.json()['id']}/api-keys", {"name": "attacks"}).json()["key"]


def test_another_team_finds_no_sandbox_by_its_labels(server, team):
    label = secrets.token_hex(8)
    box = Sandbox.create(timeout=600, metadata={"secret": label})
    try:
        own = ask(server, path=f"/sandboxes?metadata=secret%3D{label}")[1]
        assert box.sandbox_id.encode() in own, "the control"
        for path in ["/sandboxes", f"/sandboxes?metadata=secret%3D{label}", "/v2/sandboxes?state=running,paused", f"/sandboxes/metrics?sandbox_ids={box.sandbox_id}"]:
            assert box.sandbox_id.encode() not in ask(server, path=path, key=team)[1]
    finally:
        box.kill()


@pytest.mark.parametrize("state", ["running", "paused"])
@pytest.mark.parametrize(
    "method, path, body",
    [("DELETE", "", None), ("POST", "/pause", "{}"), ("POST", "/resume", "{}"), ("POST", "/connect", '{"timeout":60}'), ("POST", "/timeout", '{"timeout":1}'),
     ("POST", "/snapshots", "{}"), ("PUT", "/network", "{}"), ("GET", "/logs", None), ("GET", "/metrics", None)],
    ids=["kill", "pause", "resume", "connect", "timeout", "snapshot", "network", "logs", "metrics"],
)  # fmt: skip
def test_another_team_changes_nothing(server, team, owned, state, method, path, body):
    box = owned[state]
    status, said = ask(server, method, f"/sandboxes/{box.sandbox_id}{path}", body=body, key=team)
    unknown = ask(server, method, f"/sandboxes/{UNKNOWN}{path}", body=body, key=team)
    assert (status, said.replace(box.sandbox_id.encode(), UNKNOWN.encode())) == unknown or status == 403, said
    assert json.loads(ask(server, path=f"/sandboxes/{box.sandbox_id}")[1])["state"] == state


@pytest.fixture(scope="module")
def owned(server):
    boxes = {"running": Sandbox.create(timeout=3600), "paused": Sandbox.create(timeout=3600)}
    boxes["paused"].pause()
    yield boxes
    for box in boxes.values():
        box.kill()


HOSTS = ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]",
         "[::ffff:7f00:1]", "169.254.169.254", "public@127.0.0.1", "127.0.0.1.", "[fe80::1]", "100.64.0.1", "10.0.0.1"]  # fmt: skip


@pytest.fixture(scope="module")
def deliveries(server, listener):
    """What became of the events that were to be delivered to each of the host's own addresses."""
    port, heard = listener
    key = {"X-API-Key": API_KEY}
    hooks = {}
    for host in HOSTS:
        body = {"name": "attack", "url": f"http://{host}:{port}/", "enabled": True, "events": ["sandbox.lifecycle.created"], "signatureSecret": "s"}
        made = requests.post(f"{server.url}/events/webhooks", json=body, headers=key, timeout=120)
        hooks[host] = made.json()["id"] if made.status_code == 201 else None
    with socket.create_connection(("127.0.0.1", port)):
        wait_until(lambda: len(heard) == 1, 60, "the control")
    box = Sandbox.create(timeout=600)

    def outcome(host):
        data = requests.get(f"{server.url}/events/webhooks/{hooks[host]}/deliveries", headers=key, timeout=120).json()["data"]
        return [attempt["status"] for delivery in data for attempt in delivery["attempts"]]

    try:
        for host in HOSTS:
            if hooks[host]:
                wait_until(lambda: outcome(host), 300, f"an attempt to deliver to {host}")
        yield {host: outcome(host) if hooks[host] else ["refused"] for host in HOSTS}
    finally:
        box.kill()
        for hook in filter(None, hooks.values()):
            requests.delete(f"{server.url}/events/webhooks/{hook}", headers=key, timeout=120)


@pytest.mark.parametrize("host", HOSTS)
def test_events_are_delivered_to_no_service_of_the_host(deliveries, listener, host):
    assert set(deliveries[host]) <= {"failed", "refused"}
    assert len(listener[1]) == 1, "only the control was heard"
