"""The routes of `sandcove view`: what they answer, and whom they do not."""

import csv
import io
import json
import re
import sqlite3
import subprocess
from pathlib import Path

import pytest
import requests

from viewing import BINARY, environment, evaluate, viewer

SUITE = """
description: Routes
tags: {team: red}
prompts: ['Say {{word}}', 'Tell {{word}}']
providers: [echo]
tests:
  - vars: {word: Paris}
    metadata: {kind: easy}
    assert: [{type: contains, value: Paris, metric: Right}]
  - vars: {word: =1+1}
    metadata: {kind: hard, area: north}
    assert: [{type: starts-with, value: Say, metric: Right, weight: 2}]
  - vars: {word: Rome}
    assert: [{type: contains, value: absent, metric: Right}]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("view")
    evaluate(home, SUITE)
    return home


@pytest.fixture(scope="module")
def url(home):
    with viewer(home) as (url, _):
        yield url.rstrip("/")


@pytest.fixture
def run(url):
    """A copy of the run, for tests that change it."""
    first = requests.get(f"{url}/api/results").json()["data"][-1]["evalId"]
    made = requests.post(f"{url}/api/eval/{first}/copy", json={"description": "a copy"})
    assert made.status_code == 201 and made.json()["distinctTestCount"] == 3
    yield f"{url}/api/eval/{made.json()['id']}"
    requests.delete(f"{url}/api/eval/{made.json()['id']}")


def table(run, **query):
    answer = requests.get(f"{run}/table", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_directory_that_is_missing_is_not_made(tmp_path):
    missing = tmp_path / "runs"
    refused = subprocess.run([BINARY, "view", str(missing), "-n"], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1 and f"`{missing}` is not a directory of stored evaluations" in refused.stderr
    assert not missing.exists()


def test_runs_are_listed(url):
    assert requests.get(f"{url}/health").json()["status"] == "OK"
    assert requests.get(f"{url}/api/version").json()["currentVersion"]
    listed = requests.get(f"{url}/api/results", params={"includeProviders": "true"}).json()["data"][-1]
    assert listed["description"] == "Routes" and listed["numTests"] == 3 and listed["passRate"] == 50
    assert listed["label"] == f"Routes ({listed['evalId']})" and listed["providers"] == [{"id": "echo", "label": None}]
    same = requests.get(f"{url}/api/results", params={"datasetId": listed["datasetId"]}).json()["data"]
    assert listed["evalId"] in [run["evalId"] for run in same]
    assert requests.get(f"{url}/api/results", params={"datasetId": "other"}).json()["data"] == []
    document = requests.get(f"{url}/api/results/{listed['evalId']}").json()["data"]
    assert len(document["results"]["results"]) == 6 and document["config"]["description"] == "Routes"


def test_prompts_datasets_and_history_are_listed(url):
    prompts = requests.get(f"{url}/api/prompts").json()["data"]
    assert {prompt["prompt"]["raw"] for prompt in prompts} == {"Say {{word}}", "Tell {{word}}"}
    (dataset,) = requests.get(f"{url}/api/datasets").json()["data"]
    assert dataset["numTests"] == 3 and len(dataset["prompts"]) == 2
    assert len(requests.get(f"{url}/api/prompts/{dataset['id']}").json()["data"]) == 2
    history = requests.get(f"{url}/api/history", params={"tagName": "team", "tagValue": "red"}).json()["data"]
    assert {entry["provider"] for entry in history} == {"echo"}
    assert requests.get(f"{url}/api/history", params={"tagName": "team", "tagValue": "blue"}).json()["data"] == []


def test_the_table_is_given_page_by_page(run):
    whole = table(run)
    assert whole["totalCount"] == whole["filteredCount"] == 3 and whole["filteredMetrics"] is None
    assert whole["table"]["head"]["vars"] == ["word"]
    line = whole["table"]["body"][0]
    assert line["vars"] == ["Paris"] and line["testIdx"] == 0 and line["test"]["metadata"] == {"kind": "easy"}
    output = line["outputs"][1]
    assert output["text"] == "Tell Paris" and output["pass"] and output["gradingResult"]["componentResults"]
    assert [line["testIdx"] for line in table(run, limit=2, offset=1)["table"]["body"]] == [1, 2]
    assert table(run, limit=1, offset=9)["table"]["body"] == []
    brief = table(run, brief=4)["table"]["body"][0]["outputs"][1]
    assert brief["text"] == "Tell" and brief["cut"] and "gradingResult" not in brief


@pytest.mark.parametrize(
    ("query", "tests"),
    [
        ({"filterMode": "passes"}, [0, 1]),
        ({"filterMode": "failures"}, [1, 2]),
        ({"filterMode": "errors"}, []),
        ({"filterMode": "different"}, [0, 1, 2]),
        ({"filterMode": "highlights"}, []),
        ({"search": "TELL pa"}, [0]),
        ({"search": "^tell (paris|rome)$", "searchMode": "regex"}, [0, 2]),
        ({"filter": {"type": "metric", "operator": "gte", "field": "Right", "value": 1}}, [0, 1]),
        ({"filter": {"type": "metadata", "operator": "exists", "field": "area"}}, [1]),
        ({"filter": {"type": "metadata", "operator": "equals", "field": "kind", "value": "easy"}, "filterMode": "failures"}, []),
    ],
    ids=str,
)
def test_rows_are_chosen(run, query, tests):
    query = {key: json.dumps(value) if key == "filter" else value for key, value in query.items()}
    found = table(run, **query)
    assert [line["testIdx"] for line in found["table"]["body"]] == tests
    assert found["filteredCount"] == len(tests) and found["totalCount"] == 3
    sums = [sums["testPassCount"] + sums["testFailCount"] for sums in found["filteredMetrics"]]
    assert sums == [len(tests)] * 2


def test_questions_that_make_no_sense_are_refused(run):
    for query in [{"search": "(", "searchMode": "regex"}, {"filterMode": "odd"}, {"filter": "{}"}, {"limit": "x"}, {"format": "exe"}]:
        answer = requests.get(f"{run}/table", params=query)
        assert answer.status_code == 400 and answer.json()["error"], query
    assert requests.get(f"{run}-not/table").status_code == 404
    assert requests.get(f"{run}/results/77.0").status_code == 404
    assert requests.get(re.sub("/eval/.*", "/nowhere", run)).status_code == 404


def test_metadata_is_told(run):
    assert requests.get(f"{run}/metadata-keys").json()["keys"] == ["area", "kind"]
    assert requests.get(f"{run}/metadata-values", params={"key": "kind"}).json()["values"] == ["easy", "hard"]
    scores = requests.get(f"{run}/scores").json()["scores"]
    assert [(column[0], column[10]) for column in scores] == [(1, 2), (2, 1)]


def test_a_row_is_rated_and_sums_follow(run):
    cell = table(run)["table"]["body"][2]["outputs"][0]
    row = requests.get(f"{run}/results/{cell['id']}").json()
    assert row["id"] == cell["id"] and not row["success"] and requests.get(f"{run}/results/2.0").json() == row
    verdict = row["gradingResult"]
    human = {"pass": True, "score": 0.75, "reason": "fine", "assertion": {"type": "human"}}
    rated = {**verdict, "pass": True, "score": 0.75, "comment": "!highlight good", "componentResults": [*verdict["componentResults"], human]}
    before = table(run)
    after = requests.post(f"{run}/results/{cell['id']}/rating", json=rated).json()
    assert after["success"] and after["score"] == 0.75 and after["failureReason"] == 0 and after.get("error") is None
    now = table(run)
    assert now["stats"]["successes"] == before["stats"]["successes"] + 1 and now["stats"]["failures"] == before["stats"]["failures"] - 1
    sums = now["table"]["head"]["prompts"][0]["metrics"]
    assert (sums["testPassCount"], sums["testFailCount"], sums["score"], sums["assertPassCount"]) == (3, 0, 2.75, 3)
    for mode in ("user-rated", "highlights"):
        assert [line["testIdx"] for line in table(run, filterMode=mode)["table"]["body"]] == [2]
    requests.post(f"{run}/results/2.0/rating", json=verdict)
    again = table(run)
    assert again["stats"] == before["stats"] and again["table"]["head"] == before["table"]["head"]
    assert requests.get(f"{run}/results/2.0").json() == row
    assert requests.post(f"{run}/results/2.0/rating", data="[").status_code == 400


def test_runs_are_renamed_copied_and_deleted(url, run):
    assert requests.patch(run, json={"config": {"description": "Other"}}).status_code == 200
    assert requests.patch(f"{run}/author", json={"author": "me"}).status_code == 200
    assert table(run)["description"] == "Other"
    copy = requests.post(f"{run}/copy", json={}).json()["id"]
    assert table(f"{url}/api/eval/{copy}")["description"] == "Other (copy)"
    assert requests.delete(f"{url}/api/eval", json={"ids": [copy, "not-there"]}).status_code == 404
    assert requests.delete(f"{url}/api/eval", json={"ids": [copy]}).status_code == 204
    assert requests.get(f"{url}/api/eval/{copy}/table").status_code == 404
    assert requests.delete(f"{url}/api/eval/{copy}").status_code == 404


def test_another_run_is_shown_beside(url, home, run):
    # The same tests in another order, and one more.
    tests = SUITE.split("tests:\n")[1].split("  - vars")
    other = SUITE.split("tests:\n")[0].replace("Routes", "Beside") + "tests:\n  - vars: {word: new}\n" + "  - vars".join(["", *tests[:0:-1]])
    evaluate(home, other)
    name = requests.get(f"{url}/api/results").json()["data"][0]["evalId"]
    try:
        found = table(run, comparisonEvalIds=name)
        assert [prompt.get("evalId") for prompt in found["table"]["head"]["prompts"]] == [None, None, name, name]
        assert [[cell["text"] for cell in line["outputs"]] for line in found["table"]["body"]] == [
            [f"{verb} {word}" for verb in ("Say", "Tell", "Say", "Tell")] for word in ("Paris", "=1+1", "Rome")
        ]
        assert table(run, comparisonEvalIds=name, filterMode="different")["filteredCount"] == 3
    finally:
        requests.delete(f"{url}/api/eval/{name}")


def test_runs_are_exported(home, run, tmp_path):
    def exported(what):
        answer = requests.get(f"{run}/table", params={"format": what})
        assert answer.status_code == 200 and "attachment" in answer.headers["Content-Disposition"]
        return answer.text

    document = json.loads(exported("json"))
    assert [row["testIdx"] for row in document["results"]["results"]] == [0, 0, 1, 1, 2, 2]
    rows = list(csv.DictReader(io.StringIO(exported("csv"))))
    assert [row["word"] for row in rows] == ["Paris", "'=1+1", "Rome"] and rows[0]["[echo] Tell {{word}}"] == "Tell Paris"
    assert exported("config").splitlines()[0] == 'description: "a copy"'
    # What failed is a suite that can be run, and fails in the same way.
    evaluate(tmp_path, exported("failed"))
    with viewer(tmp_path) as (url, _):
        (again,) = requests.get(f"{url}api/results").json()["data"]
        assert again["numTests"] == 2 and again["counts"] == [1, 3, 0]


def test_stored_runs_are_listed_shown_and_deleted_by_commands(tmp_path):
    evaluate(tmp_path, SUITE)
    evaluate(tmp_path, SUITE.replace("Routes", "Newer"))

    def command(*arguments):
        done = subprocess.run([BINARY, "eval", *arguments], env=environment(tmp_path), capture_output=True, text=True, timeout=300)
        return done.stdout if done.returncode == 0 else None

    newer, older = command("list").splitlines()
    assert newer.endswith("3/6 passed  Newer") and older.endswith("3/6 passed  Routes")
    assert {line.split("  ")[3] for line in command("list", "prompts").splitlines()} == {"Say {{word}}", "Tell {{word}}"}
    (dataset,) = command("list", "datasets").splitlines()
    assert "2 runs" in dataset and dataset.endswith("3 tests")
    assert json.loads(command("show", dataset.split()[0]))["numTests"] == 3
    assert json.loads(command("show"))["evalId"] == newer.split()[0]
    assert json.loads(command("show", older.split()[0]))["config"]["description"] == "Routes"
    assert command("show", "nothing") is None
    assert command("delete", "latest", "nothing") is None
    assert command("delete", "latest") == ""
    assert command("list").splitlines() == [older]


def test_changes_are_told(url, run):
    with requests.get(f"{url}/api/events", stream=True, timeout=120) as events:
        names = (line for line in events.iter_lines(decode_unicode=True) if line.startswith("event:"))
        assert next(names) == "event: init"
        requests.patch(run, json={"config": {"description": "told"}})
        assert next(names) == "event: update"


def test_who_asks_from_elsewhere_is_refused(url, run):
    for host in ("evil.example", "evil.example:15500", "localhost.evil.example", ""):
        assert requests.get(f"{url}/", headers={"Host": host}).status_code == 403, host
        assert requests.get(f"{run}/table", headers={"Host": host}).status_code == 403, host
    for origin in ("http://evil.example", "null", "http://localhost:1"):
        assert requests.delete(run, headers={"Origin": origin}).status_code == 403, origin
    for path in (f"{run}/table", f"{url}/api/results"):
        assert requests.get(path, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert requests.patch(run, json={"description": "own"}, headers={"Origin": url, "Sec-Fetch-Site": "same-origin"}).status_code == 200
    page = requests.get(f"{url}/", headers={"Sec-Fetch-Site": "cross-site"})
    assert page.status_code == 200 and "script-src 'self'" in page.headers["Content-Security-Policy"]


def test_other_addresses_need_the_token(home):
    with viewer(home, "--host", "0.0.0.0") as (address, _):
        url, token = re.fullmatch(r"(http://[\d.]+:\d+)/\?token=([0-9a-f]{32})", address).groups()
        assert "0.0.0.0" not in url, "what is printed can be opened, also elsewhere"
        assert requests.get(f"{url}/health").status_code == 200
        for given in (None, "", token[:-1], token[:-1] + ("0" if token[-1] != "0" else "1")):
            headers = {} if given is None else {"Authorization": f"Bearer {given}"}
            assert requests.get(f"{url}/api/results", headers=headers).status_code == 401
            assert requests.get(f"{url}/", params={"token": given}).status_code == 401
        assert requests.get(f"{url}/api/results", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        browser = requests.Session()
        answer = browser.get(f"{url}/eval/x", params={"token": token, "filterMode": "errors"})
        assert answer.status_code == 200 and answer.url == f"{url}/eval/x?filterMode=errors"
        cookie = answer.history[0].headers["Set-Cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
        assert browser.get(f"{url}/api/results").status_code == 200


def memory(process):
    """The most memory a process had, in KiB."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text()).group(1))


