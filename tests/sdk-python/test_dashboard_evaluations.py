"""Runs that the evaluator has shared with a team, on the dashboard."""

import json
import os
import subprocess
import uuid
from pathlib import Path

import httpx
import pytest
from e2b import Volume, VolumeException
from playwright.sync_api import expect

from dashboard import HARM, axe, chromium, needs_chromium, serious, visit  # noqa: F401
from harness.server import ADMIN_TOKEN, API_KEY

pytestmark = needs_chromium

CODE = "def add(a, b):\n    return a + b\n"


def suite(count: int = 3) -> dict:
    tests = [{"vars": {"word": f"word {number}", "code": CODE}, "assert": [{"type": "contains", "value": "word"}]} for number in range(count - 2)]
    tests.append({"vars": {"word": HARM, "code": CODE}, "assert": [{"type": "equals", "value": HARM}, {"type": "contains", "value": HARM}]})
    tests.append({"vars": {"word": "last", "code": CODE}, "assert": [{"type": "javascript", "value": "output.length < 0"}]})
    return {"description": f"words {HARM}", "prompts": ["say {{word}}\n{{code}}", "{{word}}"], "providers": ["echo"], "tests": tests}


@pytest.fixture
def evaluate(server, tmp_path):
    """Runs `sandcove eval` with arguments, where a suite of some tests is."""

    def evaluate(*arguments: str, tests: int = 3, code: int = 0) -> subprocess.CompletedProcess:
        (tmp_path / "promptfooconfig.json").write_text(json.dumps(suite(tests)))
        env = {**os.environ, **server.env, "PROMPTFOO_CONFIG_DIR": str(tmp_path / "runs"), "SANDCOVE_DATA_DIR": str(server.data_dir)}
        command = [str(server.binary), "eval", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    yield evaluate
    for volume in Volume.list():
        if volume.name == "evaluations":
            Volume.destroy(volume.volume_id)


def shared(evaluate, arguments=(), **options) -> str:
    """The id of a run that was shared."""
    told = evaluate("-c", "promptfooconfig.json", "--share", "--no-table", *arguments, code=100, **options).stderr
    (address,) = [line.removeprefix("Shared: ") for line in told.splitlines() if line.startswith("Shared: ")]
    assert "/dashboard/evaluations/eval-" in address
    return address.rsplit("/", 1)[1]


def test_a_shared_run_is_shown_to_the_team(evaluate, visit, axe):
    run = shared(evaluate)
    page = visit("/dashboard/evaluations")
    row = page.get_by_role("row").filter(has_text=HARM)
    expect(row).to_contain_text("3 of 6")
    assert serious(page, axe) == []
    row.get_by_role("link").first.click()
    expect(page.locator("h1")).to_contain_text(HARM)
    assert page.url.replace("%3A", ":").endswith(f"/dashboard/evaluations/{run}")
    expect(page.get_by_text("50.0 % passed")).to_be_visible()
    results = page.get_by_role("region", name="Results")
    expect(results.get_by_role("row")).to_have_count(4)
    expect(results).to_contain_text("def add(a, b):\n    return a + b")
    page.get_by_role("combobox", name="Results").select_option("failures")
    expect(results.get_by_role("row")).to_have_count(3)
    page.get_by_label("Find in variables").fill("onerror")
    expect(results.get_by_role("row")).to_have_count(2)
    results.get_by_role("button", name="Open test 2").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("equals")
    expect(dialog).to_contain_text(HARM)
    assert serious(page, axe) == []
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.get_by_label("Find in variables").fill("nowhere")
    expect(page.get_by_text("No tests match.")).to_be_visible()


def test_many_results_have_pages_on_a_phone_too(evaluate, visit):
    run = shared(evaluate, tests=130)
    page = visit(f"/dashboard/evaluations/{run}", viewport={"width": 390, "height": 844}, color_scheme="dark")
    expect(page.get_by_text("130 of 130 tests")).to_be_visible()
    results = page.get_by_role("region", name="Results")
    expect(results.get_by_role("row")).to_have_count(51)
    for _ in range(2):
        page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("page 3 of 3")).to_be_visible()
    expect(results.get_by_role("row")).to_have_count(31)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_run_is_downloaded_imported_and_deleted(evaluate, visit, tmp_path):
    run = shared(evaluate)
    for given in ([], [run], ["latest"]):
        told = json.loads(evaluate("share", *given, "--json").stdout)
        assert told["evalId"] == run and told["url"].endswith(f"/dashboard/evaluations/{run}")
    page = visit("/dashboard/evaluations")
    expect(page.get_by_role("link", name=f"Download {run}")).to_have_count(1)
    with page.expect_download() as download:
        page.get_by_role("link", name=f"Download {run}").click()
    file = Path(tmp_path / "shared.json")
    download.value.save_as(file)
    evaluate("delete", run)
    assert evaluate("import", str(file)).stdout.strip() == run
    assert run in evaluate("list").stdout
    page.get_by_role("button", name=f"Delete {run}").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No runs are shared.")).to_be_visible()


