"""The pages of `sandcove redteam setup`: what they offer, what they write, and what they run."""

import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from test_redteam import CHECK
from test_view_page import CHROMIUM, browser, within  # noqa: F401 (fixtures)
from verdicts import ENVIRONMENT


@contextmanager
def setting_up(sandcove, directory, home, within=()):
    """The running pages: asks them (status, answer), with `address` and `token`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("E2B_")}
    environment |= {**ENVIRONMENT, "PROMPTFOO_CONFIG_DIR": str(home), "SANDCOVE_DATA_DIR": str(home / "none")}
    command = [*within, *sandcove, "redteam", "setup", str(directory), "-p", "0", "-n"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        url = urlsplit(process.stdout.readline().strip())

        def ask(path, body=None, token=True, **headers):
            headers |= {"Authorization": f"Bearer {ask.token}"} if token else {}
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(f"{ask.address}{path}", data, {"Content-Type": "application/json", **headers})
            try:
                with urllib.request.urlopen(request, timeout=120) as response:
                    return response.status, json.loads(response.read())
            except urllib.error.HTTPError as error:
                return error.code, json.loads(error.read())

        ask.address, [ask.token], ask.page = f"http://{url.netloc}", parse_qs(url.query)["token"], url.geturl()
        try:
            yield ask
        finally:
            process.terminate()


@pytest.fixture
def pages(sandcove, tmp_path):
    (tmp_path / "check.py").write_text(CHECK)
    with setting_up(sandcove, tmp_path, tmp_path / "home") as ask:
        yield ask


DRAFT = {"name": "check", "id": "file://./check.py", "purpose": "adds numbers", "industry": "games", "plugins": ["sandbox:code-injection"], "strategies": ["basic"]}


def printed(pages):
    """What the red team that was started last prints until it ends, and its exit status."""
    request = urllib.request.Request(f"{pages.address}/api/run/output", headers={"Authorization": f"Bearer {pages.token}"})
    lines, name = [], ""
    with urllib.request.urlopen(request, timeout=300) as response:
        for raw in response:
            line = raw.decode().rstrip("\n")
            if line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:") and name == "lines":
                lines.append(line[5:].strip())
            elif line.startswith("data:") and name == "end":
                return lines, int(line[5:])
    raise AssertionError(lines)


def test_what_is_chosen_is_written_and_run(pages, tmp_path, sandcove):
    status, offer = pages("/api/redteam/setup")
    assert status == 200 and offer["directory"] == str(tmp_path) and not offer["running"]
    assert [kind["name"] for kind in offer["kinds"]] == ["validator", "sandbox", "script", "http", "model"]
    assert {"sandbox:escape", "coding-agent:core"} <= {plugin["id"] for plugin in offer["plugins"]}
    assert {"basic", "code-injection", "base64"} <= {strategy["id"] for strategy in offer["strategies"]}
    status, review = pages("/api/redteam/review", DRAFT)
    assert status == 200 and "Industry: games" in review["text"] and review["skipped"] == []
    status, answer = pages("/api/redteam/setup", {"draft": DRAFT, "run": True})
    assert (status, answer) == (200, {"path": str(tmp_path / "promptfooconfig.yaml")})
    assert (tmp_path / "promptfooconfig.yaml").read_text() == review["text"]
    lines, end = printed(pages)
    assert end == 100, lines
    [run] = {found[0] for line in lines if (found := re.search(r"\beval-\w{3}-[\d:T-]+\d", line))}
    # The answers are among the stored runs, which the same server shows.
    _, table = pages(f"/api/eval/{run}/table")
    assert table["totalCount"] > 3
    # Whoever comes later sees it from the start.
    assert printed(pages) == (lines, end)
    assert pages("/api/redteam/setup")[1]["running"] is False
    # Another one, beside the configuration that is there.
    status, answer = pages("/api/redteam/setup", {"draft": DRAFT})
    assert (status, answer["path"]) == (200, str(tmp_path / "promptfooconfig.redteam.yaml"))
    status, answer = pages("/api/redteam/setup", {"draft": DRAFT})
    assert status == 400 and "exists" in answer["error"]


def test_one_runs_at_a_time_and_can_be_stopped(pages, tmp_path):
    (tmp_path / "slow.py").write_text("import time\ndef call_api(prompt, options, context):\n    time.sleep(5)\n    return {'output': 'no'}\n")
    slow = {**DRAFT, "id": "file://./slow.py"}
    assert pages("/api/redteam/setup", {"draft": slow, "run": True})[0] == 200
    status, answer = pages("/api/redteam/setup", {"draft": slow, "replace": True, "run": True})
    assert (status, answer["error"]) == (400, "something is running already; wait for it, or stop it")
    deadline = time.monotonic() + 120
    while not pages("/api/run/stop", {})[1]["stopped"]:
        assert time.monotonic() < deadline
    lines, end = printed(pages)
    assert end != 0, lines
    assert pages("/api/run/stop", {})[1] == {"stopped": False}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"plugins": ["nothing"]}, "unknown plugin `nothing`"), ({"strategies": ["nothing"]}, "unknown strategy `nothing`"),
        ({"id": ""}, "the id of the target is missing"), ({"plugins": []}, "the list of plugins is missing"), ({"more": 1}, "more"),
    ],
)  # fmt: skip
def test_a_draft_that_is_wrong_is_not_written(pages, tmp_path, change, said):
    for path, body in (("/api/redteam/review", DRAFT | change), ("/api/redteam/setup", {"draft": DRAFT | change, "run": True})):
        status, answer = pages(path, body)
        assert status == 400 and said in answer["error"]
    assert not (tmp_path / "promptfooconfig.yaml").exists()


def test_nobody_else_starts_programs(pages, tmp_path):
    body = {"draft": DRAFT, "run": True}
    assert pages("/api/redteam/setup", body, token=False)[0] == 401
    assert pages("/api/redteam/setup", body, Origin="http://evil.example")[0] == 403
    assert pages("/api/redteam/setup", token=False)[0] == 401
    assert not (tmp_path / "promptfooconfig.yaml").exists()


def test_other_viewers_set_nothing_up(sandcove, tmp_path):
    with subprocess.Popen([*sandcove, "view", str(tmp_path), "--port", "0", "-n"], stdout=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().strip()
        try:
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"{address}api/redteam/setup", timeout=60)
            assert refused.value.code == 404
        finally:
            process.terminate()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium")
def test_the_steps_in_a_browser(browser, within, sandcove, tmp_path):  # noqa: F811
    (tmp_path / "check.py").write_text(CHECK)
    troubles = []
    with setting_up(sandcove, tmp_path, tmp_path / "home", within) as pages, browser.new_context() as context:
        page = context.new_page()
        page.on("console", lambda message: message.type in ("error", "warning") and troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: request.url.startswith(pages.address) or troubles.append(request.url))
        page.goto(pages.page)
        expect(page.locator("#step h2")).to_have_text("Target")
        page.locator("[name=kind]").select_option("model")
        expect(page.locator("[name=id]")).to_have_value("openai:gpt-4.1")
        page.locator("[name=kind]").select_option("validator")
        page.locator("[name=id]").fill("file://./check.py")
        page.locator("[name=config]").fill("[]")
        page.get_by_role("button", name="5. Review").click()
        expect(page.locator("#message")).to_contain_text("must be a JSON object")
        page.get_by_role("button", name="Back").click()
        page.get_by_role("button", name="1. Target").click()
        page.locator("[name=config]").fill("{}")
        page.get_by_role("button", name="Next").click()
        page.locator("[name=industry]").fill("games <b>")
        page.get_by_role("button", name="Next").click()
        page.get_by_role("button", name="None").click()
        page.get_by_label(re.compile("^sandbox:code-injection")).check()
        page.get_by_role("button", name="Next").click()
        checked = page.locator("input[name=strategies]:checked").evaluate_all("boxes => boxes.map((box) => box.value)")
        assert "code-injection" in checked
        for strategy in checked:
            if strategy != "basic":
                page.locator(f"input[name=strategies][value='{strategy}']").uncheck()
        page.get_by_role("button", name="Next").click()
        expect(page.locator("#text")).to_contain_text("Industry: games <b>")
        page.get_by_role("button", name="Run now").click()
        expect(page.locator("#state")).to_have_text("Breached.")
        expect(page.locator("#lines")).to_contain_text("gate")
        page.get_by_role("link", name="See the answers").click()
        expect(page.locator("#name")).to_contain_text("Red team of")
    assert troubles == []