def test_twenty_thousand_rows_are_not_loaded_for_a_page(home):
    evaluate(home, "description: many\nprompts: ['{{n}}']\nproviders: [echo]\ntests: [{vars: {n: 0}, assert: [{type: contains, value: '0'}]}]\n")
    with sqlite3.connect(home / "evaluations.db", timeout=60) as database:
        (run,) = database.execute("SELECT id FROM evals WHERE description = 'many'").fetchone()
        database.execute(
            "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 19999) "
            "INSERT INTO eval_rows (eval_id, test_idx, prompt_idx, success, row) "
            "SELECT eval_id, n, 0, 1, json_set(row, '$.testIdx', n, '$.response.output', 'number ' || n || ? ) FROM eval_rows, numbers WHERE eval_id = ?",
            (" x" * 1200, run),
        )
    with viewer(home) as (url, process):
        url = f"{url}api/eval/{run}"
        table(url, limit=1)
        before = memory(process)
        first = table(url, brief=100)
        assert first["totalCount"] == 20_000 and len(first["table"]["body"]) == 50
        assert table(url, brief=100, offset=19_990)["table"]["body"][-1]["testIdx"] == 19_999
        assert len(table(url, brief=100, limit=1000)["table"]["body"]) == 1000
        found = table(url, brief=100, search="number 1234")
        assert found["filteredCount"] == 11
        sizes = [len(piece) for piece in requests.get(f"{url}/table", params={"format": "json"}, stream=True).iter_content(1 << 20)]
        assert sum(sizes) > 60_000_000
        assert memory(process) - before < 30_000, "60 MB of rows were not held at once"
