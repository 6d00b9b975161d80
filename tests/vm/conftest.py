"""The server of the virtual machine: one for all tests of this directory, from the data directory that the disk brings along."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.server import Server  # noqa: E402

DATA_DIR = Path(os.environ["SANDCOVE_TEST_DATA_DIR"])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        report.sections += [(f"end of {server.log}", server.tail(40)) for server in Server.started]
        journal = subprocess.run(["journalctl", "--no-pager", "--lines=40", "--unit=sandcove"], capture_output=True, text=True).stdout
        report.sections.append(("end of the journal of the service", journal))
    return report


@pytest.fixture(scope="session")
def server():
    server = Server(DATA_DIR)
    server.variables["SANDCOVE_CRIU"] = os.environ["SANDCOVE_TEST_CRIU"]
    server.start()
    os.environ.update(server.env)
    yield server
    server.stop()
