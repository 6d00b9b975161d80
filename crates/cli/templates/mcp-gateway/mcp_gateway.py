"""Serves the tools, resources and prompts of several MCP servers as one MCP server, over streamable HTTP on port 50005.

`mcp-gateway --config JSON` installs and starts the servers of the configuration, and returns once they answer; the gateway stays in the
background. `mcp-gateway pull NAME...` installs servers for later. Servers run as the sandbox's user and speak MCP over stdio.

A configuration maps names to settings. A name is one of `servers.json`, or `github/OWNER/REPOSITORY` with a `runCmd` and perhaps an
`installCmd` that run in a clone of it, or any other name with a `runCmd`.
"""

import argparse
import contextlib
import hmac
import json
import os
import pathlib
import pwd
import re
import secrets
import shlex
import socket
import subprocess
import sys

HOME = pathlib.Path("/opt/mcp-gateway")
STATE = pathlib.Path("/etc/mcp-gateway")
TOKEN = STATE / ".token"
LOG = STATE / "gateway.log"
PORT = 50005
USER = pwd.getpwnam("user")
KNOWN = json.loads((pathlib.Path(__file__).parent / "servers.json").read_text())
# Servers run as the user, who cannot read the token.
AS_USER = ["setpriv", f"--reuid={USER.pw_uid}", f"--regid={USER.pw_gid}", "--init-groups", "--"]
PATH = f"{HOME}/npm/bin:{HOME}/uv/bin:{os.environ.get('PATH', '/usr/local/bin:/usr/bin:/bin')}"


class Refused(Exception):
    """A configuration that cannot be used, or a server that cannot be installed or started."""


def run(command, **options):
    """Runs a command of an installation."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode:
        raise Refused(f"`{shlex.join(command)}` failed with exit status {done.returncode}:\n{done.stdout[-4000:]}")


def setting(settings, snake):
    """A setting that the Python SDK writes in snake case and the JavaScript SDK in camel case."""
    camel = re.sub("_(.)", lambda found: found[1].upper(), snake)
    return settings.get(snake, settings.get(camel))


def pull(name):
    """Installs a server of the list if it is missing, and returns its program."""
    known = KNOWN.get(name)
    if known is None:
        raise Refused(f"unknown MCP server {name!r}\nhint: the known ones are {', '.join(KNOWN)}; any other needs a `runCmd`")
    if "npm" in known:
        directory = HOME / "npm/lib/node_modules" / known["npm"]
        if not directory.exists():
            run(["npm", "install", "--global", "--no-fund", "--no-audit", f"--prefix={HOME}/npm", known["npm"]])
        programs = json.loads((directory / "package.json").read_text())["bin"]
        program = directory / (programs if isinstance(programs, str) else next(iter(programs.values())))
        return ["node", str(program)]
    program = HOME / "uv/bin" / known["pypi"]
    if not program.exists():
        places = {"UV_TOOL_DIR": f"{HOME}/uv/tools", "UV_TOOL_BIN_DIR": f"{HOME}/uv/bin", "UV_PYTHON": "/usr/bin/python3"}
        run([f"{HOME}/venv/bin/uv", "tool", "install", "--quiet", known["pypi"]], env=os.environ | places)
    return [str(program)]


def clone(name):
    """Clones the repository of a name `github/OWNER/REPOSITORY` for the user, and returns its directory."""
    directory = HOME / "clones" / name.removeprefix("github/")
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        run(["git", "clone", "--quiet", "--depth=1", f"https://{name.replace('github/', 'github.com/', 1)}", str(directory)])
        run(["chown", "--recursive", f"{USER.pw_uid}:{USER.pw_gid}", str(directory)])
    return directory


def environment(further):
    """The environment of a server, without the gateway's token."""
    own = {"PATH": PATH, "HOME": USER.pw_dir, "USER": USER.pw_name, "LOGNAME": USER.pw_name, "LANG": "C.UTF-8"}
    return own | {name: str(value) for name, value in further.items() if value is not None}


def server(name, settings):
    """Installs a server of a configuration. Returns its command, environment and directory."""
    settings = settings or {}
    if not isinstance(settings, dict):
        raise Refused(f"the settings of the MCP server {name!r} are not an object")
    command = setting(settings, "run_cmd")
    if command is None:
        known = KNOWN.get(name, {})
        args = [value for arg in known.get("args", ()) for value in settings.get(arg.strip("{}")) or ()]
        env = {variable: settings.get(key) for variable, key in known.get("env", {}).items()}
        # Files that a server would write beside its program, where the user may not.
        env |= {variable: f"{USER.pw_dir}/{file}" for variable, file in known.get("files", {}).items()}
        return [*AS_USER, *pull(name), *args], environment(env), USER.pw_dir
    env = environment(settings.get("envs") or {})
    directory = USER.pw_dir
    if name.startswith("github/"):
        if not re.fullmatch(r"github/[\w-][\w.-]*/[\w-][\w.-]*", name):
            raise Refused(f"invalid MCP server {name!r}; write github/OWNER/REPOSITORY")
        directory = str(clone(name))
    install = setting(settings, "install_cmd")
    if install:
        run([*AS_USER, "bash", "-c", install], cwd=directory, env=env)
    return [*AS_USER, "bash", "-c", command], env, directory


