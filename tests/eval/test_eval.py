"""`sandcove eval` against the verdicts of promptfoo on the same suites.

The recorded verdicts are always compared. With `PROMPTFOO_ENTRYPOINT` (`…/node_modules/promptfoo/dist/src/entrypoint.js`) the real
program is run beside it as well, which takes minutes; its installation is too large for every run of the tests.
"""

import json
import os
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from verdicts import CASES, HERE, run

DIFFERENCES = tomllib.loads((HERE / "differences.toml").read_text())


def compare(ours, theirs, case):
    difference = DIFFERENCES.get(case.stem)
    if difference is None:
        assert ours == theirs
    elif "rows" in difference:
        assert [[row["test"], row["column"], row["success"]] for row in ours["rows"]] == difference["rows"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_verdicts_are_those_recorded(sandcove, case):
    compare(run(sandcove, case), json.loads((HERE / "golden" / f"{case.stem}.json").read_text()), case)


@pytest.mark.skipif("PROMPTFOO_ENTRYPOINT" not in os.environ, reason="PROMPTFOO_ENTRYPOINT names no promptfoo to run beside")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_verdicts_are_those_of_promptfoo(sandcove, case):
    compare(run(sandcove, case), run(["node", os.environ["PROMPTFOO_ENTRYPOINT"]], case), case)


def test_differences_name_suites_and_give_reasons():
    names = {case.stem for case in CASES}
    assert set(DIFFERENCES) <= names
    assert all(difference["reason"] for difference in DIFFERENCES.values())


def test_every_suite_is_recorded():
    assert {path.stem for path in (HERE / "golden").glob("*.json")} == {case.stem for case in CASES}
    assert len(CASES) >= 60


class Judge(BaseHTTPRequestHandler):
    """A service that likes what says "good", and scores what asks for a score."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        output, prompt, variables = asked["output"], asked["context"]["prompt"], asked["context"]["vars"]
        reply = {"pass": "good" in output}
        if "score" in variables:
            reply |= {"score": variables["score"], "reason": f"scored {prompt}"}
        if variables.get("silent"):
            reply = {}
        self.send_response(500 if variables.get("broken") else 200)
        self.end_headers()
        self.wfile.write(b"nonsense" if variables.get("nonsense") else json.dumps(reply).encode())

    def log_message(self, *_):
        pass


def test_webhooks_decide(sandcove, tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    rows = [
        ({"x": "good"}, "webhook", [True, 1]),
        ({"x": "bad"}, "webhook", [False, 0]),
        ({"x": "bad"}, "not-webhook", [True, 1]),
        ({"x": "good", "score": 0.25}, "webhook", [True, 0.25]),
        ({"x": "good", "score": 0.25}, "not-webhook", [False, 0.75]),
        ({"x": "bad", "silent": True}, "webhook", [True, 1]),
        ({"x": "good", "broken": True}, "webhook", [False, 0]),
        ({"x": "good", "nonsense": True}, "webhook", [False, 0]),
    ]
    url = f"http://127.0.0.1:{server.server_port}/{{{{ x }}}}"
    tests = [{"vars": variables, "assert": [{"type": kind, "value": url}]} for variables, kind, _ in rows]
    case = tmp_path / "webhook.yaml"
    case.write_text(json.dumps({"prompts": ["{{x}}"], "providers": ["echo"], "tests": tests}))
    programs = [sandcove]
    if "PROMPTFOO_ENTRYPOINT" in os.environ:
        programs.append(["node", os.environ["PROMPTFOO_ENTRYPOINT"]])
    for program in programs:
        found = run(program, case)
        assert [[row["success"], row["score"]] for row in found["rows"]] == [expected for *_, expected in rows]
    server.shutdown()
