"""Headers that requests get on their way out: `rules` of the network. The server runs behind a small internet, in which a host writes down
what arrives. A secret has to arrive there and must be nowhere in the sandbox."""

import json
import os
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from durability import clear
from e2b import Sandbox, Secret
from harness import volatile
from harness.internet import API, EXAMPLE, IMPOSTOR, RESOLVER, Internet
from harness.server import wait_until
from test_names import EVERYTHING, get, run
from test_secrets import in_files

VALUE = "sk-the-value-that-must-not-enter"
# Finds the value and is not the value.
PATTERN = VALUE.replace("enter", "[e]nter")
RULE = [{"transform": {"headers": {"X-Key": "Bearer ${e2b.secrets.api}", "X-Plain": "given"}}}]


def certificates(directory: Path) -> tuple[Path, Path, Path]:
    """An authority, and a certificate of it for the hosts of the small internet, with its key."""

    def openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)

    authority, key, request, leaf, own = (directory / name for name in ("ca.pem", "ca.key", "leaf.csr", "leaf.pem", "leaf.key"))
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    # Python wants to read what an authority's key is for.
    usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    openssl("req", "-x509", *curve, *usage, "-keyout", key, "-out", authority, "-days", 3000, "-subj", "/CN=Authority of the tests")
    openssl("req", *curve, "-keyout", own, "-out", request, "-subj", "/CN=hosts")
    extensions = directory / "extensions"
    extensions.write_text("subjectAltName=DNS:example.com,DNS:*.example.com\nextendedKeyUsage=serverAuth\n")
    openssl("x509", "-req", "-in", request, "-CA", authority, "-CAkey", key, "-CAcreateserial", "-days", 3000, "-extfile", extensions, "-out", leaf)
    return authority, leaf, own


class Arrivals:
    """Requests that have arrived at the test host."""

    def __init__(self, log: Path) -> None:
        self._log, self._read = log, 0

    def new(self) -> list[dict]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        fresh, self._read = lines[self._read :], len(lines)
        return [json.loads(line) for line in fresh]

    def one(self) -> dict:
        [arrived] = self.new()
        return arrived


@pytest.fixture(scope="module", autouse=True)
def internet(server, tmp_path_factory):
    """The usual server, started again behind a small internet."""
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    directory = tmp_path_factory.mktemp("rules")
    authority, leaf, key = certificates(directory)
    clear(server)
    server.stop()
    variables = {"SANDCOVE_DNS": RESOLVER, "SSL_CERT_FILE": str(authority)}
    os.environ.update(variables)
    try:
        with Internet() as internet:
            internet.serve_echo(leaf, key, directory / "arrivals")
            internet.forward(server.port)
            server.within = internet.command
            try:
                server.start()
                internet.arrivals = Arrivals(directory / "arrivals")
                yield internet
                clear(server)
            finally:
                server.stop()
    finally:
        for name in variables:
            del os.environ[name]
        server.within = []
        server.start()


@pytest.fixture
def arrivals(internet):
    internet.arrivals.new()
    Secret.create("api", VALUE)
    yield internet.arrivals
    Secret.destroy("api")


@contextmanager
def sandbox(rules={"api.example.com": RULE}, template="base", **network):  # noqa: B006
    sandbox = Sandbox.create(template, timeout=1800, network={"rules": rules, **network})
    try:
        yield sandbox
    finally:
        sandbox.kill()


def fetch(box, url, *options):
    """What a request with all its checks answers."""
    return run(box, f"curl -s --max-time 60 {' '.join(options)} {url}")


def test_a_secret_arrives_over_every_protocol(arrivals):
    with sandbox() as box:
        for url, options, version in [
            ("http://api.example.com/a?b=c", [], "1.1"),
            ("https://api.example.com/a?b=c", ["--http1.1"], "1.1"),
            ("https://api.example.com/a?b=c", ["--http2"], "2.0"),
        ]:
            assert fetch(box, url, *options) == f"HTTP/{version}", (url, options)
            arrived = arrivals.one()
            assert arrived["version"] == version and arrived["url"] == "/a?b=c"
            assert arrived["headers"]["x-key"] == f"Bearer {VALUE}" and arrived["headers"]["x-plain"] == "given"


