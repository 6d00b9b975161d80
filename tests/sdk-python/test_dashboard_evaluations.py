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
from harness.server import ADMIN_TOKEN, API_KEY

pytestmark = needs_chromium

CODE = "def add(a, b):\n    return a + b\n"


def words(count: int = 3) -> dict:
    tests = [{"vars": {"word": f"word {number}", "code": CODE}, "assert": [{"type": "contains", "value": "word"}]} for number in range(count - 2)]
    tests.append({"vars": {"word": HARM, "code": CODE}, "assert": [{"type": "equals", "value": HARM}, {"type": "contains", "value": HARM}]})
    tests.append({"vars": {"word": "last", "code": CODE}, "assert": [{"type": "javascript", "value": "output.length < 0"}]})
    return {"description": f"words {HARM}", "prompts": ["say {{word}}\n{{code}}", "{{word}}"], "providers": ["echo"], "tests": tests}


@pytest.fixture
def evaluate(server, tmp_path):
    """Runs `sandcove eval` with arguments, where a suite of some tests is."""

    def evaluate(*arguments: str, tests: int = 3, suite: dict | None = None, code: int | None = 0) -> subprocess.CompletedProcess:
        (tmp_path / "promptfooconfig.json").write_text(json.dumps(suite or words(tests)))
        env = {**os.environ, **server.env, "PROMPTFOO_CONFIG_DIR": str(tmp_path / "runs"), "SANDCOVE_DATA_DIR": str(server.data_dir)}
        command = [str(server.binary), *(["eval"] if arguments[0] != "redteam" else []), *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
        assert code is None or done.returncode == code, done.stdout + done.stderr
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


def results(page):
    """The frame of a run."""
    return page.frame_locator("iframe.viewer")


def within(page):
    """The document in the frame of a run, once it shows something."""
    expect(results(page).locator("#name")).not_to_have_text("Sandcove")
    return next(frame for frame in page.frames if "/assets/viewer.html" in frame.url)


def ask(page, call: str, *given):
    """What the module of the page with the runs answers, which is asked as the page asks it."""
    return within(page).evaluate("async ([call, ...given]) => (await import('/dashboard/assets/viewer.js')).api[call](...given)", [call, *given])


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


def rate(page, run: str, place: str, verdict: dict) -> dict:
    """Stores a verdict of a row as the page knows it."""
    script = "async ([run, place, verdict]) => { const { api } = await import('/dashboard/assets/viewer.js'); return api.rate(run, place, verdict, await api.row(run, place)); }"
    return within(page).evaluate(script, [run, place, verdict])


def rating(given: dict, passed: bool | None, comment: str = "") -> dict:
    """The verdict of a row with what a person says of it, as the page makes it (`crates/viewer/src/page/rating.js`)."""
    parts = [part for part in given.get("componentResults") or [] if (part.get("assertion") or {}).get("type") != "human"]
    verdict = {**given, "componentResults": parts, **({"comment": comment} if comment else {})}
    if passed is None:
        return verdict
    made = {name: given.get(name) for name in ("pass", "score", "reason")}
    human = {"pass": passed, "score": 0.75 if passed else 0, "reason": "rated by a person"}
    return {**verdict, **human, "componentResults": [*parts, {**human, "assertion": {"type": "human"}, "metadata": {"made": made}}]}


def test_ratings_count_as_in_the_viewer(server, evaluate, visit, tmp_path):
    """The same ratings of the same run give the same rows and tables there and here."""
    (tmp_path / "answer.py").write_text(
        "def call_api(prompt, options, context):\n    return {'error': 'no answer'} if 'error' in prompt else {'output': prompt}\n"
    )
    checks = [{"type": "contains", "value": "good", "metric": "Good"}, {"type": "javascript", "value": "output.length / 16", "metric": "Length"}]
    suite = {"description": "rated", "prompts": ["{{word}}", "say {{word}}"], "providers": ["python:answer.py"],
             "tests": [{"vars": {"word": word}, "assert": checks} for word in ("good", "bad", "error", "good too")]}  # fmt: skip
    run = shared(evaluate, suite=suite)
    page = visit(f"/dashboard/evaluations/{run}")
    rated = [("0.0", False, HARM), ("1.0", True, ""), ("2.0", True, "it is right to refuse"), ("2.1", None, "!highlight an error"), ("1.1", True, ""), ("1.1", None, ""), ("3.0", None, "only a comment"), ("3.1", False, "")]
    said = {}
    with subprocess.Popen([str(server.binary), "view", str(tmp_path / "runs"), "--port", "0", "-n"], stdout=subprocess.PIPE, text=True) as process:
        try:
            view = httpx.Client(base_url=process.stdout.readline().strip(), timeout=60)
            for place, passed, comment in rated:
                row = view.get(f"/api/eval/{run}/results/{place}").raise_for_status().json()
                verdict = row.get("gradingResult") or {"pass": row["success"], "score": row["score"], "reason": row.get("error") or ""}
                if any((part.get("assertion") or {}).get("type") == "human" for part in verdict.get("componentResults") or []):
                    verdict |= verdict["componentResults"][-1]["metadata"]["made"]
                verdict = rating(verdict, passed, comment)
                theirs = view.post(f"/api/eval/{run}/results/{place}/rating", json=verdict).raise_for_status().json()
                ours = said[place] = rate(page, run, place, verdict)
                for name in ("success", "score", "failureReason", "error", "namedScores"):
                    assert ours.get(name) == theirs.get(name), (place, name)
            # Another browser reads it all from the volume.
            page = visit(f"/dashboard/evaluations/{run}")
            for query in ("", "filterMode=user-rated", "filterMode=highlights", "filterMode=failures", "filterMode=errors", "filterMode=passes", "search=refuse"):
                theirs = view.get(f"/api/eval/{run}/table?{query}&brief=600").raise_for_status().json()
                assert theirs["table"]["body"], query
                assert ask(page, "page", run, f"{query}&brief=600") == theirs, query
            for place, row in said.items():
                assert ask(page, "row", run, place) == row, place
        finally:
            process.terminate()


def test_a_team_rates_the_answers_of_a_run(server, evaluate, visit, axe, tmp_path):
    run = shared(evaluate)
    (volume,) = [one for one in Volume.list() if one.name == "evaluations"]
    files = Volume.connect(volume.volume_id)
    first, second = visit(f"/dashboard/evaluations/{run}?cell=0.0"), visit(f"/dashboard/evaluations/{run}?cell=2.0")
    for page, press in ((first, "✗ Fail"), (second, "✓ Pass")):
        results(page).get_by_role("button", name=press).click()
        expect(results(page).get_by_role("button", name=press)).to_have_attribute("aria-pressed", "true")
    results(first).get_by_label("Comment").fill(HARM)
    results(first).get_by_role("button", name="Highlight (*)").click()
    expect(results(first).get_by_role("button", name="Highlight (*)")).to_have_attribute("aria-pressed", "true")
    assert serious(within(first), axe) == []
    expect(results(first).get_by_text("50% passed · 3 passed · 3 failed")).to_be_visible()
    assert {entry.name for entry in files.list(f"/runs/{run}.ratings")} == {"0.0.json", "2.0.json"}
    # Each sees what the other says, without loading the page again.
    first.keyboard.press("Escape")
    results(first).get_by_text("Rated", exact=True).click()
    expect(results(first).get_by_role("grid", name="Results").get_by_role("row")).to_have_count(3)
    assert json.loads(files.read_file(f"/runs/{run}.ratings/0.0.json"))["comment"] == f"!highlight {HARM}"
    # Who has not seen the rating of somebody else does not replace it.
    second.goto(f"{server.url}/dashboard/evaluations/{run}?cell=1.0")
    expect(results(second).get_by_role("button", name="✗ Fail")).to_be_visible()
    within(second).evaluate("Object.defineProperty(document, 'visibilityState', { get: () => 'hidden' })")
    first.goto(f"{server.url}/dashboard/evaluations/{run}?cell=1.0")
    results(first).get_by_role("button", name="✗ Fail").click()
    expect(results(first).get_by_role("button", name="✗ Fail")).to_have_attribute("aria-pressed", "true")
    results(second).get_by_role("button", name="✓ Pass").click()
    expect(results(second).get_by_text("Somebody else has rated this answer meanwhile.")).to_be_visible()
    assert json.loads(files.read_file(f"/runs/{run}.ratings/1.0.json"))["pass"] is False
    expect(results(second).get_by_role("button", name="✗ Fail")).to_have_attribute("aria-pressed", "true")
    # Now it is known.
    results(second).get_by_role("button", name="✓ Pass").click()
    expect(results(second).get_by_role("button", name="✓ Pass")).to_have_attribute("aria-pressed", "true")
    # What is said of another answer in its place, or is no rating, counts for nothing.
    said = {"row": "another", "pass": False, "score": 0, "comment": HARM}
    for name, text in [("0.1.json", json.dumps(said)), ("1.1.json", "{"), ("2.1.json", "[1]"), ("note.txt", HARM)]:
        files.write_file(f"/runs/{run}.ratings/{name}", text)
    first.goto(f"{server.url}/dashboard/evaluations/{run}?filterMode=user-rated")
    expect(results(first).get_by_role("grid", name="Results").get_by_role("row")).to_have_count(4)
    # The file of the page and of the list has the ratings.
    with first.expect_download() as download:
        results(first).get_by_text("Export").click()
        results(first).get_by_role("link", name="Results (JSON)").click()
    whole = json.loads(Path(download.value.path()).read_text())
    rows = {(row["testIdx"], row["promptIdx"]): row["success"] for row in whole["results"]["results"]}
    assert [rows[place] for place in ((0, 0), (1, 0), (2, 0))] == [False, True, True] and rows[0, 1]
    page = visit("/dashboard/evaluations")
    with page.expect_download() as download:
        page.get_by_role("link", name=f"Download {run}").click()
    file = Path(tmp_path / "rated.json")
    download.value.save_as(file)
    assert json.loads(file.read_text()) == whole
    evaluate("delete", run)
    assert evaluate("import", str(file)).stdout.strip() == run
    stored = json.loads(evaluate("show", run, "--json").stdout)
    assert stored["results"]["stats"]["successes"] == whole["results"]["stats"]["successes"] == sum(rows.values())
    page.get_by_role("button", name=f"Delete {run}").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No runs are shared.")).to_be_visible()
    assert files.list("/runs") == []


def pressed(page, name: str):
    """Expects that a button of the row that is open is pressed."""
    expect(results(page).get_by_role("button", name=name)).to_have_attribute("aria-pressed", "true")


def press(page, *keys: str):
    """Presses keys faster than the first of them is stored."""
    within(page).evaluate("keys => keys.forEach(key => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true })))", keys)


def hide(page):
    """Looks at no changes any more."""
    within(page).evaluate("Object.defineProperty(document, 'visibilityState', { get: () => 'hidden' })")


REFUSED = "Somebody else has rated this answer meanwhile."


def test_nobody_overwrites_a_rating_unseen(evaluate, visit):
    run = shared(evaluate)
    (volume,) = [one for one in Volume.list() if one.name == "evaluations"]
    files = Volume.connect(volume.volume_id)
    stored = lambda: json.loads(files.read_file(f"/runs/{run}.ratings/0.0.json"))  # noqa: E731
    first, second = (visit(f"/dashboard/evaluations/{run}?cell=0.0") for _ in range(2))
    for page in (first, second):
        expect(results(page).get_by_role("button", name="✗ Fail")).to_be_visible()
    # A row that is open shows what somebody else says of it.
    results(first).get_by_role("button", name="✗ Fail").click()
    pressed(second, "✗ Fail")
    expect(results(second).get_by_role("dialog").locator("h2")).to_contain_text("FAIL")
    assert set(stored()) == {"row", "pass", "score", "comment"} and stored()["pass"] is False
    # What the page knows and does not show yet was not seen.
    hide(second)
    results(first).get_by_role("button", name="✓ Pass").click()
    pressed(first, "✓ Pass")
    with pytest.raises(Error, match=REFUSED):
        rate(second, run, "0.0", {"comment": "late"})
    results(second).get_by_role("button", name="✓ Pass").click()
    expect(results(second).get_by_text(REFUSED)).to_be_visible()
    pressed(second, "✓ Pass")
    assert stored()["pass"] is True and stored()["comment"] == ""
    # Nothing that was typed is lost.
    comment = results(second).get_by_label("Comment")
    comment.press_sequentially("mine")
    hide(first)
    results(first).get_by_label("Comment").fill(HARM)
    results(first).get_by_role("button", name="Highlight (*)").click()
    pressed(first, "Highlight (*)")
    comment.press("Tab")
    expect(comment).to_have_value(f"{HARM}\nmine")
    assert stored()["comment"] == f"!highlight {HARM}"
    comment.press("Tab")
    expect(results(second).get_by_text("Saved.")).to_be_visible()
    assert stored()["comment"] == f"!highlight {HARM}\nmine" and stored()["pass"] is True
    # The first page knows nothing of that. The table shows it after it was refused.
    first.keyboard.press("Escape")
    expect(results(first).get_by_role("dialog")).to_have_count(0)
    cell = results(first).locator("[data-place='0.0']")
    cell.focus()
    first.keyboard.press("-")
    expect(results(first).get_by_text(REFUSED)).to_be_visible()
    expect(results(first).locator("body.loading")).to_have_count(0)
    assert stored()["pass"] is True
    first.keyboard.press("-")
    expect(cell).to_contain_text("✗ rated")
    assert stored() | {"row": ""} == {"row": "", "pass": False, "score": 0, "comment": f"!highlight {HARM}\nmine"}


def test_ratings_are_kept_however_fast_they_are_and_whatever_there_is(server, evaluate, visit):
    run = shared(evaluate)
    (volume,) = [one for one in Volume.list() if one.name == "evaluations"]
    files = Volume.connect(volume.volume_id)
    stored = lambda place: json.loads(files.read_file(f"/runs/{run}.ratings/{place}.json"))  # noqa: E731
    # An answer with a text that ended with an error all the same.
    document = json.loads(files.read_file(f"/runs/{run}.json"))
    (row,) = [row for row in document["results"]["results"] if (row["testIdx"], row["promptIdx"]) == (2, 1)]
    row |= {"success": False, "failureReason": 2, "error": "it broke"}
    files.write_file(f"/runs/{run}.json", json.dumps(document))
    page = visit(f"/dashboard/evaluations/{run}")
    cell = lambda place: results(page).locator(f"[data-place='{place}']")  # noqa: E731
    cell("0.0").focus()
    press(page, "-", "*")
    expect(cell("0.0")).to_contain_text("★")
    expect(cell("0.0")).to_contain_text("✗ rated")
    assert (stored("0.0")["pass"], stored("0.0")["comment"]) == (False, "!highlight")
    cell("1.0").click()
    expect(results(page).get_by_role("button", name="✓ Pass")).to_be_visible()
    press(page, "-", "*", "-", "+")
    expect(cell("1.0")).to_contain_text("✓ rated")
    expect(cell("1.0")).to_contain_text("★")
    assert (stored("1.0")["pass"], stored("1.0")["comment"]) == (True, "!highlight")
    page.keyboard.press("Escape")
    expect(results(page).get_by_role("dialog")).to_have_count(0)
    expect(cell("2.1")).to_contain_text("it broke")
    cell("2.1").focus()
    press(page, "+")
    expect(cell("2.1")).to_contain_text("✓ rated")
    expect(cell("2.1")).not_to_contain_text("it broke")
    press(page, "+")
    for _ in range(2):
        expect(cell("2.1")).to_contain_text("ERROR")
        expect(cell("2.1")).to_contain_text("it broke")
        page.goto(f"{server.url}/dashboard/evaluations/{run}")
    # What is too long to be read is not written.
    with pytest.raises(Error, match="too long"):
        rate(page, run, "0.0", {"comment": "é" * 500_001})
    # A file that somebody else has made too long is no rating, and can be replaced by one.
    files.write_file(f"/runs/{run}.ratings/0.1.json", json.dumps({"row": "x" * 1_000_000}))
    page.goto(f"{server.url}/dashboard/evaluations/{run}")
    cell("0.1").focus()
    press(page, "-")
    expect(cell("0.1")).to_contain_text("✗ rated")
    assert stored("0.1")["pass"] is False
    # A rating that cannot be read now is not overwritten, and hides nothing else.
    page.route(re.compile("0\\.0\\.json"), lambda route: route.fulfill(status=500, json={"message": "not now"}) if route.request.method == "GET" else route.continue_())
    page.goto(f"{server.url}/dashboard/evaluations/{run}")
    expect(cell("1.0")).to_contain_text("✓ rated")
    expect(cell("0.0")).not_to_contain_text("rated")
    cell("0.0").focus()
    press(page, "+")
    expect(results(page).get_by_text(REFUSED)).to_be_visible()
    assert stored("0.0")["pass"] is False
    page.unroute_all()
    visit.troubles[:] = [trouble for trouble in visit.troubles if "500" not in trouble]


def test_the_list_deletes_and_downloads_what_there_is_now(evaluate, visit):
    run = shared(evaluate)
    (volume,) = [one for one in Volume.list() if one.name == "evaluations"]
    listed = visit("/dashboard/evaluations")
    expect(listed.get_by_role("link", name=f"Download {run}")).to_be_visible()
    page = visit(f"/dashboard/evaluations/{run}?cell=1.0")
    results(page).get_by_role("button", name="✗ Fail").click()
    pressed(page, "✗ Fail")
    with listed.expect_download() as download:
        listed.get_by_role("link", name=f"Download {run}").click()
    rows = json.loads(Path(download.value.path()).read_text())["results"]["results"]
    assert [row["success"] for row in rows if (row["testIdx"], row["promptIdx"]) == (1, 0)] == [False]
    hide(page)
    listed.get_by_role("button", name=f"Delete {run}").click()
    listed.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(listed.get_by_text("No runs are shared.")).to_be_visible()
    # Whoever still sees the run cannot rate it any more.
    results(page).get_by_role("button", name="✓ Pass").click()
    expect(results(page).get_by_text("This run is not shared, or not any more.").first).to_be_visible()
    assert Volume.connect(volume.volume_id).list("/runs") == []


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
