"""One server for the whole run; the official SDK is pointed at it by nothing but its own environment variables.

A test that fails shows the logs of builds that failed, and what the server has logged last.
"""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import reports, wheels  # noqa: E402
from harness.server import ADMIN_TOKEN, API_KEY, Server  # noqa: E402
from harness.verbs import PATH, TOLD, Typist  # noqa: E402

DATA_DIR = Path(os.environ.get("SANDCOVE_TEST_DATA_DIR", "/var/lib/sandcove-test"))


def pytest_runtest_logstart():
    reports.SECTIONS.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        report.sections += reports.SECTIONS
        report.sections += [(f"end of {server.log}", server.tail(40)) for server in Server.started]
    return report


class RunningServer:
    """A server that somebody else runs (SANDCOVE_TEST_URL): tests that stop servers are skipped with it."""

    def __init__(self, url: str) -> None:
        self.url, self.port = url, int(url.rsplit(":", 1)[1])
        self.env = {}
        self.data_dir = DATA_DIR

    def __getattr__(self, name):
        pytest.skip(f"needs `{name}` of a server of its own: unset SANDCOVE_TEST_URL")

    def healthy(self) -> bool:
        return Server.healthy(self)


@pytest.fixture(scope="session")
def server():
    if url := os.environ.get("SANDCOVE_TEST_URL"):
        addresses = dict.fromkeys(["E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL"], url)
        os.environ.update({**addresses, "E2B_API_KEY": API_KEY})
        yield RunningServer(url)
        return
    server = Server(DATA_DIR, port=int(os.environ.get("SANDCOVE_TEST_PORT", "0")) or None)
    server.start()
    os.environ.update(server.env)
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def _server_runs(server):
    """Every test needs the server and its environment, whether it names it or not."""


@pytest.fixture(scope="session")
def ipython(server):
    """A directory with the wheels of IPython."""
    return wheels.downloaded()


@pytest.fixture
def sandbox(server):
    from e2b import Sandbox

    sandbox = Sandbox.create(timeout=1800)
    yield sandbox
    sandbox.kill()


@pytest.fixture
def interpreter(server):
    from e2b_code_interpreter import Sandbox

    sandbox = Sandbox.create(timeout=1800)
    yield sandbox
    sandbox.kill()


@pytest.fixture
def typist(request, server, tmp_path):
    """Types commands on a terminal, beside the server; when the test ends it has typed all that its story announces."""
    home = {"HOME": str(tmp_path), "PROMPTFOO_CONFIG_DIR": str(tmp_path / "runs"), "XDG_CONFIG_HOME": "", "PATH": PATH}
    typist = Typist("--data-dir", str(server.data_dir), directory=tmp_path, SANDCOVE_ADMIN_TOKEN=ADMIN_TOKEN, **home)
    yield typist
    missing = TOLD.get(request.node.name, set()) - typist.typed
    assert request.session.testsfailed or not missing, f"the story announces verbs that it does not type: {missing}"


@pytest.fixture(scope="module", params=["sync", "async"])
def flavour(request, server):
    """The name of one of the SDK's two Python flavours."""
    return request.param


@pytest.fixture(scope="module")
def box(flavour):
    """One sandbox for a whole file, of either flavour: for tests that leave it as they found it."""
    from flavours import create

    box = create(flavour, timeout=7200)
    yield box
    box.kill()
