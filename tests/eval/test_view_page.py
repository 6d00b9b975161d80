"""The page of `sandcove view` in a real browser, with answers that mean harm."""

import contextlib
import csv
import io
import json
import os
import re
import shlex
import shutil
import sqlite3
from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.sync_api import TimeoutError as PlaywrightTimeout
from playwright.sync_api import expect, sync_playwright

from viewing import evaluate, network, viewer

CHROMIUM = os.environ.get("SANDCOVE_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium")

# A machine may be busy with other tests.
TIMEOUT = 90_000
expect.set_options(timeout=TIMEOUT)

HARM = "<script>window.harmed=1</script><img src=x onerror='window.harmed=2'></script>\"'`${harm}"
SUITE = f"""
description: First run
tags: {{team: core}}
prompts: ['Say {{{{answer}}}}', 'Tell {{{{answer}}}}']
providers: [echo, 'python:provider.py']
tests:
  - description: right
    vars: {{answer: Paris, place: 'Zürich'}}
    metadata: {{kind: easy}}
    assert: [{{type: contains, value: Paris, metric: Right}}, {{type: equals, value: 'Say Paris'}}]
  - vars: {{answer: {json.dumps(HARM)}, place: {json.dumps(HARM)}}}
    metadata: {{kind: {json.dumps(HARM)}}}
    assert: [{{type: contains, value: {json.dumps(HARM + "absent")}, metric: {json.dumps(HARM)}}}]
  - vars: {{answer: "```python\\ndef f(x):\\n    return x  # same\\n```", place: Bern}}
    metadata: {{kind: hard}}
    assert: [{{type: contains, value: absent, metric: Right}}]
  - vars: {{answer: huge, place: Rome}}
  - vars: {{answer: nothing, place: Oslo}}
"""
PROVIDER = """
def call_api(prompt, options, context):
    if "nothing" in prompt:
        return {"error": "no answer to be had"}
    return {"output": "word " * 100_000 if "huge" in prompt else prompt}
"""


@pytest.fixture(scope="module")
def within():
    """A network of its own: Chromium drops connections whenever an interface comes or goes, as those of sandboxes do."""
    with network() as within:
        yield within


@pytest.fixture(scope="module")
def browser(within, tmp_path_factory):
    program = tmp_path_factory.mktemp("browser") / "chromium"
    program.write_text(f'#!/bin/sh\nexec {shlex.join([*within, CHROMIUM])} "$@"\n')
    program.chmod(0o755)
    with sync_playwright() as playwright:
        # Chromium's own sandbox does not work for root.
        with playwright.chromium.launch(executable_path=program, args=["--no-sandbox"], timeout=2 * TIMEOUT) as browser:
            yield browser


@pytest.fixture
def home(tmp_path):
    (tmp_path / "provider.py").write_text(PROVIDER)
    evaluate(tmp_path, SUITE)
    return tmp_path


