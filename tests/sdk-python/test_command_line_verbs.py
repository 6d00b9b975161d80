"""Every verb of `sandcove`, typed on a real terminal: what people do one after the other, with the mistakes that they make."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from harness.command_line import BINARY
from harness.server import API_KEY, free_port
from harness.verbs import COLOUR, TOLD, Typist, story, verbs

UNKNOWN = "i0000000000000000000"


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def column(table: str, name: str) -> list[str]:
    """The values below a header of a table, in which no value is empty before them."""
    header, *rows = [re.split(r" {2,}", line) for line in table.strip().splitlines()]
    return [row[header.index(name)] for row in rows]


def test_every_verb_is_in_a_story():
    import test_evaluator_verbs  # noqa: F401 (its stories count)

    told = set().union(*TOLD.values())
    assert verbs() - told == set(), "verbs without a story: add them to one of this file"
    assert told - verbs() == set(), "stories with verbs that do not exist"


@pytest.mark.parametrize("mistake, meant", [
    ("sandbx list", "sandbox"), ("sandbox lst", "list"), ("snapshot creat", "create"), ("volume lisst", "list"), ("webhook enabel", "enable"),
    ("template buidl", "build"), ("keys lits", "list"), ("secret creat", "create"), ("team kil", "kill"), ("team keys lst", "list"), ("node inf", "info"),
    ("config gett", "get"), ("auth logn", "login"), ("validate traget", "target"), ("generate datset", "dataset"),
    ("redteam plugin", "plugins"), ("sandbox list --stat running", "--state"), ("completions bahs", "bash"),
])  # fmt: skip
def test_a_typing_error_is_answered_with_what_was_meant(typist, mistake, meant):
    shown = typist.fails(mistake, hint=meant, status=2)
    assert COLOUR.search(shown), "a mistake is coloured on a terminal"
    assert re.search(rf"(similar|did you mean).*{re.escape(meant)}", COLOUR.sub("", shown), re.S), shown


@story("sandbox create", "sandbox list", "sandbox info", "sandbox exec", "sandbox run", "sandbox cp", "sandbox cat", "sandbox files", "sandbox connect", "sandbox ports",
       "sandbox open", "sandbox forward", "sandbox logs", "sandbox metrics", "sandbox egress", "sandbox timeout", "sandbox kill", "top", "events")  # fmt: skip
def test_a_sandbox_is_used(typist):
    sandbox = typist("sandbox create -d base --timeout 10m").strip()
    assert sandbox in column(typist("sandbox list"), "id")
    assert json.loads(typist(f"sandbox info {sandbox} --json"))["state"] == "running"
    # On a terminal, details are for people.
    assert re.search(r"^state +running$", typist(f"sandbox info {sandbox}"), re.MULTILINE)
    assert typist(f"sandbox exec {sandbox} stty size") == "33 200\n"
    assert typist(f"sandbox run {sandbox} --language bash --code id").startswith("uid=1000(user)")
    typist.fails(f"sandbox run {sandbox}", hint="nothing to run")
    (typist.home / "here").write_text("of this machine\n")
    typist(f"sandbox cp here {sandbox}:there")
    assert typist(f"sandbox cat {sandbox} there") == "of this machine\n"
    assert "there" in column(typist(f"sandbox files {sandbox}"), "name")
    typist(f"sandbox exec {sandbox} mkdir --mode 1777 shared")
    listed = typist(f"sandbox files {sandbox}")
    assert dict(zip(column(listed, "name"), column(listed, "mode"), strict=True))["shared"] == "drwxrwxrwt"
    shell = typist.open(f"sandbox connect {sandbox}")
    shell.until("$ ")
    shell.type("cat there; exit 7\n")
    shell.until("of this machine")
    assert shell.end() == 7
    assert "49983" in column(typist(f"sandbox ports --all {sandbox}"), "port")
    assert typist(f"sandbox open {sandbox} 8000 --print").startswith(f"http://8000-{sandbox}.")
    forward = typist.open(f"sandbox forward {sandbox} 8000:0")
    forward.until(f" -> {sandbox}:8000")
    forward.type("\x03")
    assert forward.end() == 0
    assert "INFO  sandbox started" in typist(f"sandbox logs {sandbox}")
    assert " cpu " in typist(f"sandbox metrics {sandbox}")
    assert typist(f"sandbox egress {sandbox}") == ""
    typist(f"sandbox timeout {sandbox} 20m")
    assert sandbox in column(typist("top --once"), "id")
    live = typist.open("top")
    live.until(sandbox)
    live.type("q")
    assert live.end() == 0
    assert "sandbox.lifecycle.created" in typist(f"events {sandbox}")
    for verb in ("info", "exec", "connect", "logs", "metrics", "egress", "ports", "open", "files"):
        typist.fails(f"sandbox {verb} {UNKNOWN}" + " true" * (verb == "exec"), hint=UNKNOWN)
    typist.fails(f"sandbox run {UNKNOWN} --code 1", hint=UNKNOWN)
    typist.fails("sandbox cp here there", hint="ID:PATH")
    typist.fails("sandbox logs i0000000000000000000x", hint="hint: `sandcove sandbox list` shows all")
    typist.fails(f"sandbox timeout {sandbox} soon", hint="such as 5m", status=2)
    assert typist(f"sandbox kill {sandbox}") == f"{sandbox}\n"
    typist.fails(f"sandbox kill {sandbox}", hint=sandbox)


@story("sandbox pause", "sandbox park", "sandbox resume", "sandbox fork", "sandbox snapshot create", "sandbox snapshot list", "sandbox snapshot delete",
       "snapshot create", "snapshot list", "snapshot delete", "run", "bench")  # fmt: skip
def test_a_sandbox_is_kept(typist):
    sandbox = typist("sandbox create -d base").strip()
    typist.fails(f"sandbox park {sandbox}", hint="pause it first")
    assert typist(f"sandbox pause {sandbox}") == f"{sandbox}\n"
    assert "is paused already" in typist(f"sandbox pause {sandbox}")
    assert typist(f"sandbox resume {sandbox}") == f"{sandbox}\n"
    fork = typist(f"sandbox fork {sandbox}").strip()
    for group in ("sandbox snapshot", "snapshot"):
        snapshot = typist(f"{group} create {sandbox} --files-only").strip()
        assert snapshot in column(typist(f"{group} list"), "id")
        assert typist(f"{group} delete {snapshot}") == f"{snapshot}\n"
        typist.fails(f"{group} delete {snapshot}", hint=snapshot)
        typist.fails(f"{group} create {UNKNOWN}", hint=UNKNOWN)
    typist(f"sandbox kill {sandbox} {fork}")
    assert typist("run -c print(6*7)") == "42\n"
    typist.fails("run no-such-file.py", hint="no-such-file.py")
    assert "create -> first command" in typist("bench -n 1 --first command --template base --warm 0")


@story("volume create", "volume list", "volume delete", "keys create", "keys list", "keys delete", "secret create", "secret set", "secret list",
       "secret delete", "secret rotate-key", "secret rotate-signing-key")  # fmt: skip
def test_what_a_team_has_is_created_listed_and_deleted(typist):
    name = unique("of-the-story")
    volume = typist(f"volume create {name}").strip()
    typist.fails(f"volume create {name}", hint="already exists")
    assert volume in column(typist("volume list"), "id")
    assert typist(f"volume delete {name}") == f"{volume}\n"
    typist.fails(f"volume delete {name}", hint=name)
    assert typist(f"keys create {name}").startswith("e2b_")
    assert name in column(typist("keys list"), "name")
    typist(f"keys delete {name}")
    typist.fails(f"keys delete {name}", hint=name)
    for verb in ("create", "set"):
        asked = typist.open(f"secret {verb} {name}")
        asked.until("value: ")
        asked.type("hush-hush\n")
        assert asked.end() == 0 and b"hush" not in asked.seen, "the value is not shown"
    assert name in column(typist("secret list"), "name")
    for verb in ("rotate-key", "rotate-signing-key"):
        assert "the next start of the server" in typist(f"secret {verb}")
    typist(f"secret delete {name}")
    typist.fails(f"secret delete {name}", hint="`sandcove secret list`")


@story("webhook create", "webhook list", "webhook update", "webhook disable", "webhook enable", "webhook deliveries", "webhook redeliver", "webhook stats",
       "webhook delete")  # fmt: skip
def test_a_webhook_is_kept(typist):
    (typist.home / "secret").write_text("s" * 40)
    create = f"webhook create {unique('hook')} https://example.com/hook --secret-file secret"
    typist.fails(create.removesuffix(" --secret-file secret"), hint="--secret-file", status=2)
    typist.fails(f"{create} -e sandbox.lifecycle.kild", hint="sandbox.lifecycle.killed")
    webhook = typist(f"{create} -e sandbox.lifecycle.killed").strip()
    assert webhook in column(typist("webhook list"), "id")
    typist(f"webhook update {webhook} --name {unique('hook')} -e sandbox.lifecycle.killed")
    typist.fails(f"webhook update {webhook}", hint="--receiver", status=2)
    typist.fails(f"webhook update {webhook} -e sandbox.lifecycle.kild", hint="sandbox.lifecycle.killed")
    typist(f"webhook disable {webhook}")
    typist(f"webhook enable {webhook}")
    typist.fails(f"webhook redeliver {webhook} nothing", hint=f"hint: `sandcove webhook deliveries {webhook}` shows the newest")
    assert "event" in typist(f"webhook deliveries {webhook}")
    assert column(typist(f"webhook stats {webhook}"), "hour")[-1] == "all"
    typist.fails(f"webhook stats {webhook} --since 2026-01-02T00:00:00Z --until 2026-01-01T00:00:00Z", hint="start time")
    typist.fails(f"webhook stats {webhook} --since yesterday", hint="yesterday", status=2)
    assert typist(f"webhook delete {webhook}") == f"{webhook}\n"
    for verb in ("delete", "enable", "disable", "deliveries", "stats"):
        for unknown in (webhook, "nobody"):
            assert f"`{unknown}`" in typist.fails(f"webhook {verb} {unknown}", hint="hint: `sandcove webhook list` shows all")
    for line in ("update {} --name x", "redeliver {} x"):
        for unknown in (webhook, "nobody"):
            assert f"`{unknown}`" in typist.fails(f"webhook {line.format(unknown)}", hint="hint: `sandcove webhook list` shows all")


@story("team create", "team list", "team update", "team keys create", "team keys list", "team keys delete", "team kill", "team cancel-builds", "audit", "node list", "node info", "node set")  # fmt: skip
def test_an_operator_manages_teams_and_the_node(typist):
    name = unique("team")
    team = typist(f"team create {name}").strip()
    assert team in column(typist("team list"), "id")
    typist(f"team update {name} --limit volumes=2")
    assert typist(f"team keys create {name} laptop").startswith("e2b_")
    assert typist(f"team key {name} desktop").startswith("e2b_"), "the former name"
    keys = typist(f"team keys list {name}")
    named = dict(zip(column(keys, "name"), column(keys, "id"), strict=True))
    assert named.keys() == {"laptop", "desktop"}
    assert typist(f"team keys delete {name} laptop {named['desktop']}") == f"{named['laptop']}\n{named['desktop']}\n"
    typist.fails(f"team keys delete {name} laptop", hint=f"hint: `sandcove team keys list {name}` shows all")
    for verb in ("keys list", "keys delete", "cancel-builds"):
        typist.fails(f"team {verb} nobody" + " laptop" * (verb == "keys delete"), hint="nobody")
    assert typist(f"team kill {name}") == "0\n"
    assert typist(f"team cancel-builds {name}") == "0\n"
    typist.fails(f"team update {name} --limit volums=2", hint="volumes", status=2)
    typist.fails("team kill nobody", hint="nobody")
    assert team in typist(f"audit --object {team}")
    typist.fails("audit --since yesterday-ish", hint="RFC 3339")
    node = column(typist("node list"), "id")[0]
    assert json.loads(typist("node info --json"))["id"] == node
    assert re.search(rf"^id +{node}$", typist("node info"), re.MULTILINE)
    assert typist("node set ready") == f"{node} is ready\n"
    typist.fails("node set gone", hint="draining", status=2)


@story("template init", "template build", "template list", "template inspect", "template logs", "template publish", "template unpublish", "template tag",
       "template export", "template import", "template gc", "template delete")  # fmt: skip
def test_a_template_is_built_and_handed_on(typist):
    name = unique("of-the-story")
    typist(f"template init . --name {name}")
    (typist.home / "Dockerfile").write_text("FROM base\nRUN echo built >/home/user/file\n")
    assert "RUN echo built" in typist.shows(f"template build . --name {name}")
    assert name in typist("template list")
    inspected = typist(f"template inspect {name}")
    assert re.search(rf"^name +{name}$", inspected, re.MULTILINE) and column(inspected[inspected.index("build "):], "tags") == ["default"]
    assert "built" in typist(f"template logs {name}").lower()
    typist(f"template publish {name}")
    typist(f"template unpublish {name}")
    typist(f"template tag {name} v1")
    assert column(typist(f"template tag {name} --history"), "tag") == ["default", "v1"]
    assert column(typist(f"template tag {name} v1 --history"), "tag") == ["v1"]
    typist.fails(f"template tag {name} v2 --history", hint="v2")
    typist(f"template export {name} handed-on.tar.zst")
    typist.shows(f"template import handed-on.tar.zst --name {name}-again")
    # Other tests have built templates on this server, and deleted them.
    assert re.search(r"deleted \d+ cached steps?, \d+ layers? and \d+ uploads?", typist("template gc"))
    asked = typist.open(f"template delete {name}")
    asked.until("type `yes` to continue: ")
    asked.type("yes\n")
    assert asked.end() == 0
    typist(f"template delete --yes {name}-again")
    for verb in ("inspect", "logs", "publish", "tag", "export", "delete --yes"):
        line = f"template {verb} {name}" + {"tag": " v1", "export": " file.tar"}.get(verb, "")
        assert name in typist.fails(line, hint="hint: `sandcove template list` shows all")
    # What comes with the server can be seen, and nothing else.
    assert json.loads(typist("template inspect base --json"))["aliases"] == ["base"]
    assert re.search(r"^access +public$", typist("template inspect base"), re.MULTILINE)
    for line in ("logs base", "delete --yes base", "publish base", "tag base v1"):
        typist.fails(f"template {line}", hint="template base comes with the server")
    (typist.home / "Dockerfile").write_text("FROM base\nRUNN true\n")
    typist.fails(f"template build . --name {name}", hint="Dockerfile:2")


@story("config path", "config set", "config get", "config unset", "auth login", "auth info", "auth configure", "auth logout", "completions", "man",
       "trust", "doctor", "mcp", "env", "status")  # fmt: skip
def test_a_machine_is_set_up(typist, server, tmp_path):
    assert typist("config path").strip() == str(typist.home / ".config/sandcove/config.toml")
    typist(f"config set work.url {server.url}")
    assert server.url in typist("config get")
    typist.fails("config set work.ulr x", hint="use url")
    typist("config unset work")
    typist.fails("config unset work", hint="hint: ")
    login = typist.open(f"auth login {server.url}")
    login.until("API key: ")
    login.type(f"{API_KEY}\n")
    assert login.end() == 0 and API_KEY.encode() not in login.seen
    assert "accepts the key" in typist("auth info")
    typist("auth configure default")
    typist.fails("auth configure elsewhere", hint="use default")
    typist("auth logout")
    assert "-F _clap_complete_sandcove sandcove" in typist("completions bash")
    typist("man pages")
    assert (typist.home / "pages/sandcove-sandbox-create.1").exists()
    own, typist.options = typist.options, ("--data-dir", str(tmp_path))
    typist.fails("trust --print", hint="--tls local")
    typist.options = own
    assert "ok       kernel" in typist("doctor")
    mcp = typist.open("mcp")
    mcp.type('{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    mcp.until('"result":{}')
    mcp.type("\x04")
    assert mcp.end() == 0
    assert f"E2B_API_KEY={API_KEY}" in typist("env")
    assert f"running at {server.url}" in typist("status")


@story("serve", "up", "status", "env", "backup", "down", "purge", "restore")
def test_a_server_is_started_backed_up_and_removed(typist, server, tmp_path):
    port = free_port()
    directory = Path(f"/var/lib/{unique('sandcove-story')}")
    file = tmp_path / "backup.tar.zst"
    typist(f"backup {file} --no-server-templates")
    typist.fails("backup /no-such-directory/file", hint="failed to write `/no-such-directory/file`")
    typist.options = ("--data-dir", str(directory))
    try:
        assert typist.shows("status", status=3) == "not running\n"
        typist.fails("env", hint="sandcove up")
        typist.fails(f"up --listen 127.0.0.1:{server.port}", hint="hint: ")
        typist.fails("restore no-such-file", hint="no-such-file")
        assert not directory.exists()
        typist(f"restore {file}")
        serve = typist.open(f"serve --listen 127.0.0.1:{port}")
        serve.until(f"sandcove is listening on http://127.0.0.1:{port}")
        serve.type("\x03")
        assert serve.end() == 0
        assert f"E2B_API_URL=http://127.0.0.1:{port}" in typist(f"up --listen 127.0.0.1:{port}")
        assert typist("status").startswith("running at ")
        assert "stopped" in typist("down")
        assert "no server is running" in typist("down")
        purge = typist.open("purge")
        purge.until("type `yes` to continue: ")
        purge.type("yes\n")
        assert purge.end() == 0 and not directory.exists()
        assert "nothing to remove" in typist("purge --yes")
    finally:
        subprocess.run([BINARY, "--data-dir", directory, "purge", "--yes"], capture_output=True)
        shutil.rmtree(directory, ignore_errors=True)
