"""What all suites of the evaluator share."""

import os
from pathlib import Path

import pytest

from verdicts import ROOT


@pytest.fixture(scope="session")
def sandcove():
    """The command, as an argument list."""
    binary = os.environ.get("SANDCOVE_BIN") or ROOT / "target/release/sandcove"
    assert Path(binary).exists(), "SANDCOVE_BIN names no program: build `sandcove` first"
    return [str(binary)]
