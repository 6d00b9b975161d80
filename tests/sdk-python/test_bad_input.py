"""Bad input gets the documented status and body, and harms nobody."""

import http.client
import json

import pytest
import requests
from e2b import (
    AuthenticationException,
    NotEnoughSpaceException,
    NotFoundException,
    Sandbox,
    SandboxException,
)

from harness.server import API_KEY


def post(server, path, body=None, key=API_KEY, data=None):
    headers = {"X-API-Key": key} if key else {}
    return requests.post(server.url + path, json=body, data=data, headers=headers, timeout=120)


def assert_error(answer, status):
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body["code"] == status and body["message"]
    return body["message"]


def test_unknown_template():
    with pytest.raises(SandboxException, match="404: template 'no-such-template' not found"):
        Sandbox.create("no-such-template")


def test_unknown_template_on_the_wire(server):
    assert_error(post(server, "/sandboxes", {"templateID": "no-such-template"}), 404)
    assert "Invalid template reference" in assert_error(post(server, "/sandboxes", {"templateID": "a b//c"}), 400)


@pytest.mark.parametrize("body", [b"{", b"", b"[]", b'{"templateID": 7}', b'{"timeout": 5}', b"\xff\xfe"])
def test_malformed_json(server, body):
    assert_error(post(server, "/v2/sandboxes", data=body), 400)


def test_wrong_key(server):
    with pytest.raises(AuthenticationException):
        Sandbox.create(api_key="e2b_" + "0" * 40)
    message = assert_error(post(server, "/sandboxes", {"templateID": "base"}, key="e2b_" + "0" * 40), 401)
    assert message.startswith("Invalid API key, please visit ")
    assert_error(post(server, "/sandboxes", {"templateID": "base"}, key="nonsense"), 401)
    assert "authorization header" in assert_error(post(server, "/sandboxes", {"templateID": "base"}, key=None), 401).lower()


def test_unknown_id(server):
    with pytest.raises(NotFoundException):
        Sandbox.connect("iaaaaaaaaaaaaaaaaaaaa")
    answer = requests.get(f"{server.url}/sandboxes/iaaaaaaaaaaaaaaaaaaaa", headers={"X-API-Key": API_KEY}, timeout=120)
    assert "doesn't exist or you don't have access to it" in assert_error(answer, 404)
    answer = requests.get(f"{server.url}/sandboxes/a-b-c", headers={"X-API-Key": API_KEY}, timeout=120)
    assert "Invalid sandbox ID" in assert_error(answer, 400)


@pytest.mark.parametrize("timeout", [0, -1, 10**6, 2**40, "soon"])
def test_timeouts_out_of_range(server, timeout):
    assert_error(post(server, "/sandboxes", {"templateID": "base", "timeout": timeout}), 400)


def test_more_than_the_disk_limit(server):
    """A sandbox's disk is full; the sandbox, its earlier files and its neighbours go on."""
    sandbox, neighbour = Sandbox.create(timeout=1800), Sandbox.create(timeout=1800)
    try:
        sandbox.files.write("kept", "before")
        # All but 512 MB of the limit is taken without writing it.
        limit_mb = sandbox_disk_mib(server, sandbox.sandbox_id)
        sandbox.commands.run(f"fallocate -l {limit_mb - 512}M fill")
        block = b"\xa5" * (1 << 20)
        status, body = upload(server, sandbox, "big", (block for _ in range(2048)))
        assert status == 507, body
        assert not sandbox.files.exists("big")
        with pytest.raises(NotEnoughSpaceException):
            sandbox.files.write("more", b"x" * (600 << 20), request_timeout=1200)
        assert sandbox.files.read("kept") == "before"
        sandbox.files.remove("fill")
        sandbox.files.write("again", "after")
        assert sandbox.files.read("again") == "after"
        assert neighbour.commands.run("echo fine").stdout == "fine\n"
        assert server.healthy()
    finally:
        sandbox.kill()
        neighbour.kill()


def sandbox_disk_mib(server, sandbox_id):
    answer = requests.get(f"{server.url}/sandboxes/{sandbox_id}", headers={"X-API-Key": API_KEY}, timeout=120)
    return answer.json()["diskSizeMB"]


def upload(server, sandbox, path, chunks):
    """A chunked upload by hand: a client library would hide an answer that comes before the body is through."""
    token = sandbox._SandboxBase__envd_access_token if hasattr(sandbox, "_SandboxBase__envd_access_token") else None
    token = token or sandbox._envd_access_token
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=1200)
    connection.putrequest("POST", f"/files?path={path}")
    for name, value in {
        "E2b-Sandbox-Id": sandbox.sandbox_id,
        "E2b-Sandbox-Port": "49983",
        "X-Access-Token": token,
        "Content-Type": "application/octet-stream",
        "Transfer-Encoding": "chunked",
    }.items():
        connection.putheader(name, value)
    connection.endheaders()
    try:
        for chunk in chunks:
            connection.send(b"%x\r\n" % len(chunk) + chunk + b"\r\n")
        connection.send(b"0\r\n\r\n")
    except (BrokenPipeError, ConnectionResetError):
        pass
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read() or b"{}")


def test_a_bad_user_and_a_bad_directory(sandbox):
    with pytest.raises(AuthenticationException):
        sandbox.commands.run("true", user="nobody-here")
    with pytest.raises(SandboxException):
        sandbox.commands.run("true", cwd="/no/such/directory")


def test_the_api_is_told_apart_from_sandboxes(server, sandbox):
    for path in ["/no/such/route", "/instances", "/envs/x"]:
        answer = requests.get(server.url + path, headers={"X-API-Key": API_KEY}, timeout=120)
        assert answer.status_code == 404 or "deprecated" in answer.text
        assert answer.json()["message"]
    gone = requests.get(
        f"{server.url}/health", headers={"E2b-Sandbox-Id": "iaaaaaaaaaaaaaaaaaaaa", "E2b-Sandbox-Port": "49983"}, timeout=120
    )
    assert gone.status_code == 502 and "was not found" in gone.json()["message"]
    closed = requests.get(f"{server.url}/", headers={"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8123"}, timeout=120)
    assert closed.status_code == 502 and "port is not open" in closed.json()["message"]
    control = requests.post(
        f"{server.url}/init", headers={"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}, timeout=120
    )
    assert control.status_code == 404 and "reserved for the E2B control plane" in control.json()["message"]
