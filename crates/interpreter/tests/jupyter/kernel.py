"""A Jupyter kernel that only uses the standard library and misbehaves on request.

Cells are Python. Beside the usual names they have `publish(kind, **content)`, `raw(*parts)` for messages that make no sense,
and `ask(prompt)`. A cell that is an expression has a result.
"""

import hashlib
import hmac
import json
import os
import queue
import signal
import socket
import sys
import threading
import uuid

NAMES = {"shell", "control", "iopub", "stdin", "hb"}


class Connection:
    """A client of a socket, after the handshake."""

    def __init__(self, stream: socket.socket, kind: bytes) -> None:
        self.stream, self.lock = stream, threading.Lock()
        stream.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
        self.read(64)
        ready = b"\x05READY\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind
        stream.sendall(bytes([4, len(ready)]) + ready)

    def read(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            data += self.stream.recv(length - len(data)) or os._exit(0)
        return data

    def receive(self) -> list[bytes]:
        parts, more = [], True
        while more:
            flags = self.read(1)[0]
            body = self.read(int.from_bytes(self.read(8 if flags & 2 else 1), "big"))
            if not flags & 4:
                parts.append(body)
                more = flags & 1
        return parts

    def send(self, parts: list[bytes]) -> None:
        data = b""
        for index, part in enumerate(parts):
            data += bytes([2 | (index + 1 < len(parts))]) + len(part).to_bytes(8, "big") + part
        with self.lock:
            self.stream.sendall(data)


class Kernel:
    def __init__(self, file: str) -> None:
        self.info = json.loads(open(file).read())
        self.listeners = {}
        for name in NAMES:
            self.listeners[name] = socket.create_server(("127.0.0.1", self.info[f"{name}_port"]))
        self.subscribers, self.requests, self.answers = [], queue.Queue(), queue.Queue()
        self.clients, self.count, self.parent = {}, 0, {}
        self.globals = {"publish": self.publish, "raw": self.raw, "ask": self.ask, "kernel": self}
        for name in NAMES:
            threading.Thread(target=self.serve, args=(name,), daemon=True).start()

    def serve(self, name: str) -> None:
        kind = b"PUB" if name == "iopub" else b"REP" if name == "hb" else b"ROUTER"
        while True:
            stream, _ = self.listeners[name].accept()
            connection = self.clients[name] = Connection(stream, kind)
            threading.Thread(target=self.hear, args=(name, connection), daemon=True).start()

    def hear(self, name: str, connection: Connection) -> None:
        while True:
            parts = connection.receive()
            if name == "iopub":
                self.subscribers.append(connection)
            elif name == "stdin":
                self.answers.put(json.loads(parts[5]))
            elif name == "control" and json.loads(parts[2])["msg_type"] == "interrupt_request":
                threading.Thread(target=lambda: os.kill(os.getpid(), 2)).start()
            elif name == "shell":
                self.requests.put(parts)

    def message(self, kind: str, content: dict) -> list[bytes]:
        header = {"msg_id": uuid.uuid4().hex, "msg_type": kind}
        parts = [json.dumps(part).encode() for part in (header, self.parent, {}, content)]
        signature = hmac.new(self.info["key"].encode(), b"".join(parts), hashlib.sha256).hexdigest()
        return [b"<IDS|MSG>", signature.encode(), *parts]

    def publish(self, kind: str, **content) -> None:
        self.raw(b"topic", *self.message(kind, content))

    def raw(self, *parts: bytes) -> None:
        for subscriber in self.subscribers:
            subscriber.send(list(parts))

    def reply(self, kind: str, content: dict) -> None:
        self.clients["shell"].send(self.message(kind, content))

    def ask(self, prompt: str) -> str:
        self.clients["stdin"].send(self.message("input_request", {"prompt": prompt}))
        return self.answers.get()["value"]

    def run(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            try:
                parts = self.requests.get()
                self.parent, content = json.loads(parts[2]), json.loads(parts[5])
                self.publish("status", execution_state="busy")
                if self.parent["msg_type"] == "kernel_info_request":
                    self.reply("kernel_info_reply", {"status": "ok", "language_info": {"name": "python"}})
                else:
                    self.reply("execute_reply", self.execute(**content))
                self.publish("status", execution_state="idle")
            except KeyboardInterrupt:
                continue

    def execute(self, code: str, silent: bool, **_) -> dict:
        if not silent:
            self.count += 1
            self.publish("execute_input", code=code, execution_count=self.count)
        # As in well-known kernels: an interrupt may end the code, but not the report of how it ended.
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                value = eval(compile(code, "cell", "eval"), self.globals)
            except SyntaxError:
                value = exec(compile(code, "cell", "exec"), self.globals)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        except (Exception, KeyboardInterrupt) as error:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            failure = {"ename": type(error).__name__, "evalue": str(error), "traceback": ["\x1b[31mred\x1b[0m\n", "end"]}
            self.publish("error", **failure)
            return {"status": "error", "execution_count": self.count, **failure}
        if value is not None and not silent:
            self.publish("execute_result", data={"text/plain": repr(value)}, metadata={}, execution_count=self.count)
        return {"status": "ok", "execution_count": self.count, **self.globals.pop("extra", {})}


Kernel(sys.argv[1]).run()
