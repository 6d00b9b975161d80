"""Starts that fail, `sandcove down --all` and `sandcove purge` leave nothing of a server on its host."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import requests
from e2b import Sandbox, Volume

from durability import running, stored
from harness import volatile
from harness.server import ADMIN_TOKEN, Server, instance_of, wait_until


def traces() -> dict[str, set[str]]:
    """What servers have on this host outside their directories, except for what comes and goes with sandboxes of others."""
    loops = {(volatile.text(backing) or "").strip() for backing in volatile.matching("/sys/block", "loop*/loop/backing_file")}
    claims = {claim.name: volatile.text(claim) for claim in volatile.matching("/run/sandcove", "*")}
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return {
        "tables": set(subprocess.run(["nft", "list", "tables"], check=True, capture_output=True, text=True).stdout.splitlines()),
        "groups": {at for at, _, _ in os.walk("/sys/fs/cgroup") if Path(at).name.startswith("sandcove")},
        # Networks of other tests are mounts, and the directory of the first one stays one.
        "mounts": {point for point in points if not point.startswith("/run/netns")},
        "loops": loops - {""},
        # One that a server was killed over before it wrote its directory is empty, and nobody's.
        "claims": {f"{name} {text}" for name, text in claims.items() if text},
    }


def has_number(trace: str, instance: str | None) -> bool:
    return f"sandcove{instance}" in trace.replace("/", " ").split()


def new_traces(before, directory: Path, instance: str | None) -> dict[str, set[str]]:
    """What is there since `before`, but for what servers on other directories have: several may run on a host. One that ended since may have
    had the number of this one.
    """
    now = traces()
    others = [claim.split(" ", 1) for claim in now["claims"] if not claim.endswith(f" {directory}")]

    def is_another_s(trace: str) -> bool:
        return any(has_number(trace, number) or trace.startswith((f"{path}/", f"{number} ")) for number, path in others)

    def is_new(kind: str, trace: str) -> bool:
        return trace not in before[kind] or has_number(trace, instance)

    new = {kind: {trace for trace in now[kind] if is_new(kind, trace) and not is_another_s(trace)} for kind in now}
    return {kind: found for kind, found in new.items() if found}


def left_traces(before, directory: Path, instance: str | None) -> dict[str, set[str]]:
    """What is new since `before` and has the server's names. There is nothing else, once other programs of this host, which may mount
    something for a while, have ended.
    """

    def is_own(trace: str) -> bool:
        return str(directory) in trace or has_number(trace, instance)

    strange = lambda: [trace for found in new_traces(before, directory, instance).values() for trace in found if not is_own(trace)]  # noqa: E731
    wait_until(lambda: not strange(), what="nothing else is new on this host")

    def own() -> dict[str, set[str]]:
        found = {kind: set(filter(is_own, new)) for kind, new in new_traces(before, directory, instance).items()}
        return {kind: new for kind, new in found.items() if new}

    # A mount namespace that another server is making holds a copy of each mount for a moment, and with it the loop device.
    wait_until(lambda: "loops" not in own(), what="the end of the loop device")
    return own()


def sandcove(binary, *arguments, **options):
    return subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=1200, **options)


@pytest.fixture
def directory():
    """A data directory of the test's own."""
    directory = Path(f"/var/lib/sandcove-test-purge-{os.getpid()}")
    assert not directory.exists()
    yield directory
    if (directory / "server.lock").exists():
        sandcove(Server(directory).binary, "purge", "--data-dir", directory, "--yes")
    shutil.rmtree(directory, ignore_errors=True)
    directory.with_suffix(".log").unlink(missing_ok=True)


def test_a_pool_that_is_too_small_is_said_in_one_sentence(server, directory):
    before = traces()
    given_up = sandcove(server.binary, "serve", "--data-dir", directory, "--listen", "127.0.0.1:0", "--pool-size-gib", "1")
    assert given_up.returncode == 1
    error, hint = given_up.stderr.strip().splitlines()
    assert error.startswith("error: the templates need 2900 MiB in ") and error.endswith("MiB left")
    assert hint.startswith("hint: ") and "--pool-size-gib 5" in hint
    instance = instance_of(directory)
    # The number stays with the directory.
    assert left_traces(before, directory, instance) == {"claims": {f"{instance} {directory}"}}
    purged = sandcove(server.binary, "purge", "--data-dir", directory, "--yes")
    assert purged.returncode == 0, purged.stderr
    assert not directory.exists() and not left_traces(before, directory, instance)


