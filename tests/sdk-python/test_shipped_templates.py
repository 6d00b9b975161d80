"""Templates that are shipped as Dockerfiles: `mcp-gateway` behind the SDK's `mcp`, and what is said about those that are not built."""

import json
import os
import textwrap

import pytest
import requests
from e2b import Sandbox, SandboxException, Template
from test_command_line import sandcove

# A server of the library that the gateway itself is made of: nothing to install.
SERVER = """
    import os
    from mcp.server import MCPServer
    server = MCPServer("own")

    @server.tool()
    def whoami(greeting: str) -> str:
        return f"{greeting} {os.getuid()} {os.getcwd()} {os.environ.get('MARK')} {os.environ.get('GATEWAY_ACCESS_TOKEN')}"

    @server.resource("note://one")
    def note() -> str:
        return "a note"

    @server.prompt()
    def ask(topic: str) -> str:
        return f"ask about {topic}"

    server.run()
"""
PYTHON = "/opt/mcp-gateway/venv/bin/python"


@pytest.fixture(scope="module")
def gateway(server):
    """The template, built once, and one with a server in a repository that git takes for one of github.com."""
    built = sandcove(server, "template", "build", "--builtin", "mcp-gateway")
    assert built.returncode == 0, built.stderr
    Template.build(
        Template()
        .from_template("mcp-gateway")
        .run_cmd(
            "git init -q /srv/some/one && cd /srv/some/one"
            f" && cat > server.py <<'EOF'\n{textwrap.dedent(SERVER)}\nEOF\n"
            "git add . && git -c user.name=a -c user.email=a@b.test commit -qm one"
            " && git config --system url.file:///srv/.insteadOf https://github.com/"
            " && git config --system --add safe.directory '*'",
            user="root",
        ),
        "mcp-gateway-with-repository",
    )
    yield
    for name in ("mcp-gateway-with-repository", "mcp-gateway"):
        sandcove(server, "template", "delete", "--yes", name)


