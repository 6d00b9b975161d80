"""A server of the Model Context Protocol: `python tool_server.py` speaks over its input and output, `serve` at an address."""

import json
import queue
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NUMBERS = {
    "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "required": ["a", "b"], "additionalProperties": False,
    "properties": {"a": {"type": "integer", "title": "first"}, "b": {"type": "integer"}},
}  # fmt: skip
NAMES = ("add", "fail", "secret", "ask", "slow")
TOOLS = [{"name": name, "description": name, "inputSchema": NUMBERS if name == "add" else {"type": "object"}} for name in NAMES]


def answer(message):
    """The answer to a message; nothing to a notification."""
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        return None
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "tools", "version": "1"}}
    elif method == "ping":
        result = {}
    elif method == "tools/list":
        # Two pages, as long lists have.
        first = not params.get("cursor")
        result = {"tools": TOOLS[:3] if first else TOOLS[3:]} | ({"nextCursor": "2"} if first else {})
    elif method == "tools/call":
        arguments = params.get("arguments", {})
        if params["name"] == "add":
            result = {"content": [{"type": "text", "text": str(arguments["a"] + arguments["b"])}], "structuredContent": {"sum": arguments["a"] + arguments["b"]}}
        elif params["name"] == "ask":
            result = {"content": [{"type": "text", "text": json.dumps(arguments, sort_keys=True)}]}
        elif params["name"] == "fail":
            return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": "it broke"}}
        elif params["name"] == "slow":
            return None
        else:
            result = {"content": [{"type": "text", "text": "told"}], "isError": True}
    else:
        return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": f"no {method}"}}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def pipe():
    print("ready", flush=True)
    for line in sys.stdin:
        reply = answer(json.loads(line))
        if reply:
            # Requests of a server come between its answers.
            print(json.dumps({"jsonrpc": "2.0", "id": 900, "method": "ping"}), flush=True)
            print(json.dumps(reply), flush=True)


class Tools(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.path, headers, message))
        reply = answer(message)
        body, kind = (json.dumps(reply) if reply else ""), "application/json"
        if reply and self.server.streams:
            note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "at work"}}
            body, kind = "".join(f"event: message\ndata: {json.dumps(each)}\n\n" for each in (note, reply)), "text/event-stream"
        self.send_response(200 if reply else 202)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if message.get("method") == "initialize":
            self.send_header("Mcp-Session-Id", "session-1")
        self.end_headers()
        self.wfile.write(body.encode())

    def do_GET(self):
        self.send_response(405)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_DELETE = do_GET

    def log_message(self, *_):
        pass


class Events(Tools):
    """The transport before streamable HTTP: a stream of events names the address of requests, and has the answers to them."""

    def do_GET(self):
        self.server.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}, {"method": "GET"}))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(f": hello\n\nevent: endpoint\ndata: {self.server.names}\n\n".encode())
        while reply := self.server.replies.get():
            # Requests of a server come between its answers.
            ping = {"jsonrpc": "2.0", "id": 900, "method": "ping"}
            self.wfile.write("".join(f"event: message\ndata: {json.dumps(each)}\n\n" for each in (ping, reply)).encode())
            self.wfile.flush()
        self.close_connection = True

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = self.path == "/messages?session=1"
        self.server.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}, message))
        self.send_response(202 if known else 405)
        self.send_header("Content-Length", "0")
        self.end_headers()
        if known and "method" in message and (reply := answer(message)):
            self.server.replies.put(reply)


@contextmanager
def serve(streams, events=None):
    """A server; with `events`, one of the older transport, whose stream names them as the address of requests."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Events if events else Tools)
    server.daemon_threads = True
    server.asked, server.streams, server.names, server.replies = [], streams, events, queue.Queue()
    server.url = f"http://127.0.0.1:{server.server_port}/mcp"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.replies.put(None)
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    pipe()
