"""Secrets: values that sandboxes use without having them. Here: what is kept of them, and where."""

import os
import re
import sqlite3
import stat
import subprocess

import pytest
from e2b import Secret
from e2b.exceptions import SecretException, SecretNotFoundException
from harness import volatile

VALUE = "sk-the-value-that-is-nowhere"


@pytest.fixture(autouse=True)
def _of_its_own(server):
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    yield
    for secret in Secret.list().next_items():
        Secret.destroy(secret.secret_id)


def in_files(server, text: str) -> list[str]:
    """Files of the data directory with a text: but for sandboxes and templates, all of them."""
    found = []
    for directory, names, files in os.walk(server.data_dir):
        if directory == str(server.data_dir):
            names[:] = [name for name in names if name not in ("pool", "libexec")]
        found += [f"{directory}/{name}" for name in files if name != "pool.img" and text.encode() in (volatile.content(f"{directory}/{name}") or b"")]
    return found


def sealed(server, name: str) -> str:
    with sqlite3.connect(f"file:{server.data_dir}/server/sandcove.db?mode=ro", uri=True) as database:
        [[found]] = database.execute("SELECT sealed FROM secrets WHERE name = ?", [name])
        return found


def test_the_clients_calls(server):
    made = Secret.create("OpenAI_key", VALUE, metadata={"for": "tests"})
    assert re.fullmatch("sec_[0-7][0-9a-hjkmnp-tv-z]{25}", made.secret_id), "an id is a TypeID"
    assert made.name == "openai_key" and made.metadata == {"for": "tests"}
    assert [one.secret_id for one in Secret.list().next_items()] == [made.secret_id]
    assert Secret.get_info("openai_key").version == 1
    changed = Secret.update("openai_key", "another")
    assert changed.version == 2 and changed.metadata == {"for": "tests"}
    with pytest.raises(SecretException):
        Secret.create("openai_key", VALUE)
    assert VALUE not in repr(made) + repr(changed)
    Secret.destroy(made.secret_id)
    with pytest.raises(SecretNotFoundException):
        Secret.get_info("openai_key")


def test_a_value_is_in_no_file_and_its_key_is_roots(server):
    Secret.create("kept", VALUE)
    assert in_files(server, VALUE) == []
    assert VALUE not in server.tail()
    key = server.data_dir / "secrets.key"
    assert key.stat().st_uid == 0 and stat.S_IMODE(key.stat().st_mode) == 0o600
    assert VALUE not in key.read_text()
    process = volatile.parts(server.pid)[1]
    assert not os.path.exists(f"/proc/{process}/root{key}"), "the server process has no way to it"


def test_keys_are_rotated(server):
    Secret.create("first", VALUE)
    before = sealed(server, "first")
    subprocess.run([server.binary, "--data-dir", str(server.data_dir), "secret", "rotate-key"], check=True)
    server.kill9()
    server.start()
    after = sealed(server, "first")
    assert after != before and Secret.get_info("first").version == 1
    assert len((server.data_dir / "secrets.key").read_text().splitlines()) == 2
    # Two rotations before the next start lose nothing; values go with the current key each time, and the keys that none needs go.
    for _ in range(2):
        subprocess.run([server.binary, "--data-dir", str(server.data_dir), "secret", "rotate-key"], check=True)
    server.kill9()
    server.start()
    assert sealed(server, "first") != after and "cannot be opened" not in server.tail()
    assert len((server.data_dir / "secrets.key").read_text().splitlines()) == 2


def test_the_command(server):
    def command(*arguments, value=None):
        line = [server.binary, "--data-dir", str(server.data_dir), "secret", *arguments]
        return subprocess.run(line, input=value, capture_output=True, text=True, timeout=300)

    made = command("create", "token", value=VALUE + "\n")
    assert made.returncode == 0 and made.stdout.startswith("sec_"), made.stderr
    assert command("set", "token", value="another").returncode == 0
    listed = command("list").stdout.splitlines()
    assert len(listed) == 2 and listed[1].split()[1:3] == ["token", "2"]
    assert command("delete", "token").returncode == 0
    missing = command("delete", "token")
    assert missing.returncode == 1 and "unknown secret `token`" in missing.stderr
