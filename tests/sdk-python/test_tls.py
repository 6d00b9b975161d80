"""A server with its own certificate, reached by name: by clients of several generations, by curl and by a browser, with nothing but what
`sandcove env` and `sandcove trust` print.
"""

import contextlib
import http.client
import json
import os
import queue
import re
import shutil
import socket
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from e2b import Sandbox
from harness import debian, names, volatile
from harness.internet import HOST, Internet
from harness.server import API_KEY, ROOT, Server, free_port, wait_until
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(ROOT / "tests/versions"))

import table  # noqa: E402
from legacy import releases  # noqa: E402

# Those that know nothing but names, and the newest.
RELEASES = [("python", "1.0.6"), ("python", "2.5.0"), ("python", "newest"), ("js", "1.0.7"), ("js", "2.5.0"), ("js", "newest")]

# Of the process that clients talk to.
ACCOUNT = 60888
REDIRECTS = free_port()
# By their packages, of which later releases in the list replace earlier ones.
LAST_OF_THE_FIRST_GENERATION = list({(one.language, one.package): one for one in releases.RELEASES}.values())

CHROMIUM = os.environ.get("SANDCOVE_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")

# A page that tells, in its title, what it got by websocket and by an event stream.
SERVICE = r"""
import base64, hashlib, http.server
PAGE = b'''<title></title><script>
const got = []
const tell = (what) => { got.push(what); if (got.length == 3) document.title = got.sort().join(" ") }
const events = new EventSource("/events")
events.onmessage = (event) => { tell(event.data); if (event.data == "second") events.close() }
const socket = new WebSocket(`wss://${location.host}/socket`)
socket.onopen = () => socket.send("hello")
socket.onmessage = (message) => tell(message.data)
</script>'''
class Service(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/socket": return self.talk()
        self.send_response(200)
        if self.path == "/events":
            self.send_header("Content-Type", "text/event-stream"); self.send_header("Connection", "close"); self.end_headers()
            self.wfile.write(b"data: first\n\n"); self.wfile.flush(); self.wfile.write(b"data: second\n\n"); self.close_connection = True
            return
        self.send_header("Content-Type", "text/html"); self.send_header("Content-Length", str(len(PAGE))); self.end_headers()
        self.wfile.write(PAGE)
    def talk(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101); self.send_header("Upgrade", "websocket"); self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept); self.end_headers()
        head = self.rfile.read(2); mask = self.rfile.read(4); data = self.rfile.read(head[1] & 127)
        text = bytes(b ^ mask[i % 4] for i, b in enumerate(data)).upper()
        self.wfile.write(bytes([0x81, len(text)]) + text); self.wfile.flush(); self.rfile.read(1)
http.server.ThreadingHTTPServer(("", 8000), Service).serve_forever()
"""


@pytest.fixture(scope="module")
def secure(server):
    """The server, started again with a certificate of its own."""
    server.stop()
    server.variables = {"SANDCOVE_TLS": "local", "SANDCOVE_REDIRECT_LISTEN": f"127.0.0.1:{REDIRECTS}"}
    server.start()
    yield server
    server.stop()
    server.variables = {}
    server.start()


def shown(port: int, host: str = "127.0.0.1") -> str:
    """The certificate that a new connection is shown."""
    return ssl.get_server_certificate((host, port), timeout=120)


