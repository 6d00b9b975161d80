"""Contexts: made, listed, restarted and removed; kept apart; parallel across, in order within."""

import pytest
from e2b import InvalidArgumentException, NotFoundException, SandboxException

from harness.interpreters import clients, code, context, together  # noqa: F401
from harness.server import wait_until


def test_a_new_sandbox_lists_the_default_contexts(clients):
    contexts = clients.create().list_code_contexts()
    assert [(one.language, one.cwd) for one in contexts] == [("python", "/home/user"), ("javascript", "/home/user")]
    assert len({one.id for one in contexts}) == 2


def test_a_context_is_created_listed_last_and_removed(code):
    made = code.create_code_context()
    assert (made.language, made.cwd) == ("python", "/home/user")
    listed = code.list_code_contexts()
    assert (listed[-1].id, listed[-1].language, listed[-1].cwd) == (made.id, "python", "/home/user")
    code.remove_code_context(made)
    assert made.id not in [one.id for one in code.list_code_contexts()]
    with pytest.raises(NotFoundException):
        code.run_code("1", context=made)


@pytest.mark.parametrize(
    ("language", "program"),
    [
        ("python", "import os; print(os.getcwd())"),
        ("javascript", "console.log(process.cwd())"),
        ("typescript", "const at: string = process.cwd(); console.log(at)"),
        ("bash", "pwd"),
    ],
)
def test_a_context_starts_in_its_directory(code, language, program):
    code.files.make_dir("/tmp/elsewhere")
    made = code.create_code_context(cwd="/tmp/elsewhere", language=language)
    try:
        assert (made.language, made.cwd) == (language, "/tmp/elsewhere")
        assert "".join(code.run_code(program, context=made).logs.stdout) == "/tmp/elsewhere\n"
    finally:
        code.remove_code_context(made)


@pytest.mark.parametrize(("given", "kept"), [("js", "javascript"), ("ts", "typescript"), (" PyThon ", "python")])
def test_the_language_of_a_context_is_normalised(code, given, kept):
    made = code.create_code_context(language=given)
    assert made.language == kept
    code.remove_code_context(made)


@pytest.mark.parametrize("language, where", [("python", "import os; print(os.getcwd())"), ("javascript", "console.log(process.cwd())"), ("bash", "pwd")])
def test_a_missing_directory_is_no_error(code, language, where):
    """The kernel starts where others do: files that it writes with a relative path landed in the root directory."""
    for cwd, at in (("/no/such/place", "/home/user"), ("~", "/home/user"), ("/etc/hostname", "/home/user"), (".config/..", "/home/user"), ("../../tmp", "/tmp")):
        made = code.create_code_context(cwd=cwd, language=language)
        assert made.cwd == cwd
        assert code.run_code(where, context=made).logs.stdout == [f"{at}\n"], cwd
        code.remove_code_context(made)


def test_an_unknown_language_says_how_to_get_it(code):
    with pytest.raises(SandboxException, match="no kernel for language `cobol`: there are python"):
        code.create_code_context(language="cobol")
    with pytest.raises(SandboxException, match="cobol"):
        code.run_code("1", language="cobol")
    with pytest.raises(SandboxException, match="install `cobol` in the template and run it as a command"):
        code.run_code("1", language="cobol")
    assert code.run_code("1").text == "1"


def test_contexts_share_no_variables(code, context):
    code.run_code("secret = 'default'")
    assert code.run_code("secret", context=context).error.name == "NameError"
    code.run_code("secret = 'mine'", context=context)
    assert code.run_code("secret").text == "default"


def test_the_default_context_can_be_named(code):
    code.run_code("named = 7")
    default = code.list_code_contexts()[0]
    assert code.run_code("named", context=default).text == "7"
    assert code.run_code("named", language="python").text == "7"


def test_context_and_language_exclude_each_other(code, context):
    with pytest.raises(InvalidArgumentException):
        code.run_code("1", language="python", context=context)


