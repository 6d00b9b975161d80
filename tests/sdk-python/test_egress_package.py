"""The published package `veris-e2b`, unchanged: it has sandboxes reach stand-ins of other services by name, through an egress proxy that it sets.
The maker's side, which provides stand-ins, is played here: its API in this process, the proxy and the stand-in in the small internet."""

import http.server
import json
import threading
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from harness.internet import PROXY
from test_rules import certificates, internet  # noqa: F401
from veris_e2b import AsyncSandbox, Sandbox, TouchMatcher, VerisOpts, VerisUntouchedError
from veris_e2b.errors import UnsupportedOperationError

TWIN, ENVIRONMENT, KEY, PORT = "sb-of-the-tests", "env-of-the-tests", "key-of-the-maker", 1090
VENDOR, CANARY, DATABASE = "api.example.com", "www.example.com", "postgresql://somebody:pw@example.com:5432/db"
USER, PASSWORD = "twin", "pw-of-the-twin"
MESSAGE = f"https://{VENDOR}/v1/charges"


class Maker(http.server.BaseHTTPRequestHandler):
    """The API of those who make stand-ins."""

    authority: Path
    requests: Path
    calls: list[tuple[str, str]]

    def answer(self) -> None:
        assert self.headers["x-api-key"] == KEY
        url = urlsplit(self.path)
        self.calls.append((self.command, url.path))
        self.rfile.read(int(self.headers.get("content-length", 0)))
        body = json.dumps(self.reply(url.path, parse_qs(url.query))).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_DELETE = answer

    def reply(self, path: str, query: dict[str, list[str]]) -> object:
        if path.endswith("/egress-credential"):
            return {
                "socks_address": f"{PROXY}:{PORT}", "username": USER, "password": PASSWORD,
                "ca_pem": self.authority.read_text(), "canary_host": CANARY,
            }  # fmt: skip
        if path.endswith("/veris/requests"):
            rows = [json.loads(line) for line in self.requests.read_text().splitlines()]
            rows = [{"id": number, "tier": "handler", **row} for number, row in enumerate(rows, 1) if row["host"] == VENDOR]
            rows = [row for row in rows if row["id"] > int(query.get("since_id", ["0"])[0])]
            return {"requests": rows[:: -1 if query["order"] == ["desc"] else 1][: int(query["limit"][0])]}
        control = f"http://127.0.0.1:{self.server.server_port}/c"
        vendor = {"name": "vendor", "url": f"{control}/data", "control_url": f"{control}/vendor", "control_auth": "api_key"}
        database = {"name": "postgres", "url": DATABASE, "control_url": "", "env_hint": "DATABASE_URL"}
        services = [{**vendor, "status": "ready", "routes": [{"host": VENDOR}]}, {**database, "status": "ready"}]
        return services if path.endswith("/services") else {"id": TWIN, "environment_id": ENVIRONMENT, "status": "ready", "services": services}

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def maker(internet, tmp_path_factory):  # noqa: F811
    directory = tmp_path_factory.mktemp("twin")
    authority, leaf, key = certificates(directory)
    internet.serve_twin(directory / "asked", USER, PASSWORD, PORT, leaf, key, directory / "requests", TWIN)
    Maker.authority, Maker.requests, Maker.calls = authority, directory / "requests", []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Maker)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield VerisOpts(api_key=KEY, environment_id=ENVIRONMENT, api_base=f"http://127.0.0.1:{server.server_port}")
    server.shutdown()


def get(sandbox, url: str) -> str | None:
    """What a program of the sandbox gets, that trusts what its system trusts."""
    done = sandbox.commands.run(f"curl --silent --show-error --max-time 60 {url} || true")
    return done.stdout or None


def test_services_of_others_are_stood_in_for(maker):
    with Sandbox.create(veris=maker, timeout=600, metadata={"own": "kept"}) as box:
        with pytest.raises(VerisUntouchedError):
            box.veris.assert_touched("vendor", TouchMatcher(path="/v1/charges"))
        assert json.loads(get(box, f"--data amount=5 {MESSAGE}"))["body"] == "amount=5"
        code = f"import urllib.request; print(urllib.request.urlopen('{MESSAGE}').read().decode())"
        assert json.loads(box.commands.run(f'python3 -c "{code}"').stdout)["host"] == VENDOR
        # A program that its environment tells whom to trust.
        code = f"fetch('{MESSAGE}').then(r => r.json()).then(r => console.log(r.host))"
        assert box.commands.run(f'node -e "{code}"').stdout.strip() == VENDOR
        box.veris.assert_touched("vendor", TouchMatcher(method="POST", path="/v1/charges"))
        receipt = box.veris.receipt()
        assert (receipt.services["vendor"].requests, receipt.integrity, receipt.leaks) == (3, "verified", [])
        assert box.commands.run("echo $DATABASE_URL").stdout.strip() == DATABASE
        # Nothing else is reached, by the proxy neither.
        assert get(box, "https://elsewhere.example.com") is None and get(box, "http://example.org") is None

        box.veris.update_network({"allow_out": ["elsewhere.example.com"]})
        assert json.loads(get(box, "https://elsewhere.example.com"))["host"] == "elsewhere.example.com"
        assert json.loads(get(box, MESSAGE))["host"] == VENDOR and get(box, "http://example.org") is None

        again = Sandbox.reconnect(box.sandbox_id, api_key=KEY, api_base=maker.api_base)
        assert again.veris.receipt("vendor").requests == 4
        assert again.get_info().metadata["own"] == "kept"
        again.set_timeout(900)
        with pytest.raises(UnsupportedOperationError):
            again.fork()
    assert Maker.calls[-1] == ("DELETE", f"/v1/environments/{ENVIRONMENT}/sandboxes/{TWIN}")


async def test_by_the_asynchronous_client_and_with_everything_open(maker):
    box = await AsyncSandbox.create(veris=VerisOpts(**{**vars(maker), "egress": "open"}), timeout=600)
    try:
        done = await box.commands.run(f"curl --silent --max-time 60 {MESSAGE}")
        assert json.loads(done.stdout)["veris_sandbox_id"] == TWIN
        # Everything goes through the proxy, which takes every name to the stand-in.
        done = await box.commands.run("curl --silent --max-time 60 https://elsewhere.example.com")
        assert json.loads(done.stdout)["host"] == "elsewhere.example.com"
        assert (await box.veris.receipt()).leaks == ["udp-quic-possible", "ech-possible"]
    finally:
        await box.kill()
