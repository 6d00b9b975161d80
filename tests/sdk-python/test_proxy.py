"""Services inside a sandbox, reached from outside by host name and by headers; and the pages that a browser gets."""

import base64
import http.client
import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from e2b import Sandbox

BROWSER = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/130 Safari/537.36"

SERVICE = """
import base64, hashlib, http.server, json, socket, sys, threading
go_on = threading.Event()
class Service(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        if self.headers.get("Upgrade") == "websocket":
            return self.talk()
        size = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(size)
        if self.path == "/slow":
            self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
            for piece in [b"one", b"two"]:
                self.wfile.write(b"3\\r\\n" + piece + b"\\r\\n"); self.wfile.flush(); go_on.wait(); go_on.clear()
            self.wfile.write(b"0\\r\\n\\r\\n"); return
        if self.path == "/go-on": go_on.set()
        said = json.dumps({"method": self.command, "path": self.path, "bytes": len(body),
                           "headers": {k.lower(): v for k, v in self.headers.items()}}).encode()
        self.send_response(201); self.send_header("X-Mine", "yes"); self.send_header("Content-Length", str(len(said)))
        self.end_headers(); self.wfile.write(said)
    do_GET = do_PUT = do_DELETE = do_PATCH = do_POST
    def talk(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101); self.send_header("Upgrade", "websocket"); self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept); self.end_headers()
        while True:
            head = self.rfile.read(2)
            if len(head) < 2: return
            mask = self.rfile.read(4); data = self.rfile.read(head[1] & 127)
            text = bytes(b ^ mask[i % 4] for i, b in enumerate(data)).upper()
            self.wfile.write(bytes([0x81, len(text)]) + text); self.wfile.flush()
    def log_message(self, *_): pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
    request_queue_size = 128
server = Server((sys.argv[1], int(sys.argv[2])), Service)
if sys.argv[3:]:
    import ssl
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[3:])
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""

ADDRESSES = {"127.0.0.1": 8001, "0.0.0.0": 8002, "::1": 8003, "::": 8004, "localhost": 8005}


def serve(sandbox, address: str, port: int, *certificate: str) -> None:
    sandbox.files.write("/tmp/service.py", SERVICE)
    sandbox.commands.run(f"python3 /tmp/service.py {address} {port} {' '.join(certificate)}", background=True, timeout=0)
    sandbox.commands.run(f"until ss -ltn | grep -q :{port}; do sleep 0.05; done")


@pytest.fixture(scope="module")
def box(server):
    box = Sandbox.create(timeout=7200)
    for address, port in ADDRESSES.items():
        serve(box, address, port)
    yield box
    box.kill()


class Answer:
    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = answer.status, answer.headers, answer.read()

    def json(self):
        return json.loads(self.body)


def ask(server, method="GET", path="/", body=None, host=None, **headers) -> Answer:
    """A request to the server's own port with a Host of our choice: sandbox names need no DNS here."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, {"Host": host or f"127.0.0.1:{server.port}", **headers})
    answer = Answer(connection.getresponse())
    connection.close()
    return answer


def by_headers(box, port) -> dict:
    return {"E2b_Sandbox_Id": box.sandbox_id, "E2b_Sandbox_Port": str(port)}


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_bind_address_is_reached(box, server, address):
    port = ADDRESSES[address]
    answer = ask(server, "POST", "/a%20b?c=%2F", b"x" * 5000, host=box.get_host(port), Accept="text/plain")
    assert (answer.status, answer.headers["x-mine"]) == (201, "yes")
    seen = answer.json()
    assert (seen["method"], seen["path"], seen["bytes"]) == ("POST", "/a%20b?c=%2F", 5000)
    assert (seen["headers"]["host"], seen["headers"]["accept"]) == (box.get_host(port), "text/plain")
    answer = ask(server, "PUT", "/x", b"12", **by_headers(box, port))
    assert (answer.status, answer.json()["bytes"]) == (201, 2)


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
@pytest.mark.parametrize("internet", [True, False], ids=["open", "closed"])
def test_a_web_server_has_port_80_of_all_addresses(server, address, internet):
    with Sandbox.create(timeout=600, allow_internet_access=internet) as box:
        serve(box, address, 80)
        assert ask(server, host=box.get_host(80)).json()["path"] == "/"
        # The address at which a sandbox asks who it is stays what it was.
        for name in "192.0.2.1", "events.e2b.local", "192.0.2.1:80":
            assert json.loads(box.commands.run(f"curl -s http://{name}/me").stdout) == {"sandboxID": box.sandbox_id}


