"""Suites whose code runs in sandboxes: of models that mean harm, and the examples. Needs a server (`E2B_API_URL`)."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from verdicts import ENVIRONMENT, HERE, ROOT

pytestmark = pytest.mark.skipif("E2B_API_URL" not in os.environ, reason="E2B_API_URL names no server")

# A suite that any model could be asked, so that the examples need none.
ANSWERS = """
ANSWERS = {
    "factorial": "def factorial(n):\\n    if n < 0:\\n        raise ValueError('negative')\\n    return 1 if n < 2 else n * factorial(n - 1)",
    "is_palindrome": "def is_palindrome(text):\\n    t = [c for c in text.lower() if c.isalnum()]\\n    return t == t[::-1]",
    "find_largest": "def find_largest(numbers):\\n    return min(numbers)",
    "binary_search": "def binary_search(numbers, target):\\n    return numbers.index(target) if target in numbers else -1",
    "reverse_string": "def reverse_string(text):\\n    return text[::-1]",
}


def call_api(prompt, options, context):
    return {"output": "```python\\n" + ANSWERS[context["vars"]["function_name"]] + "\\n```"}
"""


def evaluate(command, directory, *more, config="promptfooconfig.yaml"):
    """(exit status, rows in order) of a run."""
    out = Path(directory) / "out.json"
    out.unlink(missing_ok=True)
    home = Path(directory) / ".config"
    arguments = [*command, "eval", "-c", config, "-o", str(out), "--no-cache", "--no-table", "--no-progress-bar", *more]
    environment = {**os.environ, **ENVIRONMENT, "PROMPTFOO_CONFIG_DIR": str(home)}
    done = subprocess.run(
        arguments, cwd=directory, env=environment, capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL
    )
    assert out.exists(), done.stdout + done.stderr
    rows = json.loads(out.read_text())["results"]["results"]
    return done.returncode, sorted(rows, key=lambda row: row["testIdx"])


def test_harm_ends_in_a_verdict_and_the_run_goes_on(sandcove, tmp_path):
    shutil.copy(HERE / "hostile.py", tmp_path / "hostile.py")
    value = {"function": "f", "cases": [{"args": [], "expected": 42}], "safety": False, "timeout_ms": 120_000}
    # Short only for what may take for ever; on a busy machine the others take a while to end as they should.
    endless = {**value, "timeout_ms": 4000}
    harms = {
        "fork bomb": "BlockingIOError|took longer|its sandbox|its interpreter",
        "endless loop": "took longer than 4 s",
        "deletion": "expected 42|took longer|its sandbox|its interpreter",
        "output": "printed more than 1024 KiB",
        "network": "URLError|TimeoutError|took longer",
    }
    values = {harm: endless if "took longer" in words else value for harm, words in harms.items()}
    values["none"] = value
    tests = [{"vars": {"harm": harm}, "assert": [{"type": "code-run", "value": value}]} for harm, value in values.items()]
    checked = {"type": "code-run", "value": {**value, "safety": True}}
    tests.append({"vars": {"harm": "deletion"}, "assert": [checked]})
    suite = {"prompts": ["{{harm}}"], "providers": ["file://hostile.py"], "tests": tests}
    (tmp_path / "promptfooconfig.yaml").write_text(json.dumps(suite))
    status, rows = evaluate(sandcove, tmp_path)
    assert status == 100
    assert [row["success"] for row in rows] == [False] * 5 + [True, False]
    for row, words in zip(rows, harms.values(), strict=False):
        reason = row["gradingResult"]["reason"]
        assert row["failureReason"] == 1, reason
        assert any(word in reason for word in words.split("|")), reason
    assert "not run, because it is unsafe: line 3 calls os.system" in rows[-1]["gradingResult"]["reason"]


def test_promptfoos_example_runs_with_the_e2b_packages(sandcove, tmp_path):
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    example = tmp_path / "example"
    shutil.copytree(ROOT / "examples/promptfoo-e2b", example, ignore=shutil.ignore_patterns("node_modules"))
    modules = ROOT / "tests/sdk-js/node_modules"
    if modules.exists():
        (example / "node_modules").symlink_to(modules)
    else:
        install = ["npm", "install", "--loglevel=error", "--no-audit", "--no-fund", "--fetch-retries=5"]
        # The registry may not answer at once.
        assert any(subprocess.run(install, cwd=example).returncode == 0 for _ in range(3)), "npm does not install the packages"
    programs = [sandcove]
    if "PROMPTFOO_ENTRYPOINT" in os.environ:
        programs.append(["node", os.environ["PROMPTFOO_ENTRYPOINT"]])
    for program in programs:
        status, rows = evaluate(program, example)
        assert status == 0, [row["gradingResult"]["reason"] for row in rows]
        assert [row["success"] for row in rows] == [True] * 3


def made(sandcove, name, directory):
    subprocess.run([*sandcove, "eval", "init", "--example", name, str(directory)], check=True, capture_output=True)
    (directory / "model.py").write_text(ANSWERS)
    return directory


def test_the_first_example_needs_no_model_and_finds_the_server_of_this_machine(sandcove, tmp_path, monkeypatch):
    for name in ("hello", None):
        arguments = ["--example", name] if name else []
        directory = tmp_path / (name or "default")
        subprocess.run([*sandcove, "eval", "init", *arguments, str(directory)], check=True, capture_output=True)
    file = {"url": os.environ["E2B_API_URL"], "apiKey": os.environ["E2B_API_KEY"], "pid": 1}
    (tmp_path / "server.json").write_text(json.dumps(file))
    for name in [name for name in os.environ if name.startswith("E2B_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SANDCOVE_DATA_DIR", str(tmp_path))
    status, rows = evaluate(sandcove, directory)
    assert status == 0, [row["gradingResult"]["reason"] for row in rows]
    # The variables go before it, and a flag before these.
    monkeypatch.setenv("E2B_API_KEY", "e2b_bad")
    status, rows = evaluate(sandcove, directory)
    assert status == 100
    assert "does not accept the API key" in rows[0]["gradingResult"]["reason"]
    status, rows = evaluate(sandcove, directory, "--data-dir", str(tmp_path))
    assert status == 0
    monkeypatch.setenv("SANDCOVE_DATA_DIR", str(tmp_path / "none"))
    monkeypatch.delenv("E2B_API_KEY")
    status, rows = evaluate(sandcove, directory)
    assert "no server to run code on: no server has run with the data directory" in rows[0]["gradingResult"]["reason"]


def test_a_case_that_takes_too_long_or_raises_is_told_in_a_sentence(sandcove, tmp_path):
    cases = [{"args": [0], "expected_error": "ValueError"}, {"args": [1], "expected_error": "KeyError"}, {"args": [2], "expected": 2}]
    value = {"function": "f", "cases": cases, "safety": False, "timeout_ms": 4500}
    code = "def f(n):\n    while n == 0:\n        pass\n    if n == 1:\n        raise ValueError('no')\n    return n"
    suite = {"prompts": [f"```python\n{code}\n```"], "providers": ["echo"], "tests": [{"assert": [{"type": "code-run", "value": value}]}]}
    (tmp_path / "promptfooconfig.yaml").write_text(json.dumps(suite))
    _, (row,) = evaluate(sandcove, tmp_path)
    reason = row["gradingResult"]["reason"]
    assert "expected ValueError, but the code took longer than 4.5 s and was stopped" in reason
    assert "expected KeyError, got ValueError: no" in reason
    assert "2 of 3 cases do not hold" in reason
    assert "Traceback (most recent call last)\n" in json.dumps(row, ensure_ascii=False).replace("\\n", "\n")


def test_the_built_in_example_judges_by_running(sandcove, tmp_path):
    directory = made(sandcove, "code-eval", tmp_path / "suite")
    status, rows = evaluate(sandcove, directory, "-r", "file://model.py")
    assert status == 0, [row["gradingResult"]["reason"] for row in rows]
    assert [row["success"] for row in rows] == [True] * 4


def test_the_tutorials_example_judges_keeps_metrics_and_reports(sandcove, tmp_path):
    directory = made(sandcove, "e2b-code-eval", tmp_path / "suite")
    status, rows = evaluate(sandcove, directory, "-r", "file://model.py")
    assert status == 100
    assert [row["success"] for row in rows] == [True, True, False, True]
    records = [json.loads(path.read_text()) for path in (directory / ".promptfoo_results").glob("*.json")]
    assert sorted(record["task_id"] for record in records) == ["an error that is wanted", "factorial", "largest", "palindrome"]
    assert {"task_id", "provider", "model", "success", "runtime_s", "memory_mb", "extra", "timestamp"} == set(records[0])
    subprocess.run([sys.executable, "report.py"], cwd=directory, check=True, capture_output=True)
    report = (directory / "promptfoo_report.md").read_text()
    assert "| largest |" in report and "3 of 4 succeeded" in report


REPAIR = """
import json, sys
import swe_runner

