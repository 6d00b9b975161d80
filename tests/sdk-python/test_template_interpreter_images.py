"""The code interpreter in images that are unlike this server's own: Python in /usr/local alone, no pip, BusyBox, musl; and in archives of templates."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from e2b import BuildException
from e2b_code_interpreter import Sandbox
from test_command_line import sandcove
from test_template_images import registry  # noqa: F401: the fixture
from test_template_interpreter import PYTHON, box_of, interpreter_of, once_warm, value

from builds import Builds, mark
from harness import images, python_images, real_images
from harness.images import directory, file, tarball
from harness.python_images import IPYTHON, packages, unpacked, wheels
from harness.server import wait_until
from harness.wheels import OFFLINE

CACHE = Path(os.environ.get("SANDCOVE_TEMPLATE_CACHE", "/var/cache/sandcove-tests")) / "images"
PATH = "PATH=/usr/local/bin:/usr/bin:/bin"


@pytest.fixture(scope="module")
def shared(server):
    real_images.tools()
    builds = Builds(server)
    yield builds
    builds.clear()


def works(box: Sandbox) -> None:
    """What cells do: state, results, output, errors, files, programs, and a context of its own."""
    value(box, "kept = 41")
    assert value(box, "kept + 1").text == "42"
    assert "".join(value(box, "print('out'); {'a': [1]}").logs.stdout) == "out\n"
    error = box.run_code("def f():\n    raise ValueError('why')\nf()").error
    assert (error.name, error.value) == ("ValueError", "why") and "in f()" in error.traceback
    value(box, "open('note', 'w').write('text')")
    assert box.files.read("/home/user/note") == "text"
    assert value(box, "import subprocess; subprocess.run(['cat', 'note'], capture_output=True, text=True).stdout").text == "text"
    context = box.create_code_context(cwd="/tmp")
    assert value(box, "import os; os.getcwd(), 'kept' in globals()", context=context).text == "('/tmp', False)"
    assert value(box, "import asyncio; await asyncio.sleep(0, 'awaited')").text == "awaited"


def is_forked(shared, template, module: str) -> None:
    """Waits until a sandbox gets a fork of the warm interpreter, which has imported the module in another PID namespace."""

    def forked() -> bool:
        box = box_of(shared, template)
        seen = value(box, f"import os, sys; sys.modules['{module}'].WHERE != os.readlink('/proc/self/ns/pid')").text
        box.kill()
        return seen == "True"

    wait_until(forked, what="a kernel whose modules were imported outside")


# Knows where it was imported.
PROBE = 'import os; WHERE = os.readlink("/proc/self/ns/pid")\n'


@pytest.fixture(scope="module")
def slim(shared, registry):  # noqa: F811
    """As `python:slim`: a Python in /usr/local with pip, and no other; without a package manager, so that everything comes from the image."""
    pip, ipython = wheels(CACHE, "pip"), wheels(CACHE, IPYTHON)
    six = wheels(CACHE, "six")
    layers = [
        tarball(*images.tree("debian", "sh", "bash")),
        tarball(*python_images.python()),
        tarball(*unpacked(pip, packages()), *python_images.kept([*ipython, *six])),
        tarball(directory("opt/probe"), file("opt/probe/probe_module.py", PROBE), file("opt/mark", mark())),
    ]
    return registry.push("interpreter/slim", images.Image(layers, env=[PATH]))


@pytest.fixture(scope="module")
def built(shared, slim):
    template = (
        shared.template()
        .from_image(slim)
        .set_envs({**PYTHON, **OFFLINE, "SANDCOVE_WARM_MODULES": "probe_module", "PYTHONPATH": "/opt/probe", "OF_THE_TEMPLATE": "yes"})
        .run_cmd("python3 -m pip install --no-warn-script-location six", user="root")
        .run_cmd("ls /usr/bin/python* 2>&1 || true", user="root")
    )
    return shared.build(template)


def test_a_python_in_usr_local_alone(shared, built):
    """It runs the kernels, with the packages of the template; IPython is beside them and not among them."""
    assert "installing IPython" in built.text and interpreter_of(shared, built)["python"] == "/usr/local/bin/python3"
    box = box_of(shared, built)
    works(box)
    assert value(box, "import sys; sys.prefix, sys.executable").text == "('/usr/local', '/usr/local/bin/python3')"
    assert value(box, "import six; six.__file__.startswith('/usr/local/')").text == "True"
    assert value(box, "import IPython; IPython.__file__.split('/IPython')[0]").text == "/usr/local/lib/sandcove-interpreter"
    assert value(box, "import os; os.environ['OF_THE_TEMPLATE'], [name for name in os.environ if name.startswith('SANDCOVE')]").text == "('yes', [])"
    assert box.commands.run("python3 -c 'import IPython' 2>&1 || true").stdout.endswith("No module named 'IPython'\n")
    assert once_warm(shared, built)["modules"] == ["probe_module"]
    is_forked(shared, built, "probe_module")


def test_a_template_that_is_built_on_it_has_it_too(shared, built):
    child = shared.build(shared.template().from_template(built.template_id).run_cmd(f"echo {mark()} > /opt/mark", user="root"))
    works(box_of(shared, child))


def test_an_archive_brings_the_interpreter_along(shared, server, built, tmp_path):
    """Export and import: the same Python, the same modules ahead, the variables, and nothing to install."""
    archive, name = tmp_path / "template.tar", shared.name("interpreter")
    done = sandcove(server, "template", "export", built.template_id, str(archive))
    assert done.returncode == 0, done.stderr
    done = sandcove(server, "template", "import", str(archive), "--name", name)
    assert done.returncode == 0 and "installing IPython" not in done.stderr, done.stderr
    seen = sandcove(server, "template", "inspect", name)
    assert seen.returncode == 0, seen.stderr
    inspected = json.loads(seen.stdout)["interpreter"]
    assert (inspected["python"], inspected["modules"]) == ("/usr/local/bin/python3", ["probe_module"])

    class Imported:
        template_id = name

    box = box_of(shared, Imported)
    works(box)
    assert value(box, "import os, six; os.environ['OF_THE_TEMPLATE']").text == "yes"
    once_warm(shared, Imported)
    is_forked(shared, Imported, "probe_module")


@pytest.mark.skipif(not os.environ.get("SANDCOVE_TEST_LARGE_ARCHIVE"), reason="SANDCOVE_TEST_LARGE_ARCHIVE is not set")
def test_an_archive_of_the_built_in_interpreter(shared, server, tmp_path):
    """A template on `code-interpreter-v1` has its interpreter from there, and keeps it as an archive."""
    derived = shared.build(shared.template().from_template("code-interpreter-v1").run_cmd("echo kept > /srv/note", user="root"))
    archive, name = tmp_path / "template.tar", shared.name("interpreter")
    for arguments in (("export", derived.template_id, str(archive)), ("import", str(archive), "--name", name)):
        done = sandcove(server, "template", *arguments, timeout=600)
        assert done.returncode == 0, done.stderr
    box = Sandbox.create(name, timeout=1800, api_key=shared.key)
    try:
        works(box)
        assert value(box, "import pandas as pd; pd.DataFrame({'a': [1]})").results[0].data == {"a": [1]}
        assert value(box, "open('/srv/note').read()").text == "kept\\n"
    finally:
        box.kill()


def test_busybox_without_pip(shared, registry):  # noqa: F811
    """Nothing can install IPython there: the build fails and says what to do, and a template that does it has the interpreter."""
    base = real_images.musl()
    bare = [*base.layers, tarball(*python_images.python(is_merged=False)), tarball(directory("opt"), file("opt/mark", mark()))]
    image = registry.push("interpreter/busybox", images.Image(bare, env=base.env))
    with pytest.raises(BuildException, match="has no pip, and no package manager installs one: install IPython in the template"):
        shared.build(shared.template().from_image(image).set_envs(PYTHON))
    installed = tarball(*unpacked(wheels(CACHE, IPYTHON), packages()))
    image = registry.push("interpreter/busybox-ipython", images.Image([*bare, installed], env=base.env))
    template = shared.build(shared.template().from_image(image).set_envs(PYTHON))
    assert "installing IPython" not in template.text
    box = box_of(shared, template)
    works(box)
    assert value(box, "import IPython; IPython.__file__").text.startswith(f"/{packages()}/")
    once_warm(shared, template)


def test_no_python_at_all(shared, registry):  # noqa: F811
    image = registry.push("interpreter/none", real_images.musl())
    with pytest.raises(BuildException, match="needs Python 3.9 or newer on the PATH of the template, and there is none"):
        shared.build(shared.template().from_image(image).set_envs(PYTHON))


@pytest.mark.skipif(not os.environ.get("SANDCOVE_TEST_MUSL_PYTHON"), reason="SANDCOVE_TEST_MUSL_PYTHON is not set")
def test_a_python_on_musl(shared, registry):  # noqa: F811
    """As in Alpine's images: BusyBox, and a Python that was compiled for musl."""
    image = registry.push("interpreter/musl", python_images.musl_image(CACHE))
    probe = f"mkdir -p /opt/probe && echo '{PROBE.strip()}' > /opt/probe/probe_module.py; : {mark()}"
    template = (
        shared.template()
        .from_image(image)
        .run_cmd(probe, user="root")
        .set_envs({**PYTHON, "SANDCOVE_WARM_MODULES": "probe_module", "PYTHONPATH": "/opt/probe"})
    )
    built = shared.build(template)
    box = box_of(shared, built)
    works(box)
    assert value(box, "any('ld-musl' in line for line in open('/proc/self/maps'))").text == "True"
    assert value(box, "any('libc.so.6' in line for line in open('/proc/self/maps'))").text == "False"
    once_warm(shared, built)
    is_forked(shared, built, "probe_module")


def test_run_takes_an_image_with_python(server, registry):  # noqa: F811
    """`sandcove run --image` builds a template with the interpreter, once."""
    installed = unpacked([*wheels(CACHE, IPYTHON), *wheels(CACHE, "six")], packages())
    layers = [tarball(*images.tree("debian", "sh", "bash")), tarball(*python_images.python()), tarball(*installed, file("opt/mark", mark()))]
    reference = registry.push(f"interpreter/run-{mark()}", images.Image(layers, env=[PATH]))
    first = sandcove(server, "run", "--image", reference, "-c", "import six; print(six.__name__); 6 * 7")
    assert (first.returncode, first.stdout) == (0, "six\n42\n"), first
    name = next(word for word in first.stderr.split() if word.startswith("run-run-"))
    try:
        again = sandcove(server, "run", "--image", reference, "-c", "import sys; print(sys.executable)")
        assert (again.returncode, again.stdout, again.stderr) == (0, "/usr/local/bin/python3\n", "")
    finally:
        assert sandcove(server, "template", "delete", "--yes", name).returncode == 0
