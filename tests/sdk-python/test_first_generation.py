"""The protocol of clients before 1.0, spoken by hand: what their releases (tests/versions/legacy) do not show."""

import base64
import json
import os
import socket
import struct

import pytest
import requests

from builds import builds  # noqa: F401

WAIT = 300


class Box:
    """A sandbox that a first-generation client has created."""

    def __init__(self, server, template="base"):
        self.server = server
        headers = {"X-API-Key": os.environ["E2B_API_KEY"], "publisher": "e2b", "package_version": "0.17.1"}
        made = requests.post(f"{server.url}/sandboxes", json={"templateID": template}, headers=headers, timeout=WAIT)
        assert made.status_code == 201, made.text
        self.id = made.json()["sandboxID"]
        # Nobody refreshes it here.
        self.call("POST", "/timeout", json={"timeout": 1800})

    def call(self, method, path, **options):
        headers = {"X-API-Key": os.environ["E2B_API_KEY"]}
        done = requests.request(method, f"{self.server.url}/sandboxes/{self.id}{path}", headers=headers, timeout=WAIT, **options)
        assert done.status_code < 300, done.text

    def host(self, port):
        return f"{port}-{self.id}.sbx.localhost"

    def ask(self, method, path, port=49982, **options):
        options["headers"] = {"Host": self.host(port), **options.get("headers", {})}
        return requests.request(method, self.server.url + path, timeout=WAIT, **options)

    def open(self, path="/ws", port=49982):
        return Socket(self, path, port)


class Socket:
    """A websocket of such a client. It reads only when it is asked to."""

    def __init__(self, box, path, port):
        self.socket = socket.create_connection(("127.0.0.1", box.server.port), timeout=WAIT)
        head = f"GET {path} HTTP/1.1\r\nHost: {box.host(port)}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        self.socket.sendall(f"{head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
        self.stream = self.socket.makefile("rb")
        assert b" 101 " in self.stream.readline()
        while self.stream.readline() != b"\r\n":
            pass
        self.calls, self.events = 0, []

    def send(self, text):
        content = text.encode()
        self.socket.sendall(struct.pack("!BBQI", 0x81, 0x80 | 127, len(content), 0) + content)

    def read(self):
        """The next message, or nothing when the connection is over."""
        try:
            head = self.stream.read(2)
            if len(head) < 2 or head[0] == 0x88:
                return None
            assert head[0] == 0x81, head
            size = head[1]
            if size > 125:
                size = int.from_bytes(self.stream.read(2 if size == 126 else 8), "big")
            return json.loads(self.stream.read(size))
        except ConnectionResetError:
            return None

    def call(self, method, *params):
        """The answer to a request. Events that come before it are kept."""
        self.calls += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self.calls, "method": method, "params": params}, ensure_ascii=False))
        while True:
            message = self.read()
            if message.get("id") == self.calls:
                return message["result"] if "result" in message else message["error"]
            self.events.append(message["params"])

    def event(self):
        return self.events.pop(0) if self.events else self.read()["params"]

    def start(self, name, line, env=None):
        """Starts a process, with the three subscriptions of clients; their ids."""
        subscriptions = [self.call("process_subscribe", kind, name) for kind in ("onStdout", "onStderr", "onExit")]
        assert self.call("process_start", name, line, env or {}, "") == name
        return subscriptions

    def run(self, name, line):
        """The output and the exit code of a process."""
        stdout, _, exited = self.start(name, line)
        lines = []
        while (event := self.event())["subscription"] != exited:
            assert event["subscription"] == stdout, event
            lines.append(event["result"]["line"])
        return "\n".join(lines), event["result"]


@pytest.fixture
def legacy(server):
    box = Box(server)
    yield box
    requests.delete(f"{server.url}/sandboxes/{box.id}", headers={"X-API-Key": os.environ["E2B_API_KEY"]}, timeout=WAIT)