@pytest.fixture
def page(browser, home, within):
    """The page, which must not complain, ask other hosts, or run what a model wrote."""
    troubles = []
    with viewer(home, within=within) as (url, _), browser.new_context(accept_downloads=True) as context:
        context.set_default_timeout(TIMEOUT)
        page = context.new_page()
        page.on("console", lambda message: message.type in ("error", "warning") and troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on("request", lambda request: request.url.startswith((url, "blob:")) or troubles.append(request.url))
        page.goto(url)
        expect(page.locator("#table .cell.output")).to_have_count(20)
        yield page
        assert page.evaluate("window.harmed") is None
        assert page.evaluate("document.querySelectorAll('img, iframe, script:not([src=\"/start.js\"])').length") == 0
    assert troubles == []


def lines(page):
    return page.locator("#table .line:not(.heads)")


def test_the_table_shows_what_was_stored(page):
    expect(page.locator("#name")).to_have_text("First run")
    expect(page.locator(".head.output")).to_have_count(4)
    first = page.locator(".cell.output").first
    expect(first).to_contain_text("PASS")
    expect(first).to_contain_text("Say Paris")
    expect(lines(page).nth(1)).to_contain_text(HARM)
    expect(lines(page).nth(4).locator(".ERROR").first).to_contain_text("no answer to be had")
    # What is huge is not sent for the table.
    assert len(lines(page).nth(3).inner_text()) < 10_000
    expect(page.locator("#charts svg").first).to_be_visible()


def test_rows_are_chosen_by_kind_text_and_conditions(page):
    page.get_by_text("Errors", exact=True).click()
    expect(lines(page)).to_have_count(1)
    expect(page).to_have_url(re.compile("filterMode=errors"))
    page.get_by_text("All", exact=True).click()
    page.locator("#search").fill("zürich")
    expect(lines(page)).to_have_count(1)
    page.locator("#search").fill("^(rome|bern)$")
    expect(lines(page)).to_have_count(0)
    page.locator("#regex").check()
    expect(lines(page)).to_have_count(2)
    page.reload()
    expect(lines(page)).to_have_count(2)
    page.locator("#search").fill("")
    expect(lines(page)).to_have_count(5)
    page.get_by_role("button", name="Condition").click()
    condition = page.locator(".condition")
    condition.locator(".field").fill("kind")
    condition.get_by_label("Value").fill("hard")
    condition.get_by_label("Value").press("Enter")
    expect(lines(page)).to_have_count(1)
    expect(page.locator("#count")).to_have_text("1 of 5 tests")
    condition.get_by_role("button", name="Remove").click()
    expect(lines(page)).to_have_count(5)
    page.get_by_text("Different", exact=True).click()
    expect(lines(page)).to_have_count(5)


def test_a_row_is_opened_and_walked_through_by_keys(page):
    page.locator(".cell.output").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    row = page.locator("dialog.row")
    expect(row).to_contain_text("Test 1")
    expect(row.locator(".check.FAIL")).to_contain_text("equals")
    expect(row.locator(".check.FAIL .diff ins")).to_have_text("Tell")
    page.keyboard.press("n")
    expect(row).to_contain_text("Test 2")
    expect(row.locator("#output")).to_contain_text(HARM)
    expect(row.locator(".check")).to_contain_text(HARM + "absent")
    expect(page).to_have_url(re.compile(r"cell=1\.1"))
    page.keyboard.press("n")
    expect(row.locator("#output .c-keyword").first).to_have_text("def")
    row.locator("#beside").select_option("0")
    expect(row.locator("table.beside")).to_contain_text("Say ```python")
    page.keyboard.press("[")
    expect(row.locator("header select")).to_have_value("0")
    page.reload()
    expect(page.locator("dialog.row")).to_contain_text("Test 3")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)


def test_answers_are_rated_by_keys(page):
    cell = page.locator(".cell.output").nth(4)
    expect(cell).to_contain_text("FAIL")
    cell.focus()
    page.keyboard.press("+")
    expect(cell).to_contain_text("PASS")
    expect(cell).to_contain_text("✓ rated")
    expect(page.locator(".head.output").first).to_contain_text("4 of 5")
    page.keyboard.press("*")
    expect(cell).to_contain_text("★")
    page.keyboard.press("c")
    row = page.locator("dialog.row")
    row.locator("#comment").fill(HARM)
    row.locator("#score").fill("0.25")
    row.locator("#score").press("Tab")
    expect(row.locator("header")).to_contain_text("score 0.25")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    page.get_by_text("Rated", exact=True).click()
    expect(lines(page)).to_have_count(1)
    page.reload()
    page.locator(".cell.output").first.click()
    expect(row.locator("#comment")).to_have_value(HARM)
    row.get_by_role("button", name="Pass").click()
    expect(row.locator("header .chip")).to_have_text("FAIL")


def test_ratings_are_kept_however_fast_and_from_wherever_they_come(page):
    cell = page.locator(".cell.output").nth(4)
    cell.focus()
    # Faster than the first of them is stored.
    press = "keys => keys.forEach(key => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true })))"
    page.evaluate(press, ["+", "*"])
    expect(cell).to_contain_text("★")
    expect(cell).to_contain_text("✓ rated")
    page.keyboard.press("Enter")
    row = page.locator("dialog.row")
    pressed = lambda name: expect(row.get_by_role("button", name=name)).to_have_attribute("aria-pressed", "true")  # noqa: E731
    pressed("Pass")
    # Somebody else rates it on another page: this one shows that.
    with page.context.new_page() as other:
        other.goto(page.url)
        other.locator("dialog.row").get_by_role("button", name="Fail").click()
        pressed("Fail")
        expect(row.locator("header .chip")).to_have_text("FAIL")
    page.evaluate(press, ["+", "*", "-", "+"])
    expect(page.locator("#status")).to_have_text("Saved.")
    expect(row.get_by_role("button", name="Highlight")).to_have_attribute("aria-pressed", "false")
    pressed("Pass")


