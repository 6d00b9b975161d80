"""The tools of agents, by the official Python client of the Model Context Protocol: of `sandcove mcp`, and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp import ClientSession, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from harness.command_line import command_line, sandcove
from harness.memory import peak_mib, reset_peak
from harness.server import API_KEY, wait_until
from harness.teams import Team

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def over_stdio(server):
    command, *arguments = command_line(server, "mcp")
    parameters = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    async with stdio_client(parameters) as (reader, writer), ClientSession(reader, writer) as client:
        await client.initialize()
        yield client


@asynccontextmanager
async def over_http(server, key: str = API_KEY):
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=300) as http:
        transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
        async with transport as (reader, writer), ClientSession(reader, writer) as client:
            await client.initialize()
            yield client


@pytest.fixture(params=[over_stdio, over_http])
def session(request):
    return request.param


def words(result) -> str:
    return "\n".join(part.text for part in result.content if part.type == "text")


def failed(result) -> bool:
    return result.model_dump(by_alias=True)["isError"]


async def done(client, tool: str, **arguments) -> str:
    result = await client.call_tool(tool, arguments)
    assert not failed(result), words(result)
    return words(result)


async def test_every_tool_is_listed_and_works(session, server):
    async with session(server) as client:
        tools = {tool.name: tool.model_dump(by_alias=True) for tool in (await client.list_tools()).tools}
        assert all(tool["description"] and tool["inputSchema"]["type"] == "object" for tool in tools.values())
        assert tools["sandbox_kill"]["annotations"]["destructiveHint"] and tools["read_file"]["annotations"]["readOnlyHint"]
        called = set()

        async def call(tool: str, **arguments) -> str:
            called.add(tool)
            return await done(client, tool, **arguments)

        sandbox = json.loads(await call("sandbox_create", timeout_seconds=900, metadata={"by": "mcp"}, envs={"A": "b"}))["sandbox_id"]
        of = {"sandbox_id": sandbox}
        listed = {row["sandbox_id"]: row for row in json.loads(await call("sandbox_list"))}
        assert listed[sandbox]["metadata"] == {"by": "mcp"} and listed[sandbox]["state"] == "running"
        assert await call("run_code", **of, code="x = 6 * 7\nprint('out')\nx") == "out\n\n42"
        assert await call("run_code", **of, code="x + 1") == "43"
        assert await call("run_command", **of, command="echo $A; echo oops >&2") == "stdout:\nb\n\nstderr:\noops\n\nexit status 0"
        assert await call("write_file", **of, path="dir/a.txt", content="hällo") == "wrote 6 bytes to dir/a.txt"
        assert await call("read_file", **of, path="/home/user/dir/a.txt") == "hällo"
        (entry,) = json.loads(await call("list_files", **of, path="/home/user/dir"))
        assert (entry["name"], entry["type"], entry["size"]) == ("a.txt", "file", 6)
        assert re.fullmatch(rf"http://8000-{sandbox}\..+", await call("port_url", **of, port=8000))
        snapshot = json.loads(await call("snapshot_create", **of, name="of-mcp"))["snapshotID"]
        assert snapshot in await call("snapshot_list")
        copy = json.loads(await call("sandbox_create", template=snapshot))["sandbox_id"]
        assert await call("read_file", sandbox_id=copy, path="dir/a.txt") == "hällo"
        await call("sandbox_kill", sandbox_id=copy)
        await call("snapshot_delete", snapshot_id=snapshot)
        await call("sandbox_extend", **of, timeout_seconds=600)
        assert await call("sandbox_kill", **of) == f"killed sandbox {sandbox}"
        assert called == set(tools)


@pytest.fixture
def interpreter(server):
    from e2b_code_interpreter import Sandbox

    sandbox = Sandbox.create(timeout=1800)
    yield sandbox
    sandbox.kill()


async def test_pictures_are_pictures_and_errors_are_results(session, server, interpreter):
    of = {"sandbox_id": interpreter.sandbox_id}
    async with session(server) as client:
        plot = "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()"
        result = await client.call_tool("run_code", {**of, "code": plot})
        (picture,) = [part for part in result.content if part.type == "image"]
        assert picture.data.startswith("iVBOR") and picture.model_dump(by_alias=True)["mimeType"] == "image/png"
        result = await client.call_tool("run_code", {**of, "code": "print('first')\n1 / 0"})
        assert failed(result) and "ZeroDivisionError" in words(result) and words(result).startswith("first\n")
        result = await client.call_tool("run_command", {**of, "command": "echo said; exit 3"})
        assert failed(result) and words(result) == "stdout:\nsaid\n\nexit status 3"
        result = await client.call_tool("run_command", {**of, "command": "sleep 600", "timeout_seconds": 1})
        assert failed(result) and "killed after 1 s" in words(result)
        result = await client.call_tool("run_code", {**of, "code": "import time; time.sleep(600)", "timeout_seconds": 1})
        assert failed(result) and "interrupted after 1 s" in words(result)
        for tool, arguments, said in (
            ("read_file", {**of, "path": "/no/such/file"}, "/no/such/file"),
            ("list_files", {**of, "path": "dir"}, "not an absolute path"),
            ("run_command", {**of, "comand": "true"}, "unknown field `comand`"),
            ("sandbox_kill", {"sandbox_id": "i0000000000000000000"}, "unknown sandbox i0000000000000000000"),
        ):
            result = await client.call_tool(tool, arguments)
            assert failed(result) and said in words(result), (tool, words(result))
        # Output of any length is cut, and its end is kept.
        assert "left out" in (long := await done(client, "run_command", **of, command="seq 200000")) and "\n200000\n" in long
        assert len(long) < 60_000


async def test_a_long_command_reports_progress(session, server, interpreter):
    reports: asyncio.Queue = asyncio.Queue()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.put_nowait((progress, message))

    command = "echo begun; until [ -e /tmp/go ]; do sleep 0.1; done; echo done"
    async with session(server) as client:
        call = client.call_tool("run_command", {"sandbox_id": interpreter.sandbox_id, "command": command}, progress_callback=report)
        running = asyncio.create_task(call)
        first = await asyncio.wait_for(reports.get(), 300)
        assert first == (1, "begun") and not running.done()
        # A silent command is reported too; nothing ends it but what is asked of another tool meanwhile.
        silent = await asyncio.wait_for(reports.get(), 300)
        assert silent[0] == 2 and silent[1].startswith("running for ")
        await done(client, "write_file", sandbox_id=interpreter.sandbox_id, path="/tmp/go", content="")
        assert words(await running) == "stdout:\nbegun\ndone\n\nexit status 0"


def is_running(sandbox, name: str) -> bool:
    return any(name in " ".join([process.cmd, *process.args]) for process in sandbox.commands.list())


async def test_a_cancelled_command_is_killed(session, server, interpreter):
    of = {"sandbox_id": interpreter.sandbox_id}
    begun = asyncio.Event()

    async def report(*_) -> None:
        begun.set()

    async with session(server) as client:
        command = {**of, "command": "echo begun; sleep 7654"}
        running = asyncio.create_task(client.call_tool("run_command", command, progress_callback=report))
        await asyncio.wait_for(begun.wait(), 300)
        assert is_running(interpreter, "sleep 7654")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.to_thread(wait_until, lambda: not is_running(interpreter, "sleep 7654"), what="the end of the command")
        # The session goes on.
        assert await done(client, "run_command", **of, command="echo still here") == "stdout:\nstill here\n\nexit status 0"


async def test_a_session_that_ends_ends_its_commands(server, interpreter):
    begun = asyncio.Event()

    async def report(*_) -> None:
        begun.set()

    command = {"sandbox_id": interpreter.sandbox_id, "command": "echo begun; sleep 7657"}
    async with over_http(server) as client:
        running = asyncio.create_task(client.call_tool("run_command", command, progress_callback=report))
        await asyncio.wait_for(begun.wait(), 300)
    # The client has sent DELETE.
    with pytest.raises(MCPError):
        await running
    await asyncio.to_thread(wait_until, lambda: not is_running(interpreter, "sleep 7657"), what="the end of the command")


async def test_what_a_result_has_beside_what_agents_read_takes_no_memory(server, interpreter):
    """3.5 million empty lists took 358 MiB of the server's memory, and twice as many took 734."""
    of = {"sandbox_id": interpreter.sandbox_id}
    lists = "display({'text/plain': 'seen', 'application/json': [[]] * %d}, raw=True)"
    async with over_http(server) as client:
        assert await done(client, "run_code", **of, code=lists % 10) == "seen"
        before = reset_peak(server.pid)
        assert await done(client, "run_code", **of, code=lists % 3_500_000) == "seen"
        assert "too large: 1]" in await done(client, "run_code", **of, code=lists % 7_000_000)
        assert peak_mib(server.pid) - before < 150
        # The session goes on.
        assert await done(client, "run_code", **of, code="6 * 7") == "42"


