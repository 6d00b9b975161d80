"""`--dataset`: files of programming tasks as suites. That their tests run in sandboxes needs a server (`E2B_API_URL`)."""

import gzip
import json
import os
import subprocess

import pytest

from verdicts import ENVIRONMENT

HUMAN = {
    "task_id": "Own/0", "entry_point": "double_all",
    "prompt": 'from typing import List\n\n\ndef double_all(values: List[int]) -> List[int]:\n    """Twice each of the values."""\n',
    "canonical_solution": "    return [2 * value for value in values]\n",
    "test": "def check(candidate):\n    assert candidate([1, 2]) == [2, 4]\n    assert candidate([]) == []\n",
}
BASIC = {
    "task_id": 601, "text": "Write a function that adds two numbers.", "code": "def plus(a, b):\n    return a + b",
    "test_setup_code": "", "test_list": ["assert plus(1, 2) == 3", "assert plus(0, 0) == 0"],
}

# Answers one task as its author does, and the other one wrongly.
SOLVER = r'''
def call_api(prompt, options, context):
    if "double_all" in prompt:
        code = "def double_all(values: List[int]) -> List[int]:\n    return [2 * value for value in values]"
    else:
        code = "def plus(a, b):\n    return a or b"
    return {"output": "```python\n" + code + "\n```"}
'''


