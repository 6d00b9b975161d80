"""Languages that are Jupyter kernels: one that is installed in a running sandbox, and R and Java where the template has them."""

import pytest
from e2b import SandboxException, TimeoutException

from harness.interpreters import Clients

INSTALL = "pip install --quiet ipykernel && python3 -m ipykernel install --prefix /usr/local --name notebook"


@pytest.fixture(scope="module")
def code(server):
    clients = Clients("sync")
    yield clients.create(timeout=600)
    clients.close()


@pytest.fixture(scope="module")
def notebook(code):
    """Runs cells in a kernel that the template does not have."""
    with pytest.raises(SandboxException, match="no kernel for language `notebook`: there are python"):
        code.run_code("1", language="notebook")
    code.commands.run(INSTALL, timeout=300)
    return lambda program, **options: code.run_code(program, language="notebook", **options)


@pytest.fixture(scope="module")
def r(code):
    return language(code, "r")


@pytest.fixture(scope="module")
def java(code):
    return language(code, "java")


def language(code, name):
    try:
        code.create_code_context(language=name)
    except SandboxException as error:
        assert f"no kernel for language `{name}`" in str(error)
        pytest.skip(f"the template has no {name}: start the server with --all-languages")
    return lambda program, **options: code.run_code(program, language=name, **options)


def out(execution):
    assert execution.error is None, execution.error
    return "".join(execution.logs.stdout)


def test_an_installed_kernel_keeps_its_state(notebook):
    first = notebook("x = 40")
    assert (first.execution_count, first.results, first.error) == (1, [], None)
    second = notebook("x + 2")
    assert (second.execution_count, second.text, second.results[0].is_main_result) == (2, "42", True)


def test_an_installed_kernel_shows_what_it_has(notebook):
    execution = notebook(
        "import sys; from IPython.display import HTML, display\n"
        "display(HTML('<b>')); print('out'); print('err', file=sys.stderr); import os; os.system('echo child')\n'end'"
    )
    assert ([one.html for one in execution.results], execution.text) == (["<b>", None], "end")
    assert sorted("".join(execution.logs.stdout).split()) == ["child", "out"]
    assert "err\n" in "".join(execution.logs.stderr)
    parts = []
    notebook("import time\nfor i in range(3): print(i, flush=True); time.sleep(0.3)", on_stdout=lambda one: parts.append(one.line))
    assert parts == ["0\n", "1\n", "2\n"]
    assert len(out(notebook("print('x' * 3_000_000)"))) == 3_000_001


def test_failures_of_an_installed_kernel(notebook):
    error = notebook("def f(): 1 / 0\nf()").error
    assert (error.name, error.value) == ("ZeroDivisionError", "division by zero")
    assert "in f()" in error.traceback and "\x1b" not in error.traceback
    assert notebook("input()").error.name == "StdinNotImplementedError"
    assert notebook("1 +").error.name == "SyntaxError"
    assert notebook("'on'").text == "on"


def test_an_installed_kernel_is_interrupted_and_goes_on(notebook):
    notebook("kept = 'kept'")
    with pytest.raises(TimeoutException):
        notebook("import time; time.sleep(600)", timeout=1)
    assert notebook("kept", timeout=30).text == "kept"


def test_an_installed_kernel_that_dies_is_replaced(notebook):
    assert notebook("import os; os._exit(1)").error.name == "ContextRestarting"
    assert notebook("1").execution_count == 1
    assert notebook("exit()").error is None
    assert notebook("1").execution_count == 1


def test_variables_and_directories_of_an_installed_kernel(code, notebook):
    assert out(notebook("import os; print(os.environ['OWN'])", envs={"OWN": "it's \"mine\""})) == 'it\'s "mine"\n'
    assert notebook("os.environ.get('OWN')").results == []
    assert notebook("os.environ['E2B_SANDBOX']").text == "true"
    made = code.create_code_context(language="notebook", cwd="/tmp")
    assert (made.language, made.cwd) == ("notebook", "/tmp")
    assert code.run_code("import os; os.getcwd()", context=made).text == "/tmp"
    assert code.run_code("kept = 1", context=made).execution_count == 2
    code.restart_code_context(made)
    assert code.run_code("'kept' in globals()", context=made).text == "False"
    code.remove_code_context(made)


def test_r_keeps_its_state_and_shows_values(r):
    assert out(r('x <- c(1, 2, 3); print("hello")')) == '[1] "hello"\n'
    execution = r("sum(x)")
    assert (execution.results[0].text, execution.results[0].is_main_result, execution.text) == ("[1] 6", False, None)
    assert r("data.frame(a = 1:2)").results[0].html.count("<tr>") == 4
    assert r("plot(x)").results[0].png.startswith("iVBOR")
    assert out(r('system("echo child")')) == "child\n"


def test_failures_of_r(r):
    error = r('f <- function() stop("boom")\nf()').error
    assert "boom" in error.value and "\x1b" not in error.traceback
    assert r("1 +").error is not None
    r("kept <- 5")
    with pytest.raises(TimeoutException):
        r("Sys.sleep(600)", timeout=1)
    assert r("kept", timeout=30).results[0].text == "[1] 5"


def test_variables_and_directories_of_r(code, r):
    assert out(r('cat(Sys.getenv("OWN"))', envs={"OWN": "it's \"mine\""})) == "it's \"mine\""
    assert out(r('cat(nchar(Sys.getenv("OWN")), Sys.getenv("E2B_SANDBOX"))')) == "0 true"
    made = code.create_code_context(language="R", cwd="/tmp")
    assert made.language == "r"
    assert out(code.run_code("cat(getwd())", context=made)) == "/tmp"


def test_java_keeps_its_state_and_shows_values(java):
    assert out(java('int x = 40; System.out.println("hello");')) == "hello\n"
    assert java("x + 2").text == "42"
    assert java("record Point(int x, int y) {} new Point(1, 2)").text == "Point[x=1, y=2]"


def test_failures_of_java(java):
    error = java('throw new IllegalStateException("boom");').error
    assert "IllegalStateException" in error.name + error.value and "boom" in error.value + error.traceback
    assert java("int = ;").error is not None
    java("int kept = 5;")
    with pytest.raises(TimeoutException):
        java("while (true) Thread.sleep(10);", timeout=2)
    assert java("kept", timeout=60).text == "5"


def test_variables_and_directories_of_java(code, java):
    assert java('System.getProperty("OWN")', envs={"OWN": "it's \"mine\""}).text == 'it\'s "mine"'
    assert java('System.getProperty("OWN") == null').text == "true"
    made = code.create_code_context(language="java", cwd="/tmp")
    assert code.run_code('System.getProperty("user.dir")', context=made).text == "/tmp"
