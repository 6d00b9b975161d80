"""`--json`: what scripts read from commands that create, change and delete."""

from __future__ import annotations

import json
import os
import subprocess
import uuid

import pytest

from harness.command_line import BINARY, command_line, sandcove
from harness.server import ADMIN_TOKEN


@pytest.fixture
def printed(server):
    """Runs a command with `--json`, and returns the document that it prints."""

    def run(*arguments: str, status: int = 0, **options):
        done = sandcove(server, *arguments, "--json", **options)
        assert done.returncode == status, done
        return json.loads(done.stdout)

    return run


@pytest.fixture
def sandbox_id(server):
    created = sandcove(server, "sandbox", "create", "base", "--detach").stdout.strip()
    yield created
    sandcove(server, "sandbox", "kill", created)


UNKNOWN = "i0000000000000000000"


def test_what_happens_to_sandboxes(printed, sandbox_id):
    one = [{"sandboxID": sandbox_id}]
    ends = printed("sandbox", "timeout", sandbox_id, "20m")
    assert ends == {"sandboxID": sandbox_id, "endAt": printed("sandbox", "info", sandbox_id)["endAt"]}
    assert printed("sandbox", "pause", sandbox_id) == one
    assert printed("sandbox", "pause", sandbox_id) == [], "it was paused already"
    assert printed("sandbox", "resume", sandbox_id) == one
    # What succeeds is named also if another fails.
    assert printed("sandbox", "resume", sandbox_id, UNKNOWN, status=1) == one
    forks = printed("sandbox", "fork", sandbox_id, "-n", "2")
    ids = [fork["sandboxID"] for fork in forks]
    assert len(set(ids)) == 2 and "templateID" in forks[0] and not [name for name in forks[0] if name.endswith("Token")]
    assert printed("sandbox", "kill", *ids, UNKNOWN, status=1) == [{"sandboxID": fork} for fork in ids]
    assert printed("sandbox", "park", UNKNOWN, status=1) == []


def test_what_is_in_a_sandbox(server, printed, sandbox_id):
    done = sandcove(server, "sandbox", "exec", "--detach", "--json", sandbox_id, "sleep", "7000")
    assert isinstance(json.loads(done.stdout)["pid"], int)
    assert sandcove(server, "sandbox", "exec", "--json", sandbox_id, "true").returncode == 2, "the output is the command's"
    url = printed("sandbox", "open", sandbox_id, "8000")["url"]
    assert url.startswith(f"http://8000-{sandbox_id}.")
    with subprocess.Popen(command_line(server, "sandbox", "forward", sandbox_id, "8000:0", "--json"), stdout=subprocess.PIPE) as forward:
        listens = json.loads(forward.stdout.readline())
        forward.terminate()
    assert (listens["sandboxID"], listens["port"]) == (sandbox_id, 8000) and listens["local"].startswith("127.0.0.1:")


def test_snapshots_volumes_secrets_and_keys(printed, sandbox_id):
    name = f"of-json-{uuid.uuid4().hex[:8]}"
    for group in (["snapshot"], ["sandbox", "snapshot"]):
        taken = printed(*group, "create", sandbox_id)
        assert taken in printed(*group, "list")
        assert printed(*group, "delete", taken["snapshotID"], "nobody", status=1) == [{"snapshotID": taken["snapshotID"]}]
    volume = printed("volume", "create", name)
    assert volume["name"] == name and volume in printed("volume", "list"), "no token"
    assert printed("volume", "delete", name) == [volume]
    secret = printed("secret", "create", name, stdin="first")
    changed = printed("secret", "set", name, stdin="second")
    assert (secret["secretID"], changed["currentVersion"]) == (changed["secretID"], secret["currentVersion"] + 1)
    assert "second" not in json.dumps(changed) and changed in printed("secret", "list")
    assert [gone["secretID"] for gone in printed("secret", "delete", name)] == [secret["secretID"]]
    key = printed("keys", "create", name)
    (deleted,) = printed("keys", "delete", name)
    assert deleted["id"] == key["id"] and key["key"] not in json.dumps(deleted)


