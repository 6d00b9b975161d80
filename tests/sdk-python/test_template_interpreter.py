"""The code interpreter in templates that users build: on the built-in one, and on any base with a Python of its own."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from e2b import BuildException, TimeoutException
from e2b_code_interpreter import Sandbox

from builds import Builds, mark
from harness.server import wait_until
from harness.wheels import PATIENT

PYTHON = {"SANDCOVE_INTERPRETER": "python"}
# A module that knows where it was imported: a fork of the warm interpreter has left that PID namespace.
PROBE = """mkdir -p /opt/probe && echo 'import os; WHERE = os.readlink("/proc/self/ns/pid")' > /opt/probe/probe_module.py"""


@pytest.fixture(scope="module")
def shared(server):
    builds = Builds(server)
    yield builds
    builds.clear()


def interpreter_of(builds, template) -> dict | None:
    return builds.call("GET", f"/templates/{template.template_id}").json().get("interpreter")


def once_warm(builds, template) -> dict:
    """The interpreter of a template, when sandboxes get forks of a warm one."""
    seen = []

    def is_ready() -> bool:
        seen.append(interpreter_of(builds, template))
        return seen[-1]["state"] == "ready"

    wait_until(is_ready, what="the warm interpreter of the template")
    return seen[-1]


def box_of(builds, template, **options) -> Sandbox:
    box = Sandbox.create(template.template_id, timeout=1800, api_key=builds.key, **options)
    builds._boxes.append(box)
    return box


def value(box, code: str, **options):
    ran = box.run_code(code, **options)
    assert ran.error is None, ran.error.traceback
    return ran


@pytest.fixture(scope="module")
def derived(shared):
    """As users of E2B extend the built-in template."""
    template = (
        shared.template()
        .from_template("code-interpreter-v1")
        .pip_install(["six"])
        .set_envs({"FROM_TEMPLATE": "yes"})
        .set_workdir("/srv/app")
        .run_cmd("echo here > file.txt", user="root")
    )
    return shared.build(template)


def test_a_derived_template_has_the_interpreter_of_the_built_in_one(shared, derived):
    once_warm(shared, derived)
    box = box_of(shared, derived)
    assert value(box, "import six; six.__name__").text == "six"
    value(box, "kept = 41")
    assert value(box, "kept + 1").text == "42"
    assert value(box, "import pandas as pd; pd.DataFrame({'a': [1]})").results[0].data == {"a": [1]}
    chart = value(box, "import matplotlib.pyplot as plt; _ = plt.plot([1, 2]); plt.show()").results[0]
    assert chart.png and chart.chart
    assert "".join(value(box, "console.log(6 * 7)", language="js").logs.stdout) == "42\n"
    # As at E2B, the directory of kernels is that of the interpreter, whatever that of commands is.
    assert value(box, "import os; os.getcwd()").text == "/home/user"
    context = box.create_code_context(cwd="/srv/app")
    assert value(box, "open('file.txt').read().strip()", context=context).text == "here"


@pytest.mark.parametrize("language, code", [("python", "import os; os.environ['FROM_TEMPLATE']"), ("bash", "echo $FROM_TEMPLATE")])
def test_kernels_have_the_variables_of_the_template(shared, derived, language, code):
    ran = value(box_of(shared, derived), code, language=language)
    assert "yes" in f"{ran.text} {ran.logs.stdout}"
    assert "SANDCOVE" not in value(box_of(shared, derived), "import os; str(dict(os.environ))").text


def test_variables_of_a_sandbox_win(shared, derived):
    box = box_of(shared, derived, envs={"FROM_TEMPLATE": "no"})
    assert value(box, "import os; os.environ['FROM_TEMPLATE']").text == "no"


def test_the_vendors_image_is_the_built_in_template(shared):
    built = shared.build(shared.template().from_image("e2bdev/code-interpreter:latest").run_cmd("echo ok > /tmp/x"))
    assert value(box_of(shared, built), "open('/tmp/x').read().strip()").text == "ok"


@pytest.fixture(scope="module")
def asked(shared, ipython):
    """On a base without the interpreter, with modules of its own that are imported ahead."""
    template = (
        shared.base_with_wheels(ipython)
        .run_cmd(PROBE, user="root")
        .set_envs({**PYTHON, "SANDCOVE_WARM_MODULES": "probe_module, decimal", "PYTHONPATH": "/opt/probe"})
    )
    return shared.build(template)


def test_a_template_gets_the_interpreter_when_it_asks(shared, asked):
    assert "[interpreter] CODE INTERPRETER" in asked.text
    box = box_of(shared, asked)
    value(box, "x = 1")
    assert value(box, "x + 1").text == "2"
    assert value(box, "1/0 if False else [1, 2]").results[0].json == [1, 2]
    error = box.run_code("1/0").error
    assert (error.name, error.value) == ("ZeroDivisionError", "division by zero")
    # What the template has is what kernels see: the built-in template's packages are not there.
    assert box.run_code("import pandas").error.name == "ModuleNotFoundError"


def test_the_modules_that_are_imported_ahead_are_the_templates_choice(shared, asked):
    warm = once_warm(shared, asked)
    assert warm["modules"] == ["probe_module", "decimal"]
    assert 10 < warm["memoryMiB"] < 400 and warm["startMs"] > 0
    assert warm["python"].startswith("/")

    def is_forked() -> bool:
        # A sandbox that was made before the warm interpreter was ready has imported it itself.
        box = box_of(shared, asked)
        ran = value(box, "import os, sys; sys.modules['probe_module'].WHERE != os.readlink('/proc/self/ns/pid')")
        box.kill()
        return ran.text == "True"

    wait_until(is_forked, what="a kernel whose modules were imported outside")


# As long do sandboxes wait for a warm interpreter that is starting.
FIRST_START_S = 10


def test_sandboxes_right_after_a_build_wait_for_the_warm_interpreter(shared, ipython):
    """It is ahead of those that they would start themselves, of which each would need the processors as long."""
    probe = 'import os, time; time.sleep(2); WHERE, WHEN = os.readlink("/proc/self/ns/pid"), time.time_ns()'
    look = "import os, sys; slow = sys.modules['slow_module']; (slow.WHERE != os.readlink('/proc/self/ns/pid'), slow.WHEN)"

    def were_in_time() -> bool:
        template = (
            shared.base_with_wheels(ipython)
            .run_cmd(f"mkdir -p /opt/probe && echo '{probe}' > /opt/probe/slow_module.py; : {mark()}", user="root")
            .set_envs({**PYTHON, "SANDCOVE_WARM_MODULES": "slow_module", "PYTHONPATH": "/opt/probe"})
        )
        built = shared.build(template)
        began = time.monotonic()
        with ThreadPoolExecutor(3) as pool:
            boxes = list(pool.map(lambda _: box_of(shared, built), range(3)))
        if time.monotonic() - began >= FIRST_START_S:
            # A machine that is busy takes longer, and then each may have started its own.
            return False
        seen = {value(box, look).text for box in boxes}
        assert len(seen) == 1 and seen.pop().startswith("(True, "), "all of them wait for the same import"
        return True

    wait_until(were_in_time, 900, f"sandboxes in {FIRST_START_S} s")


def test_a_template_can_be_built_on_one_with_the_interpreter(shared, asked):
    built = shared.build(shared.template().from_template(asked.template_id).set_envs({"MORE": "1"}))
    ran = value(box_of(shared, built), "import os, sys; (os.environ['MORE'], 'probe_module' in sys.modules)")
    assert ran.text == "('1', True)"
    without = shared.build(shared.template().from_template(asked.template_id).set_envs({"SANDCOVE_INTERPRETER": "none"}))
    assert interpreter_of(shared, without) is None


def test_the_python_of_the_path_is_the_one_of_kernels(shared):
    """It gets IPython from the index, as the templates of users do."""
    template = (
        shared.base()
        .run_cmd("python3 -m venv --without-pip /opt/venv", user="root")
        .set_envs({**PYTHON, **PATIENT, "PATH": "/opt/venv/bin:/usr/bin:/bin"})
    )
    built = shared.build(template)
    assert interpreter_of(shared, built)["python"] == "/opt/venv/bin/python3"
    assert value(box_of(shared, built), "import sys; sys.prefix").text == "/opt/venv"


def test_a_template_without_the_interpreter_says_how_to_get_it(shared):
    box = Sandbox.create("base", timeout=1800, api_key=shared.key)
    shared._boxes.append(box)
    with pytest.raises(TimeoutException, match="SANDCOVE_INTERPRETER=python"):
        box.run_code("1")


@pytest.mark.parametrize(
    "envs, text",
    [
        ({"SANDCOVE_INTERPRETER": "ruby"}, "unknown SANDCOVE_INTERPRETER 'ruby'"),
        ({**PYTHON, "PATH": "/opt/old"}, "needs Python 3.9 or newer"),
        ({**PYTHON, "SANDCOVE_WARM_MODULES": "no_such_module"}, "failed to import 'no_such_module'"),
        ({**PYTHON, "SANDCOVE_WARM_MODULES": "threads_module", "PYTHONPATH": "/opt"}, "start 1 threads"),
    ],
)
def test_a_build_fails_when_the_interpreter_cannot_work(shared, ipython, envs, text):
    threads = "import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
    old = "import sys; sys.version_info = (3, 8)"
    template = (
        shared.base_with_wheels(ipython)
        .run_cmd(f"echo '{threads}' > /opt/threads_module.py", user="root")
        .run_cmd(f"mkdir -p /opt/old && echo '{old}' > /opt/old/sitecustomize.py", user="root")
        .run_cmd("printf '#!/bin/sh\\nPYTHONPATH=/opt/old exec /usr/bin/python3 \"$@\"\\n' > /opt/old/python3", user="root")
        .run_cmd("chmod 755 /opt/old/python3", user="root")
        .set_envs(envs)
    )
    with pytest.raises(BuildException, match=text):
        shared.build(template)