def test_a_file_of_64_mib_in_one_message(legacy):
    client = legacy.open()
    text = "0123456789abcdef" * (4 << 20)
    assert client.call("filesystem_write", "/tmp/large", text) is None
    assert client.run("a", "wc -c < /tmp/large; stat -c %a /tmp/large") == (f"{64 << 20}\n755", 0)
    assert client.call("filesystem_read", "/tmp/large") == text
    encoded = base64.b64encode(text.encode()).decode()
    assert client.call("filesystem_readBase64", "/tmp/large") == encoded
    assert client.call("filesystem_writeBase64", "/tmp/again", encoded) is None
    assert client.run("b", "cmp /tmp/large /tmp/again && echo same") == ("same", 0)
    # One byte more is downloaded instead.
    assert client.run("c", "printf x | sudo tee -a /tmp/large > /dev/null") == ("", 0)
    error = client.call("filesystem_read", "/tmp/large")
    assert error["code"] == -32000 and "64 MiB" in error["message"], error
    assert len(legacy.ask("GET", "/file?path=/tmp/large").content) == (64 << 20) + 1


def test_a_client_that_does_not_read_holds_up_its_own_processes_only(legacy, server):
    slow, other = legacy.open(), legacy.open()
    # 60 MB, far more than sockets and the server hold together.
    width, count = 1000, 60_000
    _, _, exited = slow.start("slow", f"seq -f '%0{width}.0f' {count}; echo end > /tmp/end")
    for number in range(50):
        assert other.run(f"p{number}", f"echo {number}") == (str(number), 0)
    assert "end" not in [entry["name"] for entry in other.call("filesystem_list", "/tmp")]
    expected, last = 1, 0
    while (event := slow.event())["subscription"] != exited:
        result = event["result"]
        assert result["line"] == f"{expected:0{width}}" and result["timestamp"] > last, (result, expected)
        expected, last = expected + 1, result["timestamp"]
    assert (expected, event["result"]) == (count + 1, 0)
    assert other.run("end", "cat /tmp/end") == ("end", 0)


def test_programs_end_with_their_last_subscription(legacy):
    client, watcher = legacy.open(), legacy.open()
    alive = "while kill -0 $(cat /tmp/{0}) 2>/dev/null; do sleep 0.05; done; echo gone"
    subscriptions = client.start("a", "echo $$ > /tmp/a; echo up; exec sleep 1000")
    assert client.event()["result"]["line"] == "up"
    for subscription in subscriptions:
        assert client.call("process_unsubscribe", subscription) is True
    assert watcher.run("x", alive.format("a")) == ("gone", 0)
    # And with the connection; nothing is said to a name that is in use.
    client.start("b", "echo $$ > /tmp/b; echo up; exec sleep 1000")
    assert client.event()["result"]["line"] == "up"
    assert "already exists" in client.call("process_start", "b", "true", {}, "")["message"]
    data = client.call("terminal_subscribe", "onData", "t")
    assert client.call("terminal_start", "t", 80, 24, {}, "echo $$ > /tmp/t; echo up; exec sleep 1000", "/tmp") == "t"
    while "up" not in (event := client.event())["result"]:
        assert event["subscription"] == data
    client.socket.shutdown(socket.SHUT_RDWR)
    for name in ("b", "t"):
        assert watcher.run(name, alive.format(name)) == ("gone", 0)


def test_exit_codes_and_signals(legacy):
    client = legacy.open()
    assert client.run("a", "echo out; exit 7") == ("out", 7)
    _, _, exited = client.start("b", "echo up; sleep 1000 & wait")
    assert client.event()["result"]["line"] == "up"
    assert client.call("process_kill", "b") is None
    assert client.event() == {"subscription": exited, "result": -1}
    assert client.call("process_kill", "b") is None
    stdout, _, _ = client.start("c", "head -c 3000000 /dev/zero | tr '\\0' x; printf 'a\\377b\\r\\n'")
    lengths = []
    while (event := client.event())["subscription"] == stdout:
        lengths.append(len(event["result"]["line"]))
    assert sum(lengths) == 3_000_000 + 4 and max(lengths) <= (1 << 18) + (1 << 17), lengths


def test_every_input_is_answered_also_when_it_ends_its_program(legacy):
    """A client waits a minute for an answer that does not come."""
    client = legacy.open()
    client.socket.settimeout(60)
    for name in ("a", "b", "c", "d", "e"):
        exited = client.call("terminal_subscribe", "onExit", name)
        assert client.call("terminal_start", name, 80, 24, {}, "read line", "/tmp") == name
        awaited = {f"{name}{number}" for number in range(50)}
        for number in range(50):
            client.send(json.dumps({"jsonrpc": "2.0", "id": f"{name}{number}", "method": "terminal_data", "params": [name, "x\n"]}))
        ended = False
        while awaited or not ended:
            message = client.read()
            awaited.discard(message.get("id"))
            ended = ended or message.get("params", {}).get("subscription") == exited


