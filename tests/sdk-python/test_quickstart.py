"""What a person tries first, word for word as with the hosted service."""

import os

import pytest
from e2b import AsyncSandbox, CommandExitException, NotFoundException, Sandbox, SandboxNotFoundException
from e2b_code_interpreter import AsyncSandbox as AsyncInterpreter


def test_code_keeps_its_state(interpreter):
    interpreter.run_code("x = 41")
    assert interpreter.run_code("x + 1").text == "42"


def test_a_figure_comes_back_as_png(interpreter):
    execution = interpreter.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()")
    assert execution.error is None
    pictures = [result.png for result in execution.results if result.png]
    assert pictures and pictures[0].startswith("iVBORw0KGgo")


def test_an_exception_is_a_result_not_a_failure(interpreter):
    error = interpreter.run_code("1/0").error
    assert error.name == "ZeroDivisionError"
    assert "division by zero" in error.value
    assert "ZeroDivisionError" in error.traceback


def test_streams_are_told_apart(interpreter):
    execution = interpreter.run_code("import sys\nprint('out')\nprint('err', file=sys.stderr)")
    assert "".join(execution.logs.stdout) == "out\n"
    assert "".join(execution.logs.stderr) == "err\n"


def test_a_data_frame_is_shown(interpreter):
    execution = interpreter.run_code("import pandas as pd\npd.DataFrame({'a': [1, 2]})")
    assert "<table" in execution.results[0].html
    assert "a" in execution.text


def test_files_are_written_read_and_listed(sandbox):
    sandbox.files.write("/home/user/hello.txt", "hello, wörld")
    assert sandbox.files.read("/home/user/hello.txt") == "hello, wörld"
    assert "hello.txt" in [entry.name for entry in sandbox.files.list("/home/user")]


def test_five_megabytes_come_back_unchanged(sandbox):
    data = os.urandom(5 * 1024 * 1024)
    sandbox.files.write("blob", data)
    assert bytes(sandbox.files.read("blob", format="bytes")) == data
    assert sandbox.files.get_info("blob").size == len(data)


def test_directories_and_moves(sandbox):
    assert sandbox.files.make_dir("a/b") is True
    assert sandbox.files.make_dir("a/b") is False
    sandbox.files.write("a/one", "1")
    sandbox.files.rename("a/one", "a/b/two")
    assert sandbox.files.exists("a/b/two") and not sandbox.files.exists("a/one")
    sandbox.files.remove("a")
    assert not sandbox.files.exists("a")
    with pytest.raises(NotFoundException):
        sandbox.files.read("a/b/two")


def test_a_command_knows_it_is_in_a_sandbox(sandbox):
    assert sandbox.commands.run("echo $E2B_SANDBOX").stdout == "true\n"
    assert sandbox.commands.run("echo $E2B_SANDBOX_ID").stdout.strip() == sandbox.sandbox_id
    assert sandbox.commands.run("whoami; pwd").stdout == "user\n/home/user\n"


def test_an_exit_code_raises(sandbox):
    with pytest.raises(CommandExitException) as failed:
        sandbox.commands.run("echo out; echo err >&2; exit 3")
    assert failed.value.exit_code == 3
    assert (failed.value.stdout, failed.value.stderr) == ("out\n", "err\n")


def test_output_streams_while_the_command_runs(sandbox):
    seen = []

    def hear(text):
        seen.append(text)
        sandbox.files.write("heard", "".join(seen))

    # Each line is written when the one before has been heard here.
    sandbox.commands.run("for i in 1 2 3; do echo $i; until grep -qsx $i heard; do sleep 0.05; done; done", on_stdout=hear)
    assert seen == ["1\n", "2\n", "3\n"]


@pytest.mark.parametrize("command", ["pip install --retries 10 --timeout 60 six && python -c 'import six; print(six.__name__)'"])
def test_packages_are_installed_from_the_index(interpreter, command):
    assert interpreter.commands.run(command, timeout=1200).stdout.strip().endswith("six")


def test_system_packages_need_no_sudo(sandbox):
    sandbox.commands.run("apt-get -o Acquire::Retries=5 update && apt-get -o Acquire::Retries=5 install -y --no-install-recommends cowsay", timeout=1200)
    assert "moo" in sandbox.commands.run("/usr/games/cowsay moo").stdout


def test_npm_installs_globally_without_sudo(sandbox):
    sandbox.commands.run("npm install --fetch-retries 5 -g is-number", timeout=1200)
    assert "is-number" in sandbox.commands.run("npm ls -g").stdout


def test_sudo_and_root(sandbox):
    assert sandbox.commands.run("sudo whoami").stdout == "root\n"
    assert sandbox.commands.run("whoami", user="root").stdout == "root\n"


def test_a_killed_sandbox_is_not_found():
    sandbox = Sandbox.create(timeout=1800)
    assert sandbox.is_running()
    assert sandbox.kill() is True
    assert sandbox.kill() is False
    assert not sandbox.is_running()
    with pytest.raises(SandboxNotFoundException):
        Sandbox.connect(sandbox.sandbox_id)
    with pytest.raises(NotFoundException):
        sandbox.get_info()


def test_info_and_lists_show_the_sandbox(sandbox):
    info = sandbox.get_info()
    assert info.sandbox_id == sandbox.sandbox_id and info.state.value == "running"
    listed = Sandbox.list().next_items()
    assert sandbox.sandbox_id in [one.sandbox_id for one in listed]


def test_environment_and_metadata_are_kept():
    sandbox = Sandbox.create(timeout=1800, envs={"COLOUR": "blå"}, metadata={"user id": "a&b=c"})
    try:
        assert sandbox.commands.run("echo $COLOUR").stdout == "blå\n"
        assert sandbox.commands.run("echo $COLOUR", envs={"COLOUR": "red"}).stdout == "red\n"
        assert sandbox.get_info().metadata == {"user id": "a&b=c"}
    finally:
        sandbox.kill()


async def test_the_async_client_does_the_same():
    sandbox = await AsyncInterpreter.create(timeout=1800)
    try:
        await sandbox.run_code("x = 41")
        assert (await sandbox.run_code("x + 1")).text == "42"
        assert (await sandbox.run_code("1/0")).error.name == "ZeroDivisionError"
        await sandbox.files.write("f", b"\x00\x01")
        assert bytes(await sandbox.files.read("f", format="bytes")) == b"\x00\x01"
        assert (await sandbox.commands.run("echo $E2B_SANDBOX")).stdout == "true\n"
        with pytest.raises(CommandExitException):
            await sandbox.commands.run("exit 3")
    finally:
        assert await sandbox.kill() is True
    with pytest.raises(SandboxNotFoundException):
        await AsyncSandbox.connect(sandbox.sandbox_id)