def test_the_row_of_an_address_is_opened_though_results_change_meanwhile(page):
    page.locator(".cell.output").nth(4).focus()
    page.keyboard.press("Enter")
    expect(page.locator("dialog.row")).to_be_visible()
    with page.context.new_page() as other:
        held = []
        other.route("**/table?*", lambda route: route.continue_() if held else held.append(route))
        with other.expect_request("**/table?*"):
            other.goto(page.url, wait_until="commit")
        # Somebody rates a row before the first answer has come; again and again, because nobody knows when the other page hears of it.
        for _ in range(TIMEOUT // 1000):
            page.keyboard.press("+")
            with contextlib.suppress(PlaywrightTimeout):
                other.locator("dialog.row").wait_for(timeout=1000)
                break
        expect(other.locator("dialog.row")).to_be_visible()
        held[0].continue_()


def test_a_second_run_appears_and_is_compared(page, home):
    page.get_by_text("Failures", exact=True).click()
    expect(lines(page)).to_have_count(3)
    evaluate(home, SUITE.replace("First run", HARM).replace("['Say ", "['Speak "))
    page.keyboard.press("Control+k")
    expect(page.locator(".run")).to_have_count(2)
    expect(page.locator(".run").first).to_contain_text(HARM)
    page.keyboard.type("first RUN")
    expect(page.locator(".run")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator("dialog")).to_have_count(0)
    page.get_by_role("button", name="Compare").click()
    expect(page.locator(".run")).to_contain_text("same tests")
    page.locator(".run").click()
    expect(page.locator(".head.output")).to_have_count(8)
    page.get_by_text("All", exact=True).click()
    expect(lines(page).first.locator(".cell.output").nth(4)).to_contain_text("Speak Paris")
    lines(page).first.locator(".cell.output").first.click()
    page.locator("#beside").select_option("4")
    expect(page.locator("table.beside .dins")).to_have_text("Speak Paris")
    page.keyboard.press("Escape")
    page.locator(".beside-chip").click()
    expect(page.locator(".head.output")).to_have_count(4)


def test_a_run_is_chosen_before_the_list_has_arrived(page, home):
    evaluate(home, SUITE.replace("First run", "Second run"))
    page.get_by_role("button", name="Compare").wait_for()
    held = []
    page.route("**/api/results?*", lambda route: held.append(route))
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox")).to_be_focused()
    page.keyboard.type("nowhere")
    page.keyboard.press("Enter")
    while not held:
        page.wait_for_timeout(50)
    held.pop().continue_()
    expect(page.locator(".choose .empty")).to_have_text("No run is called that.")
    # The first one empties the field.
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    page.keyboard.press("Control+k")
    page.keyboard.type("second RUN")
    page.keyboard.press("Enter")
    while not held:
        page.wait_for_timeout(50)
    held.pop().continue_()
    expect(page.locator("#name")).to_have_text("Second run")
    expect(page.locator("dialog")).to_have_count(0)


def test_what_fails_since_another_run_is_in_sight(page, home):
    first = unquote(page.url.rsplit("/", 1)[1])
    evaluate(home, SUITE.replace("First run", "Second run").replace("['Say ", "['Speak "))
    page.keyboard.press("Control+k")
    page.keyboard.type("second RUN")
    page.keyboard.press("Enter")
    expect(page.locator("#name")).to_have_text("Second run")
    expect(page.get_by_text("Newly failing", exact=True)).to_have_count(0)
    page.get_by_role("button", name="Compare").click()
    page.locator(".run").click()
    expect(page.locator(".head.output")).to_have_count(8)
    # With the changed prompt, both providers pass one test of five less.
    expect(page.locator(".head.output .delta")).to_have_text([f"{points} points vs {first}" for points in ("−20", "±0", "−20", "±0")])
    expect(page.locator(".cell .chip", has_text="newly failing")).to_have_count(2)
    page.get_by_text("Newly failing", exact=True).click()
    expect(lines(page)).to_have_count(1)
    expect(lines(page).first.locator(".cell.output").first).to_contain_text("newly failing")
    assert "filterMode=newly-failing" in page.url
    page.locator(".beside-chip").click()
    expect(lines(page)).to_have_count(5)
    assert "filterMode" not in page.url
    # Both runs are on the chart, and its dots lead to them.
    chart = page.locator(".over-time")
    expect(chart).to_contain_text("Passed, last 2 runs of these tests")
    expect(chart.locator(".trend")).to_have_count(4)
    chart.locator(".dot:not(.own)").first.dispatch_event("click")
    expect(page.locator("#name")).to_have_text("First run")


def test_code_is_shown_as_code_and_a_run_with_its_author_and_tags(page):
    cell = lines(page).nth(2).locator(".cell.output").first
    expect(cell.locator("code")).to_have_text("def f(x):\n    return x  # same\n")
    expect(cell.locator("code .c-keyword").first).to_have_text("def")
    expect(cell).not_to_contain_text("```")
    assert "monospace" in cell.locator("code").evaluate("code => getComputedStyle(code).fontFamily")
    expect(page.locator("#about")).to_contain_text("team: core")
    run = page.url.rsplit("/", 1)[1]
    told = page.evaluate("""id => fetch(`/api/eval/${id}/author`, {method: "PATCH", headers: {"Content-Type": "application/json"},
        body: JSON.stringify({author: "<b>ada</b>"})}).then(answer => answer.status)""", run)
    assert told == 200
    page.reload()
    expect(page.locator("#about")).to_contain_text("<b>ada</b>")
    # Charts are as wide as the page lets them.
    widths = page.locator("#charts").evaluate("charts => [charts.clientWidth, [...charts.children].reduce((sum, one) => sum + one.getBoundingClientRect().width, 0)]")
    assert widths[1] > 0.9 * widths[0], widths


def test_the_page_follows_what_is_stored(page, home):
    with sqlite3.connect(home / "evaluations.db", timeout=60) as database:
        database.execute("UPDATE eval_rows SET row = json_set(row, '$.response.output', 'changed outside') WHERE test_idx = 0 AND prompt_idx = 0")
    expect(page.locator(".cell.output").first).to_contain_text("changed outside")


def test_runs_are_renamed_and_deleted(page):
    page.get_by_role("button", name="Rename").click()
    page.get_by_role("textbox", name="Name of this run").fill(HARM)
    page.keyboard.press("Enter")
    expect(page.locator("#name")).to_have_text(HARM)
    page.get_by_role("button", name="Delete").click()
    page.locator("dialog .danger").click()
    expect(page.locator("#table")).to_contain_text("sandcove eval")


def test_files_are_exported(page):
    def exported(name):
        page.get_by_text("Export").click()
        with page.expect_download() as download:
            page.get_by_role("link", name=name).click()
        page.get_by_text("Export").click()
        return Path(download.value.path()).read_text()

    assert len(json.loads(exported("Results (JSON)"))["results"]["results"]) == 20
    csv.field_size_limit(1_000_000)
    rows = list(csv.reader(io.StringIO(exported("Table (CSV)"))))
    assert len(rows) == 6 and "Say Paris" in rows[1] and any(HARM in cell for cell in rows[2])
    assert 'description: "First run"' in exported("Configuration (YAML)")
    failed = exported("Failed tests only (YAML)")
    assert "Oslo" in failed and "Bern" in failed and "Rome" not in failed


def test_it_is_used_on_a_small_dark_screen(browser, home, within):
    with viewer(home, within=within) as (url, _), browser.new_context(color_scheme="dark", viewport={"width": 380, "height": 700}) as context:
        context.set_default_timeout(TIMEOUT)
        page = context.new_page()
        page.goto(url)
        page.locator(".cell.output").first.click()
        expect(page.locator("dialog.row")).to_contain_text("Say Paris")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        expect(page.locator("dialog")).to_have_css("background-color", "rgb(27, 32, 35)")
