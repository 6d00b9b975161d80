"""Runs that the evaluator has shared with a team, on the dashboard."""

import json
import os
import re
import subprocess
import uuid
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from e2b import Volume, VolumeException
from playwright.sync_api import Error, expect

from dashboard import HARM, axe, chromium, needs_chromium, serious, visit  # noqa: F401
from evaluations import ask, evaluate, results, shared, within, words  # noqa: F401
from harness.server import ADMIN_TOKEN, API_KEY

pytestmark = needs_chromium


def test_a_shared_run_is_shown_to_the_team(evaluate, visit, axe):
    run = shared(evaluate)
    page = visit("/dashboard/evaluations")
    row = page.get_by_role("row").filter(has_text=HARM)
    expect(row).to_contain_text("3 of 6")
    assert serious(page, axe) == []
    row.get_by_role("link").first.click()
    expect(page.locator("h1")).to_contain_text(HARM)
    expect(page).to_have_title(re.compile("onerror.* · Sandcove$"))
    assert page.url.replace("%3A", ":").endswith(f"/dashboard/evaluations/{run}")
    shown = results(page)
    expect(shown.get_by_text("50% passed · 3 passed · 3 failed")).to_be_visible()
    table = shown.get_by_role("grid", name="Results")
    expect(table.get_by_role("row")).to_have_count(4)
    expect(table).to_contain_text("def add(a, b):\n    return a + b")
    assert serious(page, axe) == [] and serious(within(page), axe) == []
    shown.get_by_text("Failures", exact=True).click()
    expect(table.get_by_role("row")).to_have_count(3)
    shown.get_by_role("searchbox", name="Search").fill("onerror")
    expect(table.get_by_role("row")).to_have_count(2)
    # The address says what is shown, so that it can be sent to somebody and walked back.
    assert "filterMode=failures&search=onerror" in page.url
    # The keyboard alone opens a row.
    cell = table.locator("[data-place='0.0']")
    cell.focus()
    page.keyboard.press("Enter")
    dialog = shown.get_by_role("dialog")
    expect(dialog).to_contain_text("equals")
    expect(dialog).to_contain_text(HARM)
    assert serious(within(page), axe) == []
    assert "cell=1.0" in page.url
    linked = page.url
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(cell).to_be_focused()
    shown.get_by_role("searchbox", name="Search").fill("nowhere")
    expect(shown.get_by_text("No test answers that.")).to_be_visible()
    page.goto(linked)
    expect(dialog).to_contain_text(HARM)
    # Nothing is offered that is not there.
    for missing in ("Rename", "Copy", "Delete", "Run again"):
        expect(shown.get_by_role("button", name=missing, exact=True)).to_have_count(0)
    page.get_by_role("link", name="Evaluations").click()
    expect(page.get_by_role("heading", name="Evaluations")).to_be_visible()
    expect(page.locator("iframe")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_many_results_have_pages_on_a_phone_too(evaluate, visit, axe, scheme):
    run = shared(evaluate, tests=130)
    page = visit(f"/dashboard/evaluations/{run}", viewport={"width": 390, "height": 844}, color_scheme=scheme)
    shown = results(page)
    expect(shown.get_by_text("130 tests", exact=True)).to_be_visible()
    table = shown.get_by_role("grid", name="Results")
    expect(table.get_by_role("row")).to_have_count(51)
    for _ in range(2):
        shown.get_by_role("button", name="Next page").click()
    expect(shown.get_by_text("101–130 of 130")).to_be_visible()
    expect(table.get_by_role("row")).to_have_count(31)
    assert "page=3" in page.url
    page.go_back()
    expect(shown.get_by_text("51–100 of 130")).to_be_visible()
    frame = within(page)
    for one in (page, frame):
        assert one.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert serious(one, axe) == []
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight"), "only the run is scrolled"
    backs = lambda: [one.evaluate("getComputedStyle(document.documentElement).colorScheme") for one in (page, frame)]  # noqa: E731
    assert backs() == [scheme, scheme]
    other = {"light": "dark", "dark": "light"}[scheme]
    page.get_by_label("Colours").select_option(other)
    expect(shown.locator(f":root[data-theme={other}]")).to_have_count(1)
    assert backs() == [other, other]


def test_runs_are_compared(evaluate, visit, tmp_path):
    (tmp_path / "answer.py").write_text("def call_api(prompt, options, context):\n    return {'output': 'other'}\n")
    before = shared(evaluate)
    after = shared(evaluate, suite={**words(), "providers": ["python:answer.py"]})
    page = visit(f"/dashboard/evaluations/{after}")
    shown = results(page)
    expect(shown.get_by_text("0% passed · 0 passed · 6 failed")).to_be_visible()
    shown.get_by_role("button", name="Compare").click()
    option = shown.get_by_role("option").filter(has_text=before)
    expect(option).to_contain_text("same tests")
    option.click()
    table = shown.get_by_role("grid", name="Results")
    expect(table.get_by_text(f"[{before}]").first).to_be_visible()
    expect(table.get_by_text("newly failing").first).to_be_visible()
    shown.get_by_text("Newly failing", exact=True).click()
    expect(table.get_by_role("row")).to_have_count(3)
    assert f"comparisonEvalIds={before}" in page.url.replace("%3A", ":")
    expect(shown.get_by_role("img", name="How much passed in each run of these tests")).to_be_visible()
    # Another run, and back.
    page.keyboard.press("Control+k")
    expect(shown.get_by_role("option")).to_have_count(2)
    shown.get_by_role("option").filter(has_text=before).click()
    expect(shown.get_by_text("50% passed")).to_be_visible()
    assert page.url.replace("%3A", ":").endswith(f"/dashboard/evaluations/{before}")
    page.go_back()
    expect(table.get_by_text("newly failing").first).to_be_visible()
    with page.expect_download() as download:
        shown.get_by_text("Export").click()
        shown.get_by_role("link", name="Results (JSON)").click()
    assert json.loads(Path(download.value.path()).read_text())["evalId"] == after
    # What is shared while the page is open is seen there.
    evaluate("delete", after)
    (volume,) = [one for one in Volume.list() if one.name == "evaluations"]
    files = Volume.connect(volume.volume_id)
    document = json.loads(files.read_file(f"/runs/{after}.json"))
    document["config"]["description"] = "another name"
    files.write_file(f"/runs/{after}.json", json.dumps(document))
    expect(page.locator("h1")).to_have_text("another name")


def test_tables_are_those_of_the_viewer(server, evaluate, visit, tmp_path):
    """The browser answers what `sandcove view` answers, to the same questions about the same runs."""
    tests = [
        {"vars": {"word": f"word {number}", "list": [number, "x", [None, True]], "map": {"b": 1.5, "a": None}}, "metadata": {"kind": ["hard", "easy"][number % 2], "_hidden": 1, "n": number},
         "assert": [{"type": "contains", "value": "word 1", "metric": "Speed"}, {"type": "javascript", "value": "0.1 * output.length % 1", "metric": "Length"}]}
        for number in range(30)
    ]  # fmt: skip
    tests += [{"description": f"described {HARM}", "vars": {"word": "İstanbul " + "𝒳é" * 700}}, {"vars": {"word": "map"}}, {"vars": {"word": "error"}}]
    many = {"description": "words", "tags": {"team": "a"}, "prompts": ["{{word}}", "say {{word}}"], "providers": ["python:answer.py", "echo"], "tests": tests}
    (tmp_path / "answer.py").write_text(
        "def call_api(prompt, options, context):\n"
        "    if 'error' in prompt: return {'error': 'no answer'}\n"
        "    if 'map' in prompt: return {'output': {'z': [1, 2.5], 'a': None}, 'metadata': {'kind': 'odd', 'n': None}}\n"
        "    return {'output': prompt.upper() if '1' in prompt else prompt, 'cost': 0.25, 'tokenUsage': {'total': 3, 'prompt': 2, 'completion': 1}, 'metadata': {'more': len(prompt)}}\n"
    )
    run = shared(evaluate, suite=many)
    other = shared(evaluate, suite={**many, "providers": ["echo", "echo"], "tests": tests[::-1] + tests[:2]})
    where = lambda **condition: "filter=" + quote(json.dumps(condition))  # noqa: E731
    metric, metadata = {"type": "metric", "field": "Length"}, {"type": "metadata", "field": "kind"}
    queries = [
        "", "limit=7&offset=28", "limit=1000", *(f"filterMode={mode}" for mode in ("failures", "passes", "errors", "different", "highlights", "user-rated")),
        "search=WORD%201", f"search={quote('İSTANBUL')}", "search=word%20(1|2)%24&searchMode=regex", "search=(%3Fs)say.word&searchMode=regex&filterMode=passes&limit=3&offset=2",
        where(**metric, operator="gte", value=0.5), where(**metric, operator="lt", value="0.3"), where(**metric, operator="is_defined"), where(type="metric", value="Speed", operator="equals"),
        where(**metadata, operator="equals", value="odd") + "&" + where(**metadata, operator="contains", value="ha", logicOperator="or"),
        where(**metadata, operator="not_contains", value="a"), where(type="metadata", field="n", operator="exists"), where(type="metadata", field="n", operator="neq", value=3),
        f"comparisonEvalIds={other}", f"comparisonEvalIds={other}&filterMode=newly-failing", f"comparisonEvalIds={other}&filterMode=different&limit=5", f"comparisonEvalIds={other},{run}&search=map",
    ]  # fmt: skip
    page = visit(f"/dashboard/evaluations/{run}")
    with subprocess.Popen([str(server.binary), "view", str(tmp_path / "runs"), "--port", "0", "-n"], stdout=subprocess.PIPE, text=True) as process:
        try:
            view = httpx.Client(base_url=process.stdout.readline().strip(), timeout=60)
            get = lambda path: view.get(path).raise_for_status().json()  # noqa: E731
            for query in queries:
                query = f"{query}&brief=600"
                theirs = get(f"/api/eval/{run}/table?{query}")
                assert theirs["table"]["body"] or "rated" in query or "highlights" in query, query
                assert ask(page, "page", run, query) == theirs, query
            assert ask(page, "row", run, "3.1") == get(f"/api/eval/{run}/results/3.1")
            assert ask(page, "scores", run) == get(f"/api/eval/{run}/scores")["scores"]
            assert ask(page, "metadataKeys", run) == get(f"/api/eval/{run}/metadata-keys")["keys"]
            for key in ("kind", "n", "more", "none"):
                assert ask(page, "metadataValues", run, key) == get(f"/api/eval/{run}/metadata-values?key={key}")["values"]
            same = ("evalId", "createdAt", "description", "numTests", "isRedteam", "passRate", "label")
            brief = lambda runs: [{name: one[name] for name in same} | {"providers": [each["id"] for each in one["providers"]]} for one in runs]  # noqa: E731
            assert brief(ask(page, "runs")) == brief(get("/api/results?includeProviders=true")["data"])
            for wrong in ("filterMode=odd", "search=(&searchMode=regex", "filter=1", where(type="metadata", operator="like")):
                assert view.get(f"/api/eval/{run}/table?{wrong}").status_code == 400
                with pytest.raises(Error):
                    ask(page, "page", run, wrong)
        finally:
            process.terminate()


def test_the_report_of_a_red_team_is_shared(server, evaluate, visit, axe, tmp_path):
    team = {"targets": [{"id": "echo", "label": f"echo {HARM}"}], "redteam": {"purpose": f"adds numbers {HARM}", "plugins": ["sandbox:code-injection"], "strategies": ["basic"]}}
    report = json.loads(evaluate("redteam", "run", "--format", "json", suite=team, code=None).stdout)
    run = report["evalId"]
    evaluate("share", run)
    page = visit(f"/dashboard/evaluations/{run}")
    results(page).get_by_role("link", name="Report").click()
    shown = results(page)
    expect(shown.get_by_role("region", name="Outcome")).to_contain_text(f"adds numbers {HARM}")
    assert page.url.replace("%3A", ":").endswith(f"/dashboard/evaluations/{run}/report")
    frame = next(frame for frame in page.frames if "/assets/report.html" in frame.url)
    assert serious(frame, axe) == []
    with page.expect_download() as download:
        shown.get_by_role("link", name="JSON").click()
    assert json.loads(Path(download.value.path()).read_text()) == report
    shown.locator("details.plugin").first.click()
    shown.locator("details.plugin a").first.click()
    expect(results(page).get_by_role("dialog")).to_be_visible()
    results(page).get_by_role("button", name="Close (Esc)").click()
    assert page.url.replace("%3A", ":").split("?")[0].endswith(f"/dashboard/evaluations/{run}")
    page.goto(f"{server.url}/dashboard/evaluations")
    page.get_by_role("button", name=f"Delete {run}").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No runs are shared.")).to_be_visible()
    (volume,) = [one for one in Volume.list() if one.name == "evaluations"]
    assert Volume.connect(volume.volume_id).list("/runs") == []


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
    said = {"comment": HARM, "componentResults": [{"reason": HARM, "assertion": {"type": HARM, "value": {"a": HARM}}, "metadata": {"stdout": HARM, "execution": [HARM]}}]}
    odd = [
        {"vars": 1, "response": [], "gradingResult": {"componentResults": [1, {"assertion": HARM}]}}, 3,
        {"testIdx": 1, "response": {"output": HARM}, "vars": {"__proto__": HARM, HARM: [HARM]}, "namedScores": {"__proto__": 1}, "gradingResult": said, "error": HARM},
        {"testIdx": 2, "vars": [HARM], "gradingResult": {"comment": 5, "componentResults": [{"metadata": {"code": {"cases": 1, "unsafe": HARM}}}, None]}},
    ]  # fmt: skip
    files.write_file("/runs/odd.json", json.dumps({"vars": [1, HARM], "config": {"description": 7, "tags": HARM, "redteam": HARM}, "results": {"results": odd, "prompts": [None, HARM], "stats": [HARM]}}))
    files.write_file("/runs/odd.report.json", json.dumps({"targets": [HARM], "findings": 1}))
    files.write_file("/runs/list.json", "[]")
    page = visit("/dashboard/evaluations")
    expect(page.get_by_role("link", name=f"Download {run}")).to_be_visible()
    expect(page.get_by_role("link", name="Download odd")).to_be_visible()
    expect(page.get_by_role("link", name="Download broken")).to_have_count(0)
    shown = results(page)
    for name, tests in [("odd", "3 tests"), ("list", "0 tests")]:
        page.goto(f"{server.url}/dashboard/evaluations/{name}")
        expect(shown.get_by_text(tests, exact=True)).to_be_visible()
        expect(page.locator("h1")).to_have_text(name)
        expect(shown.locator("body.loading")).to_have_count(0)
        expect(shown.get_by_role("alert")).to_have_count(0)
    for cell, text in [("0.0", "Nothing was checked|0 of 2 hold"), ("1.0", "onerror"), ("2.0", "is not a function|Cannot read")]:
        page.goto(f"{server.url}/dashboard/evaluations/odd?cell={cell}")
        expect(shown.get_by_role("dialog")).to_contain_text(re.compile(text))
        page.keyboard.press("Escape")
    page.goto(f"{server.url}/dashboard/evaluations/odd?filter=1&filterMode=odd&search=onerror&page=x&cell=y")
    expect(shown.get_by_role("alert").or_(shown.get_by_text("of 3 tests"))).to_be_visible()
    page.goto(f"{server.url}/dashboard/evaluations/odd/report")
    expect(shown.get_by_role("alert")).to_be_visible()
    page.goto(f"{server.url}/dashboard/evaluations/none")
    expect(shown.get_by_role("alert")).to_be_visible()
    page.goto(f"{server.url}/dashboard/evaluations/none/report")
    expect(shown.get_by_role("alert")).to_contain_text("share it again")
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
    expect(results(page).get_by_role("alert")).to_contain_text("no runs are shared")


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
