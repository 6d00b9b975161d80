"""A server with its own certificate, reached by name: by clients of several generations, by curl and by a browser, with nothing but what
`sandcove env` and `sandcove trust` print.
"""

import json
import os
import queue
import shutil
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from e2b import Sandbox
from harness import debian, names
from harness.server import ROOT, Server, free_port, wait_until
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(ROOT / "tests/versions"))

import table  # noqa: E402
from legacy import releases  # noqa: E402

# Those that know nothing but names, and the newest.
RELEASES = [("python", "1.0.6"), ("python", "2.5.0"), ("python", "newest"), ("js", "1.0.7"), ("js", "2.5.0"), ("js", "newest")]

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
def fail(request, context): context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today")
methods = {"Twice": grpc.unary_unary_rpc_method_handler(twice), "Each": grpc.stream_stream_rpc_method_handler(each), "Fail": grpc.unary_unary_rpc_method_handler(fail)}
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

