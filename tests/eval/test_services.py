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
        elif self.path == "/completion":
            reply = {"content": "hello", "tokens_evaluated": 3, "tokens_predicted": 4}
        elif self.path == "/hook":
            reply = {"output": f"hook {asked['prompt']}"}
        elif self.path == "/filtered/openai/deployments/d/chat/completions?api-version=v":
            status, reply = 400, {"error": {"code": "content_filter", "message": "filtered"}}
        elif "/deployments/" in self.path:
            reply = {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}], "usage": usage}
        elif self.path == "/session":
            reply = {"text": f"turn {len(self.server.asked)}", "session": "s1"}
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


@pytest.mark.parametrize(
    ("provider", "way_out"),
    [("openai:codex-sdk", "--example adapters"), ("openai:agents:file://a.ts", "is not supported"), ("anthropic:claude-agent-sdk", "--example adapters"), ("browser", "file://browser.mjs")],
)  # fmt: skip
def test_programs_are_not_taken_for_models(evaluate, service, provider, way_out):
    code, document, said = evaluate({"providers": [provider]})
    assert (code, document, service.asked) == (1, None, [])
    assert f"`{provider}`" in said and way_out in said


def test_the_answer_to_a_refused_request_is_an_answer(evaluate, service):
    target = {"id": "http", "config": {"url": f"{service.url}/status/403", "body": {"q": "{{prompt}}"}, "transformResponse": "json.error"}}
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
        # An object is laid over the body as it is written, which is what promptfoo does.
        ("(prompt) => ({ sent: prompt + '!' })", {"more": 1, "text": "{{prompt}}", "sent": "Say hi!"}),
        ("(prompt) => ({ text: { of: prompt } })", {"more": 1, "text": {"of": "Say hi"}}),
        ("prompt.toUpperCase()", {"more": 1, "text": "SAY HI"}),
        ("const loud = prompt + vars.x\nreturn loud", {"more": 1, "text": "Say hihi"}),
        ("vars.prompt + ' ' + vars.evaluationId.slice(0, 4)", {"more": 1, "text": "Say hi eval"}),
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
    targets = [{"id": "http", "config": {"url": f"{service.url}/{name}", "body": {"q": "{{prompt}}"}, "transformResponse": "'x'"}} for name in ("one", "two")]
    code, document, _ = evaluate({
        "providers": ["file://named.cjs", "file://plain.py", "openai:chat:gpt-4o", *targets],
        "tests": [{"vars": {"x": "hi"}, "metadata": {"kind": "a"}, "options": {"seed": 1}}],
    })
    names = ["named", "python:plain.py:default", "openai:gpt-4o", f"{service.url}/one", f"{service.url}/two"]
    assert (code, [row["provider"]["id"] for row in rows(document)]) == (0, names)
    assert [column["provider"] for column in document["results"]["prompts"]] == names
    row = rows(document)[0]
    assert (row["metadata"], row["prompt"]["config"]) == ({"kind": "a", "_promptfooFileMetadata": {}}, {"seed": 1})
    assert rows(evaluate({"providers": ["echo"]})[1])[0]["response"]["metadata"] == {}
    assert row["gradingResult"]["tokensUsed"]["total"] == 0 == row["tokenUsage"]["completionDetails"]["reasoning"]
    assert document["runtimeOptions"]["maxConcurrency"] == 4


@pytest.mark.parametrize("name", ["fireworks", "cerebras", "perplexity", "lmstudio", "nvidia"])
def test_services_of_the_same_dialect_differ_by_their_address(evaluate, service, name):
    environment = {f"{name.upper()}_BASE_URL": f"{service.url}/{name}", f"{name.upper()}_API_KEY": "its own"}
    code, document, _ = evaluate({"providers": [f"{name}:some/model"]}, **environment)
    [(path, headers, body)] = service.asked
    assert (code, path, headers["authorization"]) == (0, f"/{name}/chat/completions", "Bearer its own")
    assert (body["model"], rows(document)[0]["response"]["output"]) == ("some/model", "hello")


def test_deployments_of_azure_have_an_address_and_a_key_of_their_own(evaluate, service):
    environment = {"AZURE_API_BASE_URL": f"{service.url}/", "AZURE_API_KEY": "key"}
    provider = {"id": "azure:chat:gpt-4o-mini", "config": {"apiVersion": "v", "temperature": 0.5}}
    code, document, _ = evaluate({"providers": [provider]}, **environment)
    [(path, headers, body)] = service.asked
    assert (code, path) == (0, "/openai/deployments/gpt-4o-mini/chat/completions?api-version=v")
    assert (headers["api-key"], body["temperature"], body["top_p"]) == ("key", 0.5, 1)
    assert rows(document)[0]["cost"] == pytest.approx(0.00045)
    filtered = {"id": "azure:chat:d", "config": {"apiBaseUrl": f"{service.url}/filtered", "apiKey": "k", "apiVersion": "v"}}
    tests = [{"vars": {"x": "hi"}, "assert": [{"type": "equals", "value": "filtered"}, {"type": "not-guardrails"}]}]
    code, document, _ = evaluate({"providers": [filtered], "tests": tests})
    [row] = rows(document)
    assert (row["response"]["output"], row["response"]["guardrails"]["flaggedInput"]) == ("filtered", True)
    code, document, said = evaluate({"providers": ["azure:realtime:d"]})
    assert (code, document) == (1, None) and "`realtime` is not supported" in said and "promptfooconfig.yaml:1" in said


