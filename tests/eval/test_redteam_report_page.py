"""The report of a red team as a page of `sandcove view`."""

import json
import os
import re
import subprocess

import pytest
import requests
from playwright.sync_api import expect

from test_redteam import CHECK
from test_view_page import CHROMIUM, browser, within  # noqa: F401 (fixtures)
from verdicts import ENVIRONMENT
from viewing import evaluate, viewer

HARM = "<img src=x onerror='window.harmed=1'>"


def attack(sandcove, home, check):
    (home / "check.py").write_text(check)
    document = {
        "targets": [{"id": "file://./check.py", "label": f"check {HARM}", "config": {}}],
        "redteam": {"purpose": f"adds numbers {HARM}", "plugins": ["sandbox:code-injection"], "strategies": ["basic", "code:spacing", "code:exec-base64", "code:string-split", "code:exec-hex"]},
    }
    (home / "promptfooconfig.yaml").write_text(json.dumps(document))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("E2B_")}
    environment |= {**ENVIRONMENT, "PROMPTFOO_CONFIG_DIR": str(home / "runs"), "SANDCOVE_DATA_DIR": str(home / "none")}
    done = subprocess.run([*sandcove, "redteam", "run", "--format", "json"], cwd=home, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 100), done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def runs(sandcove, tmp_path):
    """Two red teams of one check, of which the second lets more through."""
    return [attack(sandcove, tmp_path, check) for check in (CHECK, CHECK.replace("|popen", ""))]


def test_the_report_is_that_of_the_command(sandcove, runs, tmp_path):
    evaluate(tmp_path, "prompts: [hello]\nproviders: [echo]\n")
    with viewer(tmp_path / "runs") as (url, _):
        ask = lambda run: requests.get(f"{url.rstrip('/')}/api/redteam/report/{run}")  # noqa: E731
        assert [ask(run["evalId"]).json()["data"] for run in runs] == runs
        assert runs[1]["changes"]["since"] == runs[0]["evalId"]
        assert (ask("none").status_code, ask("none").json()["error"]) == (404, "no run `none` is stored")
    with viewer(tmp_path) as (url, _):
        [plain] = requests.get(f"{url.rstrip('/')}/api/results").json()["data"]
        refused = requests.get(f"{url.rstrip('/')}/api/redteam/report/{plain['evalId']}")
        assert (refused.status_code, refused.json()["error"]) == (404, f"`{plain['evalId']}` is not a red-team run")


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium")
def test_a_reader_finds_what_was_breached_and_its_evidence(browser, within, runs, tmp_path):  # noqa: F811
    with viewer(tmp_path / "runs", within=within) as (url, _):
        page = browser.new_page()
        failed = []
        page.on("pageerror", lambda error: failed.append(str(error)))
        page.goto(f"{url.rstrip('/')}/eval/{runs[1]['evalId']}")
        page.get_by_role("link", name="Report").click()
        section = lambda name: page.get_by_role("region", name=name)  # noqa: E731
        expect(section("Outcome")).to_contain_text(f"{runs[1]['breaches']} of {len(runs[1]['findings'])} attacks breached")
        for answer in runs[1]["questions"]:
            expect(section("Outcome")).to_contain_text(answer["question"])
        expect(section("Since the run before")).to_contain_text("gate-popen basic")
        expect(section("Layer").get_by_role("row", name=re.compile("^gate"))).to_contain_text("%")
        category = page.locator("details.plugin", has_text="sandbox:code-injection")
        category.locator("summary").click()
        [popen] = [one for one in runs[1]["findings"] if (one["probe"], one["strategy"]) == ("gate-popen", "basic")]
        row = category.get_by_role("row").filter(has_text="gate-popen").filter(has_text="basic")
        expect(row).to_contain_text("breached")
        expect(row).to_contain_text(popen["evidence"])
        page.screenshot(path=str(tmp_path / "report.png"), full_page=True)
        row.get_by_role("link").click()
        # The row of the attack is open, with its program.
        expect(page.get_by_role("dialog")).to_contain_text("popen")
        # Also where the row is on another page of the table.
        page.goto(f"{url.rstrip('/')}/report?evalId={runs[1]['evalId']}")
        category.locator("summary").click()
        category.get_by_role("button", name=re.compile("^Show")).click()
        category.locator('a[href*="page=2"]').first.click()
        expect(page.get_by_role("dialog")).to_be_visible()
        assert page.evaluate("window.harmed") is None and not failed
        # Without an id it is the newest.
        page.goto(f"{url.rstrip('/')}/report")
        expect(section("Since the run before")).to_contain_text(runs[0]["evalId"])
        page.goto(f"{url.rstrip('/')}/reports?evalId=none")
        expect(page.get_by_role("alert")).to_contain_text("no run `none` is stored")
        page.set_viewport_size({"width": 390, "height": 800})
        page.goto(f"{url.rstrip('/')}/report")
        expect(section("Outcome")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.close()