def sandcove(server: Server, *arguments: str) -> str:
    command = [str(server.binary), *arguments, "--data-dir", str(server.data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("language", "release"), RELEASES)
def test_releases_find_the_server_by_its_domain_alone(secure, language, release, monkeypatch):
    monkeypatch.setenv("SANDCOVE_DATA_DIR", str(secure.data_dir))
    monkeypatch.setattr(table, "BIN", str(secure.binary))
    (version,) = table.chosen(language, release)
    done = table.SMOKES[language](version, "tls")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("ok: create command background files watch connect"), done.stdout


def test_a_package_on_top_of_an_old_release_finds_it_too(secure, monkeypatch):
    """The smallest of them; `table.py --tls --packages all` runs all."""
    monkeypatch.setenv("SANDCOVE_DATA_DIR", str(secure.data_dir))
    monkeypatch.setattr(table, "BIN", str(secure.binary))
    fine, text = table.package_smoke(table.PACKAGES[0])
    assert fine, text


@pytest.mark.parametrize("release", LAST_OF_THE_FIRST_GENERATION, ids=lambda release: release.place)
def test_the_first_generation_finds_it_too(secure, release, monkeypatch):
    monkeypatch.setenv("SANDCOVE_DATA_DIR", str(secure.data_dir))
    monkeypatch.setattr(table, "BIN", str(secure.binary))
    fine, text = table.legacy_smoke(release, None)
    assert fine, text


def test_env_and_trust_print_what_shells_read(secure):
    domain = f"sbx.localhost:{secure.port}"
    lines = sandcove(secure, "env", "--sdk", "1.x", "--lang", "js").splitlines()
    ca = sandcove(secure, "trust", "--path").strip()
    assert f"export E2B_DOMAIN={domain}" in lines and f"export NODE_EXTRA_CA_CERTS={ca}" in lines
    assert "unset E2B_API_URL" in lines and not any("SSL_CERT_FILE" in line for line in lines)
    shell = 'eval "$("$0" env --sdk 2.x --data-dir "$1")" && echo "$E2B_DOMAIN $SSL_CERT_FILE"'
    said = subprocess.run(["sh", "-c", shell, secure.binary, str(secure.data_dir)], capture_output=True, text=True, check=True)
    assert said.stdout.split() == [domain, ca.replace("ca.pem", "bundle.pem")]
    assert Path(ca).read_text() == sandcove(secure, "trust", "--print")
    assert "BEGIN CERTIFICATE" in Path(ca).read_text() and "PRIVATE" not in Path(ca).read_text()
    key = Path(ca).with_name("ca.key")
    assert key.stat().st_mode & 0o777 == 0o600
    secret = "".join(key.read_text().splitlines()[1:-1])
    assert secret[:40] not in secure.log.read_text(errors="replace")


def test_the_keys_are_out_of_reach_for_the_process_that_speaks_tls(secure):
    host, own = volatile.parts(secure.pid)
    assert host == secure.pid
    assert re.search(rf"^Uid:\t{ACCOUNT}\t", Path(f"/proc/{own}/status").read_text(), re.M)
    # It has the listeners, all three, and no file of the authority.
    assert set(ports_of(own)) == {secure.port, REDIRECTS}
    assert not Path(f"/proc/{own}/root{secure.data_dir}/tls").exists()
    assert (secure.data_dir / "tls/ca.key").stat().st_uid == 0


def ports_of(pid: int) -> list[int]:
    """Local ports that the sockets of a process listen on."""
    sockets = {volatile.link(entry) for entry in volatile.matching(f"/proc/{pid}/fd", "*")}
    rows = [line.split() for version in ("tcp", "tcp6") for line in Path(f"/proc/net/{version}").read_text().splitlines()[1:]]
    listening = "0A"
    return [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == listening and f"socket:[{row[9]}]" in sockets]


def test_both_loopback_addresses_take_tls_and_plain_http(secure):
    addresses = ["127.0.0.1"]
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        addresses.append("::1")
    for address in addresses:
        assert shown(secure.port, address)
        with contextlib.closing(http.client.HTTPConnection(address, secure.port, timeout=120)) as plain:
            plain.request("GET", "/health")
            assert plain.getresponse().status == 200


class Pair:
    """Files of a certificate and its key, as root's."""

    def __init__(self, directory: Path) -> None:
        self.certificate, self.key = directory / "cert.pem", directory / "key.pem"
        self.renew()

    @property
    def variables(self) -> dict[str, str]:
        return {"SANDCOVE_TLS_CERT": str(self.certificate), "SANDCOVE_TLS_KEY": str(self.key), "SANDCOVE_DOMAIN": "example.test"}

    def renew(self) -> str:
        """Replaces both files, one after the other; returns the certificate."""
        new = [self.certificate.with_suffix(".new"), self.key.with_suffix(".new")]
        request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "90"]
        names = ["-subj", "/CN=example.test", "-addext", "subjectAltName=DNS:*.example.test,DNS:localhost"]
        subprocess.run([*request, *names, "-out", new[0], "-keyout", new[1]], check=True, capture_output=True)
        new[1].chmod(0o600)
        for file in new:
            file.rename(file.with_suffix(".pem"))
        return self.certificate.read_text()