def test_a_program_cannot_choose_the_header_itself(arrivals):
    with sandbox() as box:
        assert fetch(box, "https://api.example.com/", "-H 'X-Key: mine' -H 'x-key: also'") == "HTTP/2.0"
        assert arrivals.one()["headers"]["x-key"] == f"Bearer {VALUE}"


def test_bodies_of_any_size_pass(arrivals):
    with sandbox() as box:
        run(box, "head -c 20000000 /dev/zero > /tmp/body")
        for version, options in [("1.1", "--http1.1"), ("2.0", "--http2")]:
            assert fetch(box, "https://api.example.com/", options, "-H 'Expect:' --data-binary @/tmp/body") == f"HTTP/{version}"
            arrived = arrivals.one()
            assert arrived["length"] == 20_000_000 and arrived["headers"]["x-key"] == f"Bearer {VALUE}"


def test_programs_trust_the_authority(arrivals):
    with sandbox(template="code-interpreter-v1") as box:
        for command in [
            "python3 -c \"import urllib.request as r; print(r.urlopen('https://api.example.com/').read().decode())\"",
            "python3 -c \"import requests; print(requests.get('https://api.example.com/').text)\"",
            "node -e \"fetch('https://api.example.com/').then(r => r.text()).then(console.log)\"",
            "git ls-remote https://api.example.com/ 2>&1 | grep -o 'not found\\|repository' | head -1",
        ]:
            box.commands.run(command + " || true")
            assert any(one["headers"].get("x-key") == f"Bearer {VALUE}" for one in arrivals.new()), command


def test_a_websocket_passes(arrivals):
    with sandbox() as box:
        script = """
import socket, ssl, sys
plain = socket.create_connection(("api.example.com", int(sys.argv[1])), timeout=300)
peer = ssl.create_default_context().wrap_socket(plain, server_hostname="api.example.com") if sys.argv[1] == "443" else plain
peer.sendall(b"GET /ws HTTP/1.1\\r\\nHost: api.example.com\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n")
head = b""
while not head.endswith(b"\\r\\n\\r\\n"):
    head += peer.recv(1)
for word in (b"one", b"two"):
    peer.sendall(word)
    assert peer.recv(9) == word
print(head.split()[1].decode())
"""
        box.files.write("/tmp/ws.py", script)
        for port in ["80", "443"] * 5:
            assert run(box, f"python3 /tmp/ws.py {port} 2>&1 | tail -1") == "101"
            assert arrivals.one()["headers"]["x-key"] == f"Bearer {VALUE}"


def test_other_hosts_are_left_alone(arrivals):
    with sandbox() as box:
        # The certificate is the host's own, and no header is added.
        issuer = "echo | openssl s_client -connect {0}:443 -servername {0} 2>/dev/null | openssl x509 -noout -issuer"
        assert "Sandcove" in run(box, issuer.format("api.example.com"))
        assert "Sandcove" not in run(box, issuer.format("elsewhere.example.com"))
        assert fetch(box, "http://elsewhere.example.com/") == "HTTP/1.1"
        assert "x-key" not in arrivals.new()[-1]["headers"]
        assert get(box, "https://example.com") == EXAMPLE
        assert get(box, f"http://{EXAMPLE}") == EXAMPLE, "an address names no host"
    with Sandbox.create(timeout=600) as box:
        assert "Sandcove" not in run(box, issuer.format("api.example.com"))


def test_a_secret_goes_to_its_host_only(arrivals):
    """Whatever a sandbox does to the name: it resolves it as it likes, dials another address, or names another host inside."""
    with sandbox() as box:
        assert fetch(box, "http://api.example.com/", f"--resolve api.example.com:80:{EXAMPLE}") == "HTTP/1.1", "it goes to the host, not there"
        assert arrivals.one()["headers"]["x-key"] == f"Bearer {VALUE}"
        for url in ["https://api.example.com/", "http://api.example.com/"]:
            box.commands.run(f"curl -sk --max-time 60 {url} --connect-to ::{IMPOSTOR}: || true", user="root")
            assert all(one["headers"]["host" if one["version"] == "1.1" else ":authority"] == "api.example.com" for one in arrivals.new())
        misdirected = "-o /dev/null -w '%{http_code}' -H 'Host: elsewhere.example.com'"
        assert fetch(box, "https://api.example.com/", "--http1.1", misdirected) == "421"
        assert fetch(box, "https://api.example.com/", "--http2", misdirected) == "421"
        assert arrivals.new() == []
        assert fetch(box, "https://api.example.com/redirect", "-o /dev/null -w '%{http_code}'") == "302"