def test_unknown_contexts_are_not_found(code):
    for call in (code.restart_code_context, code.remove_code_context):
        with pytest.raises(NotFoundException):
            call("00000000-0000-0000-0000-000000000000")


@pytest.mark.parametrize("language", ["python", "javascript", "bash"])
def test_a_restart_empties_a_context_and_keeps_its_id(code, language):
    made = code.create_code_context(language=language, cwd="/tmp")
    first = code.run_code("x=1", context=made).execution_count
    assert code.run_code("x=2", context=made).execution_count == first + 1
    code.restart_code_context(made)
    assert made.id in [one.id for one in code.list_code_contexts()]
    read = code.run_code({"bash": "echo ${x-unset}"}.get(language, "x"), context=made)
    assert read.execution_count == first
    if language == "bash":
        assert "".join(read.logs.stdout) == "unset\n"
    else:
        assert read.error.name in ("NameError", "ReferenceError")
    code.remove_code_context(made.id)


@pytest.mark.parametrize("end", ["restart_code_context", "remove_code_context"])
def test_the_end_of_a_context_ends_what_runs_in_it(code, end):
    made = code.create_code_context()

    def stop():
        code.run_code("1")
        wait_until(lambda: "running" in code.commands.run("cat /tmp/marker 2>/dev/null || true").stdout, what="the cell")
        getattr(code, end)(made)

    run = "open('/tmp/marker', 'w').write('running')\nimport time\nwhile True: time.sleep(0.1)"
    execution, _ = together(lambda: code.run_code(run, context=made), stop)
    code.commands.run("rm -f /tmp/marker", user="root")
    assert execution.error.name == "UnexpectedEndOfExecution"
    if end == "restart_code_context":
        assert code.run_code("1 + 1", context=made).text == "2"
        code.remove_code_context(made)


def test_a_removed_default_context_comes_back_on_demand(clients):
    sandbox = clients.create()
    sandbox.remove_code_context(sandbox.list_code_contexts()[0])
    assert sandbox.run_code("6 * 7").text == "42"


def test_contexts_run_at_the_same_time(code):
    # Each waits for the file the other one writes: one after the other, neither would end well.
    meet = (
        "import os, time\nopen('/tmp/meet-{me}', 'w').close()\nend = time.monotonic() + 240\n"
        "while not os.path.exists('/tmp/meet-{other}') and time.monotonic() < end: time.sleep(0.01)\n"
        "os.path.exists('/tmp/meet-{other}')"
    )
    one, two = code.create_code_context(), code.create_code_context()
    answers = together(
        lambda: code.run_code(meet.format(me=1, other=2), context=one),
        lambda: code.run_code(meet.format(me=2, other=1), context=two),
    )
    assert [answer.text for answer in answers] == ["True", "True"]
    for made in (one, two):
        code.remove_code_context(made)
    code.commands.run("rm -f /tmp/meet-*", user="root")


def test_executions_of_one_context_take_turns(code, context):
    code.run_code("import time; log = []", context=context)

    def submit(number):
        return code.run_code(f"log.append({number}); time.sleep(0.05); log.append({number}); len(log)", context=context)

    counts = together(*[lambda number=number: submit(number) for number in range(5)])
    assert sorted(int(execution.text) for execution in counts) == [2, 4, 6, 8, 10]
    log = eval(code.run_code("log", context=context).text)
    assert log[::2] == log[1::2] and sorted(log[::2]) == [0, 1, 2, 3, 4]


def test_many_contexts_at_once(code):
    made = together(*[code.create_code_context for _ in range(8)])
    answers = together(*[lambda one=one: code.run_code(f"me = {one.id!r}; me", context=one) for one in made])
    assert [answer.text for answer in answers] == [one.id for one in made]
    together(*[lambda one=one: code.remove_code_context(one) for one in made])
    assert not {one.id for one in made} & {one.id for one in code.list_code_contexts()}
