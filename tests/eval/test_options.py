"""What the command line and the environment change."""

import json
import os
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from verdicts import ENVIRONMENT

SUITE = {
    "prompts": ["say {{word}}"],
    "providers": ["echo"],
    "defaultTest": {"options": {"suffix": "."}},
    "tests": [
        {"description": "first", "vars": {"word": "hi"}, "metadata": {"kind": "a"}, "assert": [{"type": "contains", "value": "hi"}]},
        {"description": "100%, #2", "vars": {"word": "ho"}, "metadata": {"kind": "b"}, "assert": [{"type": "equals", "value": "no\nno"}]},
    ],
}


@pytest.fixture
def evaluate(tmp_path, sandcove):
    """Runs `sandcove eval` in a directory with the suite: (exit code, standard output, standard error)."""
    (tmp_path / "promptfooconfig.yaml").write_text(json.dumps(SUITE))

    def run(*arguments, directory=tmp_path, **environment):
        done = subprocess.run(
            [*sandcove, "eval", *map(str, arguments)],
            cwd=directory, env={**os.environ, **ENVIRONMENT, "PROMPTFOO_CONFIG_DIR": str(tmp_path / "home"), **environment},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
        )
        return done.returncode, done.stdout, done.stderr

    return run


def rows(path):
    return json.loads(path.read_text())["results"]["results"]


def test_a_directory_without_a_suite_is_told_once(evaluate, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    code, out, err = evaluate(directory=empty)
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "error: there is no promptfooconfig.yaml here",
        "hint: name one with -c, or make one with `sandcove eval init`",
    ]


def test_answers_control_no_terminal(evaluate, tmp_path):
    """A model set the title of the terminal that its answers were printed on, and what the clipboard had."""
    # A title, the clipboard, and an empty screen.
    hostile = "\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b[2J\x9b2J"
    (tmp_path / "model.py").write_text(
        f"def call_api(prompt, options, context):\n    text = {hostile!r} + prompt\n"
        "    return {'error': text} if 'fail' in prompt else {'output': text}\n"
    )
    words = {"hi": "contains", "ho": "equals", "fail": "contains"}
    tests = [{"vars": {"word": f"{hostile}{word}"}, "assert": [{"type": kind, "value": word}]} for word, kind in words.items()]
    (tmp_path / "promptfooconfig.yaml").write_text(json.dumps({"prompts": ["say {{word}}"], "providers": ["file://model.py"], "tests": tests}))
    for arguments in ([], ["--no-table"], ["--format", "tap"], ["--format", "github"]):
        code, out, err = evaluate("--no-cache", *arguments)
        assert code == 100 and "say " in out, err
        shown = {letter for letter in out + err if ord(letter) < 32 or 127 <= ord(letter) < 160}
        assert shown <= {"\n", "\t"}, (arguments, shown)
    answers = [row["response"].get("output") or row["error"] for row in rows_of(evaluate, tmp_path)]
    assert all(hostile in answer for answer in answers), "they are stored as they were"


def rows_of(evaluate, tmp_path):
    evaluate("-o", tmp_path / "all.json")
    return rows(tmp_path / "all.json")


