"""What services are sent, and what is made of their answers: a local service takes the place of each."""

import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from verdicts import ENVIRONMENT


class Service(BaseHTTPRequestHandler):
    """Answers in the dialect of the path, and keeps what it was sent."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        asked = json.loads(body) if body.startswith("{") else body
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.path, headers, asked))
        usage = {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500}
        status, reply = 200, {}
        if self.path.endswith("/chat/completions"):
            reply = {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}], "usage": usage}
        elif self.path.endswith("/messages"):
            reply = {"content": [{"type": "text", "text": "hello"}], "usage": {"input_tokens": 1000, "output_tokens": 500}}
        elif self.path == "/api/chat":
            reply = {"message": {"content": "hello"}, "done": True, "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 4}
        elif self.path == "/api/generate":
            reply = {"response": "hello", "done": True, "prompt_eval_count": 3, "eval_count": 4}
        elif self.path == "/api/embeddings":
            reply = {"embedding": [1, 0]}
        elif self.path.startswith("/status/"):
            status, reply = int(self.path.rsplit("/", 1)[1]), {"error": "refused", "asked": asked}
        else:
            reply = {"asked": asked}
        text = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST

    def log_message(self, *_):
        pass


@pytest.fixture
def service():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    server.asked = []
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def evaluate(tmp_path, sandcove, service):
    """Runs a suite: (exit code, result document, what was printed to standard error)."""

    def run(suite, **environment):
        (tmp_path / "promptfooconfig.yaml").write_text(json.dumps({"prompts": ["Say {{x}}"], "tests": [{"vars": {"x": "hi"}}], **suite}))
        out = tmp_path / "out.json"
        out.unlink(missing_ok=True)
        env = {
            "OPENAI_BASE_URL": f"{service.url}/v1", "OPENAI_API_KEY": "key", "ANTHROPIC_BASE_URL": service.url,
            "ANTHROPIC_API_KEY": "key", "OLLAMA_BASE_URL": service.url, "PROMPTFOO_CONFIG_DIR": str(tmp_path / "home"),
        }
        done = subprocess.run(
            [*sandcove, "eval", "-o", str(out), "--no-cache", "--no-table", "--no-progress-bar"],
            cwd=tmp_path, env={**os.environ, **ENVIRONMENT, **env, **environment},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
        )
        return done.returncode, json.loads(out.read_text()) if out.exists() else None, done.stdout + done.stderr

    return run


def rows(document):
    return document["results"]["results"]


def test_settings_come_from_files_and_tests(evaluate, service, tmp_path):
    (tmp_path / "format.json").write_text(json.dumps({"type": "json_schema", "json_schema": {"schema": "file://schema.yaml"}}))
    (tmp_path / "schema.yaml").write_text("type: object\n")
    (tmp_path / "tools.json").write_text(json.dumps([{"type": "function", "function": {"name": "{{x}}"}}]))
    config = {"temperature": 0.1, "response_format": "file://format.json", "tools": "file://tools.json"}
    code, *_ = evaluate({
        "providers": [{"id": "openai:chat:gpt-4o-mini", "config": config}],
        "defaultTest": {"options": {"temperature": 0.2, "seed": 5}},
        "tests": [{"vars": {"x": "hi"}, "options": {"temperature": 0.3, "top_p": 0.5}}],
    })
    assert code == 0
    [(path, _, body)] = service.asked
    assert path == "/v1/chat/completions"
    assert (body["temperature"], body["seed"], body["top_p"]) == (0.3, 5, 0.5)
    assert body["response_format"] == {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}
    assert body["tools"] == [{"type": "function", "function": {"name": "hi"}}]
    assert "provider" not in body and "prefix" not in body


def test_a_missing_file_of_a_setting_is_found_before_any_call(evaluate, service):
    code, document, said = evaluate({"providers": [{"id": "openai:gpt-4o", "config": {"tools": "file://none.json"}}]})
    assert (code, document, service.asked) == (1, None, [])
    assert "none.json" in said and "promptfooconfig.yaml:1" in said


@pytest.mark.parametrize(
    ("provider", "cost"),
    [
        ("openai:chat:gpt-4o-mini", 0.00045),
        ("openai:gpt-4.1-2025-04-14", 0.006),
        ("openai:o3-mini", 0.0033),
        ("anthropic:messages:claude-sonnet-4-5-20250929", 0.0105),
    ],
)
def test_answers_cost_what_the_model_does(evaluate, provider, cost):
    asserts = [{"type": "cost", "threshold": cost * 1.01}, {"type": "cost", "threshold": cost * 0.99}]
    code, document, said = evaluate({"providers": [provider], "tests": [{"vars": {"x": "hi"}, "assert": asserts}]})
    [row] = rows(document)
    assert (code, row["failureReason"]) == (100, 1)
    assert [part["pass"] for part in row["gradingResult"]["componentResults"]] == [True, False]
    assert row["cost"] == pytest.approx(cost) == row["response"]["cost"] == document["results"]["prompts"][0]["metrics"]["cost"]
    assert f"Cost: ${cost:.4f}" in said


def test_an_unknown_price_is_neither_nothing_nor_an_error(evaluate, tmp_path):
    suite = {"providers": ["openai:gpt-99"], "tests": [{"vars": {"x": "hi"}, "assert": [{"type": "cost", "threshold": 1}]}]}
    code, document, said = evaluate(suite)
    [row] = rows(document)
    assert (code, row["cost"], row["failureReason"]) == (100, None, 1)
    assert "price of the model is unknown" in row["error"]
    assert "1 answer of unknown price" in said
    metrics = document["results"]["prompts"][0]["metrics"]
    assert (metrics["cost"], metrics["unknownCostCount"]) == (0, 1)
    # The user knows it: for this provider, or in a file for all.
    priced = {**suite, "providers": [{"id": "openai:gpt-99", "config": {"inputCost": 1e-6, "outputCost": 2e-6}}]}
    assert rows(evaluate(priced)[1])[0]["cost"] == pytest.approx(0.002)
    (tmp_path / "prices.yaml").write_text("openai: {date: 2026-01-01, models: {gpt-99: [2, 4]}}\n")
    code, document, _ = evaluate(suite, SANDCOVE_PRICES="prices.yaml")
    assert (code, rows(document)[0]["cost"]) == (0, pytest.approx(0.004))
    code, document, said = evaluate(suite, SANDCOVE_PRICES="missing.yaml")
    assert (code, document) == (1, None) and "missing.yaml" in said


def test_variables_of_a_provider_are_its_own(evaluate, service):
    env = {"OPENAI_BASE_URL": f"{service.url}/own", "MY_KEY": "mine"}
    provider = {"id": "openai:gpt-4o", "env": env, "config": {"apiKeyEnvar": "MY_KEY", "organization": "org"}}
    assert evaluate({"providers": [provider]})[0] == 0
    [(path, headers, _)] = service.asked
    assert path == "/own/chat/completions"
    assert (headers["authorization"], headers["openai-organization"]) == ("Bearer mine", "org")


def test_ollama_is_spoken_to_in_its_own_dialect(evaluate, service):
    config = {"num_predict": 5, "top_k": 2}
    code, document, _ = evaluate({"providers": [{"id": "ollama:chat:llama3", "config": config}, "ollama:llama3"]})
    assert (code, [row["response"]["output"] for row in rows(document)]) == (0, ["hello", "hello"])
    assert rows(document)[0]["tokenUsage"]["total"] == 7
    asked = {path: body for path, _, body in service.asked}
    assert asked["/api/chat"] == {
        "model": "llama3", "messages": [{"role": "user", "content": "Say hi"}], "options": config, "stream": False,
    }
    assert asked["/api/generate"] == {"model": "llama3", "prompt": "Say hi", "options": {}, "stream": False}


@pytest.mark.parametrize("provider", ["openai:codex-sdk", "openai:agents:file://a.ts", "anthropic:claude-agent-sdk"])
def test_programs_are_not_taken_for_models(evaluate, service, provider):
    code, document, said = evaluate({"providers": [provider]})
    assert (code, document, service.asked) == (1, None, [])
    assert f"`{provider}`" in said and "is not supported" in said


def test_the_answer_to_a_refused_request_is_an_answer(evaluate, service):
    target = {"id": "http", "config": {"url": f"{service.url}/status/403", "transformResponse": "json.error"}}
    asserts = [{"type": "equals", "value": "refused"}]
    code, document, _ = evaluate({"providers": [target], "tests": [{"vars": {"x": x}, "assert": asserts} for x in "ab"]})
    assert (code, len(rows(document))) == (0, 2)
    assert rows(document)[0]["response"]["metadata"]["http"]["status"] == 403
    assert rows(document)[0]["provider"]["id"] == f"{service.url}/status/403"
    strict = {**target, "config": {**target["config"], "validateStatus": "status < 400"}}
    code, document, _ = evaluate({"providers": [strict]})
    assert rows(document)[0]["failureReason"] == 2 and "status 403" in rows(document)[0]["error"]


@pytest.mark.parametrize(
    ("transform", "sent"),
    [
        ("(prompt) => ({ sent: prompt + '!' })", {"more": 1, "text": "Say hi", "sent": "Say hi!"}),
        ("prompt.toUpperCase()", {"more": 1, "text": "SAY HI"}),
        ("const loud = prompt + vars.x\nreturn loud", {"more": 1, "text": "Say hihi"}),
        ("file://request.cjs", {"more": 1, "text": "from a file: Say hi"}),
    ],
)
def test_requests_are_transformed(evaluate, service, tmp_path, transform, sent):
    (tmp_path / "request.cjs").write_text("module.exports = (prompt) => `from a file: ${prompt}`\n")
    config = {
        "url": f"{service.url}/target", "method": "POST", "headers": {"content-type": "application/json"},
        "body": {"text": "{{prompt}}", "more": 1}, "transformRequest": transform,
    }
    code, *_ = evaluate({"providers": [{"id": "http", "config": config}]})
    assert (code, [body for *_, body in service.asked]) == (0, [sent])


def test_a_request_without_a_method_reads(evaluate, service):
    config = {"url": f"{service.url}/target", "body": {"text": "{{prompt}}"}}
    code, *_ = evaluate({"providers": [{"id": "http", "config": config}]})
    assert (code, [body for *_, body in service.asked]) == (0, [""])


def test_documents_say_whose_rows_they_are(evaluate, service, tmp_path):
    (tmp_path / "named.cjs").write_text("module.exports = class { id() { return 'named' } async callApi(p) { return { output: p } } }\n")
    (tmp_path / "plain.py").write_text("def call_api(prompt, options, context): return {'output': prompt}\n")
    targets = [{"id": "http", "config": {"url": f"{service.url}/{name}", "transformResponse": "'x'"}} for name in ("one", "two")]
    code, document, _ = evaluate({
        "providers": ["file://named.cjs", "file://plain.py", "openai:chat:gpt-4o", *targets],
        "tests": [{"vars": {"x": "hi"}, "metadata": {"kind": "a"}, "options": {"seed": 1}}],
    })
    names = ["named", "python:plain.py:default", "openai:gpt-4o", f"{service.url}/one", f"{service.url}/two"]
    assert (code, [row["provider"]["id"] for row in rows(document)]) == (0, names)
    assert [column["provider"] for column in document["results"]["prompts"]] == names
    row = rows(document)[0]
    assert (row["metadata"], row["prompt"]["config"]) == ({"kind": "a"}, {"seed": 1})
    assert row["gradingResult"]["tokensUsed"]["total"] == 0 == row["tokenUsage"]["completionDetails"]["reasoning"]
    assert document["runtimeOptions"]["maxConcurrency"] == 4