@pytest.fixture(params=[ACCOUNT, 0], ids=["two processes", "one process"])
def renewed(server, tmp_path, request):
    """The server with a certificate of files, and these files."""
    pair = Pair(tmp_path)
    tmp_path.chmod(0o700)
    server.stop()
    before, server.variables = server.variables, {**pair.variables, "SANDCOVE_SERVER_ACCOUNT": str(request.param)}
    server.start()
    assert len(volatile.parts(server.pid)) == (2 if request.param else 1)
    yield server, pair
    server.stop()
    server.variables = before
    server.start()


def test_new_files_are_used_and_no_connection_notices(renewed):
    server, pair = renewed
    processes = volatile.parts(server.pid)
    first = pair.certificate.read_text()
    assert shown(server.port) == first
    trusting = ssl.create_default_context(cadata=first)
    with contextlib.closing(http.client.HTTPSConnection("localhost", server.port, timeout=120, context=trusting)) as open_before:

        def answers():
            open_before.request("GET", "/health")
            answer = open_before.getresponse()
            return (answer.status, answer.read())

        assert answers() == (200, b"Health check successful")
        own_end = open_before.sock
        # Half of a pair, which is reported with its files and changes nothing.
        key = pair.key.read_bytes()
        subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", pair.key], check=True)
        wait_until(lambda: f"the key in `{pair.key}` is not that of the certificate" in server.tail(), what="a report of the bad pair")
        assert "the old one stays in use" in server.tail()
        assert shown(server.port) == first and answers()[0] == 200
        pair.key.write_bytes(key)
        for _ in range(3):
            second = pair.renew()
            assert second != first
            wait_until(lambda: shown(server.port) == second, what="the new certificate is shown")
            assert answers()[0] == 200 and open_before.sock is own_end
    assert volatile.parts(server.pid) == processes
    # And at the next start.
    server.kill9()
    third = pair.renew()
    server.start()
    assert shown(server.port) == third
    assert "".join(pair.key.read_text().splitlines()[1:-1])[:40] not in server.log.read_text(errors="replace")


def test_a_start_with_files_that_do_not_belong_together_fails_in_words(renewed):
    server, pair = renewed
    server.stop()
    pair.key.write_text("none")
    with pytest.raises(RuntimeError, match="has no private key: name a PEM file"):
        server.start()
    pair.renew()
    server.start()


