"""Graders that search, look around or only score: search-rubric, agent-rubric and pi. A local service takes the place of each."""

import json
import os
import subprocess

import pytest

from models import environment as addresses, models
from verdicts import ENVIRONMENT


@pytest.fixture
def graded(tmp_path, sandcove):
    """Runs a suite of one answer: (exit code, components, error of the row, requests)."""

    def run(asserts, answer="hi", **suite):
        variables = suite.pop("variables", {})
        tests = [{"vars": {"x": answer}, "assert": asserts}]
        (tmp_path / "promptfooconfig.yaml").write_text(json.dumps({"prompts": ["{{x}}"], "providers": ["echo"], "tests": tests, **suite}))
        out = tmp_path / "out.json"
        out.unlink(missing_ok=True)
        with models() as service:
            env = {**os.environ, **ENVIRONMENT, **addresses(service), "PROMPTFOO_CONFIG_DIR": str(tmp_path / "home"), **variables}
            done = subprocess.run(
                [*sandcove, "eval", "-o", str(out), "--no-cache", "--no-table", "--no-progress-bar"],
                cwd=tmp_path, env={name: value for name, value in env.items() if value is not None},
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
            )  # fmt: skip
            assert out.exists(), done.stderr
            [row] = json.loads(out.read_text())["results"]["results"]
            parts = row["gradingResult"]["componentResults"]
            return done.returncode, parts, row, service.asked

    return run


def test_pi_scores_an_answer_to_a_prompt(graded):
    asserts = [
        {"type": "pi", "value": "Is it 0.8 good?"},
        {"type": "pi", "value": "Is it 0.8 good?", "threshold": 0.8},
        {"type": "not-pi", "value": "Is it 0.25 rude, {{x}}?"},
    ]
    code, parts, row, asked = graded(asserts)
    assert code == 100
    # A score that only reaches the threshold is not enough.
    assert [(part["pass"], part["score"]) for part in parts] == [(True, 0.8), (False, 0.8), (True, 0.75)]
    assert row["namedScores"]["Is it 0.8 good?"] == pytest.approx(0.8)
    assert {request["path"] for request in asked} == {"/pi/score"}
    assert all(request["headers"] == {"x-api-key": "key-pi"} for request in asked)
    bodies = sorted((request["body"] for request in asked), key=lambda body: body["scoring_spec"][0]["question"])
    assert bodies[0] == {"llm_input": "hi", "llm_output": "hi", "scoring_spec": [{"question": "Is it 0.25 rude, hi?"}]}


@pytest.mark.parametrize(
    ("value", "variables", "said"),
    [
        ("Is it 0.8 good?", {"WITHPI_API_KEY": ""}, "set WITHPI_API_KEY"),
        ("Is it good?", {}, "the reply has no `total_score`"),
        (["Is it 0.8 good?"], {}, "must be text"),
    ],
)
@pytest.mark.parametrize("kind", ["pi", "not-pi"])
def test_pi_that_gives_no_score_is_an_error(graded, kind, value, variables, said):
    code, [part], row, _ = graded([{"type": kind, "value": value}], variables=variables)
    assert (code, row["failureReason"], part["pass"], part["score"]) == (100, 2, False, 0)
    assert said in row["error"]


VERDICT = '<<{"pass": true, "score": 0.9, "reason": "seen", "searchResults": [{"url": "u"}]}>>'


def test_a_search_names_its_model_and_its_pages(graded):
    grader = {"id": "openai:responses:gpt-4o", "config": {"tools": [{"type": "web_search"}]}}
    code, [part], _, [request] = graded([{"type": "search-rubric", "value": "is so", "provider": grader}], VERDICT)
    assert (code, request["path"], request["body"]["tools"]) == (0, "/v1/responses", [{"type": "web_search"}])
    assert part["metadata"] == {"searchResults": [{"url": "u"}], "searchProvider": "openai:responses:gpt-4o"}
    assert part["tokensUsed"]["total"] == 15
    prompt = json.dumps(request["body"]["input"])
    assert "search the web" in prompt and "is so" in prompt


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        (["ANTHROPIC_API_KEY", "OPENAI_API_KEY"], "/v1/responses"),
        (["ANTHROPIC_API_KEY"], "/v1/messages"),
        (["GOOGLE_API_KEY"], "/v1beta/models/gemini-3.1-pro-preview:generateContent"),
    ],
)
def test_a_model_that_searches_is_found_by_the_keys(graded, keys, path):
    absent = {name: None for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY") if name not in keys}
    code, [part], row, [request] = graded([{"type": "search-rubric", "value": "is so"}], VERDICT, variables=absent)
    assert (code, part["pass"], request["path"].split("?")[0]) == (0, True, path), row
    assert "earch" in json.dumps(request["body"]["tools"])


def test_without_a_model_that_searches_there_is_no_verdict(graded):
    absent = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "PERPLEXITY_API_KEY", "GEMINI_API_KEY"))
    for kind in ("search-rubric", "not-search-rubric"):
        code, [part], row, asked = graded([{"type": kind, "value": "is so"}], VERDICT, variables=absent)
        assert (code, row["failureReason"], part["pass"], asked) == (100, 2, False, [])
        assert "needs a model that searches the web" in row["error"]


def test_an_agent_of_the_users_own_looks_around(graded, tmp_path):
    (tmp_path / "here.txt").write_text("the file")
    (tmp_path / "agent.py").write_text(
        "import json, os\n"
        "def call_api(prompt, options, context):\n"
        "    there = os.path.exists('here.txt')\n"
        "    steps = 'I looked: {\"command\": \"ls\"}. '\n"
        "    return {'output': steps + json.dumps({'pass': there and 'the file is there' in prompt, 'score': 1, 'reason': 'I looked'})}\n"
    )
    asserts = [{"type": "agent-rubric", "value": "the file is there"}, {"type": "not-agent-rubric", "value": "the file is gone"}]
    code, parts, _, _ = graded(asserts, defaultTest={"options": {"provider": "file://agent.py"}})
    assert (code, [(part["pass"], part["score"]) for part in parts]) == (0, [(True, 1), (True, 0)])
    assert parts[0]["metadata"]["agentProvider"] == "file://agent.py"
    assert parts[0]["reason"] == "I looked"


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        (None, "needs an agent: name a script"),
        ("openai:gpt-4o", "needs an agent, which `openai:gpt-4o` is not"),
        ("openai:codex-sdk", "--example adapters"),
    ],
)
def test_a_model_alone_is_no_agent(graded, provider, said):
    options = {"options": {"provider": provider}} if provider else {}
    code, [part], row, asked = graded([{"type": "agent-rubric", "value": "x"}], VERDICT, defaultTest=options)
    assert (code, row["failureReason"], part["pass"], asked) == (100, 2, False, [])
    assert said in row["error"]
