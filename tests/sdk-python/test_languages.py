"""The layer of further languages is built while the server serves, and whatever becomes of that, the server serves."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from e2b import SandboxException
from e2b_code_interpreter import Sandbox

from harness.server import languages_of, wait_for_languages, wait_until

KEEP = ["--numeric-owner", "--xattrs", "--xattrs-include=*", "--acls", "--use-compress-program=zstd -T0 -3"]


@pytest.fixture(scope="module")
def whole(server, tmp_path_factory) -> Path:
    """The layer of languages as a tarball."""
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    wait_for_languages(server.data_dir)
    directory, file = server.data_dir / "pool/layers", tmp_path_factory.mktemp("layer") / "whole.tar.zst"
    subprocess.run(["tar", *KEEP, "--create", "--file", file, "--directory", directory / built(server), "."], check=True)
    return file


@pytest.fixture
def bare(server, whole, tmp_path, monkeypatch):
    """The server, stopped and without its layer of languages. Gives the layer's name and the place of its tarball in a template
    cache. The server has its languages again at the end.
    """
    wait_for_languages(server.data_dir)
    name = built(server)
    # While the pool is still mounted.
    shutil.rmtree(server.data_dir / "pool/layers" / name)
    server.stop()
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("SANDCOVE_TEMPLATE_CACHE", str(cache))
    yield name, cache / f"{name}.tar.zst"
    server.stop()
    os.environ.pop("SANDCOVE_LANGUAGES", None)
    shutil.copy(whole, cache / f"{name}.tar.zst")
    server.start()
    wait_for_languages(server.data_dir)


def built(server) -> str:
    return next(name for name in layers(server) if not name.startswith("."))


def layers(server) -> list[str]:
    return sorted(path.name for path in (server.data_dir / "pool/layers").iterdir() if "languages-" in path.name)


def sandcove(server, *arguments) -> str:
    done = subprocess.run([server.binary, *arguments, "--data-dir", server.data_dir], capture_output=True, text=True, timeout=1200)
    return done.stdout


def test_a_build_that_fails_is_reported_and_hurts_nothing(server, bare):
    _, tarball = bare
    tarball.write_bytes(b"this is no archive")
    server.start()
    wait_until(lambda: languages_of(server.data_dir)["state"] == "failed", what="the failure of the build")
    assert "tar" in languages_of(server.data_dir)["reason"]
    assert "the next start tries again" in sandcove(server, "status")
    doctor = {check["name"]: check for check in json.loads(sandcove(server, "doctor", "--json"))}
    assert doctor["languages"]["status"] == "warn" and doctor["languages"]["hint"]
    with Sandbox.create(timeout=1800) as sandbox:
        assert sandbox.run_code("1 + 1").text == "2"
        assert sandbox.run_code("1 + 1", language="cpp").text == "(int) 2"
        for language in ("r", "java", "ruby"):
            with pytest.raises(SandboxException, match=f"503.*`{language}` is still being built.*sandcove status"):
                sandbox.run_code("1", language=language)
        with pytest.raises(SandboxException, match="400.*no kernel for language `cobol`") as unknown:
            sandbox.run_code("1", language="cobol")
        assert "--languages" not in str(unknown.value)


def test_a_build_that_is_killed_is_done_again(server, bare, whole):
    name, tarball = bare
    tarball.write_bytes(b"this is no archive")
    server.start()
    lean = Sandbox.create(timeout=7200)
    server.stop()
    shutil.copy(whole, tarball)
    server.start()
    wait_until(lambda: any(layer.startswith(".building") for layer in layers(server)), what="the build")
    server.kill9()
    assert name not in layers(server)

    server.start()
    wait_for_languages(server.data_dir)
    assert layers(server) == [name]
    with Sandbox.create(timeout=1800) as sandbox:
        assert sandbox.run_code("[1, 2].sum", language="ruby").text == "3"
    # One that was created before goes on as it was.
    assert lean.run_code("1 + 1").text == "2"
    with pytest.raises(SandboxException, match="still being built"):
        lean.run_code("1", language="ruby")
    lean.kill()


def test_nothing_is_built_for_lean_servers(server, bare, monkeypatch):
    monkeypatch.setenv("SANDCOVE_LANGUAGES", "lean")
    server.start()
    assert languages_of(server.data_dir) == {"state": "off"}
    with Sandbox.create(timeout=1800) as sandbox:
        with pytest.raises(SandboxException, match="400.*no kernel for language `ruby`.*--languages all"):
            sandbox.run_code("1", language="ruby")
    assert layers(server) == []