def test_the_attempts_to_deliver_are_counted(printed, tmp_path):
    (tmp_path / "secret").write_text("s" * 40)
    webhook = printed("webhook", "create", "of-json", "https://example.com/hook", "--secret-file", str(tmp_path / "secret"), "-e", "sandbox.lifecycle.killed")
    stats = printed("webhook", "stats", webhook["id"], "--until", "2026-01-01T00:00:00Z")
    assert stats == {"buckets": [], "total": 0, "failed": 0, "durationMs": {"minimum": 0, "average": 0.0, "maximum": 0}}
    assert printed("webhook", "delete", webhook["id"]) == [{"id": webhook["id"]}]


def test_code_runs_in_an_existing_sandbox(printed, server):
    sandbox = sandcove(server, "sandbox", "create", "code-interpreter-v1", "--detach").stdout.strip()
    try:
        sandcove(server, "sandbox", "run", sandbox, "-c", "n = 41")
        ran = printed("sandbox", "run", sandbox, "--timeout", "1m", "-c", "n + 1")
        assert [result["text"] for result in ran["results"]] == ["42"]
    finally:
        assert sandcove(server, "sandbox", "kill", sandbox).stdout == f"{sandbox}\n", "it was left running"


def test_teams_and_nodes(printed):
    operator = {"env": {**os.environ, "SANDCOVE_ADMIN_TOKEN": ADMIN_TOKEN}}
    name = f"of-json-{uuid.uuid4().hex[:8]}"
    team = printed("team", "create", name, **operator)
    assert team["name"] == name and team["id"] in [listed["id"] for listed in printed("team", "list", **operator)]
    assert printed("team", "update", name, "--limit", "volumes=3", **operator)["limits"]["volumes"] == 3
    assert printed("team", "kill", name, **operator) == {"killedCount": 0, "failedCount": 0}
    assert printed("team", "cancel-builds", name, **operator) == {"cancelledCount": 0, "failedCount": 0}
    key = printed("team", "keys", "create", name, "laptop", **operator)
    (listed,) = printed("team", "keys", "list", name, **operator)
    assert listed["id"] == key["id"] and key["key"] not in json.dumps(listed)
    assert printed("team", "keys", "delete", name, "laptop", "nothing", status=1, **operator) == [listed]
    assert printed("team", "keys", "list", name, **operator) == []
    node = printed("node", "info", **operator)
    assert printed("node", "set", "ready", **operator) == {"id": node["id"], "status": "ready"}


def test_templates(printed, server, tmp_path):
    name = f"of-json-{uuid.uuid4().hex[:8]}"
    (tmp_path / "Dockerfile").write_text("FROM base\n")
    assert sandcove(server, "template", "build", str(tmp_path), "--name", name).returncode == 0
    template = printed("template", "inspect", name)
    (assigned,) = printed("template", "tag", name, "--history")
    assert (assigned["tag"], assigned["buildId"]) == ("default", template["builds"][0]["buildID"])
    for verb, public in (("publish", True), ("unpublish", False)):
        (shown,) = printed("template", verb, name)
        assert shown["templateID"] == template["templateID"] and shown["public"] is public
        assert any(name in full for full in shown["names"])
    assert printed("template", "delete", "--yes", name) == [{"templateID": template["templateID"]}]


def test_settings_and_stored_runs(server, tmp_path):
    environment = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "PATH": os.environ["PATH"]}

    def printed(*arguments: str):
        done = subprocess.run([BINARY, *arguments, "--json"], capture_output=True, text=True, env={**os.environ, **environment})
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    assert printed("config", "path") == {"path": f"{tmp_path}/.config/sandcove/config.toml"}
    variables = printed("--data-dir", str(server.data_dir), "env")
    assert variables == {**server.env, "E2B_DASHBOARD_BASE": f"{server.url}/dashboard"}
    for kind in ("evals", "prompts", "datasets"):
        assert printed("eval", "list", kind) == []
    assert subprocess.run([BINARY, "eval", "init", "--example", "offline", "suite"], cwd=tmp_path, env={**os.environ, **environment}, capture_output=True).returncode == 0
    ran = subprocess.run([BINARY, "eval", "--no-progress-bar", "--output", "out.json"], cwd=tmp_path / "suite", env={**os.environ, **environment}, capture_output=True, text=True)
    assert (tmp_path / "suite/out.json").exists(), ran
    (run,) = printed("eval", "list")
    assert printed("eval", "show")["evalId"] == run["evalId"]
    again = printed("eval", "import", "--new-id", str(tmp_path / "suite/out.json"))
    assert again["evalId"] in [listed["evalId"] for listed in printed("eval", "list")]
    assert printed("eval", "list", "datasets")[0]["evals"]
