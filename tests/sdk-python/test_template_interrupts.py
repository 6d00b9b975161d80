"""Commands that are interrupted, or whose reader has gone: the exit status says so, and nothing is left here or on the server."""

import os
import signal
import subprocess

import pytest
from test_command_line import command_line, sandcove
from test_template_archives import packed

from builds import Builds, builds, mark  # noqa: F401
from harness import images, volatile
from harness.hold import Hold
from harness.images import Image, file, tarball
from harness.real_images import layout
from harness.server import wait_until

SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


def begun(server, *arguments, **options) -> subprocess.Popen:
    return subprocess.Popen(command_line(server, "template", *arguments), stderr=subprocess.PIPE, text=True, **options)


def until_says(process, text: str) -> None:
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"ended without {text!r}")


def interrupted(process, number=signal.SIGINT) -> str:
    """The rest of what it says after the signal."""
    process.send_signal(number)
    _, rest = process.communicate(timeout=300)
    assert process.returncode == SIGNALS[number] and "error:" not in rest, rest
    return rest


def is_collected(server) -> None:
    """Nothing holds templates: builds and exports would."""
    wait_until(lambda: sandcove(server, "template", "gc", "--dry-run").returncode == 0, what="the end of all builds and exports")


def unfinished(server) -> list[str]:
    return [str(path) for path in volatile.matching(server.data_dir, "server/file-sets/*/.*")]


def reads(process, path) -> bool:
    """Whether the process has opened the file."""
    return any(volatile.link(entry) == str(path) for entry in volatile.matching(f"/proc/{process.pid}/fd", "*"))


@pytest.fixture(scope="module")
def bulky(server, tmp_path_factory):
    """A template that takes a while to read."""
    own, directory = Builds(server), tmp_path_factory.mktemp("bulky")
    image = Image([images.debian_like().layers[0], tarball(file("bulk", os.urandom(300 << 20)))], is_compressed=False)
    archive = packed(layout(image, directory / "layout"), directory / "image.tar")
    done = sandcove(server, "template", "import", str(archive), "--name", own.name())
    assert done.returncode == 0, done.stderr
    yield done.stdout.strip()
    own.clear()


@pytest.mark.parametrize("number", SIGNALS)
def test_an_export_is_interrupted(server, bulky, tmp_path, number):
    target = tmp_path / "out/template.tar"
    target.parent.mkdir()
    process = begun(server, "export", bulky, str(target))
    until_says(process, "the server reads the files")
    assert f"interrupted: `{target}` was not written" in interrupted(process, number)
    assert list(target.parent.iterdir()) == []
    is_collected(server)


def test_an_export_says_what_takes_time(server, bulky, tmp_path):
    done = sandcove(server, "template", "export", bulky, str(tmp_path / "template.tar"))
    lines = done.stderr.splitlines()
    assert done.returncode == 0 and len(lines) == 3, done.stderr
    assert lines[0].startswith("the server reads the files of") and lines[1] == "receiving the archive" and lines[2].startswith("wrote ")


@pytest.mark.parametrize("size", [0, 512])
def test_the_reader_of_an_export_goes_away(server, bulky, size):
    process = begun(server, "export", bulky, "-", stdout=subprocess.PIPE)
    with process.stdout:
        if size:
            os.read(process.stdout.fileno(), size)
    said = process.stderr.read()
    assert process.wait(timeout=300) == 128 + signal.SIGPIPE and "error" not in said, said
    is_collected(server)


def test_a_full_disk_is_reported_as_such(server, bulky):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command_line(server, "template", "export", bulky, "-"), stdout=full, stderr=subprocess.PIPE, text=True, timeout=1200)
    assert done.returncode == 1 and "No space left on device" in done.stderr and "no answer from" not in done.stderr


