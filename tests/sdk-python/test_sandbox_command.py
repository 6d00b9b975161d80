"""`sandcove sandbox`: the life of a sandbox from the command line."""

from __future__ import annotations

import json
import subprocess

import pytest

from harness.command_line import Terminal, command_line, sandcove
from harness.server import wait_until


def info(server, sandbox_id: str) -> dict | None:
    done = sandcove(server, "sandbox", "info", sandbox_id)
    return json.loads(done.stdout) if done.returncode == 0 else None


@pytest.fixture
def created(server):
    """Creates sandboxes by the command, and kills them."""
    ids: list[str] = []

    def create(*arguments: str) -> str:
        done = sandcove(server, "sandbox", "create", "--detach", *arguments)
        assert done.returncode == 0, done.stderr
        ids.append(done.stdout.strip())
        return ids[-1]

    yield create
    if ids:
        sandcove(server, "sandbox", "kill", *ids)


def test_a_created_sandbox_is_as_it_was_asked_for(server, created):
    sandbox = created("base", "--timeout", "700", "-m", "who=me", "-e", "A=b c", "--no-internet", "--on-timeout", "pause",
                      "--auto-resume")
    found = info(server, sandbox)
    assert found["metadata"] == {"who": "me"} and found["allowInternetAccess"] is False
    assert found["lifecycle"] == {"autoResume": True, "onTimeout": "pause"}
    assert sandcove(server, "sandbox", "exec", sandbox, "sh", "-c", "echo $A").stdout == "b c\n"
    assert sandcove(server, "sandbox", "exec", sandbox, "echo $A | wc -w").stdout == "2\n"
    # Not an empty line, which would be an interactive shell.
    assert sandcove(server, "sandbox", "exec", sandbox, "").returncode == 127
    # The official command's options for the same.
    assert info(server, created("--lifecycle.ontimeout", "pause", "--lifecycle.autoresume"))["lifecycle"]["autoResume"] is True


def test_what_cannot_be_created_says_so(server):
    for arguments, said in (
        (["no-such-template", "-d"], "no-such-template"),
        (["-d", "--auto-resume"], "--on-timeout pause"),
        (["-d", "-v", "data"], "NAME:PATH"),
        (["-d", "--timeout", "0"], "0"),
        ([], "--detach"),
    ):
        done = sandcove(server, "sandbox", "create", *arguments)
        assert done.returncode != 0 and done.stdout == "" and said in done.stderr, (arguments, done)


def test_a_shell_ends_with_its_sandbox(server):
    terminal = Terminal(command_line(server, "sandbox", "create", "base"))
    terminal.until("sandbox ")
    sandbox = terminal.until("\n").strip()
    terminal.until("$ ")
    assert info(server, sandbox)["state"] == "running"
    terminal.type("exit 3\n")
    assert terminal.end() == 3
    assert info(server, sandbox) is None


def test_a_volume_is_mounted(server, created):
    from e2b import Volume

    volume = Volume.create("of-the-command")
    try:
        volume.write_file("/a", "b")
        sandbox = created("-v", "of-the-command:/mnt/data")
        assert sandcove(server, "sandbox", "exec", sandbox, "cat", "/mnt/data/a").stdout == "b"
        assert sandcove(server, "sandbox", "kill", sandbox).returncode == 0
    finally:
        wait_until(lambda: Volume.destroy(volume.volume_id) or True)


def test_a_sandbox_is_paused_and_resumed(server, created):
    sandbox = created()
    sandcove(server, "sandbox", "exec", "-d", sandbox, "sleep", "7000")
    done = sandcove(server, "sandbox", "pause", sandbox)
    assert (done.returncode, done.stdout) == (0, sandbox + "\n")
    assert info(server, sandbox)["state"] == "paused"
    done = sandcove(server, "sandbox", "pause", sandbox)
    assert (done.returncode, done.stdout) == (0, "") and "paused already" in done.stderr
    assert sandcove(server, "sandbox", "resume", sandbox, "--timeout", "900").stdout == sandbox + "\n"
    assert "sleep 7000" in sandcove(server, "sandbox", "exec", sandbox, "ps", "ax").stdout
    assert sandcove(server, "sandbox", "pause", "--files-only", sandbox).returncode == 0
    assert sandcove(server, "sandbox", "resume", sandbox).returncode == 0
    assert "sleep 7000" not in sandcove(server, "sandbox", "exec", sandbox, "ps", "ax").stdout
    # Its memory is kept, and not wanted.
    sandcove(server, "sandbox", "exec", "-d", sandbox, "sleep", "7000")
    assert sandcove(server, "sandbox", "pause", sandbox).returncode == 0
    assert sandcove(server, "sandbox", "resume", "--files-only", sandbox).stdout == sandbox + "\n"
    assert "sleep 7000" not in sandcove(server, "sandbox", "exec", sandbox, "ps", "ax").stdout
    assert sandcove(server, "sandbox", "pause", "i0000000000000000000").returncode == 1