answers = iter(["not a diff", '''--- a/sums.py
+++ b/sums.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a - b
+    return a + b
'''])
print(json.dumps(swe_runner.run_task("broken", "python3 -m unittest", ["sums.py"], ask=lambda log, files: next(answers))))
"""


def test_the_runner_repairs_a_repository(sandcove, tmp_path):
    directory = made(sandcove, "e2b-code-eval", tmp_path / "suite")
    (directory / "broken").mkdir()
    (directory / "broken/sums.py").write_text("def add(a, b):\n    return a - b\n")
    test = "import unittest\nfrom sums import add\nclass Sums(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n"
    (directory / "broken/test_sums.py").write_text(test)
    done = subprocess.run([sys.executable, "-c", REPAIR], cwd=directory, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["success"]
    assert [attempt["applied"] for attempt in result["attempts"]] == [False, True]


# Repairs what its example is about: the mean at once, the median with the second attempt.
REPAIRER = """
MEAN = '''--- a/statistic.py
+++ b/statistic.py
@@ -4,2 +4,4 @@
 def mean(values):
-    return sum(values) / max(len(values), 1)
+    if not values:
+        raise ValueError('no values')
+    return sum(values) / len(values)
'''
MEDIAN = '''--- a/statistic.py
+++ b/statistic.py
@@ -9,3 +9,4 @@
     ordered = sorted(values)
-    return ordered[len(ordered) // 2]
+    half = len(ordered) // 2
+    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
'''


