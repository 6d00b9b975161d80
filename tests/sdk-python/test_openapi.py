"""The server's description of itself is true: a short run of what `tests/openapi.py` does at length."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import openapi  # noqa: E402
from harness.server import ADMIN_TOKEN, API_KEY  # noqa: E402


def test_calls_are_answered_as_described(server, monkeypatch):
    monkeypatch.setenv("SANDCOVE_ADMIN_TOKEN", ADMIN_TOKEN)
    options = ["--phases", "fuzzing", "--max-examples", "3", "--generation-deterministic", "--no-shrink", "--no-color", "--request-timeout", "300"]
    done = openapi.run(server.url, *options, key=API_KEY)
    assert done.returncode == 0, done.stdout
