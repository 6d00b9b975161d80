"""Environment variables of three scopes: of the template, of the sandbox, of one call."""

import pytest

from harness.interpreters import clients, together  # noqa: F401

READ = {
    "python": "import os; print(os.environ.get({!r}, 'unset'))",
    "javascript": "console.log(process.env[{!r}] ?? 'unset')",
    "typescript": "console.log((process.env[{!r} as string] as string) ?? 'unset')",
    "bash": "printenv {} || echo unset",
}


@pytest.fixture(scope="module")
def coloured(clients):
    return clients.create(envs={"COLOUR": "sandbox", "QUOTED": "it's \"so\"\n$x \\ `y` blå", "EMPTY": ""})


def read(sandbox, language, name, **options):
    text = READ[language].format(name) if language == "bash" else READ[language].replace("{!r}", repr(name))
    execution = sandbox.run_code(text, language=language, **options)
    assert execution.error is None, execution.error
    return "".join(execution.logs.stdout).removesuffix("\n")


@pytest.mark.parametrize("language", READ)
def test_the_call_wins_over_the_sandbox_and_is_forgotten(coloured, language):
    assert read(coloured, language, "COLOUR") == "sandbox"
    assert read(coloured, language, "COLOUR", envs={"COLOUR": "call"}) == "call"
    assert read(coloured, language, "COLOUR") == "sandbox"


@pytest.mark.parametrize("language", READ)
def test_a_variable_of_a_call_is_gone_after_it(coloured, language):
    assert read(coloured, language, "ONCE", envs={"ONCE": "here"}) == "here"
    assert read(coloured, language, "ONCE") == "unset"


@pytest.mark.parametrize("language", READ)
def test_values_arrive_unchanged(coloured, language):
    assert read(coloured, language, "QUOTED") == "it's \"so\"\n$x \\ `y` blå"
    assert read(coloured, language, "EMPTY") == ""
    value = "a'b\"c\n\\d $e `f` ${g} 日本"
    assert read(coloured, language, "ODD", envs={"ODD": value}) == value


@pytest.mark.parametrize("language", READ)
def test_the_sandbox_says_what_it_is(coloured, language):
    assert read(coloured, language, "E2B_SANDBOX") == "true"
    assert read(coloured, language, "E2B_SANDBOX_ID") == coloured.sandbox_id


def test_the_template_has_the_last_word_on_nothing_but_what_nobody_else_set(coloured):
    assert read(coloured, "python", "PATH").startswith("/")
    assert read(coloured, "python", "HOME") == "/root"
    assert read(coloured, "python", "PATH", envs={"PATH": "/bin"}) == "/bin"
    assert read(coloured, "python", "PATH") != "/bin"


def test_a_failing_call_leaves_nothing_behind(coloured):
    assert coloured.run_code("1/0", envs={"LEFT": "over", "COLOUR": "call"}).error.name == "ZeroDivisionError"
    assert read(coloured, "python", "LEFT") == "unset"
    assert read(coloured, "python", "COLOUR") == "sandbox"


def test_what_code_sets_stays_in_its_context(coloured):
    coloured.run_code("import os; os.environ['MINE'] = 'kept'")
    assert read(coloured, "python", "MINE") == "kept"
    other = coloured.create_code_context()
    assert coloured.run_code("import os; os.environ.get('MINE')", context=other).text in (None, "None")
    assert coloured.run_code("import os; os.environ['COLOUR']", context=other).text == "sandbox"
    coloured.remove_code_context(other)


def test_variables_return_after_restarts_and_deaths(coloured):
    context = coloured.create_code_context()
    colour = "import os; os.environ['COLOUR']"
    assert coloured.run_code(colour, context=context).text == "sandbox"
    coloured.restart_code_context(context)
    assert coloured.run_code(colour, context=context).text == "sandbox"
    coloured.run_code("os.kill(os.getpid(), 9)", context=context)
    coloured.run_code("import os; os.kill(os.getpid(), 9)", context=context)
    assert coloured.run_code(colour, context=context).text == "sandbox"
    coloured.remove_code_context(context)


def test_programs_started_by_code_see_them(coloured):
    execution = coloured.run_code("import subprocess\nsubprocess.run('echo $COLOUR $ONCE', shell=True)", envs={"ONCE": "1"})
    assert "".join(execution.logs.stdout) == "sandbox 1\n"
    assert "".join(coloured.run_code("!echo $COLOUR $ONCE", envs={"ONCE": "2"}).logs.stdout) == "sandbox 2\r\n"


def test_the_first_cell_keeps_its_lines_and_magics(clients):
    sandbox = clients.create(envs={"A": "1"})
    execution = sandbox.run_code("%%bash\necho $A $B", envs={"B": "2"})
    assert "".join(execution.logs.stdout) == "1 2\n"
    error = sandbox.run_code("x = 1\n1/0", envs={"B": "2"}).error
    assert "----> 2 1/0" in error.traceback


def test_calls_at_once_in_two_contexts_do_not_mix(coloured):
    contexts = [coloured.create_code_context() for _ in range(3)]
    program = "import os, time; time.sleep(0.2); os.environ['WHO']"
    answers = together(
        *[lambda c=c: coloured.run_code(program, context=c, envs={"WHO": c.id}).text for c in contexts]
    )
    assert answers == [context.id for context in contexts]
    for context in contexts:
        coloured.remove_code_context(context)