def evaluate(sandcove, directory, *arguments):
    out = directory / "out.json"
    environment = {**os.environ, **ENVIRONMENT, "PROMPTFOO_CONFIG_DIR": str(directory / "home")}
    command = [*sandcove, "eval", "-o", str(out), "--no-cache", "--no-table", "--no-progress-bar", *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    rows = json.loads(out.read_text())["results"]["results"] if out.exists() else []
    return done, sorted(rows, key=lambda row: row["testIdx"])


def lines(*tasks):
    return "".join(json.dumps(task) + "\n" for task in tasks)


@pytest.mark.skipif("E2B_API_URL" not in os.environ, reason="E2B_API_URL names no server")
def test_tasks_are_graded_by_their_tests(sandcove, tmp_path):
    (tmp_path / "solver.py").write_text(SOLVER)
    (tmp_path / "tasks.jsonl.gz").write_bytes(gzip.compress(lines(HUMAN, BASIC).encode()))
    done, rows = evaluate(sandcove, tmp_path, "--dataset", "tasks.jsonl.gz", "-r", "file://solver.py")
    assert done.returncode == 100, done.stdout + done.stderr
    assert [(row["description"], row["success"], row["failureReason"]) for row in rows] == [("Own/0", True, 0), ("601", False, 1)]
    # One of the two tests of the second task passes.
    assert rows[1]["gradingResult"]["componentResults"][0]["score"] == 0.5 and "pass@1" in done.stdout + done.stderr


SLUG = "def slug(text):\n    return text.lower().replace(' ', '-')\n"
SLUG_TESTS = "from words import slug\n\n\ndef test_spaces():\n    assert slug('One Two') == 'one-two'\n"
# In the format of the data set: the fix, and the tests that were written with it.
FIX = """\
diff --git a/words.py b/words.py
--- a/words.py
+++ b/words.py
@@ -1,2 +1,2 @@
 def slug(text):
-    return text.lower().replace(' ', '-')
+    return '-'.join(text.lower().split())
"""
TEST_PATCH = """\
diff --git a/tests/test_words.py b/tests/test_words.py
--- a/tests/test_words.py
+++ b/tests/test_words.py
@@ -1,5 +1,11 @@
+import pytest
 from words import slug
 
 
 def test_spaces():
     assert slug('One Two') == 'one-two'
+
+
+@pytest.mark.parametrize('text', ['a  b', ' a b '])
+def test_runs_of_spaces(text):
+    assert slug(text) == 'a-b'
"""


@pytest.mark.skipif("E2B_API_URL" not in os.environ, reason="E2B_API_URL names no server")
def test_instances_of_swe_bench_are_graded_by_the_tests_of_their_repositories(sandcove, tmp_path):
    repository = tmp_path / "acme__words"
    (repository / "tests").mkdir(parents=True)
    (repository / "words.py").write_text(SLUG)
    (repository / "tests/test_words.py").write_text(SLUG_TESTS)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-C", str(repository)]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "slugs"]):
        subprocess.run([*git, *arguments], check=True)
    base = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    # What came later is not what an instance starts from.
    (repository / "words.py").write_text("raise SystemExit('a later version')\n")
    subprocess.run([*git, "commit", "-qam", "later"], check=True)
    instance = {
        "repo": "acme/words", "base_commit": base, "patch": FIX, "hints_text": "", "created_at": "2024-01-01T00:00:00Z", "version": "1.0",
        "environment_setup_commit": base, "test_patch": TEST_PATCH,
        "FAIL_TO_PASS": json.dumps(["tests/test_words.py::test_runs_of_spaces[a  b]", "tests/test_words.py::test_runs_of_spaces[ a b ]"]),
        "PASS_TO_PASS": json.dumps(["tests/test_words.py::test_spaces"]),
    }  # fmt: skip
    problems = {"acme__words-1": "Runs of spaces become several dashes.", "acme__words-2": "Spaces at both ends become dashes."}
    instances = [{**instance, "instance_id": name, "problem_statement": text} for name, text in problems.items()]
    (tmp_path / "instances.jsonl").write_text(lines(*instances))
    half = FIX.replace("'-'.join(text.lower().split())", "text.lower().strip().replace(' ', '-')")
    (tmp_path / "solver.py").write_text(
        f"def call_api(prompt, options, context):\n    return {{'output': '```diff\\n' + ({FIX!r} if 'several dashes' in prompt else {half!r}) + '```'}}\n"
    )
    done, rows = evaluate(sandcove, tmp_path, "--dataset", "instances.jsonl", "-r", "file://solver.py")
    assert done.returncode == 100, done.stdout + done.stderr
    assert [(row["description"], row["success"]) for row in rows] == [("acme__words-1", True), ("acme__words-2", False)], done.stdout
    codes = [row["gradingResult"]["componentResults"][0]["metadata"]["code"] for row in rows]
    failures = [[test["name"].rpartition("::")[2] for test in code["tests"] if not test["pass"]] for code in codes]
    assert failures == [[], ["test_runs_of_spaces[a  b]"]]


def test_a_suite_may_have_prompts_and_providers_for_tasks(sandcove, tmp_path):
    (tmp_path / "tasks.json").write_text(json.dumps([HUMAN, BASIC]))
    suite = {"prompts": ["Task {{task_id}}: {{prompt}}"], "providers": ["echo"], "defaultTest": {"options": {"transform": "output + '!'"}}}
    (tmp_path / "promptfooconfig.yaml").write_text(json.dumps(suite))
    done, rows = evaluate(sandcove, tmp_path, "--dataset", "tasks.json")
    assert [row["prompt"]["raw"].splitlines()[0] for row in rows] == [
        "Task Own/0: from typing import List", "Task 601: Write a function that adds two numbers."]
    assert "assert plus(1, 2) == 3" in rows[1]["prompt"]["raw"]


def test_what_is_no_task_is_refused_with_its_line(sandcove, tmp_path):
    instance = {"instance_id": "a__b-1", "repo": "a/b", "base_commit": "v1", "problem_statement": "It breaks.", "FAIL_TO_PASS": "[]", "PASS_TO_PASS": "[]"}
    (tmp_path / "tasks.jsonl").write_text(lines(HUMAN, {"question": "?"}, instance) + "{\n")
    done, rows = evaluate(sandcove, tmp_path, "--dataset", "tasks.jsonl", "-r", "echo")
    assert (done.returncode, rows) == (1, [])
    assert "tasks.jsonl:2:" in done.stderr and "not a task of HumanEval" in done.stderr
    assert "tasks.jsonl:3:" in done.stderr and "the repository `a/b` is not here" in done.stderr
    assert "tasks.jsonl:4:" in done.stderr and "not JSON" in done.stderr
    done, _ = evaluate(sandcove, tmp_path, "--dataset", "missing.jsonl", "-r", "echo")
    assert done.returncode == 1 and "failed to read the data set" in done.stderr