def test_a_host_without_a_valid_certificate_gets_nothing(arrivals):
    with sandbox({"example.com": RULE}) as box:
        # Its certificate is of nobody whom the server trusts.
        assert fetch(box, "https://example.com/", "-k") is None
        assert arrivals.new() == []


def test_rules_open_nothing(arrivals):
    with sandbox(deny_out=[EVERYTHING]) as box:
        assert fetch(box, "https://api.example.com/", f"--resolve api.example.com:443:{API}") is None
    with sandbox(deny_out=[API]) as box:
        assert fetch(box, "https://api.example.com/", f"--resolve api.example.com:443:{API}") is None
        assert fetch(box, "https://api.example.com/", f"--resolve api.example.com:443:{EXAMPLE}") is None
    with sandbox(allow_out=[API], deny_out=[EVERYTHING]) as box:
        assert fetch(box, "https://api.example.com/", f"--resolve api.example.com:443:{API}") == "HTTP/2.0"
        assert fetch(box, "https://example.com/", "-k", f"--resolve example.com:443:{EXAMPLE}") is None
    assert [one["headers"]["x-key"] for one in arrivals.new()] == [f"Bearer {VALUE}"]
    with sandbox(allow_out=["api.example.com"], deny_out=[EVERYTHING]) as box:
        assert fetch(box, "https://api.example.com/") == "HTTP/2.0"
        assert fetch(box, "http://elsewhere.example.com/") is None


def test_rules_and_values_change_while_a_sandbox_runs(arrivals):
    with sandbox({}) as box:
        assert fetch(box, "http://api.example.com/") == "HTTP/1.1"
        assert "x-key" not in arrivals.one()["headers"]
        box.update_network({"rules": {"*.example.com": RULE}})
        assert fetch(box, "https://api.example.com/") == "HTTP/2.0"
        assert arrivals.one()["headers"]["x-key"] == f"Bearer {VALUE}"
        Secret.update("api", "another")
        assert fetch(box, "https://api.example.com/") == "HTTP/2.0"
        assert arrivals.one()["headers"]["x-key"] == "Bearer another"
        Secret.destroy("api")
        assert "there is no secret `api`" in fetch(box, "https://api.example.com/")
        assert arrivals.new() == []
        Secret.create("api", VALUE)
        box.update_network({})
        assert fetch(box, "http://api.example.com/") == "HTTP/1.1"
        assert "x-key" not in arrivals.one()["headers"]


@pytest.mark.parametrize("mode", ["memory", "filesystem"])
def test_rules_outlive_a_pause_and_get_new_values(arrivals, mode):
    with sandbox() as box:
        box.pause(**({"mode": "filesystem"} if mode == "filesystem" else {}))
        Secret.update("api", f"after {mode}")
        box = Sandbox.connect(box.sandbox_id)
        assert fetch(box, "https://api.example.com/") == "HTTP/2.0"
        assert arrivals.one()["headers"]["x-key"] == f"Bearer after {mode}"


def test_rules_outlive_the_server(arrivals, server):
    with sandbox() as box:
        server.kill9()
        server.start()
        assert fetch(box, "https://api.example.com/") == "HTTP/2.0"
        assert arrivals.one()["headers"]["x-key"] == f"Bearer {VALUE}"


def test_rules_outlive_rotations_of_the_key(arrivals, server):
    """A rotation keeps one former key, and a sandbox may outlive several."""
    with sandbox() as box:
        first = (server.data_dir / "secrets.key").read_text().splitlines()[0]
        for _ in range(3):
            subprocess.run([server.binary, "--data-dir", str(server.data_dir), "secret", "rotate-key"], check=True)
            server.kill9()
            server.start()
            assert fetch(box, "https://api.example.com/") == "HTTP/2.0"
            assert arrivals.one()["headers"]["x-key"] == f"Bearer {VALUE}"
        assert first not in (server.data_dir / "secrets.key").read_text()


