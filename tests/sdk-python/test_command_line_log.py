"""The log of a server as JSON (`--log-format json`): what `docs/operations/monitoring.md` says of it."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import pytest
import requests

from harness.command_line import sandcove
from harness.server import API_KEY, Server


@pytest.fixture
def other(server):
    """A server of its own, whose standard error is apart from what it prints."""
    directory = Path(f"/var/lib/sandcove-log-{uuid.uuid4().hex[:8]}")
    started = Server(directory)
    started.variables = {"SANDCOVE_LOG_FORMAT": "json", "SANDCOVE_LOG": "debug", "SANDCOVE_SPARES": "0"}
    started.start()
    yield started
    started.stop()
    sandcove(started, "purge", "--yes")
    shutil.rmtree(directory, ignore_errors=True)


def test_every_line_of_the_log_is_a_json_object(other):
    headers = {"X-API-Key": API_KEY, "X-Request-Id": "of-the-log"}
    assert requests.get(f"{other.url}/v2/sandboxes", headers=headers, timeout=120).status_code == 200
    done = sandcove(other, "run", "-l", "bash", "-t", "base", "-c", "true")
    assert done.returncode == 0, done
    other.stop()
    lines = other.log.read_text().splitlines()
    # What `serve` prints for people is no log, and neither is what it prints for shells.
    logged = [line for line in lines if not line.startswith(("export ", "sandcove is listening", "building template", "built template", "stopping; "))]
    entries = [json.loads(line) for line in logged]
    assert len(entries) > 10
    for entry in entries:
        assert entry["timestamp"].endswith("Z") and entry["level"] in ("ERROR", "WARN", "INFO", "DEBUG", "TRACE"), entry
        assert isinstance(entry["target"], str) and isinstance(entry.get("message", ""), str) and "\u001b" not in json.dumps(entry), entry
    of_request = [entry for entry in entries if any(span.get("request_id") == "of-the-log" for span in entry.get("spans", []))]
    assert any("message" in entry for entry in entries)
    assert of_request, "lines about a request have its id in `spans`"
    assert API_KEY not in other.log.read_text()