def test_a_configuration_that_does_not_exist_comes_with_a_hint(evaluate, sandcove, tmp_path):
    (tmp_path / "suite.yaml").write_text("{}")
    for verb in ("eval", "validate"):
        done = subprocess.run([*sandcove, verb, "-c", "siute.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr.splitlines()[:2]) == (
            1, ["error: configuration not found: `siute.yaml`", "hint: did you mean `suite.yaml`?"],
        )  # fmt: skip
    _, _, err = evaluate("-c", "elsewhere/config.json")
    assert "hint: check the path, or make a configuration with `sandcove eval init`" in err.splitlines()


def test_unknown_options_are_usage_errors(evaluate):
    code, _, err = evaluate("--no-such-thing")
    assert code == 1 and "--no-such-thing" in err
    code, _, err = evaluate("--format", "xunit")
    assert code == 1 and "use text, tap or github" in err


def test_options_may_be_given_twice(evaluate):
    assert evaluate("--no-table", "--no-table", "-j", "1", "-j", "2")[0] == 100


def test_results_for_other_programs(evaluate):
    code, out, _ = evaluate("--format", "tap")
    assert code == 100
    assert out.startswith("TAP version 13\n1..2\nok 1 - [echo] first\nnot ok 2 - [echo] 100%,  2\n  ---\n  verdict: FAIL\n  message: ")
    assert all(line.startswith("# ") for line in out.split("  ...\n")[1].splitlines())
    _, out, _ = evaluate("--format", "github")
    assert out.startswith("::error title=FAIL [echo] 100%25%2C #2::") and "%0A" in out.splitlines()[0]


def test_rows_are_named_by_what_tells_them_apart(evaluate, tmp_path):
    tests = [{"vars": {"word": word, "n": n}, "assert": [{"type": "equals", "value": "no"}]} for n, word in enumerate(["hi", "ho\nho"])]
    (tmp_path / "unnamed.yaml").write_text(json.dumps({**SUITE, "tests": [*tests, {"assert": [{"type": "equals", "value": "no"}]}]}))
    _, out, err = evaluate("-c", "unnamed.yaml")
    assert [line.split(": Expected")[0] for line in out.splitlines() if line.startswith("[FAIL]")] == [
        "[FAIL] [echo] word=hi n=0", "[FAIL] [echo] word=ho ho n=1", "[FAIL] [echo] test 3",
    ]
    assert "Providers:" not in out and "sandcove view" not in err


def test_the_summary_has_a_line_for_each_provider(evaluate, tmp_path):
    (tmp_path / "priced.py").write_text(
        "def call_api(prompt, options, context):\n"
        "    return {'output': prompt, 'cost': 0.25, 'tokenUsage': {'total': 7, 'prompt': 3, 'completion': 4}}\n"
    )
    (tmp_path / "two.yaml").write_text(json.dumps({**SUITE, "providers": ["echo", {"id": "file://priced.py", "label": "mine"}]}))
    _, out, _ = evaluate("-c", "two.yaml")
    lines = [line for line in out.splitlines() if line.startswith("  ")]
    assert lines[0].startswith("  echo: 1 of 2 passed, ") and lines[0].endswith(" ms on average")
    assert lines[1].startswith("  mine: 1 of 2 passed, 14 tokens, $0.5000, ")


@pytest.mark.parametrize(("name", "tests"), [("offline", 3), ("starter", 2)])
def test_examples_are_valid(evaluate, tmp_path, name, tests):
    assert evaluate("init", "--example", name)[0] == 0
    code, out, _ = evaluate("validate", directory=tmp_path / name)
    assert code == 0 and out.startswith(f"the configuration is valid: {tests} tests, ")


def test_an_example_runs_without_model_server_and_network(evaluate, tmp_path):
    evaluate("init", "--example", "offline")
    code, out, err = evaluate(directory=tmp_path / "offline", http_proxy="http://127.0.0.1:9", https_proxy="http://127.0.0.1:9")
    assert code == 0, out + err
    assert "Results: 3 passed (100.00%), 0 failed, 0 errors" in out


def test_examples_are_named_where_one_is_missing(evaluate):
    code, _, err = evaluate("init", "--example")
    assert code == 1 and "hello,starter,offline" in err


def spreadsheet(path, sheets, styles=""):
    """An .xlsx file with sheets of rows: cells are texts, numbers, truths, or (number, style)."""
    names = "".join(f'<sheet name="{name}" sheetId="{at}" r:id="r{at}"/>' for at, name in enumerate(sheets, 1))
    targets = "".join(f'<Relationship Id="r{at}" Target="worksheets/sheet{at}.xml"/>' for at in range(1, len(sheets) + 1))
    texts = []

    def cell(place, value):
        if isinstance(value, bool):
            return f'<c r="{place}" t="b"><v>{int(value)}</v></c>'
        if isinstance(value, tuple):
            return f'<c r="{place}" s="{value[1]}"><v>{value[0]}</v></c>'
        if isinstance(value, str):
            texts.append(f"<si><r><t>{value[:1]}</t></r><r><t>{value[1:]}</t></r></si>")
            return f'<c r="{place}" t="s"><v>{len(texts) - 1}</v></c>'
        return f'<c r="{place}"><v>{value}</v></c>'

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
        archive.writestr("xl/workbook.xml", f"<workbook {space}><sheets>{names}</sheets></workbook>")
        archive.writestr("xl/_rels/workbook.xml.rels", f"<Relationships>{targets}</Relationships>")
        archive.writestr("xl/styles.xml", f'<styleSheet {space}><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs></styleSheet>')
        for at, lines in enumerate(sheets.values(), 1):
            rows = "".join(
                f'<row r="{number}">' + "".join(cell(f"{chr(65 + column)}{number}", value) for column, value in enumerate(line) if value is not None) + "</row>"
                for number, line in enumerate(lines, 1) if line
            )
            archive.writestr(f"xl/worksheets/sheet{at}.xml", f"<worksheet {space}><sheetData>{rows}</sheetData></worksheet>")
        archive.writestr("xl/sharedStrings.xml", f"<sst {space}>{''.join(texts)}</sst>")


def test_tests_are_rows_of_spreadsheets(evaluate, tmp_path):
    head = ["word", "n", "day", "sure", "__expected"]
    spreadsheet(tmp_path / "tests.xlsx", {
        "First": [head, ["hi", 1.5, (45323, 1), True, "contains: hi"], [None, 7, None, None, "equals: say ."], []],
        "Second": [["word", "__description"], ["ho", "described"]],
        "Empty": [head],
    })
    out = tmp_path / "out.json"

    def chosen(path):
        (tmp_path / "sheet.yaml").write_text(json.dumps({**SUITE, "tests": path}))
        code, _, err = evaluate("-c", "sheet.yaml", "-o", out)
        return code, rows(out) if code != 1 else err

    code, found = chosen("file://tests.xlsx")
    assert (code, [row["vars"] for row in found]) == (0, [
        {"word": "hi", "n": "1.5", "day": "2024-02-01", "sure": "true"}, {"word": "", "n": "7", "day": "", "sure": ""},
    ])
    assert [row["description"] for row in found] == ["Row #1", "Row #2"]
    for path in ("tests.xlsx#Second", "file://tests.xlsx#2"):
        code, found = chosen(path)
        assert (code, [row["description"] for row in found]) == (0, ["described"])
    assert "has no sheet `Third`; its sheets are First, Second, Empty" in chosen("tests.xlsx#Third")[1]
    assert "has no rows below names of columns" in chosen("tests.xlsx#Empty")[1]
    (tmp_path / "old.xlsx").write_text("not one")
    assert "it is not an .xlsx file" in chosen("old.xlsx")[1]


def test_a_seed_chooses_the_tests_that_promptfoo_chooses(evaluate, tmp_path):
    suite = {**SUITE, "tests": [{"vars": {"word": str(n)}} for n in range(50)]}
    (tmp_path / "many.yaml").write_text(json.dumps(suite))
    out = tmp_path / "out.json"
    assert evaluate("-c", "many.yaml", "--filter-sample", 5, "--filter-sample-seed", 42, "-o", out)[0] == 0
    chosen = sorted((row["testIdx"], row["vars"]["word"]) for row in rows(out))
    assert [word for _, word in chosen] == ["23", "16", "35", "2", "48"]


TERMINAL = """
import json, os, pty, sys
# A terminal of 80 columns: what the program prints on it is printed here. Once it shows the row in work, the row may be done.
pid, terminal = pty.fork()
if pid == 0:
    os.environ["COLUMNS"] = "80"
    os.execvp(sys.argv[1], sys.argv[1:])
text = b""
while True:
    try:
        piece = os.read(terminal, 65536)
    except OSError:
        break
    if not piece:
        break
    text += piece
    if any(b"0/1" in line and b"[slow] code=def f(n):" in line for line in text.replace(b"\\r", b"\\n").split(b"\\n")):
        open("shown", "w").close()
os.waitpid(pid, 0)
sys.stdout.buffer.write(text)
"""


def test_a_terminal_shows_code_as_it_is_written(sandcove, tmp_path):
    suite = {
        "prompts": ["{{code}}"], "providers": [{"id": "file://slow.py", "label": "slow"}],
        "tests": [{"vars": {"code": "def f(n):\n    if n < 0:\n        raise ValueError\n    return n"}}],
    }
    (tmp_path / "slow.py").write_text(
        "import os, time\ndef call_api(prompt, options, context):\n    end = time.monotonic() + 50\n"
        "    while not os.path.exists('shown') and time.monotonic() < end: time.sleep(0.02)\n    return {'output': prompt}\n"
    )
    (tmp_path / "promptfooconfig.yaml").write_text(json.dumps(suite))
    done = subprocess.run(
        [sys.executable, "-c", TERMINAL, *sandcove, "eval", "--no-cache"],
        cwd=tmp_path, env={**os.environ, **ENVIRONMENT, "PROMPTFOO_CONFIG_DIR": str(tmp_path / "home"), "TERM": "xterm"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600,
    )
    shown = done.stdout.replace("\r", "\n")
    cells = [line.split("│") for line in shown.splitlines() if line.startswith("│")]
    assert any(len(cell) > 2 and cell[1].rstrip() == "         raise ValueError" for cell in cells), shown
    # Progress is there before the row is done, with the row in work.
    assert any("0/1" in line and "[slow] code=def f(n):" in line for line in shown.splitlines()), shown
    assert "sandcove view" in shown


def test_what_is_not_to_be_kept_is_not(evaluate, tmp_path):
    out = tmp_path / "out.json"
    names = ("PROMPT_TEXT", "RESPONSE_OUTPUT", "TEST_VARS", "GRADING_RESULT", "METADATA")
    code, *_ = evaluate("-o", out, **{f"PROMPTFOO_STRIP_{name}": "true" for name in names})
    assert code == 100
    document = json.loads(out.read_text())
    row = document["results"]["results"][0]
    assert row["prompt"]["raw"] == document["results"]["prompts"][0]["raw"] == "[prompt stripped]"
    assert row["response"]["output"] == "[output stripped]"
    assert (row["vars"], row["testCase"]["vars"], row["metadata"], row["testCase"]["metadata"]) == ({}, {}, {}, {})
    assert row["gradingResult"] is None and row["success"] is True
    assert document["results"]["prompts"][0]["metrics"]["assertPassCount"] == 1


def test_outputs_that_are_there_are_judged(evaluate, tmp_path):
    (tmp_path / "asserts.yaml").write_text("[{type: contains, value: a}, {type: javascript, value: output.length < 3}]")
    (tmp_path / "outputs.json").write_text(json.dumps(["ab", "abc", {"output": "a", "tags": ["x", "y"]}]))
    out = tmp_path / "out.json"
    code, *_ = evaluate("-a", "asserts.yaml", "--model-outputs", "outputs.json", "-o", out)
    assert code == 100
    assert [row["success"] for row in rows(out)] == [True, False, True]
    assert rows(out)[2]["vars"]["tags"] == "x, y"
    code, _, err = evaluate("-a", "asserts.yaml")
    assert code == 1 and "--assertions and --model-outputs need each other" in err


def test_the_command_line_goes_before_defaults(evaluate, tmp_path):
    out = tmp_path / "out.json"
    evaluate("-o", out, "--prompt-prefix", "> ", "--prompt-suffix", "!", "--var", "more=1", "--filter-metadata", "kind=a", "--description", "about", "--tag", "a=b")
    (row,) = rows(out)
    assert row["prompt"]["raw"] == "> say hi!" and row["vars"]["more"] == "1"
    assert json.loads(out.read_text())["config"]["tags"] == {"a": "b"}
    assert "about" in evaluate("list")[1]


def test_suites_are_checked_without_running(evaluate):
    for arguments in (["validate"], ["validate", "config"], ["validate", "config", "-c", "promptfooconfig.yaml"]):
        code, out, _ = evaluate(*arguments)
        assert (code, out) == (0, "the configuration is valid: 2 tests, 1 provider, 1 prompt\n")


def test_a_strict_run_fails_for_what_would_have_no_effect(evaluate, tmp_path):
    suite = {name: value for name, value in SUITE.items() if name != "tests"} | {"test": SUITE["tests"]}
    (tmp_path / "typo.yaml").write_text(json.dumps(suite))
    code, _, err = evaluate("-c", "typo.yaml")
    assert code == 0 and "warning: unknown key `test` in" in err
    for verb in ([], ["validate"]):
        code, out, err = evaluate(*verb, "--strict", "-c", "typo.yaml")
        assert (code, out) == (1, "")
        assert "error: unknown key `test` in" in err and "did you mean `tests`?" in err
    assert evaluate("validate", "--strict")[0] == 0


def test_a_misspelt_key_of_an_assertion_about_code_is_found_before_anything_runs(evaluate, tmp_path):
    (tmp_path / "typo.yaml").write_text(
        "prompts: [x]\nproviders: [echo]\ntests:\n  - assert:\n      - type: code-run\n        value:\n"
        "          function: f\n          casess: []\n          cases:\n            - {inptu: 1}\n"
    )
    code, out, err = evaluate("-c", "typo.yaml")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "typo.yaml:8:11: error: unknown key `casess` in an assertion that runs code",
        "hint: did you mean `cases`?",
        "typo.yaml:10:16: error: unknown key `inptu` in a case",
        "hint: did you mean `input`?",
    ]


def test_what_is_stored_is_for_its_owner_alone(evaluate, tmp_path):
    home = tmp_path / "account"
    (home / ".sandcove").mkdir(parents=True, mode=0o755)
    for _ in range(2):
        evaluate(HOME=str(home), PROMPTFOO_CONFIG_DIR="")
        database = home / ".sandcove/evaluations.db"
        assert database.stat().st_mode & 0o777 == 0o600
        assert database.parent.stat().st_mode & 0o777 == 0o700
        database.chmod(0o644)
    evaluate(HOME=str(home), PROMPTFOO_CONFIG_DIR="")
    assert database.stat().st_mode & 0o777 == 0o600


def test_output_nobody_reads_is_no_failure_and_a_full_disk_is_one(evaluate, sandcove, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, **ENVIRONMENT, "PROMPTFOO_CONFIG_DIR": str(tmp_path / "home")}
    options = {"cwd": tmp_path, "env": environment, "stdin": subprocess.DEVNULL, "timeout": 120}
    for arguments, status in (([], 100), (["validate"], 0), (["list"], 0), (["show"], 0)):
        with os.fdopen(os.dup(writer), "w") as closed:
            done = subprocess.run([*sandcove, "eval", *arguments], stdout=closed, stderr=closed, **options)
            assert done.returncode == status
        with open("/dev/full", "w") as full:
            done = subprocess.run([*sandcove, "eval", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, **options)
            assert done.returncode == 1 and "failed to write to standard output" in done.stderr
    os.close(writer)


def test_kept_answers_are_forgotten(evaluate, tmp_path):
    cache = tmp_path / "home" / "cache"
    cache.mkdir(parents=True)
    (cache / f"{'a' * 64}.json").write_text("{}")
    (cache / "mine.json").write_text("{}")
    assert evaluate("cache", "clear")[1] == "removed 1 answer\n"
    assert [path.name for path in cache.iterdir()] == ["mine.json"]


class Model(BaseHTTPRequestHandler):
    """Finds everything good, and alike."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append(self.path)
        verdict = json.dumps({"pass": True, "score": 1, "reason": "good"})
        chat = {"choices": [{"message": {"role": "assistant", "content": verdict}}], "usage": {"total_tokens": 7}}
        answer = chat if self.path == "/chat/completions" else {"data": [{"embedding": [1, 0]}]}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def model():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_what_graders_said_is_kept(evaluate, model, tmp_path):
    service = {"apiBaseUrl": f"http://127.0.0.1:{model.server_port}", "apiKey": "k"}
    suite = {
        "prompts": ["say {{word}}"],
        "providers": ["echo"],
        "tests": [{"vars": {"word": "hi"}, "assert": [
            {"type": "llm-rubric", "value": "is good", "provider": {"id": "openai:chat:judge", "config": service}},
            {"type": "similar", "value": "say ho", "provider": {"id": "openai:embedding:vectors", "config": service}},
        ]}],
    }
    (tmp_path / "graded.yaml").write_text(json.dumps(suite))
    once = ["/chat/completions", "/embeddings", "/embeddings"]
    for options, asked in ([], once), ([], once), (["--no-cache"], once * 2):
        assert evaluate("-c", "graded.yaml", "-o", "graded.json", *options)[0] == 0
        assert sorted(model.asked) == sorted(asked)
        assert [row["success"] for row in rows(tmp_path / "graded.json")] == [True]


def test_configurations_share_prompts_and_the_first_names_the_tags(evaluate, tmp_path):
    first = {"prompts": ["{{x}}", "also {{x}}"], "providers": ["echo"], "tags": {"a": "1"}, "tests": [{"vars": {"x": "1"}}]}
    second = {"prompts": ["{{x}}"], "providers": ["echo"], "tags": {"a": "2", "b": "2"}, "tests": [{"vars": {"x": "2"}}]}
    for name, suite in ("first.yaml", first), ("second.yaml", second):
        (tmp_path / name).write_text(json.dumps(suite))
    out = tmp_path / "out.json"
    assert evaluate("-c", "first.yaml", "-c", "second.yaml", "-o", out)[0] == 0
    assert sorted((row["testIdx"], row["prompt"]["raw"]) for row in rows(out)) == [(0, "1"), (0, "also 1"), (1, "2"), (1, "also 2")]
    assert json.loads(out.read_text())["config"]["tags"] == {"a": "1", "b": "2"}