def call_api(prompt, options, context):
    assert '<files>' in prompt and 'def median' in prompt and '<failing-tests>' in prompt, prompt
    wanted = MEAN if 'mean of nothing' in prompt or 'With the last patch' not in prompt else MEDIAN
    return {'output': 'This repairs it:\\n\\n```diff\\n' + wanted + '```\\n', 'tokenUsage': {'total': 7}}
"""


def test_a_repository_is_repaired_and_judged_by_its_tests(sandcove, tmp_path):
    directory = tmp_path / "suite"
    subprocess.run([*sandcove, "eval", "init", "--example", "patch", str(directory)], check=True, capture_output=True)
    (directory / "repairer.py").write_text(REPAIRER)
    suite = directory / "promptfooconfig.yaml"
    suite.write_text(suite.read_text().replace("provider: openai:gpt-4.1", "provider: file://repairer.py"))
    status, rows = evaluate(sandcove, directory)
    assert status == 0, [(row.get("error"), row.get("gradingResult")) for row in rows]
    attempts = [[attempt["pass"] for attempt in row["response"]["metadata"]["attempts"]] for row in rows]
    assert attempts == [[False, True], [True]]
    tests = rows[0]["gradingResult"]["componentResults"][0]["metadata"]["code"]["tests"]
    names = ["test_statistic.Median.test_even", "test_statistic.Median.test_odd", "test_statistic.Mean.test_mean"]
    assert [test["name"] for test in tests] == names
    records = [json.loads(path.read_text()) for path in (directory / ".promptfoo_results").glob("*.json")]
    kept = sorted((record["task_id"], record["success"], record["model"]) for record in records)
    assert kept == [("empty", True, "gpt-4.1"), ("median", True, "gpt-4.1")]


CHEAT = "--- a/test_sums.py\n+++ b/test_sums.py\n@@ -1 +1,2 @@\n+import sys; sys.exit(0)\n import unittest\n"
SUMS = "--- a/sums.py\n+++ b/sums.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"


def test_runs_before_and_after_a_patch_share_no_caches(sandcove, tmp_path):
    """Both versions of the file have the same size and time, so a cache that the first run leaves behind fits the second."""
    repository = tmp_path / "sums"
    repository.mkdir()
    (repository / "sums.py").write_text("def add(a, b):\n    return a - b\n")
    (repository / "test_sums.py").write_text("from sums import add\nassert add(1, 2) == 3\n")
    (repository / ".gitignore").write_text("__pycache__\n*.o\n")
    same_time = "touch -d @1000000000 sums.py"
    commands = {
        "beside the file": f"{same_time} && python3 test_sums.py",
        # What a build system makes of them, which is as new as its source.
        "a build's product": f"{same_time} && (test -e sums.o || cp -p sums.py sums.o) && cp sums.o sums.py && python3 -B test_sums.py",
        # Both versions are written as quickly as can be.
        "elsewhere": "PYTHONPYCACHEPREFIX=/tmp/caches python3 test_sums.py",
    }
    value = {"repository": "sums", "timeout_ms": 120_000}
    tests = [{"vars": {"answer": SUMS}, "assert": [{"type": "patch", "value": {**value, "command": line}}]} for line in commands.values()]
    suite = {"prompts": ["{{answer}}"], "providers": ["echo"], "tests": tests}
    (tmp_path / "promptfooconfig.yaml").write_text(json.dumps(suite))
    _, rows = evaluate(sandcove, tmp_path)
    assert [row["success"] for row in rows] == [True] * 3, [row.get("error") or row["gradingResult"]["reason"] for row in rows]


def test_attempts_of_a_model_share_no_caches(sandcove, tmp_path):
    repository = tmp_path / "sums"
    repository.mkdir()
    (repository / "sums.py").write_text("def add(a, b):\n    return a - b\n")
    (repository / "test_sums.py").write_text("from sums import add\nassert add(1, 2) == 3\n")
    # What git ignores is not cleaned up by it either.
    (repository / ".gitignore").write_text("__pycache__\n")
    wrong = SUMS.replace("a + b", "a * b")
    model = f"ANSWERS = iter({[wrong, SUMS]!r})\ndef call_api(prompt, options, context):\n    return {{'output': next(ANSWERS)}}\n"
    (tmp_path / "model.py").write_text(model)
    command = "touch -d @1000000000 sums.py && python3 test_sums.py"
    config = {"repository": "sums", "command": command, "provider": "file://model.py", "attempts": 2}
    suite = {"prompts": ["Repair it."], "providers": [{"id": "patch", "config": config}], "tests": [{"vars": {"round": 1}}]}
    (tmp_path / "promptfooconfig.yaml").write_text(json.dumps(suite))
    _, rows = evaluate(sandcove, tmp_path, "-j", "1")
    assert [attempt["pass"] for attempt in rows[0]["response"]["metadata"]["attempts"]] == [False, True]


def test_patches_are_judged_whatever_they_try(sandcove, tmp_path):
    repository = tmp_path / "sums"
    repository.mkdir()
    (repository / "sums.py").write_text("def add(a, b):\n    return a - b\n")
    test = "import unittest\nfrom sums import add\nclass Sums(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n"
    (repository / "test_sums.py").write_text(test)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-C", str(repository)]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "wrong"]):
        subprocess.run([*git, *arguments], check=True)
    # Later changes are no part of the revision.
    (repository / "sums.py").write_text("def add(a, b):\n    return a + b\n")
    answers = {
        "good": SUMS,
        "badly counted": SUMS.replace("@@ -1,2 +1,2 @@", "@@ -1,7 +1,9 @@"),
        "without prefixes": SUMS.replace("a/sums", "sums").replace("b/sums", "sums"),
        "nothing": "I would not know.",
        "elsewhere": SUMS.replace("a - b", "a * b"),
        "changes the tests": CHEAT,
        "changes where files come from": "--- /dev/null\n+++ b/.git/hooks/post-checkout\n@@ -0,0 +1 @@\n+#!/bin/true\n" + CHEAT,
        "endless": SUMS.replace("+    return a + b", "+    while True: pass"),
    }
    value = {
        "repository": "sums",
        "revision": "HEAD",
        "command": "python3 -m unittest",
        "must_pass": ["test_sums.Sums.test_add"],
        "protect": ["test_sums.py"],
        "timeout_ms": 120_000,
    }
    values = {name: {**value, "timeout_ms": 10_000} if name == "endless" else value for name in answers}
    tests = [{"vars": {"answer": answer}, "assert": [{"type": "patch", "value": values[name]}]} for name, answer in answers.items()]
    tests.append({"vars": {"answer": SUMS}, "assert": [{"type": "patch", "value": {**value, "revision": None}}]})
    suite = {"prompts": ["{{answer}}"], "providers": ["echo"], "tests": tests}
    (tmp_path / "promptfooconfig.yaml").write_text(json.dumps(suite))
    status, rows = evaluate(sandcove, tmp_path)
    assert status == 100
    reasons = [row.get("error") or "" for row in rows]
    assert [row["success"] for row in rows] == [True] * 3 + [False] * 6, reasons
    assert [row["failureReason"] for row in rows[3:]] == [1, 1, 1, 1, 1, 2], reasons
    words = ["no diff", "does not apply", "exit status", "changes files of `.git`", "took longer", "passes before the patch"]
    for reason, expected in zip(reasons[3:], words, strict=True):
        assert expected in reason, reason
    codes = [row["gradingResult"]["componentResults"][0].get("metadata", {}).get("code", {}) for row in rows]
    assert [code.get("verdict") for code in codes].count("time limit") == 1


def test_a_limit_that_is_hit_is_a_verdict_of_its_own(sandcove, tmp_path):
    fetch = "import urllib.request\ndef f(n): return urllib.request.urlopen('http://example.com').status"
    answers = {
        "passed": "def f(n): return n",
        "time limit": "def f(n):\n    while True: pass",
        "memory limit": "def f(n): return len(bytearray(10**12))",
        "output limit": "def f(n):\n    while True: print('x' * 1000)",
        "network limit": fetch,
        "wrong": "def f(n): raise OSError('no network')",
    }
    value = {"language": "python", "function": "f", "cases": [{"args": [2], "expected": 2}], "timeout_ms": 10_000, "safety": False}
    tests = [{"vars": {"answer": answer}, "assert": [{"type": "code-run", "value": value}]} for answer in answers.values()]
    script = {"language": "javascript", "test_code": "await require('dns').promises.lookup('example.com')", "safety": False}
    tests.append({"vars": {"answer": "1"}, "assert": [{"type": "code-run", "value": script}]})
    suite = {"prompts": ["```\n{{answer}}\n```"], "providers": ["echo"], "tests": tests}
    (tmp_path / "promptfooconfig.yaml").write_text(json.dumps(suite))
    _, rows = evaluate(sandcove, tmp_path)
    graded = [row["gradingResult"]["componentResults"][0] for row in rows]
    verdicts = [part["metadata"]["code"]["verdict"] for part in graded]
    assert verdicts == [*answers, "network limit"], [part["reason"] for part in graded]


def test_code_that_is_killed_for_its_memory_is_at_its_limit_in_any_language(sandcove, tmp_path):
    hoard = "const held = []\nfunction f(n) { while (true) held.push(new Array(100000).fill(n + 0.5)) }"
    outside = "function f(n) { const held = []; while (true) held.push(Buffer.alloc(10000000, n)) }"
    # More than the sandbox has, so that its own limit is met first.
    unlimited = {"memory_mb": 100_000, "safety": False, "timeout_ms": 60_000}
    case = {"function": "f", "cases": [{"args": [2], "expected": 2}]}
    checks = {
        "heap": (hoard, {"language": "javascript", **case, "safety": False, "timeout_ms": 60_000}),
        "buffers": (outside, {"language": "javascript", **case, **unlimited}),
        "python": ("held = []\ndef f(n):\n    while True: held.append(bytearray(b'x' * 10_000_000))", {"language": "python", **case, **unlimited}),
        "child": ("python3 -c \"print(len(b'x' * 10**11))\"", {"language": "bash", "test_code": "true", **unlimited}),
        "tests": (hoard + "\nmodule.exports = { f }", {"language": "javascript", "tests": "require('./solution.js').f(1)", **unlimited}),
        "test of Python": ("def f(n): return bytearray(10**12)", {"language": "python", "tests": "def test_f():\n    f(1)\n\ndef test_g():\n    pass\n"}),
        "own end": ("function f(n) { process.exit(1) }", {"language": "javascript", **case, "safety": False}),
    }
    tests = [
        {"vars": {"code": code}, "assert": [{"type": "code-tests" if "tests" in value else "code-run", "value": value}]} for code, value in checks.values()
    ]
    suite = {"prompts": ["```\n{{code}}\n```"], "providers": ["echo"], "tests": tests}
    (tmp_path / "promptfooconfig.yaml").write_text(json.dumps(suite))
    _, rows = evaluate(sandcove, tmp_path)
    graded = [row["gradingResult"]["componentResults"][0] for row in rows]
    verdicts = dict(zip(checks, (part.get("metadata", {}).get("code", {}).get("verdict") for part in graded), strict=True))
    reasons = [part["reason"] for part in graded]
    assert verdicts == {**dict.fromkeys(checks, "memory limit"), "own end": "wrong"}, reasons


def test_the_memory_of_a_case_is_what_it_had_at_most(sandcove, tmp_path):
    answers = {
        "python": "def f(n):\n    held = bytearray(n * 1000000)\n    return len(held) // 1000000",
        "javascript": "function f(n) { return Buffer.alloc(n * 1000000, 1).length / 1000000 }",
    }
    cases = [{"args": [n], "expected": n} for n in (1, 100, 1)]
    tests = [
        {"vars": {"code": code}, "assert": [{"type": "code-run", "value": {"language": language, "function": "f", "cases": cases, "metrics": True}}]}
        for language, code in answers.items()
    ]
    suite = {"prompts": ["```\n{{code}}\n```"], "providers": ["echo"], "tests": tests}
    (tmp_path / "promptfooconfig.yaml").write_text(json.dumps(suite))
    status, rows = evaluate(sandcove, tmp_path)
    assert status == 0
    python, script = [[case["memoryMb"] for case in row["gradingResult"]["componentResults"][0]["metadata"]["code"]["cases"]] for row in rows]
    assert python[0] < 30 and 80 < python[1] < 200 and python[2] < 30, python
    # Node counts from its start.
    assert script[0] < 60 and 80 < script[1] < 300, script
    records = [json.loads(path.read_text())["memory_mb"] for path in tmp_path.glob(".promptfoo_results/*.json")]
    assert sorted(records) == sorted([max(python), max(script)])
    [column] = json.loads((tmp_path / "out.json").read_text())["results"]["prompts"]
    assert column["metrics"]["code"]["p95MemoryMb"] >= column["metrics"]["code"]["p50MemoryMb"] >= 0


def test_what_an_answer_calls_its_functions_is_no_matter_of_the_measure(sandcove, tmp_path):
    answers = {
        "python": "from os import *\ndef f(n):\n    return n",
        "javascript": "function process(n) { return n }\nfunction f(n) { return process(n) }",
    }
    value = {"function": "f", "cases": [{"args": [2], "expected": 2}] * 2, "safety": False}
    tests = [{"vars": {"code": code}, "assert": [{"type": "code-run", "value": {**value, "language": language}}]} for language, code in answers.items()]
    tests[0]["assert"].append({"type": "code-run", "value": {"language": "python", "test_code": "print('4', end='')", "expected_stdout": "4", "safety": False}})
    # Setups and cells of JavaScript wait for their last value.
    waits = "async function late() { await new Promise((done) => setTimeout(done, 50)); console.log(42) }"
    failing = "async function late() { await null; throw new Error('too late') }"
    for code in (waits, failing):
        assertion = {"type": "code-run", "value": {"language": "javascript", "test_code": "late()", "expected_stdout": "42", "safety": False}}
        tests.append({"vars": {"code": code}, "assert": [assertion]})
    suite = {"prompts": ["```\n{{code}}\n```"], "providers": ["echo"], "tests": tests}
    (tmp_path / "promptfooconfig.yaml").write_text(json.dumps(suite))
    _, rows = evaluate(sandcove, tmp_path)
    assert [row["success"] for row in rows] == [True, True, True, False], [row["gradingResult"]["reason"] for row in rows]
    assert "too late" in rows[3]["gradingResult"]["reason"]
    [printed] = rows[0]["gradingResult"]["componentResults"][1]["metadata"]["code"]["cases"]
    assert printed["stdout"] == "4" and printed["memoryMb"] >= 0


def test_repeats_say_how_well_a_model_writes_code(sandcove, tmp_path):
    (tmp_path / "answer.py").write_text(
        "GOOD, SLOW = 'def f(n): return n * 2', 'def f(n):\\n    while True: pass'\n"
        "def call_api(prompt, options, context):\n"
        "    values = context['vars']\n"
        "    return {'output': '```python\\n' + (SLOW if values['task'] == 'slow' and values['__repeatIndex'] == 1 else GOOD) + '\\n```'}\n"
    )
    value = {"function": "f", "cases": [{"args": [2], "expected": 4}], "timeout_ms": 3000}
    tests = [{"vars": {"task": task}, "assert": [{"type": "code-run", "value": value}]} for task in ("double", "slow")]
    suite = {"prompts": ["{{task}}"], "providers": ["file://answer.py"], "tests": tests}
    (tmp_path / "promptfooconfig.yaml").write_text(json.dumps(suite))
    code, rows = evaluate(sandcove, tmp_path, "--repeat", "3")
    verdicts = [row["gradingResult"]["componentResults"][0]["metadata"]["code"]["verdict"] for row in rows]
    assert (code, sorted(verdicts)) == (100, ["passed"] * 5 + ["time limit"])
    [column] = json.loads((tmp_path / "out.json").read_text())["results"]["prompts"]
    found = column["metrics"]["code"]
    assert (found["tasks"], found["samples"], found["flaky"], found["limits"]) == (2, 3, 1, {"time": 1})
    assert [(at["k"], round(at["rate"], 3)) for at in found["passAt"]] == [(1, 0.833), (3, 1)]
    assert found["p95Ms"] >= found["p50Ms"] > 0
