"""Tools of servers of the Model Context Protocol as providers."""

import json
import sys
from pathlib import Path

import pytest

from targets import run, target
from tool_server import serve

PROGRAM = Path(__file__).parent / "tool_server.py"
PIPE = {"command": sys.executable, "args": [str(PROGRAM)], "name": "tools"}


def suite(server, *prompts, **config):
    several = {"servers": server} if isinstance(server, list) else {"server": server}
    return {
        "prompts": ["{{call}}"], "providers": [{"id": "mcp", "config": {"enabled": True, **several, **config}}],
        "tests": [{"vars": {"call": prompt if isinstance(prompt, str) else json.dumps(prompt)}} for prompt in prompts],
    }


def test_tools_of_programs_are_called(sandcove, tmp_path):
    calls = [{"tool": "add", "args": {"a": 2, "b": 3}}, {"name": "ask", "arguments": {"q": "x"}}, {"function": "secret"}]
    _, rows, said = run(sandcove, tmp_path, suite(PIPE, *calls, pingOnConnect=True))
    outputs = [json.loads(row["response"]["output"]) for row in rows]
    assert outputs == [[{"type": "text", "text": text}] for text in ("5", '{"q": "x"}', "told")], said
    assert rows[0]["response"]["metadata"] == {"toolName": "add", "toolArgs": {"a": 2, "b": 3}, "originalPayload": calls[0]}
    assert rows[0]["response"]["raw"]["structuredContent"] == {"sum": 5}


def test_a_file_is_started_by_its_language(sandcove, tmp_path):
    (tmp_path / "own.py").write_text(PROGRAM.read_text())
    _, [row], said = run(sandcove, tmp_path, suite({"path": "own.py"}, {"tool": "add", "args": {"a": 1, "b": 1}}))
    assert '"2"' in row["response"]["output"], said


def test_answers_are_transformed(sandcove, tmp_path):
    code = "({ output: result.structuredContent.sum + context.toolArgs.a, metadata: { length: content.length } })"
    call = {"tool": "add", "args": {"b": 3}}
    _, [row], said = run(sandcove, tmp_path, suite(PIPE, call, transformResponse=code, defaultArgs={"a": 10}))
    assert row["response"]["output"] == 23, said
    assert row["response"]["metadata"]["length"] > 10 and row["response"]["metadata"]["toolName"] == "add"


@pytest.mark.parametrize(
    ("call", "config", "error"),
    [
        ("hello", {}, "not JSON"),
        ({"args": {}}, {}, "names no tool"),
        ({"tool": "none"}, {}, "no connected server has a tool `none`"),
        ({"tool": "secret"}, {"exclude_tools": ["secret"]}, "no connected server has a tool `secret`"),
        ({"tool": "secret"}, {"tools": ["add"]}, "no connected server has a tool `secret`"),
        ({"tool": "fail"}, {}, "it broke"),
        ({"tool": "slow"}, {"timeout": 300}, "300 ms"),
    ],
)
def test_what_goes_wrong_is_an_error_of_the_row(sandcove, tmp_path, call, config, error):
    _, [row], _ = run(sandcove, tmp_path, suite(PIPE, call, **config))
    assert row["failureReason"] == 2 and error in row["error"]


@pytest.mark.parametrize(("command", "error"), [("/no/such/program", "failed to start"), ("/bin/true", "ended")])
def test_a_program_that_is_no_server_is_an_error(sandcove, tmp_path, command, error):
    _, [row], _ = run(sandcove, tmp_path, suite({"command": command, "args": [], "name": "odd"}, {"tool": "add"}))
    assert row["failureReason"] == 2 and error in row["error"] and "`odd`" in row["error"]


