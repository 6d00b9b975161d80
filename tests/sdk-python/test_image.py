"""What `make dist` makes beside the package: archives, crates, and the image, run by Podman as the installation guide says: SANDCOVE_TEST_PACKAGE names the package that `make dist` has made."""

import json
import os
import re
import shutil
import subprocess
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest
from e2b_code_interpreter import Sandbox

from harness.server import API_KEY, ROOT, Server, free_port, wait_until

PACKAGE = Path(os.environ.get("SANDCOVE_TEST_PACKAGE", ""))
# Without systemd, an engine makes control groups itself.
PODMAN = ["podman", "--cgroup-manager=cgroupfs"]
# Those that this host trusts beside the usual ones.
AUTHORITIES = [word for place in ("/usr/local/share/ca-certificates", "/etc/ssl/certs") for word in ("--volume", f"{place}:{place}:ro")]
pytestmark = pytest.mark.skipif(not PACKAGE.is_file(), reason="SANDCOVE_TEST_PACKAGE is not set")


def podman(*arguments: str, check: bool = True) -> str:
    done = subprocess.run([*PODMAN, *arguments], capture_output=True, text=True, timeout=1200)
    assert not check or done.returncode == 0, f"{arguments}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def test_what_is_distributed_is_whole(tmp_path):
    place = PACKAGE.parent
    sums = dict(reversed(line.split()) for line in (place / "SHA256SUMS").read_text().splitlines())
    assert sums.keys() == {file.name for file in place.glob("sandcove*") if file.name != "sandcove.oci.tar"}
    for name, digest in sums.items():
        assert sha256((place / name).read_bytes()).hexdigest() == digest, name
    (materials,) = place.glob("*.cdx.json")
    components = {part["name"] for part in json.loads(materials.read_text())["components"]}
    assert {"tokio", "hyper", "rusqlite"} & components and len(components) > 200
    (archive,) = place.glob("*.tar.zst")
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", tmp_path], check=True)
    (root,) = tmp_path.iterdir()
    version = subprocess.run([root / "bin/sandcove", "--version"], capture_output=True, text=True, check=True).stdout
    assert version.split()[1] in archive.name
    assert (root / "LICENSE").exists() and (root / "CHANGELOG.md").exists()


SUITE = """
prompts: ["Say {{word}}"]
providers: [echo]
tests:
  - vars: {word: hello}
    assert:
      - {type: equals, value: Say hello}
      - {type: javascript, value: "JSON.parse('[1, 2]').length === 2 && output.endsWith('hello')"}
"""


@pytest.fixture(scope="module")
def static(tmp_path_factory) -> Path:
    """The statically linked program, from its archive."""
    place = tmp_path_factory.mktemp("static")
    (archive,) = PACKAGE.parent.glob("*-static.tar.gz")
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", place], check=True)
    (root,) = place.iterdir()
    return root / "bin/sandcove"


def test_the_static_program_needs_nothing_of_a_system(static, server, tmp_path):
    headers = subprocess.run(["readelf", "--program-headers", "--wide", static], capture_output=True, text=True, check=True).stdout
    assert "LOAD" in headers and "INTERP" not in headers
    # Neither a C library nor /dev, /proc or /tmp. The sources before the file and DNS are shared objects that are not there.
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hosts").write_text("127.0.0.1 of-the-file\n")
    (tmp_path / "etc/nsswitch.conf").write_text("hosts: sss mdns4 resolve [!UNAVAIL=return] files dns\n")
    (tmp_path / "promptfooconfig.yaml").write_text(SUITE)
    shutil.copy(static, tmp_path / "sandcove")

    def sandcove(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"HOME": "/", "E2B_API_KEY": os.environ["E2B_API_KEY"]}
        return subprocess.run(["/usr/sbin/chroot", tmp_path, "/sandcove", *arguments], env=environment, capture_output=True, text=True, timeout=120)

    assert sandcove("--version").stdout.startswith("sandcove ")
    written = sandcove("eval", "init", "/suite")
    assert written.returncode == 0 and (tmp_path / "suite/promptfooconfig.yaml").exists(), written.stderr
    evaluated = sandcove("eval", "-c", "/promptfooconfig.yaml", "--no-cache")
    assert evaluated.returncode == 0, evaluated.stdout + evaluated.stderr
    assert "privileges" in sandcove("doctor").stdout
    found = sandcove("sandbox", "list", "--url", f"http://of-the-file:{server.port}")
    assert found.returncode == 0, found.stderr
    unknown = sandcove("sandbox", "list", "--url", f"http://not-in-the-file.invalid:{server.port}")
    assert unknown.returncode == 1 and "of-the-file" not in unknown.stdout


