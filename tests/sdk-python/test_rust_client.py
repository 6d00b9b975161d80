"""The Rust client's examples work as written: on one URL, and by the names of sandboxes alone."""

import os
import subprocess

import pytest

from harness import names
from harness.server import ROOT

PRINTS = {
    "quickstart": ["hello", "2432902008176640000", "status 0: 9 note.txt", "", "good day"],
    "streams": ["name?", "hello Ada", "exit status 0", "changed: answer.txt"],
    "lifecycle": ["Paused", "42", "true", "a,b", "1,2"],
    "files": ["/home/user/texts/words.txt of user", "one two three", "1", "user", "true"],
    "volumes": ["3", "3"],
}


@pytest.fixture(scope="module")
def examples():
    """A function that returns the command of an example."""
    done = subprocess.run(
        ["cargo", "build", "--quiet", "--locked", "--workspace", "--examples", "--message-format", "short"],
        cwd=ROOT, capture_output=True, text=True, timeout=1800,
    )
    assert done.returncode == 0, done.stderr
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    return lambda name: [f"{target}/debug/examples/{name}"]


def printed(command: list[str], env: dict[str, str]) -> list[str]:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_every_example_is_run():
    assert PRINTS.keys() == {path.stem for path in (ROOT / "crates/client/examples").glob("*.rs")}


@pytest.mark.parametrize("name", PRINTS)
def test_an_example_prints_what_it_says(server, examples, name):
    assert printed(examples(name), {**os.environ, **server.env}) == PRINTS[name]


@pytest.fixture
def secure(server):
    """The server, started again with a certificate of its own."""
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    server.stop()
    server.variables = {"SANDCOVE_TLS": "local"}
    server.start()
    yield server
    server.stop()
    server.variables = {}
    server.start()


def test_examples_find_api_and_sandboxes_by_their_domain_alone(secure, examples):
    shell = [str(secure.binary), "env", "--sdk", "1.x", "--shell", "file", "--data-dir", str(secure.data_dir)]
    lines = subprocess.run(shell, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()
    told = dict(line.split("=", 1) for line in lines if "=" in line)
    assert "E2B_DOMAIN" in told and "E2B_API_URL" not in told and "E2B_SANDBOX_URL" not in told, told
    elsewhere = {"E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL"}
    env = {name: value for name, value in os.environ.items() if name not in elsewhere} | told
    for name in PRINTS:
        assert printed(names.leading_here(examples(name)), env) == PRINTS[name], name
    # Without the server's authority among those that are trusted, nothing is sent.
    env.pop("SSL_CERT_FILE")
    refused = subprocess.run(names.leading_here(examples("quickstart")), env=env, capture_output=True, text=True, timeout=120)
    assert refused.returncode == 1 and "Unreachable" in refused.stderr, refused.stderr
