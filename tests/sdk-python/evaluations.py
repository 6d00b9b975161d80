"""Runs of the evaluator that a team shares, and the frame in which the dashboard shows one."""

import json
import os
import subprocess

import pytest
from e2b import Volume
from playwright.sync_api import expect

from dashboard import HARM

CODE = "def add(a, b):\n    return a + b\n"


def words(count: int = 3) -> dict:
    tests = [{"vars": {"word": f"word {number}", "code": CODE}, "assert": [{"type": "contains", "value": "word"}]} for number in range(count - 2)]
    tests.append({"vars": {"word": HARM, "code": CODE}, "assert": [{"type": "equals", "value": HARM}, {"type": "contains", "value": HARM}]})
    tests.append({"vars": {"word": "last", "code": CODE}, "assert": [{"type": "javascript", "value": "output.length < 0"}]})
    return {"description": f"words {HARM}", "prompts": ["say {{word}}\n{{code}}", "{{word}}"], "providers": ["echo"], "tests": tests}


@pytest.fixture
def evaluate(server, tmp_path):
    """Runs `sandcove eval` with arguments, where a suite of some tests is."""

    def evaluate(*arguments: str, tests: int = 3, suite: dict | None = None, code: int | None = 0) -> subprocess.CompletedProcess:
        (tmp_path / "promptfooconfig.json").write_text(json.dumps(suite or words(tests)))
        env = {**os.environ, **server.env, "PROMPTFOO_CONFIG_DIR": str(tmp_path / "runs"), "SANDCOVE_DATA_DIR": str(server.data_dir)}
        command = [str(server.binary), *(["eval"] if arguments[0] != "redteam" else []), *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done

    yield evaluate
    for volume in Volume.list():
        if volume.name == "evaluations":
            Volume.destroy(volume.volume_id)


def shared(evaluate, arguments=(), **options) -> str:
    """The id of a run that was shared."""
    told = evaluate("-c", "promptfooconfig.json", "--share", "--no-table", *arguments, code=100, **options).stderr
    (address,) = [line.removeprefix("Shared: ") for line in told.splitlines() if line.startswith("Shared: ")]
    assert "/dashboard/evaluations/eval-" in address
    return address.rsplit("/", 1)[1]


def results(page):
    """The frame of a run."""
    return page.frame_locator("iframe.viewer")


def within(page):
    """The document in the frame of a run, once it shows something."""
    expect(results(page).locator("#name")).not_to_have_text("Sandcove")
    return next(frame for frame in page.frames if "/assets/viewer.html" in frame.url)


def ask(page, call: str, *given):
    """What the module of the page with the runs answers, which is asked as the page asks it."""
    return within(page).evaluate("async ([call, ...given]) => (await import('/dashboard/assets/viewer.js')).api[call](...given)", [call, *given])
