"""A proxy of the user's, `egressProxy`: all TCP that the rules allow goes through it, and none past it. The server runs behind a small internet
with a SOCKS5 proxy, which writes down whom it was asked for. The egress log is looked at along with it."""

import json
import subprocess
from contextlib import contextmanager

import pytest
from e2b import Sandbox, Secret
from harness.internet import BANNER, EXAMPLE, METADATA, ORG, PRIVATE, PROXY, PROXY_PORT, PROXY_TLS_PORT, WHOLE, WWW
from test_names import EVERYTHING, get, python, run
from test_rules import RULE, VALUE, arrivals, certificates, internet  # noqa: F401
from test_secrets import in_files

USER, PASSWORD = "somebody", "pw-that-is-nowhere"
ADDRESS = f"{PROXY}:{PROXY_PORT}"
SETTINGS = {"address": ADDRESS, "username": USER, "password": PASSWORD}


class Asked:
    """The hosts that the proxy was asked for."""

    def __init__(self, log, authority) -> None:
        self._log, self.authority, self._read = log, authority, 0

    def new(self) -> list:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        fresh, self._read = lines[self._read :], len(lines)
        found = [json.loads(line) for line in fresh]
        return [(one["host"], one["port"]) if "host" in one else one["refused"] for one in found]


@pytest.fixture
def asked(proxy):
    proxy.new()
    return proxy


@pytest.fixture(scope="module")
def proxy(internet, tmp_path_factory):  # noqa: F811
    directory = tmp_path_factory.mktemp("proxy")
    authority, leaf, key = certificates(directory)
    internet.serve_proxy(leaf, key, directory / "asked", USER, PASSWORD)
    return Asked(directory / "asked", authority)


@contextmanager
def sandbox(proxy=None, **network):
    sandbox = Sandbox.create(timeout=1800, network={"egress_proxy": {**SETTINGS, **(proxy or {})}, **network})
    try:
        yield sandbox
    finally:
        sandbox.kill()


