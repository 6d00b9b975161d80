"""`sandcove run` with more than one file: files beside the code, volumes and images; and without a server."""

from __future__ import annotations

import json
import subprocess
import uuid
from pathlib import Path

import pytest
from test_template_images import registry  # noqa: F401: the fixture

from harness import images
from harness.command_line import BINARY, sandcove, without_a_word
from harness.images import Image, file, tarball


@pytest.fixture
def project(tmp_path):
    """A program of several files."""
    (tmp_path / "main.py").write_text("import helper, json\nprint(helper.double(json.load(open('data.json'))), open('more/inner/text').read(), end='')\n")
    (tmp_path / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "data.json").write_text("21")
    (tmp_path / "more/inner").mkdir(parents=True)
    (tmp_path / "more/inner/text").write_text("deep\n")
    return tmp_path


def beside(project: Path, *names: str) -> list[str]:
    return [word for name in names for word in ("--file", str(project / name))]


def test_files_and_directories_are_beside_the_code(server, project):
    done = sandcove(server, "run", *beside(project, "helper.py", "data.json", "more"), str(project / "main.py"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "42 deep\n", "")
    done = sandcove(server, "run", *beside(project, "data.json"), "-c", "open('data.json').read()")
    assert done.stdout == "21\n"


@pytest.mark.parametrize("name, code, said", [
    ("a.js", "const {double} = require('./helper.cjs'); console.log(double(21), process.argv[2])", "42 x\n"),
    ("a.sh", ". ./lib.sh; echo $(double 21) $1", "42 x\n"),
])  # fmt: skip
def test_files_are_beside_code_in_other_languages(server, tmp_path, name, code, said):
    (tmp_path / name).write_text(code)
    (tmp_path / "helper.cjs").write_text("exports.double = x => 2 * x\n")
    (tmp_path / "lib.sh").write_text("double() { echo $((2 * $1)); }\n")
    done = sandcove(server, "run", *beside(tmp_path, "helper.cjs", "lib.sh"), str(tmp_path / name), "x")
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_files_that_are_not_there_are_named_before_anything_runs(server, project):
    done = sandcove(server, "run", *beside(project, "none.py"), str(project / "main.py"))
    assert done.returncode == 1 and f"`{project}/none.py` does not exist\nhint: --file" in done.stderr


def test_a_volume_is_mounted_and_keeps_what_a_run_writes(server):
    volume = f"of-the-run-{uuid.uuid4().hex[:8]}"
    assert sandcove(server, "volume", "create", volume).returncode == 0
    try:
        run = ["run", "--mount", f"{volume}:/mnt/data"]
        done = sandcove(server, *run, "-l", "bash", "-c", "echo kept > /mnt/data/file")
        assert (done.returncode, done.stderr) == (0, "")
        assert sandcove(server, *run, "-c", "print(open('/mnt/data/file').read(), end='')").stdout == "kept\n"
    finally:
        sandcove(server, "volume", "delete", volume)
    done = sandcove(server, *run, "-c", "1")
    assert done.returncode == 1 and volume in done.stderr and "hint: `sandcove volume list` shows all" in done.stderr
    done = sandcove(server, "run", "--mount", "data", "-c", "1")
    assert done.returncode == 2 and "NAME:PATH" in done.stderr


def test_an_image_is_a_template_after_its_first_run(server, registry):  # noqa: F811
    mark = uuid.uuid4().hex
    image = Image([images.debian_like().layers[0], tarball(file("note", f"of the image {mark}\n"))])
    reference = registry.push(f"tests/run-{mark[:8]}", image)
    run = ["run", "--image", reference, "-l", "bash", "-c", "cat /note; exit 3"]
    first = sandcove(server, *run)
    assert (first.returncode, first.stdout) == (3, f"of the image {mark}\n"), first
    name = next(word for word in first.stderr.split() if word.startswith("run-run-"))
    assert f"building template {name} from {reference}" in first.stderr
    try:
        pulled = len(registry.requests)
        again = sandcove(server, *run)
        assert (again.returncode, again.stdout, again.stderr) == (3, first.stdout, "")
        assert len(registry.requests) == pulled, "the image is not asked for again"
    finally:
        assert sandcove(server, "template", "delete", "--yes", name).returncode == 0
    # Without Python, there is no interpreter for python.
    done = sandcove(server, "run", "--image", reference, "-c", "1")
    assert done.returncode == 1 and f"failed to build a template from image `{reference}`" in done.stderr and "python" in done.stderr.lower()
    done = sandcove(server, "run", "--image", reference, "-l", "r", "-c", "1")
    assert done.returncode == 1 and "runs python and bash, and not r\nhint: " in done.stderr


def test_an_image_that_cannot_be_pulled_is_named(server, registry):  # noqa: F811
    reference = f"127.0.0.1:{server.registry_port}/tests/nothing:none"
    done = sandcove(server, "run", "--image", reference, "-l", "bash", "-c", "true")
    assert done.returncode == 1 and f"failed to build a template from image `{reference}`" in done.stderr, done


def test_without_a_server_one_is_started_for_the_run(server, project):
    directory = Path(f"/var/lib/sandcove-run-{uuid.uuid4().hex[:8]}")
    environment = without_a_word(HOME=str(project))
    try:
        done = subprocess.run(
            [BINARY, "--data-dir", directory, "run", "--json", *beside(project, "helper.py", "data.json", "more"), str(project / "main.py")],
            capture_output=True, text=True, env=environment, timeout=1800,
        )  # fmt: skip
        assert done.returncode == 0, done
        assert "no server is running; starting one for this run" in done.stderr
        assert json.loads(done.stdout)["stdout"] == "42 deep\n"
        status = subprocess.run([BINARY, "--data-dir", directory, "status", "--json"], capture_output=True, text=True, env=environment)
        assert (status.returncode, json.loads(status.stdout)) == (3, {"running": False}), "it ends with the run"
    finally:
        subprocess.run([BINARY, "--data-dir", directory, "purge", "--yes"], capture_output=True, env=environment)