class Client:
    """A client of the gateway of a sandbox, as far as these tests need one."""

    def __init__(self, server, sandbox: Sandbox, token: str | None = None) -> None:
        self.url = f"{server.url}/mcp"
        self.headers = {
            "Host": sandbox.get_host(50005),
            "Authorization": f"Bearer {token or sandbox.get_mcp_token()}",
            "Accept": "application/json, text/event-stream",
        }
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        self.opening = self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        if self.opening.ok:
            self.headers["Mcp-Session-Id"] = self.opening.headers["mcp-session-id"]
            self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def post(self, message: dict) -> requests.Response:
        return requests.post(self.url, json=message, headers=self.headers, timeout=120)

    def call(self, method: str, **params) -> dict:
        answer = self.post({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        (line,) = [line for line in answer.text.splitlines() if line.startswith("data: {")]
        message = json.loads(line.removeprefix("data: "))
        return message.get("result") or message["error"]


def test_the_gateway_serves_the_servers_of_the_configuration(server, gateway):
    own = {"run_cmd": f"{PYTHON} server.py", "install_cmd": "touch installed", "envs": {"MARK": "mark"}}
    twin = {"runCmd": f"{PYTHON} /srv/some/one/server.py"}
    with Sandbox.create("mcp-gateway-with-repository", mcp={"github/some/one": own, "twin": twin}, timeout=1800) as sandbox:
        assert sandbox.get_mcp_url() == f"https://{sandbox.get_host(50005)}/mcp"
        client = Client(server, sandbox)
        assert client.opening.ok, client.opening.text
        tools = [tool["name"] for tool in client.call("tools/list")["tools"]]
        assert tools == ["whoami", "twin_whoami"]
        result = client.call("tools/call", name="whoami", arguments={"greeting": "hi"})
        uid = sandbox.commands.run("id -u").stdout.strip()
        assert result["content"][0]["text"] == f"hi {uid} /opt/mcp-gateway/clones/some/one mark None"
        result = client.call("tools/call", name="twin_whoami", arguments={"greeting": "hi"})
        assert result["content"][0]["text"] == f"hi {uid} /home/user None None"
        assert sandbox.files.exists("/opt/mcp-gateway/clones/some/one/installed")
        assert client.call("resources/read", uri="note://one")["contents"][0]["text"] == "a note"
        prompt = client.call("prompts/get", name="ask", arguments={"topic": "x"})
        assert prompt["messages"][0]["content"]["text"] == "ask about x"
        assert "unknown tool" in client.call("tools/call", name="none")["message"]
        assert Client(server, sandbox, "wrong").opening.status_code == 401
        # Another client reads the token from the sandbox, which programs of the user cannot.
        again = Sandbox.connect(sandbox.sandbox_id)
        assert again.get_mcp_token() == sandbox.get_mcp_token()
        assert sandbox.commands.run("cat /etc/mcp-gateway/.token || true").stdout == ""


def test_the_memory_server_keeps_what_it_is_told(server, gateway):
    entity = {"name": "x", "entityType": "thing", "observations": ["is known"]}
    with Sandbox.create(mcp={"memory": {}}, timeout=1800) as sandbox:
        client = Client(server, sandbox)
        told = client.call("tools/call", name="create_entities", arguments={"entities": [entity]})
        assert not told.get("isError"), told
        known = client.call("tools/call", name="read_graph", arguments={})
        assert json.loads(known["content"][0]["text"])["entities"] == [entity]
        assert "is known" in sandbox.files.read("/home/user/.mcp-memory.jsonl")


@pytest.mark.parametrize(
    ("servers", "text"),
    [
        ({"none": {}}, "unknown MCP server 'none'"),
        ({"github/../x": {"runCmd": "true"}}, "invalid MCP server 'github/../x'"),
        ({"ends": {"runCmd": "exit 3"}}, "the MCP server 'ends' failed to start"),
        ({"fails": {"runCmd": "true", "installCmd": "echo why; exit 3"}}, "exit status 3:\nwhy"),
    ],
)
def test_what_cannot_be_started_is_reported(gateway, servers, text):
    with pytest.raises(SandboxException, match="Failed to start MCP gateway") as failure:
        Sandbox.create(mcp=servers, timeout=600)
    assert text in str(failure.value)


def test_an_unknown_server_fails_the_build_that_adds_it(gateway):
    with pytest.raises(Exception, match="mcp-gateway pull none"):
        Template.build(Template().from_template("mcp-gateway").add_mcp_server("none"), "mcp-gateway-fails")


@pytest.mark.skipif("SANDCOVE_TEST_DESKTOP" not in os.environ, reason="SANDCOVE_TEST_DESKTOP is not set")
def test_a_desktop_has_what_its_package_calls(server):
    """The commands of `e2b-desktop` 2.7.2, whose `create` and `stream` need them."""
    # Some 300 MB of packages.
    built = sandcove(server, "template", "build", "--builtin", "desktop", timeout=1800)
    assert built.returncode == 0, built.stderr
    with Sandbox.create("desktop", envs={"DISPLAY": ":0"}, timeout=1800) as sandbox:
        run = sandbox.commands.run
        run("Xvfb :0 -ac -screen 0 1024x768x24 -retro -dpi 96 -nolisten tcp -nolisten unix", background=True, timeout=0)
        run("until xdpyinfo -display :0; do sleep 0.2; done")
        run("startxfce4", background=True, timeout=0)
        run("until pgrep -x xfce4-session && pgrep -x xfwm4 && pgrep -x xfdesktop; do sleep 0.2; done")
        run("x11vnc -bg -display :0 -forever -wait 50 -shared -rfbport 5900 -nopw 2>/tmp/x11vnc_stderr.log")
        run("cd /opt/noVNC/utils && ./novnc_proxy --vnc localhost:5900 --listen 6080 --web /opt/noVNC", background=True, timeout=0)
        run('until netstat -tuln | grep ":6080 "; do sleep 0.2; done')
        page = requests.get(f"{server.url}/vnc.html", headers={"Host": sandbox.get_host(6080)}, timeout=120)
        assert page.ok and "noVNC" in page.text
        run("gtk-launch xfce4-terminal", background=True, timeout=0)
        run("until xdotool search --onlyvisible --class xfce4-terminal; do sleep 0.2; done")
        run("xdotool mousemove --sync 200 150 click 1; xrandr | grep 1024x768; scrot --pointer /tmp/shot.png; test -s /tmp/shot.png")
    sandcove(server, "template", "delete", "--yes", "desktop")


def test_a_missing_template_that_is_shipped_is_reported_with_the_command():
    with pytest.raises(Exception, match="sandcove template build --builtin desktop"):
        Sandbox.create("desktop:none")