def test_files_that_are_no_runs_do_no_harm(server, evaluate, visit):
    run = shared(evaluate)
    (volume,) = [one for one in Volume.list() if one.name == "evaluations"]
    files = Volume.connect(volume.volume_id)
    for name, text in [("broken.head.json", "{"), ("list.head.json", "[1]"), ("odd.head.json", json.dumps({"stats": 1, "providers": {}, "description": {"a": HARM}})), ("note.txt", "x")]:
        files.write_file(f"/runs/{name}", text)
    files.write_file("/runs/odd.json", json.dumps({"results": {"results": [{"vars": 1, "response": [], "gradingResult": {"componentResults": [1, {"assertion": HARM}]}}, 3], "prompts": [None, HARM]}}))
    files.write_file("/runs/list.json", "[]")
    page = visit("/dashboard/evaluations")
    expect(page.get_by_role("link", name=f"Download {run}")).to_be_visible()
    expect(page.get_by_role("link", name="Download odd")).to_be_visible()
    expect(page.get_by_role("link", name="Download broken")).to_have_count(0)
    for name, tests in [("odd", "1 of 1 tests"), ("list", "0 of 0 tests")]:
        page.goto(f"{server.url}/dashboard/evaluations/{name}")
        expect(page.get_by_text(tests)).to_be_visible()
        expect(page.locator("h1")).to_have_text(name)
        expect(page.get_by_text("Loading…")).to_have_count(0)
    page.goto(f"{server.url}/dashboard/evaluations/none")
    expect(page.get_by_role("alert")).to_be_visible()
    visit.troubles[:] = [trouble for trouble in visit.troubles if "404" not in trouble]


def key_of_others(server, **limits) -> str:
    """A key of a new team."""
    admin = {"X-Admin-Token": ADMIN_TOKEN}
    new = {"name": f"Others {uuid.uuid4().hex[:8]}", "limits": limits}
    team = httpx.post(f"{server.url}/admin/teams", json=new, headers=admin).raise_for_status().json()
    made = httpx.post(f"{server.url}/admin/teams/{team['id']}/api-keys", json={"name": "k"}, headers=admin)
    return made.raise_for_status().json()["key"]


def test_a_full_volume_keeps_the_run_that_was_shared(server, evaluate, tmp_path):
    key = key_of_others(server, diskMb=64)
    (tmp_path / "key").write_text(key)
    theirs = ["--url", server.url, "--api-key-file", str(tmp_path / "key")]
    run = shared(evaluate, arguments=theirs)
    (volume,) = Volume.list(api_key=key)
    files = Volume.connect(volume.volume_id, api_key=key)
    before = files.read_file(f"/runs/{run}.json")
    try:
        for part in range(64):
            files.write_file(f"/full-{part}", os.urandom(1 << 20))
    except VolumeException as full:
        assert "507" in str(full)
    evaluate("-c", "promptfooconfig.json", "--no-table", code=100, tests=40_000)
    told = evaluate("share", *theirs, code=1).stderr
    assert "error: failed to write `/runs/eval-" in told
    assert files.read_file(f"/runs/{run}.json") == before
    Volume.destroy(volume.volume_id, api_key=key)


def test_another_team_sees_nothing_of_it(server, evaluate, visit):
    run = shared(evaluate)
    key = key_of_others(server)
    page = visit("/dashboard/evaluations", credential=key)
    expect(page.get_by_text("No runs are shared.")).to_be_visible()
    page.goto(f"{server.url}/dashboard/evaluations/{run}")
    expect(page.get_by_role("alert")).to_contain_text("no runs are shared")


def test_a_run_that_cannot_be_shared_goes_on(evaluate, tmp_path, monkeypatch, server):
    (tmp_path / "key").write_text(API_KEY)
    nowhere = ["--url", "http://127.0.0.1:9", "--api-key-file", str(tmp_path / "key")]
    told = evaluate("-c", "promptfooconfig.json", "--share", *nowhere, code=100)
    assert "not shared: no answer from http://127.0.0.1:9" in told.stderr and "hint: try again with `sandcove eval share eval-" in told.stderr
    assert "eval-" in evaluate("list").stdout
    told = evaluate("share", *nowhere, code=1)
    assert "no answer from http://127.0.0.1:9" in told.stderr
    (tmp_path / "key").write_text("e2b_" + "0" * 40)
    told = evaluate("-c", "promptfooconfig.json", "--share", "--api-key-file", str(tmp_path / "key"), code=100)
    assert "not shared: the server at" in told.stderr and "does not accept the API key" in told.stderr
    told = evaluate("share", "eval-none", code=1)
    assert "no run `eval-none` is stored" in told.stderr