def test_trust_installs_and_removes(secure, tmp_path):
    """In a mount namespace whose store is a copy."""
    if not shutil.which("update-ca-certificates"):
        pytest.skip("no update-ca-certificates")
    script = """
    for store in /etc/ssl/certs /usr/local/share/ca-certificates; do
      mkdir -p "$1$store" && cp -a "$store/." "$1$store/" && mount --bind "$1$store" "$store" || exit 1
    done
    ask() { curl -sS -o /dev/null -w '%{http_code}\\n' "https://api.sbx.localhost:$2/health"; }
    ask - "$2" 2>/dev/null
    "$0" trust --data-dir "$3" 2>/dev/null && ask - "$2"
    "$0" env --sdk 1.x --lang py --shell file --data-dir "$3" | grep SSL_CERT_FILE
    "$0" trust --uninstall --data-dir "$3" 2>/dev/null && ask - "$2" 2>/dev/null
    exit 0
    """
    command = ["unshare", "--mount", "bash", "-c", script, secure.binary, tmp_path, str(secure.port), secure.data_dir]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["000", "200", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", "000"], done.stdout + done.stderr


def test_doctor_looks_from_the_side_of_a_client(secure, tmp_path):
    command = [str(secure.binary), "doctor", "--json", "--data-dir", str(secure.data_dir)]
    bundle = sandcove(secure, "env", "--sdk", "1.x", "SSL_CERT_FILE").strip()

    def checks(within):
        done = subprocess.run(within(command), capture_output=True, text=True, timeout=300, env={**os.environ, "SSL_CERT_FILE": bundle})
        return {check["name"]: check for check in json.loads(done.stdout)}

    found = checks(names.leading_here)
    assert found["names"]["status"] == "ok", found["names"]
    assert found["https"]["status"] == "ok", found["https"]
    bundle = str(Path(ssl.get_default_verify_paths().openssl_cafile).resolve())
    untrusted = checks(names.leading_here)["https"]
    assert untrusted["status"] == "warn" and "sandcove trust" in untrusted["hint"], untrusted


def test_curl_speaks_both_versions_and_plain_http(secure):
    ca = sandcove(secure, "trust", "--path").strip()
    sandbox = Sandbox.create()
    try:
        sandbox.files.write("/tmp/service.py", SERVICE)
        sandbox.commands.run("python3 /tmp/service.py", background=True)
        url = f"https://8000-{sandbox.sandbox_id}.sbx.localhost:{secure.port}/"
        assert sandbox.get_host(8000) == url.split("/")[2]
        for option, version in [("--http2", "2"), ("--http1.1", "1.1")]:
            curl = ["curl", "-sS", option, "--cacert", ca, "-o", "/dev/null", "-w", "%{http_version} %{http_code}", url]
            done = subprocess.run(curl, capture_output=True, text=True, timeout=120)
            assert done.stdout == f"{version} 200", done.stdout + done.stderr
        plain = subprocess.run(["curl", "-sS", url.replace("https", "http")], capture_output=True, text=True, timeout=120)
        assert plain.stdout.startswith("<title>"), plain.stderr
    finally:
        sandbox.kill()


GRPC = """
import grpc
from concurrent import futures
def twice(request, context):
    context.set_trailing_metadata([("x-host", dict(context.invocation_metadata()).get("x-name", ""))])
    return request * 2
def each(requests, context):
    for request in requests: yield request.upper()
def take(requests, context): return b"%d" % sum(len(request) for request in requests)
def fail(request, context): context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today")
methods = {"Twice": grpc.unary_unary_rpc_method_handler(twice), "Each": grpc.stream_stream_rpc_method_handler(each), "Take": grpc.stream_unary_rpc_method_handler(take), "Fail": grpc.unary_unary_rpc_method_handler(fail)}
server = grpc.server(futures.ThreadPoolExecutor())
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("Echo", methods)])
server.add_insecure_port("0.0.0.0:50051")
server.start()
server.wait_for_termination()
"""


def test_plain_http_is_sent_on_to_tls(secure):
    ca = sandcove(secure, "trust", "--path").strip()
    url = f"http://api.sbx.localhost:{REDIRECTS}/health?x=%2F"
    curl = ["curl", "-sS", "--cacert", ca, "--location", "--write-out", " %{url_effective}", url]
    done = subprocess.run(curl, capture_output=True, text=True, timeout=120)
    assert done.stdout == f"Health check successful https://api.sbx.localhost:{secure.port}/health?x=%2F", done.stdout + done.stderr


def test_other_machines_need_tls(server):
    ca = server.data_dir / "tls/ca.pem"
    before = server.within, server.variables
    server.stop()
    try:
        with Internet() as internet:
            # The tests' server listens on loopback, where other machines cannot come.
            everywhere = 'program=$0; shift 3; exec "$program" serve --listen 0.0.0.0:"$SANDCOVE_TEST_PORT" "$@"'
            server.within = [*internet.command, "sh", "-c", everywhere]
            server.variables = {"SANDCOVE_TLS": "local", "SANDCOVE_TLS_ONLY": "1", "SANDCOVE_TEST_PORT": str(server.port)}
            internet.forward(server.port)
            server.start()

            def ask(url, *options):
                there = ["--noproxy", "*", "--resolve", f"api.sbx.localhost:{server.port}:{HOST}", "--cacert", ca]
                curl = ["curl", "-sS", "--max-time", "120", "-w", "\n%{http_code} %{redirect_url}", *there, *options, url]
                done = subprocess.run([*internet.outside, *curl], capture_output=True, text=True, timeout=180)
                assert done.returncode == 0, done.stderr
                body, status = done.stdout.rsplit("\n", 1)
                return body, status.strip()

            plain, secured = (f"{scheme}://api.sbx.localhost:{server.port}/health" for scheme in ("http", "https"))
            body, status = ask(plain, "-H", f"X-API-Key: {API_KEY}")
            assert status == "403" and json.loads(body)["code"] == 403 and "takes TLS only" in json.loads(body)["message"], body
            browser = ["-H", "User-Agent: Mozilla/5.0", "-H", "Accept: text/html"]
            assert ask(plain, *browser) == ("", f"308 {secured}")
            assert ask(secured) == ("Health check successful", "200")
            assert server.healthy(), "programs on the machine itself"
            server.stop()
    finally:
        server.stop()
        server.within, server.variables = before
        server.start()


def test_a_grpc_client_calls_a_service(secure):
    ca = Path(sandcove(secure, "trust", "--path").strip())
    sandbox = Sandbox.create(timeout=600)
    try:
        sandbox.commands.run("pip install --quiet grpcio", timeout=300)
        sandbox.files.write("/tmp/service.py", GRPC)
        sandbox.commands.run("python3 /tmp/service.py", background=True)
        host = f"50051-{sandbox.sandbox_id}.sbx.localhost:{secure.port}"
        # gRPC has a resolver of its own, which knows no `localhost` but the one.
        options = [("grpc.ssl_target_name_override", host.split(":")[0]), ("grpc.default_authority", host)]
        credentials = grpc.ssl_channel_credentials(ca.read_bytes())
        with grpc.secure_channel(f"127.0.0.1:{secure.port}", credentials, options) as channel:
            twice = channel.unary_unary("/Echo/Twice")
            answer, call = twice.with_call(b"ab", metadata=[("x-name", "n")], wait_for_ready=True, timeout=120)
            assert answer == b"abab" and dict(call.trailing_metadata())["x-host"] == "n"
            assert len(twice(bytes(1 << 20), timeout=120)) == 2 << 20
            # Each message is answered before the next one is sent.
            asked = queue.Queue()
            answers = channel.stream_stream("/Echo/Each")(iter(asked.get, None), timeout=120)
            for word in [b"one", b"two", b"three"]:
                asked.put(word)
                assert next(answers) == word.upper()
            asked.put(None)
            assert list(answers) == []
            # While a client sends, a service answers with nothing but windows, and with very many of them.
            assert channel.stream_unary("/Echo/Take")((bytes(1 << 20) for _ in range(300)), timeout=600) == b"%d" % (300 << 20)
            with pytest.raises(grpc.RpcError) as failed:
                channel.unary_unary("/Echo/Fail")(b"", timeout=120)
            assert failed.value.code() == grpc.StatusCode.FAILED_PRECONDITION and failed.value.details() == "not today"
            with ThreadPoolExecutor(50) as pool:
                assert list(pool.map(lambda n: twice(b"%d" % n, timeout=120), range(200))) == [b"%d" % n * 2 for n in range(200)]
    finally:
        sandbox.kill()


def test_a_browser_trusts_it_and_gets_events_and_websockets(secure, tmp_path):
    if not CHROMIUM:
        pytest.skip("there is no chromium: apt-get install chromium")
    certutil = str(debian.unpacked("libnss3-tools", "certutil"))
    ca = sandcove(secure, "trust", "--path").strip()
    store = tmp_path / ".pki/nssdb"
    store.mkdir(parents=True)
    for arguments in (["-N", "--empty-password"], ["-A", "-t", "C,,", "-n", "sandcove", "-i", ca]):
        subprocess.run([certutil, "-d", f"sql:{store}", *arguments], check=True)
    sandbox = Sandbox.create()
    try:
        sandbox.files.write("/tmp/service.py", SERVICE)
        sandbox.commands.run("python3 /tmp/service.py", background=True)
        url = f"https://8000-{sandbox.sandbox_id}.sbx.localhost:{secure.port}/"
        # Chromium's own sandbox does not work for root.
        options = {"executable_path": CHROMIUM, "args": ["--no-sandbox"], "env": {**os.environ, "HOME": str(tmp_path)}}
        with sync_playwright() as playwright, playwright.chromium.launch(**options, timeout=180_000) as browser:
            page = browser.new_page()

            def has_got_everything():
                # Chromium drops connections whenever an interface comes or goes, as those of sandboxes do.
                try:
                    page.goto(url)
                    page.wait_for_function("document.title == 'HELLO first second'")
                except PlaywrightError as error:
                    assert "CERT" not in str(error), error
                    return False
                return True

            wait_until(has_got_everything, 300, "the page has got everything")
    finally:
        sandbox.kill()

