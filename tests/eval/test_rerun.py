"""Stored runs that are run again: by command, and from the page of `sandcove view --run`."""

import json
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from test_view_page import CHROMIUM, browser, within  # noqa: F401 (fixtures)
from viewing import BINARY, environment, evaluate, viewer

SUITE = """
description: Greetings
prompts: ['Hello {{name}}']
providers: ['python:provider.py']
tests: [{vars: {name: Ada}}, {vars: {name: Bob}}, {vars: {name: Cyd}}]
defaultTest: {assert: [{type: contains, value: Hello}]}
"""
PROVIDER = """
import os
def call_api(prompt, options, context):
    if "Bob" in prompt and os.path.exists("broken"):
        return {"error": "not now"}
    return {"output": prompt}
"""


@pytest.fixture
def home(tmp_path):
    (tmp_path / "provider.py").write_text(PROVIDER)
    (tmp_path / "broken").touch()
    evaluate(tmp_path, SUITE, "-n", "2")
    return tmp_path


def command(home, *arguments, cwd="/"):
    done = subprocess.run([BINARY, "eval", *arguments], env=environment(home), cwd=cwd, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def stored(home):
    """The runs from the oldest on: the id, and the answers."""
    ids = [run["evalId"] for run in reversed(json.loads(command(home, "list", "--json")[1]))]
    rows = {id: json.loads(command(home, "show", id)[1])["results"]["results"] for id in ids}
    return [(id, [(row.get("response") or {}).get("output") for row in rows[id]]) for id in ids]


def test_the_suite_as_it_is_now_is_run_with_the_options_of_then(home, tmp_path):
    [(first, answers)] = stored(home)
    assert answers == ["Hello Ada", None]
    (home / "broken").unlink()
    (home / "suite.yaml").write_text(SUITE.replace("Ada", "Eve"))
    status, _, said = command(home, "rerun", "--no-table")
    assert status == 0, said
    assert [answers for _, answers in stored(home)] == [["Hello Ada", None], ["Hello Eve", "Hello Bob"]]
    # The options go on to the new run.
    assert command(home, "rerun", "latest", "--no-table", "--no-write", "-o", str(tmp_path / "unstored.json"))[0] == 0
    assert len(json.loads((tmp_path / "unstored.json").read_text())["results"]["results"]) == 2 and len(stored(home)) == 2
    assert command(home, "rerun", "latest", "--no-table")[0] == 0
    assert len(stored(home)) == 3 and stored(home)[2][1] == ["Hello Eve", "Hello Bob"]
    exported = tmp_path / "run.json"
    assert command(home, "export", first, "-o", str(exported))[0] == 0
    imported = command(home, "import", str(exported), "--new-id")[1].strip()
    status, _, said = command(home, "rerun", imported)
    assert status == 1 and "cannot be resumed or run again" in said, said
    (home / "suite.yaml").unlink()
    status, _, said = command(home, "rerun", first)
    assert status == 1 and "suite.yaml" in said, said


def test_a_relative_directory_of_runs_stays_the_same_one_in_the_directory_of_the_suite(home, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    relative = {**environment(home), "PROMPTFOO_CONFIG_DIR": "runs"}

    def run(*arguments):
        return subprocess.run([BINARY, "eval", *arguments], env=relative, cwd=elsewhere, capture_output=True, text=True, timeout=300)

    assert run("-c", str(home / "suite.yaml"), "--no-table", "-n", "2").returncode == 100
    (home / "broken").unlink()
    [first] = [each["evalId"] for each in json.loads(run("list", "--json").stdout)]
    for arguments, runs in [(("retry", first), 1), (("rerun", "--no-table"), 2), (("--resume", "--no-table"), 2)]:
        done = run(*arguments)
        assert done.returncode == 0, (arguments, done.stderr)
        assert len(json.loads(run("list", "--json").stdout)) == runs, arguments
    assert (elsewhere / "runs/evaluations.db").exists() and not (home / "runs").exists() and not (elsewhere / "~").exists()


def test_a_run_ends_with_the_page_that_started_it(home, tmp_path_factory):
    [(first, _)] = stored(home)
    seen = tmp_path_factory.mktemp("seen") / "pid"
    # It sleeps until something ends it; nothing waits for that long.
    (home / "provider.py").write_text(f"import os, time\ndef call_api(*_):\n    open({str(seen)!r}, 'w').write(str(os.getppid()))\n    time.sleep(3000)\n")
    with viewer(home, "--run") as (printed, process):
        assert asked(urlsplit(printed), f"/api/eval/{first}/run", {})[0] in (200, 202)
        run = int(until(lambda: seen.exists() and seen.read_text()))
        process.kill()
        process.wait(60)
    until(lambda: not Path(f"/proc/{run}").exists())


def until(condition):
    """What `condition` returns as soon as that is true."""
    for _ in range(600):
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError("waited for a minute")


def test_a_red_team_is_not_repeated_around_its_safety_check(home):
    (home / "check.py").write_text("def get_assert(output, context):\n    return 'import' not in output\n")
    section = {"plugins": ["sandbox:code-injection"], "strategies": ["basic"], "numTests": 1}
    (home / "promptfooconfig.yaml").write_text(json.dumps({"targets": [{"id": "file://./check.py", "label": "check"}], "redteam": section}))
    ran = subprocess.run([BINARY, "redteam", "run"], env=environment(home), cwd=home, capture_output=True, text=True, timeout=300)
    assert ran.returncode in (0, 100), ran.stderr
    attacked = stored(home)[1][0]
    status, _, said = command(home, "rerun", attacked)
    assert status == 1 and "sandcove redteam eval" in said, said
    with viewer(home, "--run") as (printed, _):
        status, answer = asked(urlsplit(printed), f"/api/eval/{attacked}/run", {})
        assert status == 400 and "red team" in answer["error"]
    assert len(stored(home)) == 2


def asked(url, path, body, token=True):
    address, [secret] = url._replace(path=path, query="").geturl(), parse_qs(url.query)["token"]
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {secret}"} if token else {})
    try:
        with urllib.request.urlopen(urllib.request.Request(address, json.dumps(body).encode(), headers), timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_only_who_has_the_token_runs_something_and_only_stored_runs(home):
    [(first, _)] = stored(home)
    with viewer(home, "--run") as (printed, _):
        url = urlsplit(printed)
        assert asked(url, f"/api/eval/{first}/run", {}, token=False)[0] == 401
        for id in ("eval-none", "--help", "-c"):
            status, answer = asked(url, f"/api/eval/{id}/run", {})
            assert status == 400 and "cannot be run again" in answer["error"]
        assert asked(url, f"/api/eval/{first}/run", {"more": 1})[0] == 400
        assert asked(url, "/api/run/stop", {}) == (200, {"stopped": False})
    with viewer(home) as (printed, _):
        url = urlsplit(printed)._replace(query="token=x")
        status, answer = asked(url, f"/api/eval/{first}/run", {})
        assert status == 404 and "sandcove view --run" in answer["error"]
    assert len(stored(home)) == 1
    refused = subprocess.run([BINARY, "view", "--run", "--host", "0.0.0.0", "-n"], env=environment(home), capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1 and "this machine only" in refused.stderr


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium")
def test_a_run_is_run_again_from_its_page(browser, within, home):  # noqa: F811
    troubles = []
    with viewer(home, "--run", within=within) as (url, _), browser.new_context() as context:
        page = context.new_page()
        page.on("console", lambda message: message.type in ("error", "warning") and troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(url)
        expect(page.locator("#table .cell.output")).to_have_count(2)
        page.get_by_role("button", name="Run again").click()
        box = page.get_by_role("dialog", name="Run again")
        # Another failure, which is shown as it is, and leaves the run as it was.
        box.get_by_label("only what ended with an error (1)").check()
        box.get_by_role("button", name="Run", exact=True).click()
        expect(box.get_by_role("status")).to_have_text("Finished, with failures.")
        expect(box.locator(".printed")).to_contain_text("eval-")
        (home / "broken").unlink()
        box.get_by_role("button", name="Run", exact=True).click()
        expect(box.get_by_role("status")).to_have_text("All passed.")
        # It is the same run, which is better now.
        box.get_by_role("button", name="Close").click()
        expect(page.locator("#about")).to_contain_text("100% passed")
        expect(page.locator("#table .cell.output .ERROR")).to_have_count(0)
        assert len(stored(home)) == 1
        (home / "suite.yaml").write_text(SUITE.replace("Ada", "Eve"))
        page.get_by_role("button", name="Run again").click()
        expect(box.get_by_label("only what ended with an error")).to_have_count(0)
        box.get_by_label("ask models even where").check()
        box.get_by_role("button", name="Run", exact=True).click()
        expect(box.get_by_role("status")).to_contain_text("All passed.")
        box.get_by_role("button", name="Open the new run").click()
        expect(page.locator("#table .cell.output").first).to_contain_text("Hello Eve")
        assert [answers for _, answers in stored(home)] == [["Hello Ada", "Hello Bob"], ["Hello Eve", "Hello Bob"]]
    assert troubles == []


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium")
def test_what_runs_is_found_again_and_stopped(browser, within, home):  # noqa: F811
    (home / "provider.py").write_text("import time\ndef call_api(prompt, options, context):\n    open('asked', 'w').close()\n    time.sleep(600)\n")
    with viewer(home, "--run", within=within) as (url, _), browser.new_context() as context:
        page = context.new_page()
        page.goto(url)
        page.get_by_role("button", name="Run again").click()
        box = page.get_by_role("dialog", name="Run again")
        box.get_by_role("button", name="Run", exact=True).click()
        expect(box.get_by_role("status")).to_contain_text("Running")
        box.get_by_role("button", name="Close").click()
        page.reload()
        page.get_by_role("button", name="Run again").click()
        expect(box.get_by_role("status")).to_contain_text("Running")
        expect(box.get_by_role("button", name="Run", exact=True)).to_be_disabled()
        stop = box.get_by_role("button", name="Stop")
        # The first one waits for what is in flight.
        while not (home / "asked").exists():
            page.wait_for_timeout(50)
        stop.click()
        expect(box.locator(".printed")).to_contain_text("Pausing")
        stop.click()
        expect(box.get_by_role("status")).to_contain_text("Ended with status 130.")