@pytest.mark.parametrize("streams", [False, True])
def test_tools_of_an_address_are_called(sandcove, tmp_path, streams):
    with serve(streams) as server:
        named = {"url": server.url, "headers": {"X-Own": "yes"}, "auth": {"type": "bearer", "token": "{{env.WORD}}"}}
        calls = [{"tool": "add", "args": {"a": n, "b": n}} for n in (1, 2)]
        _, rows, said = run(sandcove, tmp_path, suite([PIPE | {"name": "other"}, named][1:], *calls), WORD="word")
        assert ["2" in rows[0]["response"]["output"], "4" in rows[1]["response"]["output"]] == [True, True], said
        methods = [message["method"] for _, _, message in server.asked]
        assert methods[:4] == ["initialize", "notifications/initialized", "tools/list", "tools/list"] and methods.count("initialize") == 1
        assert {headers["authorization"] for _, headers, _ in server.asked} == {"Bearer word"}
        later = [headers for _, headers, message in server.asked if message["method"] != "initialize"]
        assert {(headers["mcp-session-id"], headers["mcp-protocol-version"], headers["x-own"]) for headers in later} == {("session-1", "2025-06-18", "yes")}


def test_the_older_transport_is_spoken_where_the_newer_is_refused(sandcove, tmp_path):
    with serve(False, "/messages?session=1") as server:
        named = {"url": server.url, "headers": {"X-Own": "yes"}, "auth": {"type": "bearer", "token": "{{env.WORD}}"}}
        calls = [{"tool": "add", "args": {"a": n, "b": n}} for n in (1, 2)] + [{"tool": "fail"}]
        _, rows, said = run(sandcove, tmp_path, suite(named, *calls), WORD="word")
        assert ["2" in rows[0]["response"]["output"], "4" in rows[1]["response"]["output"]] == [True, True], said
        assert "it broke" in rows[2]["error"]
        assert [(path, message["method"]) for path, _, message in server.asked[:3]] == [
            ("/mcp", "initialize"), ("/mcp", "GET"), ("/messages?session=1", "initialize"),
        ]
        assert {(headers["authorization"], headers["x-own"]) for _, headers, _ in server.asked} == {("Bearer word", "yes")}
        pongs = [message for _, _, message in server.asked if "method" not in message]
        assert pongs and all(message == {"jsonrpc": "2.0", "id": 900, "result": {}} for message in pongs)


def test_requests_with_credentials_stay_on_the_host_of_the_stream(sandcove, tmp_path):
    with serve(False, "http://127.0.0.2:9/messages?session=1") as server:
        _, [row], _ = run(sandcove, tmp_path, suite({"url": server.url}, {"tool": "add", "args": {"a": 1, "b": 1}}))
        assert row["failureReason"] == 2 and "status 405" in row["error"]


def test_tokens_for_servers_are_fetched(sandcove, tmp_path):
    with serve(False) as server, target() as tokens:
        auth = {"type": "oauth", "clientId": "a", "clientSecret": "b", "tokenUrl": f"{tokens.url}/token/3600"}
        _, [row], said = run(sandcove, tmp_path, suite({"url": server.url, "auth": auth}, {"tool": "add", "args": {"a": 1, "b": 1}}))
        assert row["success"], said
        assert {headers["authorization"] for _, headers, _ in server.asked} == {"Bearer token 1"} and len(tokens.asked) == 1


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"server": PIPE}, "set `config.enabled: true`"),
        ({"enabled": True}, "needs `config.server`"),
        ({"enabled": True, "server": {"path": "none.py"}}, "file not found"),
        ({"enabled": True, "server": {"url": "http://x", "auth": {"type": "oauth", "clientId": "a", "clientSecret": "b"}}}, "needs `tokenUrl`"),
    ],
)
def test_what_is_missing_is_refused_before_any_call(sandcove, tmp_path, config, message):
    code, rows, said = run(sandcove, tmp_path, {"providers": [{"id": "mcp", "config": config}]})
    assert (code, rows) == (1, None) and message in said and "promptfooconfig.yaml:1:" in said
