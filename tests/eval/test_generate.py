"""`sandcove generate`: a local service plays the model that proposes tests and assertions."""

import csv
import json
import os
import re
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from verdicts import ENVIRONMENT


class Model(BaseHTTPRequestHandler):
    """Proposes users, then two tests at a time, and questions with code for those about lengths."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = asked["messages"][-1]["content"]
        self.server.asked.append((self.headers["Authorization"], prompt))
        reply = self.server.reply(prompt, len(self.server.asked)) if self.server.reply else propose(prompt, len(self.server.asked))
        body = json.dumps({"choices": [{"message": {"content": reply}, "finish_reason": "stop"}], "usage": {}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def propose(prompt, at):
    if '{"personas"' in prompt:
        return 'Here they are:\n```json\n{"personas": ["a pupil, who misspells", {"name": "Ada", "wants": "proofs"}]}\n```'
    if '{"vars"' in prompt:
        user = re.search(r"<user>\n(.*?)\n</user>", prompt)[1]
        sets = [{"topic": f"{user} {at}", "tone": "=1+1", "more": 1}, {"topic": f'"quoted", {at}', "tone": "two\nlines"}, {"topic": "no tone"}]
        return json.dumps({"vars": sets})
    if '{"questions"' in prompt:
        questions = [{"label": "Length", "question": "Has it at most 20 characters?"}, {"label": "Manners", "question": "Is it polite?"}, "Is it about the topic?"]
        return json.dumps({"questions": questions})
    if "at most 20 characters" in prompt:
        return "```python\nn = len(output)\nreturn {'pass': n <= 20, 'score': float(n <= 20), 'reason': f'{n} characters'}\n```"
    return "None"


CONFIG = """\
# Poems
prompts:
  - Write about {{topic}} in a {{tone}} tone
  - '{% for line in lines %}{{ line }}{% endfor %}{{ topic }}, {{ tone }}'
tests:
  # by hand
  - vars: {topic: rain, tone: sad, lines: []}
    assert: [{type: llm-rubric, value: Mentions rain}]

