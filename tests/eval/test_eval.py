"""`sandcove eval` against the verdicts of promptfoo on the same suites.

The recorded verdicts are always compared. With `PROMPTFOO_ENTRYPOINT` (`…/node_modules/promptfoo/dist/src/entrypoint.js`) the real
program is run beside it as well, which takes minutes; its installation is too large for every run of the tests.
"""

import json
import os
import tomllib

import pytest

from verdicts import CASES, HERE, run

DIFFERENCES = tomllib.loads((HERE / "differences.toml").read_text())


def compare(ours, theirs, case):
    difference = DIFFERENCES.get(case.stem)
    if difference is None:
        assert ours == theirs
    elif "rows" in difference:
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
    assert len(CASES) >= 60