def test_any_domain_and_the_old_form_of_the_id_will_do(box, server):
    for host in [f"8001-{box.sandbox_id}.example.org", f"8001-{box.sandbox_id}-00000000.example.org:80"]:
        assert ask(server, host=host).status == 201


def test_the_agent_by_host(box, server):
    assert ask(server, path="/health", host=box.get_host(49983)).status == 204
    refused = ask(server, "POST", "/init", b"{}", host=box.get_host(49983))
    assert refused.status == 404 and "reserved for the E2B control plane" in refused.json()["message"]


def test_answers_are_not_held_back(box, server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.request("POST", "/slow", headers={"Host": box.get_host(8001)})
    answer = connection.getresponse()
    for piece in [b"one", b"two"]:
        # The service waits for a word before it goes on, so what is held back would never come.
        assert answer.read(3) == piece
        assert ask(server, "POST", "/go-on", host=box.get_host(8001)).status == 201
    assert answer.read() == b""


def frame(text: bytes) -> bytes:
    mask = os.urandom(4)
    return bytes([0x81, 0x80 | len(text)]) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(text))


def test_websockets(box, server):
    key = base64.b64encode(os.urandom(16)).decode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as client:
        client.sendall(
            f"GET /chat HTTP/1.1\r\nHost: {box.get_host(8001)}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        reader = client.makefile("rb")
        assert b" 101 " in reader.readline()
        names = {}
        while (line := reader.readline().strip()):
            name, value = line.decode().split(": ", 1)
            names[name.lower()] = value
        assert names["upgrade"] == "websocket" and names["sec-websocket-accept"]
        for text in [b"hello", b"again"]:
            client.sendall(frame(text))
            head = reader.read(2)
            assert reader.read(head[1]) == text.upper()


RUDE = """
import socket, sys, time
listener = socket.create_server(("", 8100))
while True:
    client, _ = listener.accept()
    request = client.recv(65536)
    if request.startswith(b"GET /both"):
        client.sendall(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\nContent-Length: 100\\r\\n\\r\\n2\\r\\nhi\\r\\n0\\r\\n\\r\\n")
    else:
        client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
    # It does not say so before.
    client.close()
"""


def test_a_service_that_closes_each_connection_is_open(box, server):
    box.files.write("/tmp/rude.py", RUDE)
    box.commands.run("python3 /tmp/rude.py", background=True, timeout=0)
    box.commands.run("until ss -ltn | grep -q :8100; do sleep 0.05; done")
    for _ in range(200):
        answer = ask(server, path="/", **by_headers(box, 8100))
        assert (answer.status, answer.body) == (200, b"ok"), answer.body
    # The length is not that of the body.
    answer = ask(server, path="/both", **by_headers(box, 8100))
    assert (answer.body, answer.headers["Content-Length"]) == (b"hi", None)


def test_sixty_at_once(box, server):
    with ThreadPoolExecutor(60) as pool:
        answers = list(pool.map(lambda i: ask(server, path=f"/{i}", host=box.get_host(8001)), range(300)))
    assert [answer.json()["path"] for answer in answers] == [f"/{i}" for i in range(300)]


def test_a_closed_port(box, server):
    answer = ask(server, host=box.get_host(9999))
    assert (answer.status, answer.headers["content-type"]) == (502, "application/json; charset=utf-8")
    assert answer.json() == {
        "sandboxId": box.sandbox_id,
        "message": "The sandbox is running but port is not open",
        "port": 9999,
        "code": 502,
    }


def assert_page(answer, status, *texts):
    page = answer.body.decode()
    assert (answer.status, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert page.startswith("<html") and page.rstrip().endswith("</html>")
    for text in texts:
        assert text in page


def test_what_a_browser_is_told(box, server):
    closed = ask(server, host=box.get_host(9999), User_Agent=BROWSER)
    assert_page(closed, 502, "no service running on port", "9999", box.sandbox_id)
    unknown = "iaaaaaaaaaaaaaaaaaaaa"
    assert_page(ask(server, host=f"80-{unknown}.localhost", User_Agent=BROWSER), 502, "Sandbox Not Found", unknown)
    for script in [{"Accept": "application/json"}, {"Sec_Fetch_Mode": "cors"}, {"X_Requested_With": "x"}]:
        assert ask(server, host=box.get_host(9999), User_Agent=BROWSER, **script).json()["code"] == 502


def test_an_unknown_sandbox(server):
    answer = ask(server, host="80-iaaaaaaaaaaaaaaaaaaaa.localhost")
    assert answer.status == 502
    assert answer.json() == {"sandboxId": "iaaaaaaaaaaaaaaaaaaaa", "message": "The sandbox was not found", "code": 502}


def test_bad_addresses(box, server):
    for headers in [
        {"E2b_Sandbox_Port": "80"},
        {"E2b_Sandbox_Id": box.sandbox_id},
        {"E2b_Sandbox_Id": box.sandbox_id, "E2b_Sandbox_Port": "99999"},
        {"E2b_Sandbox_Id": "NOT AN ID", "E2b_Sandbox_Port": "80"},
    ]:
        assert ask(server, **headers).status == 400, headers
    assert ask(server, host=f"99999-{box.sandbox_id}.localhost").status == 400


def test_ports_that_speak_tls(server):
    """With a certificate that no authority has made."""
    box = Sandbox.create(timeout=1800, network={"https_ports": [8001]})
    try:
        name, subject = ("/tmp/key.pem", "/tmp/certificate.pem"), "-subj /CN=anybody"
        box.commands.run(f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {name[0]} -out {name[1]} {subject}")
        serve(box, "127.0.0.1", 8001, name[1], name[0])
        serve(box, "127.0.0.1", 8002)
        for port in [8001, 8001, 8002]:
            answer = ask(server, "POST", "/x?y", b"body", host=box.get_host(port))
            assert answer.status == 201 and answer.json()["bytes"] == 4
        plain = ask(server, host=box.get_host(49983), path="/health")
        assert plain.status == 204, "the agent's own port stays as it is"
    finally:
        box.kill()


def test_private_traffic_needs_its_token(server):
    box = Sandbox.create(timeout=1800, network={"allow_public_traffic": False})
    try:
        token = box.traffic_access_token
        assert token
        serve(box, "127.0.0.1", 8001)
        host = box.get_host(8001)
        missing, wrong = ask(server, host=host), ask(server, host=host, e2b_traffic_access_token="wrong")
        assert (missing.status, wrong.status) == (403, 403)
        assert missing.json()["message"] == (
            "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing"
        )
        assert wrong.json()["message"].endswith(
            "Provided token in header 'e2b-traffic-access-token' is invalid"
        )
        assert_page(ask(server, host=host, User_Agent=BROWSER), 403, "Missing Traffic Access Token", box.sandbox_id)
        page = ask(server, host=host, User_Agent=BROWSER, e2b_traffic_access_token="wrong")
        assert_page(page, 403, "Invalid Traffic Access Token", box.sandbox_id)
        assert ask(server, host=host, e2b_traffic_access_token=token).status == 201
        assert ask(server, host=box.get_host(9999), e2b_traffic_access_token=token).status == 502
        assert ask(server, path="/health", host=box.get_host(49983)).status == 204
        assert box.commands.run("echo in").stdout == "in\n"  # the agent has a token of its own
    finally:
        box.kill()


def test_a_killed_sandbox_cuts_what_is_open(server):
    box = Sandbox.create(timeout=1800)
    serve(box, "127.0.0.1", 8001)
    host = box.get_host(8001)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.request("POST", "/slow", headers={"Host": host})
    answer = connection.getresponse()
    answer.read(3)
    box.kill()
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        answer.read()
    assert ask(server, host=host).json()["message"] == "The sandbox was not found"


def test_an_early_answer_reaches_a_client_that_is_still_sending(server, sandbox):
    """The rest of the request is read: on a connection that is closed under it, a client finds a broken pipe and no answer."""
    agent = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
    token = {"X-Access-Token": sandbox._envd_access_token or ""}
    start = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
    nobody = {"Authorization": "Basic " + base64.b64encode(b"nobody-here:").decode()}
    refused = [
        ("/sandboxes", {"Content-Type": "application/json"}, 401),
        # An error of a stream is in its body.
        ("/process.Process/Start", {**agent, **token, **start, **nobody}, 200),
        ("/process.Process/Start", {**agent, **start, "E2b-Sandbox-Id": "i" + "0" * 19}, 502),
        ("/files?path=/tmp/x", {**agent, **token, **nobody}, 401),
    ]
    for path, headers, status in refused:
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        client.putrequest("POST", path)
        for name, value in {**headers, "Transfer-Encoding": "chunked"}.items():
            client.putheader(name, value)
        client.endheaders()
        sock = client.sock
        sock.sendall(b"5\r\nbegin\r\n")
        answer = http.client.HTTPResponse(sock, method="POST")
        answer.begin()
        assert (path, answer.status) == (path, status)
        answer.read()
        # The client learns of the answer only now; its connection is as good as before.
        for _ in range(50):
            sock.sendall(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")
        sock.sendall(b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        again = http.client.HTTPResponse(sock, method="GET")
        again.begin()
        assert (path, again.status) == (path, 200)
        client.close()
