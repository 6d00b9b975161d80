"""`sandcove eval` against the verdicts of promptfoo on the same suites.

The recorded verdicts are always compared. With `PROMPTFOO_ENTRYPOINT` (`…/node_modules/promptfoo/dist/src/entrypoint.js`) the real
program is run beside it as well, which takes minutes; its installation is too large for every run of the tests.
"""

import json
import os
import shutil
import subprocess
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from neutral import ENVIRONMENT
from verdicts import CASES, HERE, run

DIFFERENCES = tomllib.loads((HERE / "differences.toml").read_text())


def compare(ours, theirs, case):
    difference = DIFFERENCES.get(case.stem)
    if difference is None and theirs.get("refused"):
        assert ours.get("refused"), ours
    elif difference is None:
        assert ours == theirs
    else:
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
    assert len(CASES) >= 200


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


def test_verdicts_of_rubrics_show_the_prompt(sandcove, tmp_path):
    grader = '{"pass": true, "reason": "fine"} for {{ output }} by {{ rubric }}'
    rubric = {"type": "llm-rubric", "value": "politeness", "provider": "echo", "rubricPrompt": grader}
    suite = {"prompts": ["hello"], "providers": ["echo"], "tests": [{"assert": [rubric]}]}
    (tmp_path / "rubric.yaml").write_text(json.dumps(suite))
    programs = [sandcove]
    if "PROMPTFOO_ENTRYPOINT" in os.environ:
        programs.append(["node", os.environ["PROMPTFOO_ENTRYPOINT"]])
    for program in programs:
        out = tmp_path / "out.json"
        environment = {**os.environ, **ENVIRONMENT, "PROMPTFOO_CONFIG_DIR": str(tmp_path)}
        command = [*program, "eval", "-c", "rubric.yaml", "-o", str(out), "--no-cache"]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
        [row] = json.loads(out.read_text())["results"]["results"]
        [verdict] = row["gradingResult"]["componentResults"]
        shown = verdict["metadata"]["renderedGradingPrompt"]
        assert shown == '{"pass": true, "reason": "fine"} for hello by politeness'


RUBY = """
def helper(text)
  text.include?('good')
end

def get_assert(output, context)
  { pass: helper(output), score: 0.5, reason: "judged #{context['vars']['x']}" }
end

def counts(output, context)
  output.length
end
"""

RUBY_ROWS = [
    ({"type": "ruby", "value": "output.include?('good')"}, [True, 1]),
    ({"type": "ruby", "value": "output == 'bad'"}, [False, 0]),
    ({"type": "not-ruby", "value": "output == 'bad'"}, [True, 1]),
    ({"type": "ruby", "value": "words = output.split\nwords.length / 2.0"}, [True, 1.5]),
    ({"type": "ruby", "value": "output.length", "threshold": 20}, [False, 13]),
    ({"type": "ruby", "value": "file://check.rb"}, [True, 0.5]),
    ({"type": "ruby", "value": "file://check.rb", "threshold": 0.6}, [False, 0.5]),
    ({"type": "ruby", "value": "file://check.rb:counts"}, [True, 13]),
    ({"type": "ruby", "value": "raise 'no'"}, [False, 0]),
    ({"type": "ruby", "value": "nil"}, [False, 0]),
]


def ruby_suite(directory):
    (directory / "check.rb").write_text(RUBY)
    tests = [{"vars": {"x": "a good answer"}, "assert": [assertion]} for assertion, _ in RUBY_ROWS]
    case = directory / "ruby.yaml"
    case.write_text(json.dumps({"prompts": ["{{x}}"], "providers": ["echo"], "tests": tests}))
    return case


@pytest.mark.skipif(not shutil.which("ruby"), reason="ruby is not installed")
def test_ruby_decides(sandcove, tmp_path):
    case = ruby_suite(tmp_path)
    programs = [sandcove]
    if "PROMPTFOO_ENTRYPOINT" in os.environ:
        programs.append(["node", os.environ["PROMPTFOO_ENTRYPOINT"]])
    for program in programs:
        rows = run(program, case)["rows"]
        assert [[row["success"], row["score"]] for row in rows] == [expected for _, expected in RUBY_ROWS]