def test_a_webhook_and_a_server_of_llama_cpp_answer(evaluate, service):
    hook = {"id": f"webhook:{service.url}/hook", "config": {"a": 1}}
    llama = {"id": "llama:any", "config": {"top_k": 3}}
    code, document, _ = evaluate({"providers": [hook, llama]}, LLAMA_BASE_URL=service.url)
    assert (code, [row["response"]["output"] for row in rows(document)]) == (0, ["hook Say hi", "hello"])
    asked = {path: body for path, _, body in service.asked}
    assert asked["/hook"] == {"prompt": "Say hi", "config": {"a": 1}}
    assert asked["/completion"] == {"prompt": "Say hi", "n_predict": 512, "top_k": 3}
    assert rows(document)[1]["tokenUsage"]["total"] == 7


def test_functions_of_files_return_tools(evaluate, service, tmp_path):
    (tmp_path / "tools.cjs").write_text("exports.all = async () => [{ type: 'function', function: { name: 'one' } }]\n")
    (tmp_path / "tools.py").write_text("def get_tools():\n    return [{'type': 'function', 'function': {'name': 'two'}}]\n")
    (tmp_path / "format.cjs").write_text("module.exports = () => ({ type: 'json_object' })\n")
    config = {"tools": ["file://tools.cjs:all", "file://tools.py"], "response_format": "file://format.cjs"}
    code, *_ = evaluate({"providers": [{"id": "openai:gpt-4o", "config": config}], "tests": [{"vars": {"x": x}} for x in "ab"]})
    assert code == 0
    for _, _, body in service.asked:
        assert [tool["function"]["name"] for tool in body["tools"]] == ["one", "two"]
        assert body["response_format"] == {"type": "json_object"}
    service.asked.clear()
    code, document, said = evaluate({"providers": [{"id": "openai:gpt-4o", "config": {"tools": "file://none.js:all"}}]})
    assert (code, document, service.asked) == (1, None, []) and "none.js" in said


def test_graders_may_have_files_and_functions_too(evaluate, service, tmp_path):
    (tmp_path / "format.json").write_text(json.dumps({"type": "json_object"}))
    grader = {"id": "openai:gpt-4o", "config": {"response_format": "file://format.json", "seed": 7}}
    asserts = [{"type": "llm-rubric", "value": "good", "provider": grader}]
    evaluate({"providers": ["echo"], "tests": [{"vars": {"x": "hi"}, "assert": asserts}]})
    [(_, _, body)] = service.asked
    assert (body["response_format"], body["seed"]) == ({"type": "json_object"}, 7)


def test_requests_are_counted_as_promptfoo_counts_them(evaluate, service, tmp_path):
    (tmp_path / "plain.py").write_text("def call_api(prompt, options, context): return {'output': prompt}\n")
    (tmp_path / "failing.py").write_text("def call_api(prompt, options, context): return {'error': 'no'}\n")
    _, document, _ = evaluate({"providers": ["openai:gpt-4o", "file://plain.py", "file://failing.py"]})
    assert [row["tokenUsage"]["numRequests"] for row in rows(document)] == [1, 1, 1]
    assert [column["metrics"]["tokenUsage"]["numRequests"] for column in document["results"]["prompts"]] == [1, 1, 1]
    assert document["results"]["stats"]["tokenUsage"]["numRequests"] == 3
    # Grading a row counts as one request, whatever it asks; a row without an answer is not graded.
    assert [row["tokenUsage"]["assertions"]["numRequests"] for row in rows(document)] == [1, 1, 0]
    assert document["results"]["stats"]["tokenUsage"]["assertions"]["numRequests"] == 0


def test_a_provider_is_named_as_its_configuration_does(evaluate, service, tmp_path):
    (tmp_path / "plain.py").write_text("def call_api(prompt, options, context): return {'output': prompt}\n")
    ids = ["file://plain.py", "python:plain.py", "openai:chat:gpt-4o", "anthropic:messages:m", "ollama:m"]
    _, document, _ = evaluate({"providers": [*ids, *({"id": id} for id in ids)]})
    short = ["python:plain.py:default", "python:plain.py:default", "openai:gpt-4o", "anthropic:m", "ollama:completion:m"]
    assert [row["provider"]["id"] for row in rows(document)] == [*short, *ids]