def test_the_end_of_a_sandbox_moves(server, created):
    sandbox = created("--timeout", "100")
    before = info(server, sandbox)["endAt"]
    done = sandcove(server, "sandbox", "timeout", sandbox, "3000")
    assert done.returncode == 0 and not done.stderr
    done = sandcove(server, "sandbox", "timeout", sandbox, "9999h")
    assert done.returncode == 0 and done.stderr.startswith(f"sandbox {sandbox} ends at ")
    assert info(server, sandbox)["endAt"] > before
    done = sandcove(server, "sandbox", "timeout", "i0000000000000000000", "3000")
    assert done.returncode == 1 and "i0000000000000000000" in done.stderr


def test_snapshots_and_forks_have_the_files(server, created):
    sandbox = created()
    sandcove(server, "sandbox", "exec", sandbox, "sh", "-c", "echo kept > /home/user/file")
    snapshot = sandcove(server, "sandbox", "snapshot", "create", sandbox, "-n", "of-the-command").stdout.strip()
    listed = sandcove(server, "sandbox", "snapshot", "list", sandbox).stdout
    assert listed.splitlines()[0].split() == ["id", "names"] and snapshot in listed and "of-the-command" in listed
    names = [row["snapshotID"] for row in json.loads(sandcove(server, "sandbox", "snapshot", "list", "--json").stdout)]
    assert snapshot in names
    assert sandcove(server, "sandbox", "exec", created(snapshot), "cat", "/home/user/file").stdout == "kept\n"
    done = sandcove(server, "sandbox", "snapshot", "delete", snapshot, "no-such-snapshot")
    assert (done.returncode, done.stdout) == (1, snapshot + "\n") and "unknown snapshot `no-such-snapshot`" in done.stderr
    assert snapshot not in sandcove(server, "sandbox", "snapshot", "list").stdout

    forks = sandcove(server, "sandbox", "fork", sandbox, "-n", "2").stdout.split()
    try:
        assert len(set(forks)) == 2
        for fork in forks:
            assert sandcove(server, "sandbox", "exec", fork, "cat", "/home/user/file").stdout == "kept\n"
    finally:
        sandcove(server, "sandbox", "kill", *forks)


def test_a_log_is_followed_until_the_sandbox_ends(server, created):
    sandbox = created()
    assert "INFO  sandbox started" in sandcove(server, "sandbox", "logs", sandbox).stdout
    (first, *_) = sandcove(server, "sandbox", "logs", sandbox, "--json").stdout.splitlines()
    assert json.loads(first)["message"] == "sandbox started"
    assert "sandbox started" not in sandcove(server, "sandbox", "logs", sandbox, "--level", "ERROR").stdout
    following = subprocess.Popen(command_line(server, "sandbox", "logs", "-f", sandbox), stdout=subprocess.PIPE, text=True)
    assert "sandbox started" in following.stdout.readline()
    assert sandcove(server, "sandbox", "kill", sandbox).returncode == 0
    rest, _ = following.communicate(timeout=1200)
    assert following.returncode == 0 and rest.count("sandbox started") == 0
    done = sandcove(server, "sandbox", "logs", "i0000000000000000000")
    assert done.returncode == 1 and "i0000000000000000000 is unknown" in done.stderr