RUBY_PROVIDER = """
require 'json'

def call_api(prompt, options, context)
  { output: "#{options['config']['greeting']} #{prompt} #{context['vars']['x']}", tokenUsage: { total: 3 } }
end

def loud(prompt, options, context)
  { 'output' => prompt.upcase }
end

class Quiet
  def self.answer(prompt, _options, _context)
    { output: prompt.downcase }
  end
end

def broken(prompt, options, context)
  raise 'no answer'
end
"""


@pytest.mark.skipif(not shutil.which("ruby"), reason="ruby is not installed")
def test_ruby_provides(sandcove, tmp_path):
    (tmp_path / "provider.rb").write_text(RUBY_PROVIDER)
    providers = [
        {"id": "file://provider.rb", "config": {"greeting": "Hi"}}, "file://provider.rb:loud", "ruby:provider.rb:Quiet.answer", "file://provider.rb:broken",
    ]
    expected = ["Hi Ask Me 1", "ASK ME", "ask me", None]
    tests = [{"vars": {"x": 1}, "assert": [{"type": "javascript", "value": f"{json.dumps(expected)}.includes(output)"}]}]
    case = tmp_path / "provider.yaml"
    case.write_text(json.dumps({"prompts": ["Ask Me"], "providers": providers, "tests": tests}))
    programs = [sandcove]
    if "PROMPTFOO_ENTRYPOINT" in os.environ:
        programs.append(["node", os.environ["PROMPTFOO_ENTRYPOINT"]])
    for program in programs:
        found = run(program, case)["rows"]
        assert [(row["column"], row["success"], row["failureReason"]) for row in found] == [(0, True, 0), (1, True, 0), (2, True, 0), (3, False, 2)]


GO_PROVIDER = """
package main

import (
	"fmt"
	"log"
)

func answer(prompt string, options map[string]interface{}, ctx map[string]interface{}) (map[string]interface{}, error) {
	fmt.Println("printed")
	log.Println("logged")
	vars := ctx["vars"].(map[string]interface{})
	if vars["x"] == "fail" {
		return nil, fmt.Errorf("no answer")
	}
	config := options["config"].(map[string]interface{})
	return map[string]interface{}{"output": fmt.Sprintf("%v %s", config["greeting"], prompt)}, nil
}

var CallApi func(string, map[string]interface{}, map[string]interface{}) (map[string]interface{}, error)

func init() {
	CallApi = answer
}
"""


@pytest.mark.skipif(not shutil.which("go"), reason="Go is not installed")
def test_go_provides(sandcove, tmp_path, monkeypatch):
    # A place of one's own for what is built, and for nothing else that runs on this machine.
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "go.mod").write_text("module example.com/provider\n\ngo 1.20\n")
    # promptfoo reads the answer from standard output, where nothing else may be printed.
    (tmp_path / "provider.go").write_text(GO_PROVIDER.replace('\tfmt.Println("printed")\n', ""))
    (tmp_path / "printing.go").write_text(GO_PROVIDER)
    tests = [{"vars": {"x": x}, "assert": [{"type": "equals", "value": f"Hi Ask {x}"}]} for x in ("me", "you", "fail")]
    case = tmp_path / "provider.yaml"
    programs = [(sandcove, "provider.go"), (sandcove, "printing.go")]
    if "PROMPTFOO_ENTRYPOINT" in os.environ:
        programs.append((["node", os.environ["PROMPTFOO_ENTRYPOINT"]], "provider.go"))
    for program, file in programs:
        provider = {"id": f"file://{file}", "config": {"greeting": "Hi"}}
        case.write_text(json.dumps({"prompts": ["Ask {{x}}"], "providers": [provider], "tests": tests}))
        found = run(program, case)["rows"]
        assert [(row["success"], row["failureReason"]) for row in found] == [(True, 0), (True, 0), (False, 2)]
    assert not list((tmp_path / "temporary").glob("sandcove-go-*"))


def test_a_missing_interpreter_is_told(sandcove, tmp_path):
    case, out = ruby_suite(tmp_path), tmp_path / "out.json"
    environment = {**os.environ, "PROMPTFOO_CONFIG_DIR": str(tmp_path), "PROMPTFOO_RUBY": "/nonexistent/ruby"}
    subprocess.run([*sandcove, "eval", "-c", str(case), "-o", str(out), "--no-table"], env=environment, capture_output=True)
    rows = json.loads(out.read_text())["results"]["results"]
    assert [row["success"] for row in rows] == [False] * len(RUBY_ROWS)
    assert all("install Ruby" in row["gradingResult"]["reason"] for row in rows)