def test_the_static_program_serves(static):
    server = Server(Path(f"/var/lib/sandcove-test-static-{os.getpid()}"))
    server.binary, server.variables = static, {"SANDCOVE_LANGUAGES": "lean", "SANDCOVE_SPARES": "1"}
    try:
        server.start()
        at = {"api_url": server.url, "sandbox_url": server.url, "api_key": API_KEY}
        with Sandbox.create(timeout=600, **at) as sandbox:
            assert sandbox.run_code("6 * 7").text == "42"
            sandbox.pause()
            server.stop()
            server.start()
            sandbox = Sandbox.connect(sandbox.sandbox_id, **at)
            assert sandbox.commands.run("curl --silent --output /dev/null --write-out '%{http_code}' https://pypi.org/simple/pip/").stdout == "200"
    finally:
        server.stop()
        purged = subprocess.run([static, "purge", "--yes", "--data-dir", server.data_dir], capture_output=True, text=True, timeout=600)
        assert purged.returncode == 0, purged.stderr
        shutil.rmtree(server.data_dir, ignore_errors=True)


def test_the_crates_of_the_client_build_on_their_own(tmp_path):
    for name in ("wire", "client"):
        (crate,) = PACKAGE.parent.glob(f"sandcove-{name}-*.crate")
        with tarfile.open(crate) as packed:
            packed.extractall(tmp_path, filter="data")
        next(tmp_path.glob(f"sandcove-{name}-*/")).rename(tmp_path / name)
    (tmp_path / "own/src").mkdir(parents=True)
    (tmp_path / "own/Cargo.toml").write_text(
        '[package]\nname = "own"\nedition = "2024"\n[dependencies]\nsandcove-client = "0"\ntokio = { version = "1", features = ["macros", "rt-multi-thread"] }\n'
        '[patch.crates-io]\nsandcove-client = { path = "../client" }\nsandcove-wire = { path = "../wire" }\n[workspace]\n'
    )
    shutil.copy(ROOT / "crates/client/examples/quickstart.rs", tmp_path / "own/src/main.rs")
    env = {**os.environ, "CARGO_TARGET_DIR": str(tmp_path / "target")}
    done = subprocess.run(["cargo", "check", "--quiet"], cwd=tmp_path / "own", env=env, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def container(tmp_path_factory):
    """The name of a container in which the server runs, as the guide starts it but for its network: the tests' machine may have no other."""
    if not shutil.which("podman") or not shutil.which("umoci"):
        pytest.skip("there is no podman or umoci")
    image = tmp_path_factory.mktemp("image") / "sandcove.oci.tar"
    subprocess.run([ROOT / "packaging/image", PACKAGE, image], check=True, capture_output=True, timeout=1200)
    loaded = re.search(r"Loaded image: (\S+)", podman("load", "--input", str(image)))[1]
    name = f"sandcove-test-{os.getpid()}"
    listen = f"127.0.0.1:{free_port()}"
    podman("run", "--detach", "--name", name, "--privileged", "--network", "host", "--env", f"SANDCOVE_LISTEN={listen}",
           "--env", "SANDCOVE_LANGUAGES=lean", "--volume", f"{name}:/var/lib/sandcove", *AUTHORITIES, loaded)  # fmt: skip
    yield name
    podman("rm", "--force", "--time", "60", name)
    podman("volume", "rm", name)
    podman("rmi", loaded)


def inside(container: str, *command: str) -> str:
    return podman("exec", container, "sandcove", *command).strip()


def answers(container: str) -> bool:
    assert podman("inspect", "--format", "{{.State.Running}}", container).strip() == "true", podman("logs", container)
    return subprocess.run([*PODMAN, "exec", container, "sandcove", "status"], capture_output=True, timeout=60).returncode == 0


def test_the_image_serves_and_keeps_what_is_paused_over_a_restart(container):
    wait_until(lambda: answers(container), 1200, "an answer of the server")
    assert inside(container, "run", "-c", "print(6 * 7)") == "42"
    box = inside(container, "sandbox", "create", "-d", "code-interpreter-v1", "--timeout", "1800").split()[-1]
    inside(container, "run", "--sandbox", box, "-c", "kept = 41")
    inside(container, "sandbox", "pause", box)
    podman("restart", "--time", "120", container)
    wait_until(lambda: answers(container), 600, "an answer of the server")
    inside(container, "sandbox", "resume", box)
    assert inside(container, "run", "--sandbox", box, "-c", "print(kept + 1)") == "42"
    inside(container, "sandbox", "kill", box)
