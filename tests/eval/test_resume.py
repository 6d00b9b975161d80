"""Runs that end early: killed, paused by Ctrl-C, or with errors. What was done is kept, and the rest is done later."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from verdicts import ENVIRONMENT

# Rows from the sixth on wait until there is a file `go`, and say so; while there is a file `broken`, every third fails.
PROVIDER = """\
import os, time
def call_api(prompt, options, context):
    n = context["vars"]["n"]
    if n > 5 and not os.path.exists("go"):
        with open("waiting", "ab", 0) as waiting:
            waiting.write(b".")
    while n > 5 and not os.path.exists("go"):
        time.sleep(0.02)
    if n % 3 == 0 and os.path.exists("broken"):
        return {"error": "broken"}
    return {"output": prompt, "cost": n / 7, "tokenUsage": {"total": n, "prompt": n, "completion": 0}}
"""


@pytest.fixture
def place(tmp_path, sandcove):
    return Place(tmp_path, sandcove)


class Place:
    """A directory with a suite, and one for what is stored."""

    def __init__(self, path, sandcove):
        self.path, self.command = path, [*sandcove, "eval"]
        (path / "provider.py").write_text(PROVIDER)
        # Columns are compared, scores are named, and answers are stored for later rows.
        tests = [
            {
                "vars": {"n": n},
                "description": f"number {n}",
                "assert": [{"type": "contains", "value": "{{n}}", "metric": "has"}, {"type": "javascript", "value": "output.length / 9"}]
                + ([{"type": "max-score"}] if n % 2 else []),
            }
            for n in range(1, 13)
        ]
        self.suite(tests)

    def suite(self, tests):
        config = {
            "prompts": ["say {{n}}", "please say {{n}}"],
            "providers": ["file://provider.py"],
            "derivedMetrics": [{"name": "mean", "value": "has / __count"}],
            "tests": tests,
        }
        (self.path / "promptfooconfig.yaml").write_text(json.dumps(config))

    def start(self, *arguments, home="home"):
        environment = {**os.environ, **ENVIRONMENT, "PROMPTFOO_CONFIG_DIR": str(self.path / home), "PROMPTFOO_PYTHON": sys.executable}
        return subprocess.Popen(
            [*self.command, *arguments, "--no-table", "-j", "3"],
            cwd=self.path, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )

    def run(self, *arguments, home="home"):
        """(exit code, what was said, the result document)"""
        out = self.path / "out.json"
        process = self.start(*arguments, "-o", str(out), home=home)
        said = "".join(process.communicate(timeout=600))
        return process.returncode, said, json.loads(out.read_text()) if out.exists() else None

    def go(self):
        (self.path / "go").touch()

    def wait_for_rows(self, count, home="home"):
        database = self.path / home / "evaluations.db"
        for _ in range(12_000):
            if database.exists():
                try:
                    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
                        if connection.execute("SELECT count(*) FROM eval_rows").fetchone()[0] >= count:
                            return
                except sqlite3.OperationalError:
                    pass
            time.sleep(0.01)
        raise AssertionError(f"{count} rows were never stored")

    def wait_for_waiting(self, count):
        """Until so many rows are under way and wait."""
        deadline = time.monotonic() + 120
        while not (self.path / "waiting").exists() or len((self.path / "waiting").read_bytes()) < count:
            assert time.monotonic() < deadline, f"{count} rows never wait"
            time.sleep(0.01)

    def undisturbed(self):
        self.go()
        code, _, document = self.run(home="another")
        return code, normal(document)


def normal(document):
    """A document without what differs between any two runs."""
    text = json.dumps(document["results"], sort_keys=True)
    text = re.sub(r'"(id|timestamp)": "[^"]*"', "", text)
    return re.sub(r'"(\w*[lL]atencyMs|\w*[dD]urationMs)": [\d.]+', "", text)


def run_id(said):
    return re.search(r"eval-\w{3}-[\dT:-]+", said)[0]


def test_a_killed_run_ends_as_if_nothing_had_happened(place):
    process = place.start()
    # Two columns of five numbers; the others wait.
    place.wait_for_rows(10)
    process.kill()
    process.communicate()
    place.go()
    code, said, document = place.run("--resume")
    assert "Running 14 test cases" in said
    assert (code, normal(document)) == place.undisturbed()


def test_the_first_interrupt_pauses(place):
    process = place.start()
    place.wait_for_rows(10)
    place.wait_for_waiting(3)
    process.send_signal(signal.SIGINT)
    for line in process.stderr:
        if "Pausing" in line:
            break
    place.go()
    said = "".join(process.communicate(timeout=300))
    assert process.returncode == 130
    assert f"sandcove eval --resume {run_id(said)}" in said
    # What was under way has been waited for.
    assert "Paused with 13 rows done" in said
    code, said, document = place.run("--resume", run_id(said))
    assert "Running 11 test cases" in said
    assert (code, normal(document)) == place.undisturbed()


def test_the_second_interrupt_gives_up_what_is_under_way(place):
    process = place.start()
    place.wait_for_rows(10)
    process.send_signal(signal.SIGINT)
    for line in process.stderr:
        if "Pausing" in line:
            process.send_signal(signal.SIGINT)
            break
    process.communicate(timeout=300)
    assert process.returncode == 130
    place.go()
    code, said, document = place.run("--resume")
    assert "Running 14 test cases" in said
    assert (code, normal(document)) == place.undisturbed()


@pytest.mark.parametrize("by", ["retry", "--retry-errors"])
def test_rows_with_errors_are_run_again(place, by):
    place.go()
    (place.path / "broken").touch()
    code, said, document = place.run()
    assert code == 100 and document["results"]["stats"]["errors"] == 8
    (place.path / "broken").unlink()
    code, said, document = place.run(*(["retry", run_id(said)] if by == "retry" else [by]))
    assert (code, normal(document)) == place.undisturbed()


def test_stored_outputs_and_conversations_are_there_again(place):
    tests = [{"vars": {"n": n}, "options": {"storeOutputAs": f"said{n}"}} for n in range(1, 9)]
    tests.append({"vars": {"n": 9, "all": "{{said1}} {{said8}}"}, "assert": [{"type": "javascript", "value": "context.vars.all === 'please say 1 please say 8'"}]})
    place.suite(tests)
    process = place.start()
    place.wait_for_rows(10)
    process.kill()
    process.communicate()
    place.go()
    code, said, document = place.run("--resume")
    assert (code, normal(document)) == place.undisturbed()
    assert document["results"]["results"][-1]["success"]


def test_another_suite_is_not_gone_on_with(place):
    process = place.start()
    place.wait_for_rows(1)
    process.kill()
    process.communicate()
    place.go()
    place.suite([{"vars": {"n": 1}}])
    code, said, _ = place.run("--resume")
    assert code == 1 and "changed since" in said
    code, said, _ = place.run("--resume", "eval-xyz-2026-01-01T00:00:00")
    assert code == 1 and "run `eval-xyz-2026-01-01T00:00:00` cannot be resumed" in said