async def test_a_connection_that_breaks_costs_nothing(server, interpreter):
    """By hand, as the client cannot be made to lose its connection."""
    command = "echo begun; until [ -e /tmp/go ]; do sleep 0.1; done; echo done"
    call = {"name": "run_command", "arguments": {"sandbox_id": interpreter.sandbox_id, "command": command}, "_meta": {"progressToken": 1}}
    headers = {"X-API-Key": API_KEY, "Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=300) as http:
        begin = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        answer = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin})
        http.headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
        async with http.stream("POST", "/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("id: "):
                    seen = line.removeprefix("id: ")
                if line.startswith("data: "):
                    assert json.loads(line.removeprefix("data: "))["params"]["message"] == "begun"
                    break
        interpreter.files.write("/tmp/go", "")
        rest = await http.get("/mcp", headers={"Last-Event-ID": seen})
        *_, answer = [json.loads(line.removeprefix("data: ")) for line in rest.text.splitlines() if line.startswith("data: ")]
        assert answer["id"] == 2 and answer["result"]["content"][0]["text"] == "stdout:\nbegun\ndone\n"


async def test_keys_and_teams_are_kept_apart(server, interpreter):
    with pytest.raises(ExceptionGroup) as refused:
        async with over_http(server, "e2b_" + "00" * 20):
            pass
    # The client shows the server's words.
    assert refused.group_contains(Exception, match="API key")
    other = Team(server.url, concurrentSandboxes=1)
    async with over_http(server, other.key) as client:
        assert json.loads(await done(client, "sandbox_list")) == []
        result = await client.call_tool("run_command", {"sandbox_id": interpreter.sandbox_id, "command": "true"})
        assert failed(result) and "doesn't exist" in words(result)


async def test_an_agent_that_goes_away_ends_its_commands(server, interpreter):
    """By hand, as the client does not leave while a call is open."""
    process = subprocess.Popen(command_line(server, "mcp"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(method: str, **message) -> None:
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, **message}) + "\n")
        process.stdin.flush()

    send("initialize", id=1, params={"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
    assert json.loads(process.stdout.readline())["result"]["protocolVersion"] == "2024-11-05"
    arguments = {"sandbox_id": interpreter.sandbox_id, "command": "echo begun; sleep 7655"}
    send("tools/call", id=2, params={"name": "run_command", "arguments": arguments, "_meta": {"progressToken": "p"}})
    assert json.loads(process.stdout.readline())["params"] == {"progressToken": "p", "progress": 1, "message": "begun"}
    for line, code in (("{", -32700), ("[]", -32600), ('{"jsonrpc":"2.0","id":9,"method":"no/such"}', -32601)):
        process.stdin.write(line + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["error"]["code"] == code
    assert is_running(interpreter, "sleep 7655")
    process.stdin.close()
    assert process.wait(300) == 0
    wait_until(lambda: not is_running(interpreter, "sleep 7655"), what="the end of the command")
    process.stdout.close()


async def test_a_command_that_finds_no_server_says_so(server, tmp_path):
    from harness.command_line import without_a_word

    environment = without_a_word(HOME=str(tmp_path))
    command = [*command_line(server, "mcp")]
    command[2] = str(tmp_path)
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
    assert ended.returncode == 1 and "sandcove up" in ended.stderr and ended.stdout == ""
    stopped = subprocess.Popen(command_line(server, "mcp"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    stopped.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    stopped.stdin.flush()
    assert json.loads(stopped.stdout.readline()) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    stopped.send_signal(signal.SIGTERM)
    assert stopped.wait(300) == 128 + signal.SIGTERM
    assert sandcove(server, "mcp", "--help").returncode == 0
