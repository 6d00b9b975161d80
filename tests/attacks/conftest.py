"""Named attacks on a server that runs (`E2B_API_URL`, with its data directory in `SANDCOVE_TEST_DATA_DIR`), or on one started for them."""

import functools
import json
import os
import socket
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.server import ADMIN_TOKEN, API_KEY, Server  # noqa: E402

import programs  # noqa: E402
from witness import Witness, is_up  # noqa: E402

DATA_DIR = Path(os.environ.get("SANDCOVE_TEST_DATA_DIR", "/var/lib/sandcove-test"))


class Running:
    """A server that was started before the tests."""

    def __init__(self, url: str) -> None:
        self.url, self.port, self.data_dir = url.rstrip("/"), int(url.rstrip("/").rsplit(":", 1)[1]), DATA_DIR
        self.registry_port = int(os.environ.get("SANDCOVE_TEST_REGISTRY_PORT", "3988"))
        self.pid = json.loads((DATA_DIR / "server.json").read_text())["pid"]

    def healthy(self) -> bool:
        return Server.healthy(self)


@pytest.fixture(scope="session")
def server():
    if url := os.environ.get("E2B_API_URL"):
        os.environ.setdefault("E2B_API_KEY", API_KEY)
        yield Running(url)
        return
    server = Server(DATA_DIR, port=int(os.environ.get("SANDCOVE_TEST_PORT", "0")) or None)
    server.start()
    os.environ.update(server.env)
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def _server_runs(server):
    """Every test needs the server and its environment, whether it names it or not."""
    yield
    assert is_up(server), "the server does not answer after this attack"


@pytest.fixture(scope="session")
def admin(server):
    """Calls of operators."""
    import requests

    def call(method, path, body=None):
        headers = {"X-Admin-Token": os.environ.get("SANDCOVE_ADMIN_TOKEN", ADMIN_TOKEN)}
        return requests.request(method, server.url + path, json=body, headers=headers, timeout=300)

    return call


@pytest.fixture(scope="module")
def box(server):
    """One sandbox for all attacks of a file."""
    from e2b import Sandbox

    box = Sandbox.create(timeout=7200)
    yield box
    box.kill()


@pytest.fixture(scope="module")
def witness(server, box):
    return Witness(server.data_dir, box.sandbox_id)


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """Compiles the program of a group, once."""
    directory = tmp_path_factory.mktemp("programs")
    return functools.cache(lambda group: programs.compiled(group, directory))


class Attacker:
    """Runs attacks of compiled programs in a sandbox, one process for each."""

    def __init__(self, box, build) -> None:
        self.box, self._build, self._there = box, build, set()

    def run(self, group, name, user="root"):
        """Starts an attack, and waits for its verdict; returns the process, which keeps what it got, and the verdict."""
        if group not in self._there:
            self.box.files.write(f"/tmp/attack-{group}", self._build(group).read_bytes(), user="root")
            self.box.commands.run(f"chmod 0755 /tmp/attack-{group}", user="root")
            self._there.add(group)
        command = f"cd /tmp && ulimit -c 0 && exec /tmp/attack-{group} {name}"
        process = self.box.commands.run(command, user=user, background=True, stdin=True, timeout=600)
        said, errors = "", ""
        for out, error, _ in process:
            said, errors = said + (out or ""), errors + (error or "")
            if "\n" in said:
                break
        assert said, f"{name} said nothing: {errors}"
        return process, said.splitlines()[0]

    def end(self, process):
        """Ends an attack and whatever it started."""
        from e2b import CommandExitException, SandboxException

        try:
            self.box.commands.send_stdin(process.pid, "\n")
            process.wait()
        except (CommandExitException, SandboxException):
            pass


@pytest.fixture(scope="module")
def attacker(box, build):
    return Attacker(box, build)


@pytest.fixture(scope="module")
def listener():
    """A service of the host at all its addresses, and the connections it got."""
    heard = []
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64) as listener:

        def serve():
            while True:
                try:
                    connection, peer = listener.accept()
                except OSError:
                    return
                heard.append(peer)
                connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1], heard