def test_metrics_are_followed_until_the_sandbox_ends(server, created):
    sandbox = created()
    following = subprocess.Popen(
        command_line(server, "sandbox", "metrics", "-f", sandbox), stdout=subprocess.PIPE, text=True
    )
    line = following.stdout.readline()
    assert " cpu " in line and " memory " in line and " disk " in line
    (sample, *_) = sandcove(server, "sandbox", "metrics", sandbox, "--json").stdout.splitlines()
    assert json.loads(sample)["memTotal"] > 0
    assert sandcove(server, "sandbox", "kill", sandbox).returncode == 0
    following.communicate(timeout=1200)
    assert following.returncode == 0
    assert sandcove(server, "sandbox", "metrics", "i0000000000000000000").returncode == 1


def test_files_are_copied_both_ways(server, created, tmp_path):
    sandbox = created()
    there = lambda path: f"{sandbox}:{path}"  # noqa: E731
    content = bytes(range(256)) * 5000
    (tmp_path / "here.bin").write_bytes(content)
    assert sandcove(server, "sandbox", "cp", str(tmp_path / "here.bin"), there("/tmp/a/b/")).returncode == 0
    assert sandcove(server, "sandbox", "cp", there("/tmp/a/b/here.bin"), str(tmp_path / "back.bin")).returncode == 0
    assert (tmp_path / "back.bin").read_bytes() == content
    assert oct((tmp_path / "back.bin").stat().st_mode & 0o777) == oct((tmp_path / "here.bin").stat().st_mode & 0o777)
    assert sandcove(server, "sandbox", "cp", "-", there("from-a-pipe"), stdin="piped\n").returncode == 0
    assert sandcove(server, "sandbox", "cat", sandbox, "from-a-pipe", "/home/user/from-a-pipe").stdout == "piped\n" * 2
    assert sandcove(server, "sandbox", "cp", there("from-a-pipe"), "-").stdout == "piped\n"
    assert "from-a-pipe" in sandcove(server, "sandbox", "files", sandbox).stdout
    names = [entry["name"] for entry in json.loads(sandcove(server, "sandbox", "files", sandbox, "/tmp/a", "--json").stdout)]
    assert names == ["b"]


def test_directories_are_copied_without_links(server, created, tmp_path):
    sandbox = created()
    source = tmp_path / "source"
    (source / "inner" / "empty").mkdir(parents=True)
    (source / "inner" / "ü file").write_text("x")
    (source / "link").symlink_to("/etc/passwd")
    done = sandcove(server, "sandbox", "cp", str(source), f"{sandbox}:/srv/copy")
    assert done.returncode == 1 and "--recursive" in done.stderr
    done = sandcove(server, "sandbox", "cp", "-r", "-u", "root", str(source), f"{sandbox}:/srv/copy")
    assert done.returncode == 0 and "left out the symbolic link" in done.stderr, done.stderr
    # A link of the sandbox does not lead the copy anywhere on this machine.
    sandcove(server, "sandbox", "exec", "-u", "root", sandbox, "ln", "-s", "/etc", "/srv/copy/inner/out")
    done = sandcove(server, "sandbox", "cp", "-r", f"{sandbox}:/srv/copy", str(tmp_path / "back"))
    assert done.returncode == 0 and "/srv/copy/inner/out" in done.stderr, done.stderr
    found = sorted(str(path.relative_to(tmp_path / "back")) for path in (tmp_path / "back").rglob("*"))
    assert found == ["inner", "inner/empty", "inner/ü file"]
    assert (tmp_path / "back/inner/ü file").read_text() == "x"


def test_what_cannot_be_copied_leaves_what_was_there(server, created, tmp_path):
    sandbox = created()
    (tmp_path / "old").write_text("old")
    done = sandcove(server, "sandbox", "cp", f"{sandbox}:/no/such/file", str(tmp_path / "old"))
    assert done.returncode == 1 and "/no/such/file" in done.stderr and (tmp_path / "old").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    done = sandcove(server, "sandbox", "cp", str(tmp_path / "missing"), f"{sandbox}:/tmp/x")
    assert done.returncode == 1 and "missing" in done.stderr
    assert sandcove(server, "sandbox", "cp", str(tmp_path / "old"), f"{sandbox}:/proc/none/old").returncode == 1
    done = sandcove(server, "sandbox", "cp", "a", "b")
    assert done.returncode == 1 and "ID:PATH" in done.stderr