providers: [echo]
"""


@pytest.fixture
def generate(tmp_path, sandcove):
    """Runs `sandcove generate`: (exit status, standard output, standard error)."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    server.asked, server.reply = [], None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "promptfooconfig.yaml").write_text(CONFIG.replace("  - '{% for line in lines %}{{ line }}{% endfor %}{{ topic }}, {{ tone }}'\n", ""))
    environment = {
        **os.environ, **ENVIRONMENT, "OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_port}/v1", "OPENAI_API_KEY": "key",
        "PROMPTFOO_CONFIG_DIR": str(tmp_path / "home"), "WITHPI_API_KEY": "",
    }  # fmt: skip

    def run(*arguments, command="generate", answers="", **variables):
        done = subprocess.run(
            [*sandcove, command, *arguments], cwd=tmp_path, env={**environment, **variables},
            input=answers, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    run.directory, run.server = tmp_path, server
    yield run
    server.shutdown()
    server.server_close()


def evaluated(generate, *arguments):
    """The rows of the suite as it is now."""
    out = generate.directory / "out.json"
    _, _, said = generate("-o", str(out), "--no-cache", "--no-table", "--no-progress-bar", *arguments, command="eval")
    assert out.exists(), said
    return json.loads(out.read_text())["results"]["results"]


def test_tests_are_proposed_by_users_and_added_to_the_configuration(generate):
    status, out, said = generate("dataset", "--write", "--numPersonas", "2", "--numTestCasesPerPersona", "2", "-i", "Write in German")
    assert (status, out) == (0, ""), said
    text = (generate.directory / "promptfooconfig.yaml").read_text()
    assert "# Poems" in text and "  # by hand" in text and text.endswith("providers: [echo]\n")
    rows = evaluated(generate, "--filter-range", "1:")
    assert len(rows) == 4 and rows[0]["vars"] == {"topic": "a pupil, who misspells 2", "tone": "=1+1"}
    assert rows[1]["vars"] == {"topic": '"quoted", 2', "tone": "two\nlines"}
    assert rows[2]["vars"]["topic"] == "Ada: proofs 3"
    personas, first, second = (prompt for _, prompt in generate.server.asked)
    for prompt in (personas, first, second):
        assert "Write about {{topic}} in a {{tone}} tone" in prompt and "Write in German" in prompt
    assert "Describe 2 users" in personas and "Write 2 sets" in first
    # What is there already is not asked for again.
    assert '"topic":"rain"' in first and "a pupil, who misspells 2" in second


def test_tests_are_written_to_a_file_that_a_suite_can_read(generate):
    status, out, said = generate("dataset", "-o", "new.csv", "--numPersonas", "1", "--numTestCasesPerPersona", "2", "--no-cache")
    assert (status, out) == (0, ""), said
    with (generate.directory / "new.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["topic", "tone"], ["a pupil, who misspells 2", "=1+1"], ['"quoted", 2', "two\nlines"]]
    assert [row["vars"]["tone"] for row in evaluated(generate, "-t", "new.csv")] == ["=1+1", "two\nlines"]
    assert generate("dataset", "-o", "new.yaml", "--numPersonas", "1", "--numTestCasesPerPersona", "2")[0] == 0
    status, out, _ = generate("dataset", "--numPersonas", "1", "--numTestCasesPerPersona", "2", "--no-cache")
    assert status == 0 and out.startswith("tests:\n  - vars:\n      topic: ")
    asked = len(generate.server.asked)
    status, _, said = generate("dataset", "-o", "new.xlsx")
    assert (status, len(generate.server.asked)) == (1, asked) and "unknown format `xlsx`" in said


def test_a_model_that_repeats_itself_is_not_asked_for_ever(generate):
    generate.server.reply = lambda prompt, at: json.dumps({"personas": ["one"], "vars": [{"topic": "same", "tone": "same"}]})
    status, out, said = generate("dataset", "--numPersonas", "2", "--numTestCasesPerPersona", "2")
    assert status == 0 and out.count("topic: same") == 1
    assert "the model proposed only 1 test" in said
    assert len(generate.server.asked) == 5


@pytest.mark.parametrize(
    ("reply", "said"),
    [("I would rather not.", "was asked for personas, and answered: I would rather not."), ('{"personas": []}', "was asked for personas")],
)
def test_another_answer_is_an_error(generate, reply, said):
    generate.server.reply = lambda prompt, at: reply
    before = (generate.directory / "promptfooconfig.yaml").read_text()
    status, out, error = generate("dataset", "--write")
    assert (status, out) == (1, "") and said in error
    assert (generate.directory / "promptfooconfig.yaml").read_text() == before


def test_assertions_are_code_where_code_can_decide(generate):
    status, out, said = generate("assertions", "--write", "--numAssertions", "3", "-i", "Be strict")
    assert (status, out) == (0, ""), said
    text = (generate.directory / "promptfooconfig.yaml").read_text()
    assert "# Poems" in text and "defaultTest:\n  assert:\n    - type: python\n      metric: Length\n      value: |-\n        n = len(output)\n" in text
    assert "- type: llm-rubric\n      metric: Manners\n      value: Is it polite?\n    - type: llm-rubric\n      value: Is it about the topic?" in text
    [row] = evaluated(generate)
    length = row["gradingResult"]["componentResults"][0]
    assert (length["pass"], length["score"], length["reason"]) == (False, 0, "30 characters")
    questions = generate.server.asked[0][1]
    assert "Mentions rain" in questions and "Be strict" in questions and "Write 3 questions" in questions


@pytest.mark.parametrize(
    ("arguments", "variables", "kind"),
    [((), {}, "llm-rubric"), ((), {"WITHPI_API_KEY": "k"}, "pi"), (("--type", "g-eval"), {"WITHPI_API_KEY": "k"}, "g-eval")],
)
def test_the_type_of_questions_is_chosen(generate, arguments, variables, kind):
    status, out, said = generate("assertions", "--numAssertions", "2", *arguments, **variables)
    assert status == 0, said
    assert re.findall(r"type: (\S+)", out) == ["python", kind]
    assert out.startswith("assert:\n  - type: python\n")


def test_a_program_of_the_users_own_can_propose(generate):
    (generate.directory / "model.py").write_text(
        "import json\n"
        "def call_api(prompt, options, context):\n"
        "    key = context['prompt']['label']\n"
        "    return {'output': {'personas': ['p']} if key == 'personas' else {'vars': [{'topic': options['config']['topic'], 'tone': 'b'}]}}\n"
    )
    (generate.directory / "other.json").write_text(json.dumps({
        "prompts": ["{{topic}} {{tone}}"], "defaultTest": {"options": {"provider": {"id": "file://model.py", "config": {"topic": "t"}}}},
    }))  # fmt: skip
    arguments = ("dataset", "-c", "other.json", "--numPersonas", "1", "--numTestCasesPerPersona", "1")
    status, _, said = generate(*arguments, "-w")
    assert status == 0, said
    assert json.loads((generate.directory / "other.json").read_text())["tests"] == [{"vars": {"topic": "t", "tone": "b"}}]
    status, out, said = generate(*arguments, "--provider", "openai:gpt-4o")
    assert status == 0 and "a pupil" in out, said
    assert generate.server.asked[0][0] == "Bearer key"


def test_what_cannot_be_generated_is_said_before_a_model_is_asked(generate):
    def fails(*arguments, **variables):
        status, _, said = generate(*arguments, **variables)
        assert (status, generate.server.asked) == (1, [])
        return said

    assert "no model to ask" in fails("dataset", OPENAI_API_KEY="", ANTHROPIC_API_KEY="")
    (generate.directory / "promptfooconfig.yaml").write_text("prompts: [Say hi]\n")
    assert "the prompts have no variables" in fails("dataset")
    (generate.directory / "promptfooconfig.yaml").unlink()
    assert "name one with -c" in fails("assertions")


def test_variables_of_loops_are_not_asked_for(generate):
    (generate.directory / "promptfooconfig.yaml").write_text(CONFIG)
    generate("dataset", "--numPersonas", "1", "--numTestCasesPerPersona", "1")
    assert '{"vars": [{"topic": value, "tone": value, "lines": value}, ...]}' in generate.server.asked[1][1]


def test_suggested_prompts_are_tested_if_they_are_chosen(generate):
    generate.server.reply = lambda prompt, at: f"Sing of {{{{topic}}}}, try {at}"
    suite = {"prompts": ["Write about {{topic}}"], "providers": ["echo"], "tests": [{"vars": {"topic": "rain"}}]}
    (generate.directory / "promptfooconfig.yaml").write_text(json.dumps(suite))
    out = generate.directory / "out.json"
    arguments = ("--suggest-prompts", "2", "-o", str(out), "--no-cache")
    status, shown, said = generate(*arguments, command="eval", answers="n\ny\n")
    assert status == 0, said
    assert "Sing of {{topic}}, try 1" in shown
    rows = json.loads(out.read_text())["results"]["results"]
    assert [row["response"]["output"] for row in rows] == ["Write about rain", "Sing of rain, try 2"]
    assert generate.server.asked[0][1] == "Write about {{topic}}"
    # Without a choice nothing runs.
    out.unlink()
    status, _, said = generate(*arguments, command="eval")
    assert (status, out.exists()) == (1, False) and "no suggested prompt was chosen" in said