def log(server, box) -> list[dict]:
    command = [server.binary, "--data-dir", str(server.data_dir), "sandbox", "egress", box.sandbox_id, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_all_tcp_goes_through_the_proxy_and_by_name_where_there_is_one(server, asked):
    with Sandbox.create(timeout=600) as box:
        assert get(box, "http://example.com") == EXAMPLE
        assert asked.new() == [], "without a proxy, connections are direct"
    with sandbox() as box:
        assert get(box, "http://example.com") == EXAMPLE
        assert get(box, "https://www.example.com") == WWW
        assert get(box, f"http://{ORG}") == ORG
        # A name that does not stand for the address is none that the proxy is asked for.
        assert get(box, "http://example.com", f"--resolve example.com:80:{ORG}") == ORG
        assert asked.new() == [("example.com", 80), ("www.example.com", 443), (ORG, 80), (ORG, 80)]
        sent = f"import socket\ns = socket.create_connection(('{EXAMPLE}', {WHOLE}), 100)\ns.sendall(b'x' * 1000)\ns.shutdown(1)"
        assert python(box, f"{sent}\nprint(s.makefile().read().split()[-1])") == "1000"
        assert asked.new() == [(EXAMPLE, WHOLE)]
        first, *_, last = log(server, box)
        assert (first["host"], first["port"], first["allowed"], first["proxied"], first["error"]) == ("example.com", 80, True, True, None)
        assert first["receivedBytes"] > 50 and first["rule"] is None
        assert (last["host"], last["address"], last["sentBytes"]) == (None, EXAMPLE, 1000)


def test_rules_and_walls_come_before_the_proxy(server, asked):
    with sandbox(allow_out=["example.com", "private.example.com", ORG], deny_out=[EVERYTHING]) as box:
        assert get(box, "https://example.com") == EXAMPLE
        assert get(box, f"http://{ORG}") == ORG
        assert asked.new() == [("example.com", 443), (ORG, 80)]
        for url in ["https://www.example.com", "http://www.example.com", "http://private.example.com", f"http://{PRIVATE}", f"http://{METADATA}"]:
            assert get(box, url) is None, url
        assert asked.new() == []
        decided = [(one["host"], one["allowed"], one["rule"]) for one in log(server, box)]
        assert ("example.com", True, {"list": "allowOut", "entry": "example.com"}) in decided
        assert ("www.example.com", False, {"list": "denyOut", "entry": EVERYTHING}) in decided
    with sandbox(deny_out=[EXAMPLE]) as box:
        assert get(box, "http://example.com") is None and get(box, "http://www.example.com") == WWW
        assert asked.new() == [("www.example.com", 80)]


def test_a_proxy_that_fails_is_never_passed_by(server, asked):
    with sandbox({"password": "another"}) as box:
        assert get(box, "https://example.com") is None
        assert "does not accept the user name" in get(box, "http://example.com")
        assert asked.new() == ["password", "password"]
        assert PASSWORD not in json.dumps(log(server, box)) and "does not accept" in log(server, box)[-1]["error"]
    with sandbox({"address": f"{PROXY}:9"}) as box:
        assert get(box, "https://example.com") is None
        assert "the egress proxy failed: " in get(box, "http://example.com")
        assert run(box, f"timeout 100 bash -c 'cat < /dev/tcp/{EXAMPLE}/{BANNER}'") is None
        # The same connections work without the proxy, and through one that works.
        box.update_network({})
        assert get(box, "https://example.com") == EXAMPLE and asked.new() == []
        box.update_network({"egress_proxy": SETTINGS})
        assert get(box, "https://example.com") == EXAMPLE and asked.new() == [("example.com", 443)]
    with sandbox({"address": f"{EXAMPLE}:{BANNER}"}) as box:
        assert "does not speak SOCKS5" in get(box, "http://example.com")


def test_tls_to_the_proxy_is_checked(asked):
    trusted = asked.authority.read_text()
    there = {"address": f"proxy.example.com:{PROXY_TLS_PORT}"}
    with sandbox({**there, "tls": {"ca_cert": trusted}}) as box:
        assert get(box, "https://example.com") == EXAMPLE and asked.new() == [("example.com", 443)]
        assert box.get_info().network["egress_proxy"] == {"address": there["address"], "username": USER, "tls": {}}
    named = {"address": f"{PROXY}:{PROXY_TLS_PORT}", "tls": {"ca_cert": trusted, "server_name": "proxy.example.com"}}
    with sandbox(named) as box:
        assert get(box, "https://example.com") == EXAMPLE and asked.new() == [("example.com", 443)]
    for tls in [True, {"ca_cert": trusted, "server_name": "example.org"}]:
        with sandbox({**there, "tls": tls}) as box:
            assert get(box, "https://example.com") is None and asked.new() == []


def test_headers_are_added_before_the_proxy(asked, arrivals):  # noqa: F811
    with sandbox(rules={"api.example.com": RULE}) as box:
        assert run(box, "curl -s --max-time 60 https://api.example.com/") == "HTTP/2.0"
        assert arrivals.one()["headers"]["x-key"] == f"Bearer {VALUE}"
        assert asked.new() == [("api.example.com", 443)]
        assert Secret.get_info("api").version == 1


def test_the_password_is_nowhere_and_outlives_pauses_and_the_server(server, asked):
    with sandbox() as box:
        assert get(box, "http://example.com") == EXAMPLE
        assert box.get_info().network["egress_proxy"] == {"address": ADDRESS, "username": USER}
        server.kill9()
        server.start()
        assert get(box, "http://example.com") == EXAMPLE
        for mode in ({}, {"mode": "filesystem"}):
            box.pause(**mode)
            box = Sandbox.connect(box.sandbox_id)
            assert get(box, "http://example.com") == EXAMPLE, mode
        assert asked.new() == [("example.com", 80)] * 4
        assert in_files(server, PASSWORD) == [] and PASSWORD not in server.tail(100_000)
        assert run(box, f"env | grep -c {PASSWORD[:-1]}[e]") is None
        box.update_network({"allow_out": ["example.com"], "deny_out": [EVERYTHING]})
        assert "egress_proxy" not in box.get_info().network
        assert get(box, "http://example.com") == EXAMPLE and asked.new() == []


def test_the_password_outlives_rotations_of_the_key(server, asked):
    with sandbox() as box, sandbox() as paused:
        paused.pause(mode="filesystem")
        for _ in range(3):
            subprocess.run([server.binary, "--data-dir", str(server.data_dir), "secret", "rotate-key"], check=True)
            server.kill9()
            server.start()
            assert get(box, "http://example.com") == EXAMPLE
        assert get(Sandbox.connect(paused.sandbox_id), "http://example.com") == EXAMPLE
        assert asked.new() == [("example.com", 80)] * 4


def test_what_is_no_proxy_is_refused(asked):
    for proxy, reason in [
        ({"address": f"{PRIVATE}:1080"}, "does not resolve to public addresses"),
        ({"address": f"{METADATA}:80"}, "does not resolve to public addresses"),
        ({"address": "private.example.com:1080"}, "does not resolve to public addresses"),
        ({"address": "missing.example.com:1080"}, "does not resolve to public addresses"),
        ({"address": "proxy.example.com"}, "host:port"),
        ({"address": ADDRESS, "password": PASSWORD}, "'password' needs 'username'"),
        ({"address": ADDRESS, "username": "x" * 256}, "1 to 255 bytes"),
        ({"address": ADDRESS, "tls": {"ca_cert": "rubbish"}}, "PEM"),
    ]:
        with pytest.raises(Exception, match=reason) as refused:
            Sandbox.create(timeout=60, network={"egress_proxy": proxy})
        assert "400" in str(refused.value) and PASSWORD not in str(refused.value)
    with Sandbox.create(timeout=600) as box:
        with pytest.raises(Exception, match="does not resolve"):
            box.update_network({"egress_proxy": {"address": f"{PRIVATE}:1080"}})
        assert get(box, "http://example.com") == EXAMPLE
