"""The verbs of the evaluator, typed on a real terminal. `test_command_line_verbs.py` has all others."""

from __future__ import annotations

import json

from harness.verbs import story

SUITE = """\
prompts: ['say {{word}}']
providers: [echo]
tests:
  - vars: {word: hi}
    assert: [{type: contains, value: hi}]
"""
# A model that proposes what it is asked for.
MODEL = """\
import json

def call_api(prompt, options, context):
    answers = {"personas": ["a pupil"], "vars": [{"word": "ho"}], "questions": [{"label": "Manners", "question": "Is it polite?"}]}
    found = next((key for key in answers if '{"' + key + '"' in prompt), None)
    return {"output": json.dumps({found: answers[found]}) if found else "None"}
"""


@story("eval", "eval init", "eval validate", "eval validate config", "eval validate target", "validate", "validate config", "validate target", "eval list",
       "eval show", "eval export", "eval import", "eval retry", "eval rerun", "eval share", "eval delete", "eval cache clear", "view", "generate dataset", "generate assertions")  # fmt: skip
def test_a_suite_is_evaluated(typist):
    typist.fails("eval", hint="`sandcove eval init`")
    typist.fails("eval -c siute.yaml", hint="`sandcove eval init`")
    typist.shows("eval init example")
    (typist.home / "promptfooconfig.yaml").write_text(SUITE)
    for verb in ("eval validate", "eval validate config", "validate", "validate config"):
        assert "valid" in typist.shows(verb)
    for verb in ("eval validate target", "validate target"):
        assert "1 provider answered" in typist.shows(f"{verb} -t echo")
        typist.fails(verb, hint="hint: ")
    assert "1 passed" in typist.shows("eval --no-cache")
    run = next(word for word in typist.shows("eval list").split() if word.startswith("eval-"))
    assert run in typist.shows("eval list evals -n 1 --ids-only").split()
    assert run in typist.shows(f"eval show {run}")
    assert run in typist.shows(f"eval show eval {run}")
    typist.shows(f"eval export {run} -o run.json")
    assert json.loads((typist.home / "run.json").read_text())["evalId"] == run
    typist.shows("eval import run.json --new-id")
    typist.shows(f"eval retry {run}")
    assert "1 passed" in typist.shows(f"eval rerun {run}")
    assert f"/dashboard/evaluations/{run}" in typist.shows(f"eval share {run}")
    assert run in typist.shows(f"eval share {run} -o shared.html")
    assert "</html>" in (typist.home / "shared.html").read_text()
    typist.shows(f"eval delete eval {run}")
    for verb in ("show", "export", "retry", "rerun", "share", "delete"):
        typist.fails(f"eval {verb} {run}", hint=run)
    typist.fails("eval import no-such-file.json", hint="no-such-file.json")
    assert "removed" in typist.shows("eval cache clear")
    view = typist.open("view -n --port 0")
    view.until("http://127.0.0.1:")
    view.type("\x03")
    assert view.end() == 0
    (typist.home / "model.py").write_text(MODEL)
    assert "ho" in typist.shows("generate dataset --provider file://model.py --numPersonas 1 --numTestCasesPerPersona 1")
    assert "polite" in typist.shows("generate assertions --provider file://model.py --numAssertions 1")


@story("redteam init", "redteam plugins", "redteam generate", "redteam eval", "redteam run", "redteam report", "redteam setup")
def test_a_check_is_attacked(typist):
    typist.fails("redteam report", hint="`sandcove redteam run`")
    typist.fails("redteam generate", hint="`sandcove redteam init`")
    assert "sandbox:escape" in typist.shows("redteam plugins")
    check = typist.home / "check.py"
    check.write_text("def get_assert(output, context):\n    return 'import' not in output\n")
    asked = typist.open("redteam init")
    asked.until("target type")
    asked.type("validator\n")
    for question, answer in (("target name", "check"), ("target id", "file://./check.py"), ("target settings", ""), ("purpose", "adds numbers")):
        asked.until(question)
        asked.type(f"{answer}\n")
    for question in ("key features", "industry", "must not do", "plugins", "strategies", "write it"):
        asked.until(question)
        asked.type("\n")
    assert asked.end() == 0, asked.seen
    narrow = "--plugins sandbox:code-injection --strategies basic -n 2"
    typist.shows(f"redteam generate {narrow}")
    assert "the check missed 0 of 2" in typist.shows("redteam eval")
    # One that lets everything through does not withstand.
    check.write_text("def get_assert(output, context):\n    return True\n")
    assert "the check missed 2 of 2" in typist.shows(f"redteam run {narrow} --force")
    assert "code-injection" in typist.shows("redteam report")
    setup = typist.open("redteam setup -n -p 0")
    setup.until("/redteam/setup?token=")
    setup.type("\x03")
    assert setup.end() == 0