def start(config):
    """Installs the servers, starts the gateway in the background, and waits until it is ready."""
    servers = {name: server(name, settings) for name, settings in config.items()}
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("0.0.0.0", PORT))
        except OSError as error:
            raise Refused(f"failed to listen on port {PORT}: {error}; a gateway may be running") from error
        listener.listen()
        STATE.mkdir(mode=0o755, exist_ok=True)
        TOKEN.unlink(missing_ok=True)
        TOKEN.touch(mode=0o600)
        TOKEN.write_text(os.environ.pop("GATEWAY_ACCESS_TOKEN", "") or secrets.token_urlsafe(32))
        ready, signal = os.pipe()
        with open(LOG, "wb") as log:
            process = subprocess.Popen(
                [sys.executable, __file__, "--serve", str(listener.fileno()), str(signal)],
                stdin=subprocess.PIPE, stdout=log, stderr=log, cwd="/", start_new_session=True, pass_fds=[listener.fileno(), signal],
            )
        os.close(signal)
        with process.stdin as stdin:
            stdin.write(json.dumps(servers).encode())
        with open(ready, "rb") as pipe:
            if pipe.read() != b"ready":
                raise Refused(LOG.read_text()[-4000:].strip().removeprefix("mcp-gateway: "))


async def serve(listener, signal, servers):
    """Connects to the servers and serves until the process is killed."""
    import anyio
    import mcp_types as types
    import uvicorn
    from mcp import ClientSession, MCPError, StdioServerParameters, stdio_client
    from mcp.server import Server
    from mcp.server.auth.provider import AccessToken
    from mcp.server.auth.settings import AuthSettings

    token = TOKEN.read_text()
    sessions = {}

    class Verifier:
        async def verify_token(self, given):
            same = hmac.compare_digest(given.encode(), token.encode())
            return AccessToken(token=given, client_id="sandbox", scopes=[]) if same else None

    async def everything(capability, call, key, label):
        """Lists the items of all servers: their names here, with session and item. A name that is taken gets its server's in front."""
        found = {}
        for name, session in sessions.items():
            if getattr(session.server_capabilities, capability) is None:
                continue
            params = None
            while True:
                page = await getattr(session, call)(params=params)
                for item in getattr(page, key):
                    own = str(getattr(item, label))
                    found[own if own not in found else f"{name}_{own}"] = (session, item)
                if not page.next_cursor:
                    break
                params = types.PaginatedRequestParams(cursor=page.next_cursor)
        return found

    async def tools():
        return await everything("tools", "list_tools", "tools", "name")

    async def prompts():
        return await everything("prompts", "list_prompts", "prompts", "name")

    async def resources():
        return await everything("resources", "list_resources", "resources", "uri")

    def known(found, name, what):
        if name not in found:
            raise MCPError(code=types.INVALID_PARAMS, message=f"unknown {what} {name!r}")
        return found[name]

    def renamed(found):
        return [item.model_copy(update={"name": name}) for name, (_, item) in found.items()]

    async def list_tools(_context, _params):
        return types.ListToolsResult(tools=renamed(await tools()))

    async def call_tool(_context, params):
        session, tool = known(await tools(), params.name, "tool")
        return await session.call_tool(tool.name, params.arguments or {})

    async def list_prompts(_context, _params):
        return types.ListPromptsResult(prompts=renamed(await prompts()))

    async def get_prompt(_context, params):
        session, prompt = known(await prompts(), params.name, "prompt")
        return await session.get_prompt(prompt.name, params.arguments)

    async def list_resources(_context, _params):
        return types.ListResourcesResult(resources=[item for _, item in (await resources()).values()])

    async def read_resource(_context, params):
        session, resource = known(await resources(), str(params.uri), "resource")
        return await session.read_resource(resource.uri)

    gateway = Server(
        "mcp-gateway",
        on_list_tools=list_tools, on_call_tool=call_tool,
        on_list_prompts=list_prompts, on_get_prompt=get_prompt,
        on_list_resources=list_resources, on_read_resource=read_resource,
    )
    app = gateway.streamable_http_app(
        host="0.0.0.0",
        auth=AuthSettings(issuer_url=f"http://localhost:{PORT}", resource_server_url=None),
        token_verifier=Verifier(),
    )
    async with contextlib.AsyncExitStack() as stack:
        for name, (command, env, directory) in servers.items():
            parameters = StdioServerParameters(command=command[0], args=command[1:], env=env, cwd=directory)
            try:
                streams = await stack.enter_async_context(stdio_client(parameters))
                sessions[name] = await stack.enter_async_context(ClientSession(*streams))
                with anyio.fail_after(45):
                    await sessions[name].initialize()
            except Exception as error:
                raise Refused(f"the MCP server {name!r} failed to start: {error or type(error).__name__}") from error
        os.write(signal, b"ready")
        os.close(signal)
        await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve(sockets=[socket.socket(fileno=listener)])


def main():
    parser = argparse.ArgumentParser(prog="mcp-gateway", description="serve several MCP servers as one")
    parser.add_argument("--config", metavar="JSON", help="servers and their settings; starts the gateway")
    parser.add_argument("--serve", nargs=2, type=int, help=argparse.SUPPRESS)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("pull", help="install servers").add_argument("names", nargs="+", metavar="NAME")
    args = parser.parse_args()
    try:
        if args.serve:
            import anyio

            anyio.run(serve, *args.serve, json.load(sys.stdin))
        elif args.command == "pull":
            for name in args.names:
                pull(name)
        elif args.config is not None:
            try:
                config = json.loads(args.config)
            except ValueError as error:
                raise Refused(f"invalid --config: {error}") from error
            if not isinstance(config, dict):
                raise Refused("invalid --config: not an object")
            start(config)
        else:
            parser.error("nothing to do; pass --config or pull")
    except* Refused as refused:
        # Task groups wrap what their tasks raise, perhaps several times.
        error = refused
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        sys.exit(f"mcp-gateway: {error}")


if __name__ == "__main__":
    main()
