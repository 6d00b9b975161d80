"""`sandcove` for what is not a sandbox: contexts, volumes, webhooks, teams, the node, live views, and the texts of the command itself."""

from __future__ import annotations

import json
import re
import shutil
import signal
import stat
import subprocess
import uuid
from pathlib import Path

import pytest
from e2b import Sandbox, Volume

from harness.command_line import BINARY, Terminal, command_line, sandcove, without_a_word
from harness.server import ADMIN_TOKEN, API_KEY, wait_until


@pytest.fixture
def home(tmp_path):
    """Runs the command as a user with a home directory of their own, whom no variable leads to a server."""
    variables = without_a_word(HOME=str(tmp_path), XDG_CONFIG_HOME="", SANDCOVE_DATA_DIR=str(tmp_path / "none"))

    def run(*arguments: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([BINARY, *arguments], input=stdin, capture_output=True, text=True, env={**variables, **more}, timeout=1200)

    run.path, run.variables = tmp_path, variables
    return run


def operator(server, *arguments: str) -> subprocess.CompletedProcess[str]:
    import os

    return sandcove(server, *arguments, env={**os.environ, "SANDCOVE_ADMIN_TOKEN": ADMIN_TOKEN})


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def test_a_context_is_a_server_with_a_name(server, home):
    assert home("config", "set", "work.url", server.url).returncode == 0
    assert home("config", "set", "work.api-key", stdin=API_KEY + "\n").returncode == 0
    assert home("sandbox", "list", "--context", "work").returncode == 0
    # Not selected yet: there is no server.
    assert "sandcove up" in home("sandbox", "list").stderr
    assert home("config", "set", "context", "work").returncode == 0
    assert home("sandbox", "list").returncode == 0
    assert json.loads(home("config", "get", "--json").stdout) == {
        "work": {"url": server.url, "selected": True, "apiKey": True, "adminToken": False}
    }
    assert API_KEY not in home("config", "get").stdout and home("config", "get", "work.api-key").stdout == API_KEY + "\n"
    # A key is no argument, which other accounts could see; nor is it in the file of addresses.
    done = home("config", "set", "work.api-key", API_KEY)
    assert done.returncode == 1 and "standard input" in done.stderr
    path = home("config", "path").stdout.strip()
    assert path == str(home.path / ".config/sandcove/config.toml")
    keys = home.path / ".config/sandcove/keys.toml"
    assert API_KEY in keys.read_text() and stat.S_IMODE(keys.stat().st_mode) == 0o600
    assert API_KEY not in (home.path / ".config/sandcove/config.toml").read_text()
    keys.chmod(0o644)
    done = home("sandbox", "list")
    assert done.returncode == 1 and f"chmod 600 {keys}" in done.stderr
    keys.chmod(0o600)
    done = home("sandbox", "list", "--context", "wrok")
    assert done.returncode == 1 and "use work" in done.stderr
    assert home("config", "unset", "work").returncode == 0
    assert home("config", "get", "--json").stdout == "{}\n" and API_KEY not in keys.read_text()


def test_logging_in_asks_for_a_key_that_is_not_shown(server, home):
    login = ["auth", "login", server.url]
    refused = home(*login, stdin="e2b_" + "0" * 40)
    assert refused.returncode == 1 and "does not accept the API key" in refused.stderr
    assert home("auth", "info").returncode == 1
    terminal = Terminal(["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in home.variables.items()), BINARY, *login])
    terminal.until("API key: ")
    terminal.type(API_KEY + "\n")
    shown = terminal.until("(context `default`)")
    assert API_KEY not in shown and terminal.end() == 0
    done = home("auth", "info")
    assert (done.returncode, done.stdout) == (0, f"{server.url} accepts the key\n")
    assert json.loads(home("auth", "info", "--json").stdout) == {"url": server.url, "accepted": True}
    assert home("auth", "logout").returncode == 0
    assert home("auth", "info").returncode == 1


def test_the_variables_of_the_official_clients_are_understood(server, home):
    assert home("sandbox", "list", E2B_API_URL=server.url, E2B_API_KEY=API_KEY).returncode == 0
    done = home("sandbox", "list", E2B_DOMAIN="example.invalid", E2B_API_KEY=API_KEY)
    assert done.returncode == 1 and "https://api.example.invalid" in done.stderr
    assert home("sandbox", "list", "--url", server.url, E2B_API_KEY=API_KEY).returncode == 0


def test_sandboxes_are_where_the_variables_of_the_official_clients_say(server, home, sandbox):
    exec_true = ("exec", sandbox.sandbox_id, "true")
    by_variables = {"E2B_API_URL": server.url, "E2B_API_KEY": API_KEY}
    assert home("sandbox", *exec_true, **by_variables, E2B_SANDBOX_URL=server.url).returncode == 0
    # Nothing listens there.
    nowhere = "http://127.0.0.1:9"
    done = home("sandbox", *exec_true, **by_variables, E2B_SANDBOX_URL=nowhere)
    assert done.returncode == 1 and f"no answer from {nowhere}" in done.stderr, done.stderr
    assert home("sandbox", "--url", server.url, *exec_true, E2B_API_KEY=API_KEY, E2B_SANDBOX_URL=nowhere).returncode == 0


def test_volumes_are_created_listed_and_deleted(server):
    name = unique("of-the-command")
    volume = sandcove(server, "volume", "create", name).stdout.strip()
    assert {"volumeID": volume, "name": name} in json.loads(sandcove(server, "volume", "list", "--json").stdout)
    assert re.search(rf"^{volume}  {name}$", sandcove(server, "volume", "ls").stdout, re.M)
    done = sandcove(server, "volume", "delete", name, "no-such-volume")
    assert (done.returncode, done.stdout) == (1, volume + "\n") and "unknown volume `no-such-volume`" in done.stderr
    assert name not in sandcove(server, "volume", "list").stdout


def test_webhooks_are_created_listed_changed_and_deleted(server, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s" * 40 + "\n")
    arguments = ["https://example.com/hook", "--secret-file", str(secret), "-e", "sandbox.lifecycle.killed"]
    done = sandcove(server, "webhook", "create", unique("hook"), *arguments)
    assert done.returncode == 0, done.stderr
    webhook = done.stdout.strip()

    def listed() -> dict:
        return next(one for one in json.loads(sandcove(server, "webhook", "list", "--json").stdout) if one["id"] == webhook)

    try:
        assert listed()["enabled"] is True and listed()["events"] == ["sandbox.lifecycle.killed"]
        assert sandcove(server, "webhook", "disable", webhook).returncode == 0
        assert listed()["enabled"] is False
        assert "disabled" in sandcove(server, "webhook", "list").stdout
        assert sandcove(server, "webhook", "deliveries", webhook).stdout.split() == ["id", "time", "event", "sandbox", "status", "answer", "duration"]
    finally:
        done = sandcove(server, "webhook", "delete", webhook)
    assert (done.returncode, done.stdout) == (0, webhook + "\n")
    assert sandcove(server, "webhook", "delete", webhook).returncode == 1


def test_events_name_what_happened(server, sandbox):
    def kinds() -> list[str]:
        done = sandcove(server, "events", sandbox.sandbox_id, "--json")
        return [event["type"] for event in json.loads(done.stdout)]

    wait_until(lambda: "sandbox.lifecycle.created" in kinds(), what="the event of the start")
    assert sandbox.sandbox_id in sandcove(server, "events", "-l", "100").stdout
    header, *rows = sandcove(server, "events", sandbox.sandbox_id).stdout.splitlines()
    assert header.split() == ["time", "event", "sandbox", "template"]
    assert {row.split()[-1] for row in rows} == {sandbox.get_info().name}, "templates have names"


def test_teams_are_managed_with_the_admin_token(server, tmp_path):
    name = unique("Team")
    team = operator(server, "team", "create", name, "-l", "concurrentSandboxes=3").stdout.strip()
    teams = {one["id"]: one for one in json.loads(operator(server, "team", "list", "--json").stdout)}
    assert teams[team]["limits"]["concurrentSandboxes"] == 3
    assert re.search(rf"^{team} .* good +0 of 3 +{name}$", operator(server, "team", "list").stdout, re.M)
    key = tmp_path / "key"
    key.write_text(operator(server, "team", "key", name, "laptop").stdout)
    listing = ["sandbox", "list", "--json", "--api-key-file", str(key)]
    assert sandcove(server, *listing).stdout == "[]\n"
    assert operator(server, "team", "kill", name).stdout == "0\n"
    assert operator(server, "team", "update", name, "--ban").returncode == 0
    assert sandcove(server, *listing).returncode == 1
    assert operator(server, "team", "update", team, "--restore", "-l", "volumes=1", "--name", name + "s").returncode == 0
    assert sandcove(server, *listing).returncode == 0
    done = operator(server, "team", "create", "x", "--limit", "concurrentSandboxs=3")
    assert done.returncode == 2 and "concurrentSandboxes" in done.stderr
    done = sandcove(server, "team", "list")
    assert done.returncode == 1 and "SANDCOVE_ADMIN_TOKEN" in done.stderr
    token = tmp_path / "token"
    token.write_text("wrong")
    for command in (["team", "list"], ["node", "list"], ["audit"]):
        done = sandcove(server, *command, "--admin-token-file", str(token))
        assert done.returncode == 1 and "does not accept the admin token" in done.stderr, done.stderr
        assert "hint: pass the token" in done.stderr and "API key" not in done.stderr


def test_the_audit_log_says_who_did_what(server, tmp_path):
    import os

    made = operator(server, "team", "create", unique("Audited"))
    team = made.stdout.strip()
    shown = operator(server, "audit", "--action", "team.", "--object", team)
    header, *rows = shown.stdout.splitlines()
    assert header.split() == ["time", "action", "object", "outcome", "by", "from"]
    assert [row.split()[1:] for row in rows] == [["team.create", team, "done", "admin", "token", "127.0.0.1"]], shown.stdout
    record = json.loads(operator(server, "audit", "--object", team, "--json").stdout)
    assert (record["action"], record["outcome"], record["credential"]) == ("team.create", "done", "admin-token")
    assert (server.data_dir / "server/audit").stat().st_mode & 0o077 == 0
    followed = tmp_path / "followed"
    environment = {**os.environ, "SANDCOVE_ADMIN_TOKEN": ADMIN_TOKEN}
    with followed.open("w") as output:
        following = subprocess.Popen(command_line(server, "audit", "--object", team, "--follow", "--json"), stdout=output, env=environment)
        wait_until(lambda: followed.read_text().count("\n") == 1, what="the first record")
        assert operator(server, "team", "update", team, "--block", "tests").returncode == 0
        wait_until(lambda: followed.read_text().count("\n") == 2, what="the next record")
        following.terminate()
        following.wait()
    assert json.loads(followed.read_text().splitlines()[1])["action"] == "team.update"
    refused = sandcove(server, "audit")
    assert refused.returncode == 1 and "SANDCOVE_ADMIN_TOKEN" in refused.stderr


def test_the_node_is_shown_closed_and_opened(server):
    (node,) = json.loads(operator(server, "node", "list", "--json").stdout)
    assert json.loads(operator(server, "node", "info").stdout)["id"] == node["id"]
    assert operator(server, "node", "list").stdout.splitlines()[1].split()[:2] == [node["id"], "ready"]
    try:
        assert operator(server, "node", "set", "draining").returncode == 0
        assert "draining" in operator(server, "node", "list").stdout
    finally:
        assert operator(server, "node", "set", "ready", node["id"]).returncode == 0
    assert "ready" in operator(server, "node", "list").stdout


def test_top_is_live_on_a_terminal_and_a_table_elsewhere(server, sandbox):
    done = sandcove(server, "top")
    assert done.returncode == 1 and "--once" in done.stderr
    assert sandbox.sandbox_id in sandcove(server, "top", "--once").stdout
    found = json.loads(sandcove(server, "top", "--json").stdout)
    assert sandbox.sandbox_id in [row["sandbox"]["sandboxID"] for row in found]
    for key, status in (("q", 0), ("\x03", 0)):
        terminal = Terminal(command_line(server, "top", "--interval", "1"), rows=10, columns=60)
        assert terminal.until("running").startswith("\x1b[?1049h")
        terminal.until(sandbox.sandbox_id)
        # A key is acted upon without waiting for the next update, and no line is longer than the terminal is wide.
        terminal.type("m")
        screen = terminal.until("\x1b[J")
        assert all(len(re.sub(r"\x1b\[\w", "", line)) <= 60 for line in screen.split("\r\n")), screen
        terminal.type(key)
        assert terminal.end() == status
    ended = subprocess.Popen(command_line(server, "top", "--interval", "1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert ended.wait(60) == 1


def test_ports_are_listed_with_their_urls(server, sandbox):
    sandbox.commands.run("python3 -m http.server 8123 >/dev/null 2>&1", background=True)

    def listed() -> dict[int, str]:
        done = sandcove(server, "sandbox", "ports", sandbox.sandbox_id, "--json")
        return {row["port"]: row["url"] for row in json.loads(done.stdout)}

    wait_until(lambda: 8123 in listed(), what="a port that is listened on")
    assert listed()[8123] == f"http://{sandbox.get_host(8123)}"
    assert 49983 not in listed()
    assert "49983" in sandcove(server, "sandbox", "ports", "--all", sandbox.sandbox_id).stdout
    opened = sandcove(server, "sandbox", "open", sandbox.sandbox_id, "8123", "--print")
    assert opened.stdout == f"http://{sandbox.get_host(8123)}\n"
    page = sandcove(server, "sandbox", "open", sandbox.sandbox_id).stdout.strip()
    assert page == f"{server.url}/dashboard/inspect/sandbox/{sandbox.sandbox_id}"
    assert sandcove(server, "sandbox", "open", "i0000000000000000000").returncode == 1


def test_the_options_of_the_official_lists_are_taken(server, sandbox):
    def ids(*arguments: str) -> list[str]:
        done = sandcove(server, "sandbox", "list", *arguments)
        assert done.returncode == 0, done.stderr
        return [row["sandboxID"] for row in json.loads(done.stdout)]

    everyone = ids("-s", "running,paused", "-f", "json")
    assert sandbox.sandbox_id in everyone and ids("-o", "asc", "--json") == everyone[::-1]
    assert ids("-l", "1", "--json") == everyone[:1] and ids("-o", "asc", "-l", "1", "--json") == everyone[-1:]
    own = ["--template", "BASE", "--json", "--started-after", sandbox.get_info().started_at.isoformat()]
    assert sandbox.sandbox_id in ids(*own)
    assert ids("--started-after", "2100-01-01T00:00:00Z", "--json") == []
    assert "sandboxID " in sandcove(server, "sandbox", "info", sandbox.sandbox_id, "-f", "pretty").stdout
    for verbs in (["template", "list"], ["sandbox", "snapshot", "list"], ["snapshot", "list"]):
        assert isinstance(json.loads(sandcove(server, *verbs, "-f", "json").stdout), list)
    assert json.loads(sandcove(server, "sandbox", "logs", sandbox.sandbox_id, "--format", "json").stdout.splitlines()[0])
    assert sandcove(server, "sandbox", "set-timeout", sandbox.sandbox_id, "1800").returncode == 0
    assert sandcove(server, "sandbox", "kill", "--all", "-m", "no-such=label").stdout == ""
    assert sandbox.is_running()
    # Paused ones are named.
    paused = type(sandbox).create(timeout=600, metadata={"kill": "all"})
    paused.pause()
    kill = ("sandbox", "kill", "--all", "-m", "kill=all")
    assert sandcove(server, *kill).stdout == "" and sandcove(server, *kill, "-s", "paused,running").stdout == f"{paused.sandbox_id}\n"


def test_code_runs_in_a_sandbox_that_stays(server):
    from e2b_code_interpreter import Sandbox

    sandbox = Sandbox.create(timeout=600)
    try:
        run = ["run", "--sandbox", sandbox.sandbox_id, "-c"]
        assert sandcove(server, *run, "x = 6 * 7").returncode == 0
        assert sandcove(server, *run, "print(x)").stdout == "42\n"
        assert sandbox.is_running()
    finally:
        sandbox.kill()
    done = sandcove(server, "run", "--keep", "-c", "print(1)")
    kept = re.search(r"sandbox (\w+) keeps running", done.stderr)[1]
    assert done.stdout == "1\n" and sandcove(server, "sandbox", "kill", kept).returncode == 0


# What each shell makes of the words of a command line, the last of which is completed.
COMPLETING = {
    "bash": """source {file}; words=({words} {last}); COMP_WORDS=(sandcove "${{words[@]}}"); COMP_CWORD=${{#words[@]}}
        _clap_complete_sandcove sandcove "${{COMP_WORDS[$COMP_CWORD]}}" "${{COMP_WORDS[$COMP_CWORD-1]}}"; printf '%s\\n' "${{COMPREPLY[@]}}" """,
    "fish": "source {file}; complete --do-complete 'sandcove {words}'",
    # The completion of zsh runs in a line editor alone, so that one is given a terminal and its Tab key.
    "zsh": """zmodload zsh/zpty; zpty -b shell zsh -f -i
        zpty -w shell 'PS1=; fpath=({directory} $fpath); autoload -Uz compinit; compinit -D -u; zstyle ":completion:*" list-prompt ""; LISTMAX=0'
        zpty -w shell 'echo rea${{:-dy}}'; zpty -r -m shell line '*ready*'
        zpty -n -w shell $'sandcove {words}\\t\\t\\t'; sleep 3; while zpty -r -t shell line; do print -rn -- $line; done""",
}


@pytest.fixture(params=["bash", "zsh", "fish"])
def complete(request, home):
    """What a shell offers for the last word of a line."""
    shell = request.param
    done = home("completions", shell)
    assert done.returncode == 0
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    file = home.path / "_sandcove"
    file.write_text(done.stdout)
    options = {"bash": ["--norc"], "fish": ["--no-config"], "zsh": ["-f"]}[shell]

    def offered(words: str, **more: str) -> str:
        # A word that has not begun is a word for bash, too.
        last = '""' if words.endswith(" ") else ""
        script = COMPLETING[shell].format(file=file, directory=home.path, words=words, last=last)
        variables = {**home.variables, "PATH": f"{Path(BINARY).parent}:{home.variables['PATH']}", **more}
        completed = subprocess.run([shell, *options, "-c", script], capture_output=True, text=True, env=variables, timeout=120)
        assert not completed.stderr, (words, completed)
        # What is inserted at the cursor of a terminal has marks of the line editor around it.
        return re.sub(r"\x1b\[[\d?;]*[a-zA-Z]|[\x07\x08]", "", completed.stdout)

    return offered


def test_completions_load_in_the_shell_and_complete(complete):
    for words, found in (("sandbox par", "park"), ("sandbox list --sta", "--state"), ("sandbox list --order as", "asc"), ("keys cre", "create")):
        assert found in complete(words), words
    assert "__spawner" not in complete("__")


def test_completions_offer_what_the_server_has(server, complete, home):
    label = unique("completed")
    running, paused = (Sandbox.create(metadata={"name": label}) for _ in range(2))
    paused.pause()
    volume = Volume.create(unique("data"))
    try:
        there = {"E2B_API_URL": server.url, "E2B_API_KEY": API_KEY}
        offered = complete("sandbox resume ", **there)
        assert paused.sandbox_id in offered and running.sandbox_id not in offered
        for words in (f"sandbox exec {running.sandbox_id[:-6]}", f"sandbox pause {running.sandbox_id[:-6]}"):
            assert running.sandbox_id in complete(words, **there), words
        assert volume.name in complete("volume delete data-", **there)
        assert "code-interpreter-v1" in complete("run --template code-i", **there)
        # The line's own options say where to ask, and nobody there is nothing to offer.
        (home.path / "key").write_text(API_KEY)
        line = f"sandbox kill --url {server.url} --api-key-file {home.path / 'key'} {running.sandbox_id[:-6]}"
        assert running.sandbox_id in complete(line)
        assert running.sandbox_id not in complete(f"sandbox kill {running.sandbox_id[:-6]}", **{**there, "E2B_API_URL": "http://127.0.0.1:9"})
    finally:
        running.kill()
        paused.kill()
        Volume.destroy(volume.volume_id)


def test_a_manual_page_for_every_command(home):
    pages = home.path / "man1"
    assert home("man", str(pages)).returncode == 0
    names = {page.name for page in pages.iterdir()}
    assert {"sandcove.1", "sandcove-sandbox.1", "sandcove-sandbox-create.1", "sandcove-mcp.1"} <= names
    assert not [name for name in names if "__" in name]
    text = (pages / "sandcove-sandbox-create.1").read_text()
    assert text.splitlines()[2].startswith(".TH sandcove-sandbox-create") and r"\-\-detach" in text


def test_a_wrong_word_is_answered_with_the_right_one(home):
    for arguments, meant in ((["sandbx"], "sandbox"), (["sandbox", "creat"], "create"), (["sandbox", "list", "--jsn"], "--json")):
        done = home(*arguments)
        assert done.returncode == 2 and done.stdout == "" and f"`{meant}`" in done.stderr and "hint: did you mean" in done.stderr, done
    assert "create" in home("help", "sandbox").stdout
    assert home("help", "sandbox").stdout == home("sandbox", "--help").stdout


def test_colours_are_for_terminals_that_want_them(home):
    command = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in home.variables.items())]
    terminal = Terminal([*command, BINARY, "sandbx"])
    assert "\x1b[" in terminal.until("sandbox")
    terminal.end()
    terminal = Terminal([*command, "NO_COLOR=1", BINARY, "sandbx"])
    assert "\x1b[" not in terminal.until("sandbox")
    terminal.end()
    assert "\x1b[" not in home("sandbx").stderr


def test_a_signal_ends_the_live_view_and_gives_the_terminal_back(server):
    import os

    terminal = Terminal(command_line(server, "top"))
    terminal.until("running")
    os.kill(terminal.pid, signal.SIGTERM)
    terminal.until("\x1b[?25h\x1b[?1049l")
    assert terminal.end() == 128 + signal.SIGTERM