def memory_has(pid: int, text: bytes) -> bool:
    """Whether the memory of a process has a text."""
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in maps:
                place, rights = line.split()[:2]
                if "r" not in rights or "[v" in line:
                    continue
                first, last = (int(number, 16) for number in place.split("-"))
                try:
                    memory.seek(first)
                    if text in memory.read(last - first):
                        return True
                except (OSError, OverflowError, ValueError):
                    continue
    except OSError:
        pass
    return False


class Capture:
    """All packets on the interfaces of sandboxes, on the host's side: what a sandbox sends and receives."""

    def __init__(self, internet: Internet) -> None:
        script = """
import socket, sys
capture = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
capture.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
print("ready", flush=True)
while True:
    packet, (interface, *_) = capture.recvfrom(1 << 17)
    if interface.startswith("scv"):
        sys.stdout.buffer.write(packet)
        sys.stdout.buffer.flush()
"""
        self._program = subprocess.Popen([*internet.command, "python3", "-c", script], stdout=subprocess.PIPE)
        assert self._program.stdout.readline() == b"ready\n"
        self.bytes = b""
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while piece := self._program.stdout.read1(1 << 20):
            self.bytes += piece

    def stop(self) -> bytes:
        self._program.kill()
        self._program.wait()
        self._thread.join()
        return self.bytes


def test_a_value_is_nowhere_in_the_sandbox(arrivals, server, internet):
    box = Sandbox.create(timeout=1800, network={"rules": {"api.example.com": RULE}})
    capture = Capture(internet)
    try:
        marker = "marker-that-the-capture-has-to-have"
        for url in ["http://api.example.com/", "https://api.example.com/"]:
            assert fetch(box, url, f"-H 'X-Marker: {marker}'") is not None
            assert arrivals.one()["headers"]["x-key"] == f"Bearer {VALUE}"
        wait_until(lambda: marker.encode() in capture.bytes, what="the capture has packets")
        assert run(box, f"env | grep -c {PATTERN}") is None
        assert run(box, f"grep -rla {PATTERN} / --exclude-dir=proc --exclude-dir=sys 2>/dev/null | head -3") in ("", None)
        inside = os.readlink(f"/proc/{init_of(server, box)}/ns/pid")
        pids = [int(path.name) for path in volatile.processes() if volatile.link(path / "ns/pid") == inside]
        assert pids and not any(memory_has(pid, VALUE.encode()) for pid in pids)
        # The same search finds what is there.
        box.commands.run(f"X={marker}-in-memory sleep 600", background=True, timeout=0)
        pids = [int(path.name) for path in volatile.processes() if volatile.link(path / "ns/pid") == inside]
        assert any(memory_has(pid, f"{marker}-in-memory".encode()) for pid in pids)
        assert VALUE not in json.dumps(box.get_info().__dict__, default=str)
    finally:
        captured = capture.stop()
        box.kill()
    assert VALUE.encode() not in captured
    assert in_files(server, VALUE) == []
    assert VALUE not in server.tail(100_000)


def init_of(server, box) -> int:
    """The first process of a sandbox."""
    return volatile.record(server.data_dir / "run" / box.sandbox_id / "jail.json")["pid"]


def test_what_is_no_rule_is_refused(arrivals):
    for rules, reason in [
        ({"*": RULE}, "is not a domain"),
        ({"api.example.com": RULE * 2}, "one is allowed"),
        ({"api.example.com": [{"transform": {"headers": {"Host": "other"}}}]}, "cannot be set"),
        ({"api.example.com": [{"transform": {"headers": {"A": "${e2b.other}"}}}]}, "no placeholders"),
    ]:
        with pytest.raises(Exception, match=reason):
            Sandbox.create(timeout=60, network={"rules": rules})


def test_a_socket_that_says_nothing_reaches_who_speaks_first(arrivals):
    with sandbox() as box:
        silent = f"python3 -c \"import socket; s = socket.create_connection(('{API}', 80), timeout=100); print(s.getpeername()[1])\""
        assert run(box, silent) == "80"