def test_numbers_of_directories_without_a_server_are_taken_over(server, directory, tmp_path):
    # More than there are: each number that nobody has is claimed by a directory that nothing runs in.
    owners = {Path(f"/run/sandcove/{number}"): tmp_path / str(number) for number in range(8)}
    made = [claim for claim in owners if volatile.text(claim) is None]
    for claim in made:
        owners[claim].mkdir()
        claim.write_text(str(owners[claim]))
    try:
        given_up = sandcove(server.binary, "serve", "--data-dir", directory, "--listen", "127.0.0.1:0", "--pool-size-gib", "1")
        # Far behind the claim.
        assert given_up.stderr.startswith("error: the templates need 2900 MiB in ")
        assert instance_of(directory) != instance_of(server.data_dir) is not None
    finally:
        # Servers of earlier versions take nothing over.
        for claim in made:
            if volatile.text(claim) == str(owners[claim]):
                claim.unlink()


def with_layers_of(server, directory: Path) -> Server:
    """A server on an empty directory that finds its templates built."""
    directory.mkdir(mode=0o700)
    image = directory / "pool.img"
    with image.open("wb") as file:
        file.truncate(8 << 30)
    subprocess.run(["mkfs.btrfs", "--quiet", image], check=True, stdout=subprocess.DEVNULL)
    pool = directory / "pool"
    pool.mkdir()
    subprocess.run(["mount", "-o", "loop", image, pool], check=True)
    try:
        subprocess.run(["cp", "-a", server.data_dir / "pool/layers", pool], check=True)
    finally:
        subprocess.run(["umount", pool], check=True)
    other = Server(directory)
    # The directory holds nothing but what servers keep there.
    other.log = directory.with_suffix(".log")
    # Nothing is built while it runs.
    other.variables = {"SANDCOVE_LANGUAGES": "lean"}
    return other


@pytest.mark.parametrize("database", ["there", "gone"])
def test_everything_ends(server, directory, monkeypatch, database):
    before = traces()
    other = with_layers_of(server, directory)
    other.start()
    for name, value in other.env.items():
        monkeypatch.setenv(name, value)
    running(), stored()
    paused = running()
    paused.create_snapshot()
    paused.pause()
    volume = Volume.create("kept")
    volume.write_file("file", "text")
    # Its key is in the data directory.
    secret = {"name": "kept", "value": "text"}
    assert requests.post(f"{other.url}/secrets", json=secret, headers={"X-API-KEY": other.env["E2B_API_KEY"]}).ok
    assert (directory / "secrets.key").exists()
    # And so is that of tokens, once somebody asks for the keys.
    assert requests.get(f"{other.url}/.well-known/jwks.json").ok and (directory / "identity.key").exists()
    instance = instance_of(directory)
    assert new_traces(before, directory, instance).keys() >= {"tables", "groups", "mounts", "loops", "claims"}
    if database == "gone":
        other.kill9()
        for path in directory.glob("server/sandcove.db*"):
            path.unlink()

    unasked = sandcove(other.binary, "purge", "--data-dir", directory, stdin=subprocess.DEVNULL)
    assert unasked.returncode == 1 and "use --yes" in unasked.stderr
    assert Path(directory / "pool/sandboxes").exists()
    purged = sandcove(other.binary, "purge", "--data-dir", directory, "--yes")
    assert purged.returncode == 0, purged.stderr
    assert not directory.exists()
    assert not left_traces(before, directory, instance)
    if other.process.poll() is None:
        other.process.wait(300)


def test_down_all_ends_the_sandboxes_of_every_team(server, directory, monkeypatch):
    before = traces()
    other = with_layers_of(server, directory)
    other.start()
    for name, value in other.env.items():
        monkeypatch.setenv(name, value)
    running(), stored()
    answer = requests.post(f"{other.url}/admin/teams", headers={"X-Admin-Token": ADMIN_TOKEN}, json={"name": "Another"})
    key = requests.post(
        f"{other.url}/admin/teams/{answer.json()['id']}/api-keys", headers={"X-Admin-Token": ADMIN_TOKEN}, json={"name": "k"}
    ).json()["key"]
    assert Sandbox.create(timeout=1800, api_key=key).is_running()
    (directory / "server.json").exists() or pytest.fail("the server says how it is reached")
    stopped = sandcove(other.binary, "down", "--all", "--data-dir", directory)
    assert stopped.returncode == 0, stopped.stderr
    assert other.process.wait(300) == 0
    assert left_traces(before, directory, instance_of(directory)).keys() == {"claims"}
    other.start()
    assert not Sandbox.list().next_items() and not Sandbox.list(api_key=key).next_items()
    other.stop()
    assert sandcove(other.binary, "purge", "--data-dir", directory, "--yes").returncode == 0


def test_only_data_directories_are_purged(server, tmp_path):
    (tmp_path / "file").write_text("mine")
    purged = sandcove(server.binary, "purge", "--data-dir", tmp_path, "--yes")
    assert purged.returncode == 1 and "is not the data directory of a server" in purged.stderr
    assert (tmp_path / "file").read_text() == "mine"