def test_what_breaks_says_whose_row_it_is(evaluate, service):
    transform = {"options": {"transform": "none.at.all"}, "metadata": {"kind": "a"}}
    _, document, _ = evaluate({"prompts": ['{"a": 1, "b": "{{x}}"}'], "providers": [{"id": "echo", "label": "e"}], "tests": [
        {"vars": {"x": "hi", "y": '{"n":  [1, 2]}'}}, {"vars": {"x": "hi"}, **transform},
    ]})
    first, second = rows(document)
    assert (first["prompt"]["raw"], first["vars"]["y"]) == ('{"a":1,"b":"hi"}', '{"n":[1,2]}')
    assert second["metadata"] == {"kind": "a", "errorContext": {"providerId": "echo", "providerLabel": "e"}}
    assert "response" not in second and second["tokenUsage"]["numRequests"] == 0


def test_a_simulated_user_talks_to_the_provider_of_the_row(evaluate, service, tmp_path):
    (tmp_path / "user.py").write_text(
        "import json\n"
        "def call_api(prompt, options, context):\n"
        "    chat = json.loads(prompt)\n"
        "    assert 'order 7' in chat[0]['content'], chat\n"
        "    said = [each['content'] for each in chat if each['role'] == 'assistant']\n"
        "    return {'output': '###STOP###' if len(said) == 2 else f'question {len(said) + 1}'}\n"
    )
    target = {"id": "http", "config": {
        "url": f"{service.url}/session", "method": "POST", "body": {"chat": "{{prompt}}", "session": "{{sessionId}}"},
        "transformResponse": "json.text", "sessionParser": "data.body.session",
    }}
    talk = {"id": "promptfoo:simulated-user", "config": {"userProvider": "file://user.py", "maxTurns": 5, "stateful": True}}
    tests = [{"vars": {"x": "hi", "instructions": "ask about order 7"}, "provider": talk}]
    code, document, said = evaluate({"prompts": ["Be kind"], "providers": [target], "tests": tests})
    [row] = rows(document)
    assert code == 0, said
    assert row["response"]["output"] == "User: question 1\n---\nAssistant: turn 1\n---\nUser: question 2\n---\nAssistant: turn 2"
    assert [message["role"] for message in row["metadata"]["messages"]] == ["user", "assistant"] * 2
    first, second = [json.loads(body["chat"]) if isinstance(body["chat"], str) else body["chat"] for *_, body in service.asked]
    assert [message["role"] for message in first] == ["system", "user"]
    # The target has the rest of the conversation.
    assert second == [{"role": "user", "content": "question 2"}]
    assert (service.asked[0][2]["session"], service.asked[1][2]["session"]) == ("", "s1")
    assert row["metadata"]["sessionId"] == "s1"
    alone = [{**tests[0], "provider": "promptfoo:simulated-user"}]
    _, document, _ = evaluate({"providers": [target], "tests": alone})
    assert "needs a model" in rows(document)[0]["error"]


@pytest.mark.parametrize(
    ("suite", "message"),
    [
        ({"providers": ["sequence"]}, "name it as `provider` of a test"),
        ({"providers": ["replicate:claude"]}, "unknown provider `replicate:claude`"),
        ({"providers": [{"id": "http", "config": {"url": "http://x", "tls": {"cert": "c"}}}]}, "`config.tls`: a certificate of the client needs both"),
        ({"providers": [{"id": "openai:gpt-4o", "config": {"mcp": {"enabled": True}}}]}, "`config.mcp` needs `server` or `servers`"),
        ({"providers": ["echo"], "tests": [{"provider": "nobody:x", "vars": {"x": "1"}}]}, "unknown provider `nobody:x`"),
        ({"providers": ["echo"], "tests": [{"assert": [{"type": "javascript", "value": "file://none.js"}]}]}, "file of a check not found"),
        ({"providers": ["echo"], "tests": [{"assert": [{"type": "equals", "value": "x", "transform": "file://none.js"}]}]}, "file of a check not found"),
        ({"providers": ["echo"], "tests": [{"vars": {"x": "1"}, "options": {"transform": "file://none.js:f"}}]}, "file of a check not found"),
        ({"providers": ["echo"], "prompts": ["langfuse://x"]}, "prompts cannot be read from `langfuse`"),
        ({"providers": ["echo"], "redteam": {"plugins": ["harmful"]}}, "the red team section is not run"),
        ({"providers": ["echo"], "strategies": ["base64"]}, "the red team section is not run"),
    ],
)
def test_what_is_not_supported_is_refused_before_any_call(evaluate, service, suite, message):
    code, document, said = evaluate(suite)
    assert (code, document, service.asked) == (1, None, [])
    assert message in said and "promptfooconfig.yaml:1:" in said
