"""What people say of the answers of a shared run, on the dashboard."""

import json
import re
import subprocess
from pathlib import Path

import httpx
import pytest
from e2b import Volume
from playwright.sync_api import Error, expect

from dashboard import HARM, axe, chromium, needs_chromium, serious, visit  # noqa: F401
from evaluations import ask, evaluate, results, shared, within  # noqa: F401

pytestmark = needs_chromium


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