def test_a_file_that_is_written_again_keeps_its_owner(legacy):
    client = legacy.open()
    assert client.run("a", "cd; echo 1 > mine; ln -s mine link; sudo chown daemon: mine") == ("", 0)
    assert client.call("filesystem_write", "/home/user/mine", "2") is None
    assert client.run("b", "stat -c '%U %a' mine; cat mine") == ("daemon 644\n2", 0)
    assert client.call("filesystem_write", "/home/user/link", "3") is None
    assert legacy.ask("POST", "/file", files={"file": ("mine", b"4")}).status_code == 200
    assert client.run("c", "stat -c %U mine; cat mine; test -L link") == ("daemon\n4", 0)
    assert client.call("filesystem_write", "/home/user/new", "5") is None
    assert client.run("d", "stat -c '%U %a' new") == ("root 755", 0)


def test_without_a_directory_processes_start_at_home(server, builds):  # noqa: F811
    box = Box(server, builds.build(builds.base().set_workdir("/opt")).template_id)
    assert box.open().run("a", "pwd") == ("/home/user", 0)
    box.call("DELETE", "")


def test_an_event_that_is_too_long_is_left_out(server):
    box = Box(server, "code-interpreter-stateful")
    kernel = box.open().call("filesystem_read", "/root/.jupyter/kernel_id")
    channels = box.open(f"/api/kernels/{kernel}/channels", 8888)

    def run(code):
        header = {"msg_id": "a", "username": "e2b", "session": "s", "msg_type": "execute_request", "version": "5.3"}
        channels.send(json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": {"code": code}}))
        messages = []
        while not (messages and messages[-1]["content"].get("execution_state") == "idle"):
            messages.append(channels.read())
        return {message["msg_type"]: message["content"] for message in messages}

    show = "from IPython.display import display\ndisplay({'application/json': [[]] * %d}, raw=True)"
    assert run(show % 1_000_000)["display_data"]["data"] == {"application/json": [[]] * 1_000_000}
    said = run(show % 4_000_000)
    assert "display_data" not in said and "8 MiB" in said["stream"]["text"] and said["execute_reply"]["status"] == "ok"
    assert run("1 + 1")["execute_result"]["data"]["text/plain"] == "2"
    box.call("DELETE", "")


def test_data_analysis_finds_its_directory(server):
    """The client of `DataAnalysis` watches the directory for results before the first program runs."""
    box = Box(server, "Python3-DataAnalysis")
    client, watcher = box.open(), box.open()
    assert watcher.call("filesystem_subscribe", "watchDir", "/home/user/missing")["code"] == -32000
    watch = watcher.call("filesystem_subscribe", "watchDir", "/home/user/artifacts")
    assert client.run("a", "python3 -c 'import pandas; open(\"/home/user/artifacts/table.csv\", \"w\").close()'; stat -c %U artifacts") == ("user", 0)
    event = watcher.event()
    assert event["subscription"] == watch
    assert {"path": "/home/user/artifacts/table.csv", "operation": "Create"}.items() <= event["result"].items()
    box.call("DELETE", "")


def test_files_over_http(legacy):
    content = os.urandom(3 << 20)
    stored = legacy.ask("POST", "/file", files={"file": ("../a b.bin", content)})
    assert (stored.status_code, stored.text) == (200, "/home/user/a b.bin")
    assert legacy.ask("GET", "/file?path=a+b.bin").content == content
    assert legacy.ask("GET", "/file?path=%2Fhome%2Fuser%2Fa%20b.bin").headers["access-control-allow-origin"] == "*"
    for options in ({"data": {"path": "/opt/x/y"}}, {"params": {"path": "/opt/x/y"}}):
        assert legacy.ask("POST", "/file", files={"file": ("z", b"1")}, **options).text == "/opt/x/y"
    assert legacy.ask("GET", "/file?path=/opt/x/y").content == b"1"
    assert legacy.open().run("a", "stat -c %a /opt/x/y; echo 2 > /opt/x/y && cat /opt/x/y") == ("666\n2", 0)
    for query in ("", "?path=", "?path=/no/such", "?path=/tmp"):
        answer = legacy.ask("GET", f"/file{query}")
        assert answer.status_code in (400, 404) and answer.text, (query, answer.status_code)
    for body in ({"files": {"other": ("a", b"1")}}, {"files": {"file": ("..", b"1")}}, {"data": b"x"}):
        assert legacy.ask("POST", "/file", **body).status_code == 400, body
    preflight = legacy.ask("OPTIONS", "/file")
    assert (preflight.status_code, preflight.headers["access-control-allow-methods"]) == (204, "GET, POST, PUT")
    assert legacy.ask("DELETE", "/file").status_code == 405


def test_a_download_is_not_counted_as_memory_and_ends_with_the_sandbox(legacy):
    """The limit on answers that clients have not read is 512 MiB, and this file larger."""
    size = 600 << 20
    assert legacy.open().run("a", f"truncate -s {size} /tmp/large") == ("", 0)
    with legacy.ask("GET", "/file?path=/tmp/large", stream=True) as answer:
        assert (answer.status_code, answer.headers["content-length"]) == (200, str(size))
        assert sum(len(chunk) for chunk in answer.iter_content(1 << 20)) == size
    with legacy.ask("GET", "/file?path=/tmp/large", stream=True) as answer:
        chunks = answer.iter_content(1 << 20)
        assert len(next(chunks)) == 1 << 20
        legacy.call("POST", "/pause")
        with pytest.raises(requests.exceptions.RequestException):
            sum(len(chunk) for chunk in chunks)
    legacy.call("POST", "/connect", json={"timeout": 600})


def test_connections_end_with_the_sandbox(legacy):
    daemon = legacy.open()
    daemon.start("a", "sleep 1000")
    legacy.call("POST", "/pause")
    assert daemon.read() is None
    assert legacy.ask("GET", "/ping").status_code == 502
    legacy.call("POST", "/connect", json={"timeout": 600})
    daemon = legacy.open()
    assert daemon.run("b", "echo back") == ("back", 0)
    legacy.call("DELETE", "")
    assert daemon.read() is None


def test_cells_outlive_their_connection(server):
    box = Box(server, "code-interpreter-stateful")
    kernel = box.open().call("filesystem_read", "/root/.jupyter/kernel_id")
    kernels = box.ask("GET", "/api/kernels", port=8888).json()
    assert [one["id"] for one in kernels] == [kernel]

    def cell(name, code):
        header = {"msg_id": name, "username": "e2b", "session": "s", "msg_type": "execute_request", "version": "5.3"}
        return json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": {"code": code}})

    first = box.open(f"/api/kernels/{kernel}/channels", 8888)
    first.send("{")
    first.send(cell("a", "import time; print('begun', flush=True); time.sleep(3); x = 1"))
    while first.read()["msg_type"] != "stream":
        pass
    first.send(cell("b", "x += 1"))
    first.socket.shutdown(socket.SHUT_RDWR)
    second = box.open(f"/api/kernels/{kernel}/channels", 8888)
    texts = []
    for name in ("c", "d"):
        second.send(cell(name, "x"))
        kinds = []
        while not (kinds and kinds[-1] == ("status", "idle")):
            message = second.read()
            assert message["parent_header"]["msg_id"] == name
            kinds.append((message["msg_type"], message["content"].get("execution_state")))
            if message["msg_type"] == "execute_result":
                texts.append(message["content"]["data"]["text/plain"])
        assert [kind for kind, _ in kinds] == ["status", "execute_input", "execute_result", "execute_reply", "status"], kinds
    assert texts[0] in ("1", "2") and texts[1] in ("1", "2"), texts
    assert box.ask("POST", "/api/sessions", port=8888, data="[").status_code == 400
    for method, path in (("GET", "/api/kernels/none"), ("POST", "/api/kernels/none/restart"), ("GET", "/api/none"), ("GET", "/")):
        assert box.ask(method, path, port=8888).status_code == 404, path
    assert box.ask("GET", f"/api/kernels/{kernel}/channels", port=8888).status_code == 400
    box.call("DELETE", "")


def test_other_sandboxes_have_no_adapter(sandbox, server):
    from e2b import Sandbox

    open_one = Sandbox.create(timeout=600, secure=False)
    try:
        for box in (sandbox, open_one):
            for port in (49982, 8888):
                headers = {"Host": f"{port}-{box.sandbox_id}.sbx.localhost"}
                answer = requests.get(f"{server.url}/ping", headers=headers, timeout=WAIT)
                assert answer.status_code == 502 and "port is not open" in answer.text, answer.text
    finally:
        open_one.kill()