def test_an_import_is_interrupted_before_and_during_its_upload(builds, server, tmp_path):  # noqa: F811
    archive = tmp_path / "large.tar"
    with archive.open("wb") as out:
        piece = os.urandom(1 << 20)
        for number in range(500):
            out.write(number.to_bytes(4, "little") + piece)
    process = begun(server, "import", str(archive), "--name", builds.name())
    wait_until(lambda: reads(process, archive), what="the archive is read")
    assert "interrupted: nothing was imported" in interrupted(process)
    process = begun(server, "import", str(archive), "--name", builds.name())
    until_says(process, "uploading")
    assert "interrupted: nothing was imported" in interrupted(process)
    wait_until(lambda: not unfinished(server), what="what was uploaded is deleted")
    is_collected(server)


def test_an_import_is_interrupted_during_its_build(builds, server, tmp_path):  # noqa: F811
    image = Image([images.debian_like().layers[0], tarball(file("note", mark()))])
    name, archive = builds.name(), packed(layout(image, tmp_path / "layout"), tmp_path / "image.tar")
    hold = Hold()
    process = begun(server, "import", str(archive), "--name", name, "--cmd", "sleep 1000", "--ready", f"{hold.command}; true")
    until_says(process, "Waiting for template to be ready")
    assert "continues on the server" in interrupted(process)
    hold.let_go()
    followed = sandcove(server, "template", "logs", "--follow", name)
    assert followed.returncode == 0 and "Build finished" in followed.stdout, followed.stderr


def test_a_build_is_interrupted_during_its_upload(builds, server, tmp_path):  # noqa: F811
    with (tmp_path / "big").open("wb") as out:
        for _ in range(500):
            out.write(os.urandom(1 << 20))
    (tmp_path / "Dockerfile").write_text("FROM template://base\nCOPY big /big\n")
    process = begun(server, "build", str(tmp_path), "--name", builds.name(), stdout=subprocess.DEVNULL)
    until_says(process, "uploading")
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=300)
    assert process.returncode == 130 and "interrupted: nothing was built" in rest, rest
    wait_until(lambda: not unfinished(server), what="what was uploaded is deleted")


def test_a_collection_is_interrupted_and_goes_on(builds, server):  # noqa: F811
    built = builds.build(builds.base().run_cmd(f"echo {mark()} > own"), name := builds.name())
    assert builds.delete(name).status_code == 204 and built.template_id
    is_collected(server)
    planned = [line.split()[0] for line in sandcove(server, "template", "gc", "--dry-run").stdout.splitlines()]
    steps, layers = (
        [path for path in (server.data_dir / "pool" / kind / name for name in planned) if path.exists()] for kind in ("snapshots", "layers")
    )
    assert steps and layers
    process = begun(server, "gc")
    # It deletes the steps first, and looks at layers twice, with some seconds in between.
    wait_until(lambda: not any(path.exists() for path in steps), what="the server has begun")
    assert "interrupted: what the server has begun to delete is deleted" in interrupted(process)
    wait_until(lambda: not any(layer.exists() for layer in layers), what="the server goes on")


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_output_that_nobody_reads_changes_no_status(builds, server, tmp_path, closed):  # noqa: F811
    """The work is done, whoever watches."""
    (tmp_path / "Dockerfile").write_text(f"FROM template://base\nRUN echo {mark()}\n")
    image = Image([images.debian_like().layers[0], tarball(file("note", mark()))])
    archive = packed(layout(image, tmp_path / "layout"), tmp_path / "image.tar")
    names = [builds.name(), builds.name()]
    commands = [["build", str(tmp_path), "--name", names[0]], ["import", str(archive), "--name", names[1]], ["gc"]]
    for arguments in commands:
        is_collected(server)
        reading, writing = os.pipe()
        os.close(reading)
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, closed: writing}
        done = subprocess.run(command_line(server, "template", *arguments), timeout=1200, **streams)
        os.close(writing)
        assert done.returncode == 0, arguments
    for name in names:
        assert builds.call("GET", f"/templates/aliases/{name}").status_code == 200
