"""Calls the tool of the package's server over standard input and output, as agents do."""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> None:
    start = "import asyncio, e2b_mcp_server.server as server; asyncio.run(server.main())"
    server = StdioServerParameters(command=sys.executable, args=["-c", start], env=dict(os.environ))
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        assert [tool.name for tool in (await session.list_tools()).tools] == ["run_code"]
        code = "import sys; print(sum(range(101))); print('no', file=sys.stderr)"
        answer = await session.call_tool("run_code", {"code": code})
        assert json.loads(answer.content[0].text) == {"stdout": ["5050\n"], "stderr": ["no\n"]}, answer
        refused = await session.call_tool("run_code", {})
        assert refused.isError, refused


asyncio.run(main())
print("ok: tools run_code refusal")
