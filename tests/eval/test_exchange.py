"""Runs as files: exported, imported, and handed to promptfoo and back."""

import json
import os
import subprocess

import pytest

from verdicts import CASES, ENVIRONMENT, HERE, verdicts

SUITES = ("several-columns", "metrics", "max-score", "provider-errors", "default-test")
PROMPTFOO = ["node", os.environ.get("PROMPTFOO_ENTRYPOINT", "")]


def call(command, home, *arguments, directory=HERE / "cases", code=0):
    environment = {**os.environ, **ENVIRONMENT, "PROMPTFOO_CONFIG_DIR": str(home)}
    done = subprocess.run(
        [*command, *map(str, arguments)], cwd=directory, env=environment, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
    )
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(params=SUITES)
def suite(request):
    return next(case.name for case in CASES if case.stem == request.param)


def read(path):
    return json.loads(path.read_text())


def test_every_kind_of_file_is_as_the_run_wrote_it(tmp_path, sandcove, suite):
    command, home = [*sandcove, "eval"], tmp_path / "home"
    kinds = ["json", "jsonl", "csv", "yaml", "xml", "junit.xml", "html"]
    outputs = [tmp_path / f"run.{kind}" for kind in kinds]
    call(command, home, "-c", suite, "--no-cache", "--no-table", "-o", *outputs, code=None)
    written = read(outputs[0])
    run = written["evalId"]
    # Another home knows the run after it was imported.
    other = tmp_path / "other"
    assert call(command, other, "import", outputs[0]).strip() == run
    for kind in kinds:
        for place, arguments in ((home, ["eval", run]), (other, ["latest"])):
            again = tmp_path / f"again.{kind}"
            call(command, place, "export", *arguments, "-o", again)
            # The file names the time of writing, and the settings that promptfoo knows.
            lines = [
                [line for line in path.read_text().splitlines() if "exportedAt" not in line]
                for path in (tmp_path / f"run.{kind}", again)
            ]
            assert lines[0] == lines[1], (kind, place)
    printed = json.loads(call(command, home, "export", run))
    assert printed["results"] == written["results"]


def test_the_same_run_is_not_stored_twice(tmp_path, sandcove):
    command, home, out = [*sandcove, "eval"], tmp_path / "home", tmp_path / "out.json"
    call(command, home, "-c", "metrics.yaml", "--no-cache", "--no-table", "-o", out, code=None)
    run = read(out)["evalId"]
    assert call(command, home, "import", out).strip() == run, "the same once more changes nothing"
    assert call(command, home, "import", out, "--force").strip() == run
    other = call(command, home, "import", out, "--new-id").strip()
    assert other != run
    listed = call(command, home, "list")
    assert run in listed and other in listed
    out.write_text('{"results": {"results": [{"testIdx": 0}]}}')
    call(command, home, "import", out, code=1)


def test_a_file_of_promptfoo_is_imported(tmp_path, sandcove):
    """A recorded one; the next test makes new ones."""
    home, out = tmp_path / "home", tmp_path / "out.json"
    recorded = HERE / "exchange" / "promptfoo.json"
    call([*sandcove, "eval"], home, "import", recorded)
    call([*sandcove, "eval"], home, "export", "latest", "-o", out)
    assert verdicts(read(out)) == verdicts(read(recorded))


@pytest.mark.skipif("PROMPTFOO_ENTRYPOINT" not in os.environ, reason="PROMPTFOO_ENTRYPOINT names no promptfoo to exchange files with")
def test_promptfoo_and_sandcove_read_each_others_files(tmp_path, sandcove, suite):
    programs = {"sandcove": [*sandcove, "eval"], "promptfoo": PROMPTFOO}
    for writer, reader in (("sandcove", "promptfoo"), ("promptfoo", "sandcove")):
        out, back = tmp_path / f"{writer}.json", tmp_path / f"{reader}-back.json"
        run = [] if writer == "sandcove" else ["eval"]
        call(programs[writer], tmp_path / writer, *run, "-c", suite, "--no-cache", "--no-table", "-o", out, code=None)
        home = tmp_path / f"{reader}-home"
        call(programs[reader], home, "import", out)
        call(programs[reader], home, "export", "eval", read(out)["evalId"], "-o", back)
        assert verdicts(read(back)) == verdicts(read(out))
