"""Languages that are Jupyter kernels (one that is installed in a running sandbox, R, Java), and Ruby and C++."""

import time

import pytest
from e2b import SandboxException, TimeoutException

from harness.interpreters import Clients
from harness.server import wait_until

INSTALL = "pip install --quiet --retries 10 --timeout 60 ipykernel && python3 -m ipykernel install --prefix /usr/local --name notebook"


@pytest.fixture(scope="module")
def clients(server):
    clients = Clients("sync")
    yield clients
    clients.close()


@pytest.fixture(scope="module")
def code(clients):
    return clients.create(timeout=7200)


@pytest.fixture(scope="module")
def notebook(code):
    """Runs cells in a kernel that the template does not have."""
    with pytest.raises(SandboxException, match="no kernel for language `notebook`: there are python"):
        code.run_code("1", language="notebook")
    code.commands.run(INSTALL, timeout=1800)
    return lambda program, **options: code.run_code(program, language="notebook", **options)


@pytest.fixture(scope="module")
def complete(clients):
    """A sandbox with the languages that the template gets in the background, once it has them."""
    made = []

    def is_there():
        made[:] = [clients.create(timeout=7200)]
        try:
            made[0].create_code_context(language="r")
            return True
        except SandboxException as error:
            made[0].kill()
            if "still being built" not in str(error):
                assert "no kernel for language `r`" in str(error)
                pytest.skip("the template has no R: the server was started without further languages")
        # The layer takes minutes.
        time.sleep(5)
        return False

    wait_until(is_there, 1800, "the template has R")
    return made[0]


@pytest.fixture(scope="module")
def r(complete):
    return lambda program, **options: complete.run_code(program, language="r", **options)


@pytest.fixture(scope="module")
def java(complete):
    return lambda program, **options: complete.run_code(program, language="java", **options)


@pytest.fixture(scope="module")
def ruby(complete):
    return lambda program, **options: complete.run_code(program, language="ruby", **options)


@pytest.fixture(scope="module")
def cpp(code):
    return lambda program, **options: code.run_code(program, language="cpp", **options)


def out(execution):
    assert execution.error is None, execution.error
    return "".join(execution.logs.stdout)


def test_an_installed_kernel_keeps_its_state(notebook):
    first = notebook("x = 40")
    assert (first.execution_count, first.results, first.error) == (1, [], None)
    second = notebook("x + 2")
    assert (second.execution_count, second.text, second.results[0].is_main_result) == (2, "42", True)


def test_an_installed_kernel_shows_what_it_has(code, notebook):
    # The kernel reads what its children write in a thread, and does not wait for that thread when the cell ends.
    execution = notebook(
        "import os, sys, time; from IPython.display import HTML, display\n"
        "display(HTML('<b>')); print('out'); print('err', file=sys.stderr); os.system('echo child'); time.sleep(10)\n'end'"
    )
    assert ([one.html for one in execution.results], execution.text) == (["<b>", None], "end")
    assert sorted("".join(execution.logs.stdout).split()) == ["child", "out"]
    assert "err\n" in "".join(execution.logs.stderr)
    parts = []

    def hear(one):
        parts.append(one.line)
        code.files.write(f"/tmp/heard-{len(parts)}", "", user="root")

    # Each line is written when the one before has been heard here.
    notebook(
        "import time\nfor i in range(3):\n    print(i, flush=True)\n    while not os.path.exists(f'/tmp/heard-{i + 1}'): time.sleep(0.01)",
        on_stdout=hear,
    )
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
    assert notebook("kept", timeout=600).text == "kept"


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
    assert r("kept", timeout=600).results[0].text == "[1] 5"


def test_variables_and_directories_of_r(complete, r):
    assert out(r('cat(Sys.getenv("OWN"))', envs={"OWN": "it's \"mine\""})) == "it's \"mine\""
    assert out(r('cat(nchar(Sys.getenv("OWN")), Sys.getenv("E2B_SANDBOX"))')) == "0 true"
    made = complete.create_code_context(language="R", cwd="/tmp")
    assert made.language == "r"
    assert out(complete.run_code("cat(getwd())", context=made)) == "/tmp"


def test_text_beyond_ascii(r, java):
    assert r('nchar("ü日")').results[0].text == "[1] 2"
    assert "".join(r('cat("日本\\n")').logs.stdout) == "日本\n"
    assert r('f <- tempfile(); writeLines("é", f); file.size(f)').results[0].text == "[1] 3"
    assert java('java.nio.file.Files.writeString(java.nio.file.Path.of("/tmp/é.txt"), "x").toString()').text == "/tmp/é.txt"


def test_java_keeps_its_state_and_shows_values(java):
    # Message by message, as the original's: a suite of its own compares the first one.
    assert java('int x = 40; System.out.println("hello");').logs.stdout == ["hello", "\n"]
    assert java('System.out.print("a"); System.out.println("b");').logs.stdout == ["a", "b", "\n"]
    assert java('System.err.println("err");').logs.stderr == ["err", "\n"]
    assert java("x + 2").text == "42"
    assert java("record Point(int x, int y) {} new Point(1, 2)").text == "Point[x=1, y=2]"


def test_failures_of_java(java):
    error = java('throw new IllegalStateException("boom");').error
    assert "IllegalStateException" in error.name + error.value and "boom" in error.value + error.traceback
    assert java("int = ;").error is not None
    java("int kept = 5;")
    with pytest.raises(TimeoutException):
        java("while (true) Thread.sleep(10);", timeout=2)
    assert java("kept", timeout=600).text == "5"


def test_variables_and_directories_of_java(complete, java):
    assert java('System.getProperty("OWN")', envs={"OWN": "it's \"mine\""}).text == 'it\'s "mine"'
    assert java('System.getProperty("OWN") == null').text == "true"
    made = complete.create_code_context(language="java", cwd="/tmp")
    assert complete.run_code('System.getProperty("user.dir")', context=made).text == "/tmp"


def test_ruby_keeps_its_state_and_shows_values(complete, ruby):
    first = ruby("x = 40; def twice(n) = n * 2; puts 'hello'; $stderr.puts 'err'; nil")
    assert ("".join(first.logs.stdout), "".join(first.logs.stderr), first.results, first.error) == ("hello\n", "err\n", [], None)
    execution = ruby("twice(x) + 2")
    assert (execution.text, execution.results[0].is_main_result, execution.execution_count) == ("82", True, 2)
    assert ruby("[1, 'two', nil, { a: 1.5 }]").text == '[1, "two", nil, {:a=>1.5}]'
    assert ruby("'日本'").text == "日本"
    assert out(ruby("system('echo child'); nil")) == "child\n"
    assert out(ruby("3.times { |i| print i }; nil")) == "012"
    assert ruby("gets").error is None
    assert ruby("Process.wait(fork { puts 'forked' }); x").text == "40"


def test_failures_of_ruby(ruby):
    error = ruby("def deep = raise(ArgumentError, 'boom')\ndef outer\n  deep\nend\nouter").error
    assert (error.name, error.value) == ("ArgumentError", "boom")
    assert "boom (ArgumentError)" in error.traceback and ":3:in" in error.traceback and "-e:" not in error.traceback
    caused = ruby("begin\n  Integer('x')\nrescue => e\n  raise 'outer'\nend").error
    assert (caused.name, caused.value) == ("RuntimeError", "outer") and "ArgumentError" in caused.traceback
    for program, name in [("1 +", "SyntaxError"), ("nope", "NameError"), ("def r = r\nr", "SystemStackError")]:
        assert ruby(program).error.name == name
    ruby("kept = 5")
    for busy in ("loop {}", "sleep 600", "system('sleep 600')"):
        with pytest.raises(TimeoutException):
            ruby(busy, timeout=1)
    assert ruby("kept", timeout=600).text == "5"
    with pytest.raises(TimeoutException):
        ruby("begin\n  loop {}\nrescue Exception\n  retry\nend", timeout=1)
    assert ruby("1 + 1", timeout=600).text == "2"
    assert ruby("exit").error is None
    assert ruby("defined?(kept)").execution_count == 1


def test_variables_and_directories_of_ruby(complete, ruby):
    assert out(ruby("print ENV['OWN']", envs={"OWN": "it's \"mine\" #{x}"})) == "it's \"mine\" #{x}"
    assert out(ruby("p ENV['OWN'], ENV['E2B_SANDBOX']; nil")) == 'nil\n"true"\n'
    made = complete.create_code_context(language="ruby", cwd="/tmp")
    assert (made.language, complete.run_code("Dir.pwd", context=made).text) == ("ruby", "/tmp")
    complete.run_code("kept = 1", context=made)
    complete.restart_code_context(made)
    assert complete.run_code("defined?(kept).inspect", context=made).text == "nil"
    complete.remove_code_context(made)


def test_cpp_keeps_its_state_and_shows_values(code, cpp):
    first = cpp('#include <vector>\nint x = 40;\nstd::vector<int> v{1, 2};\nfor (int i : v) std::cout << i << std::endl;\nv.push_back(x);')
    assert (out(first), first.results) == ("1\n2\n", [])
    execution = cpp("x + 2")
    assert (execution.text, execution.results[0].is_main_result, execution.execution_count) == ("(int) 42", True, 2)
    assert cpp("v").text == "(std::vector<int>) { 1, 2, 40 }"
    assert cpp("x = 7; std::cerr << x; std::string s = \"hi\"; s").text == '(std::string) "hi"'
    assert cpp("struct P { int a; int twice() const { return a * 2; } };\nP p{4};\np.twice()").text == "(int) 8"
    assert cpp("template <typename T> T add(T a, T b) { return a + b; }\nauto f = [](int a) { return add(a, x); };\nf(1)").text == "(int) 8"
    # In the order they stand in, declarations and statements.
    assert cpp("int i = 0; i++; int j = i; i++; j * 10 + i").text == "(int) 12"
    assert out(cpp('std::system("echo child"); printf("c %d\\n", x);')) == "child\nc 7\n"
    assert code.run_code("x", language="C++17").text == "(int) 7"


def test_cpp_can_be_defined_again(cpp):
    cpp("#include <vector>\nint n = 1;\nint get() { return n; }\nint call() { return get(); }\nstruct S { int a = 1; };\nS held;")
    assert cpp("int get() { return 5; }\ncall()").text == "(int) 5"
    assert cpp("std::vector<int> n{1, 2}; n").text == "(std::vector<int>) { 1, 2 }"
    assert cpp("std::string n = \"again\"; n").text == '(std::string) "again"'
    assert cpp("struct S { double b = 2.5; };\nS other; other.b").text == "(double) 2.5"
    assert cpp("call()").text == "(int) 5"


def test_whole_programs_of_cpp_run(cpp):
    program = '#include <iostream>\nint helper() { return 3; }\nint main() {\n  std::cout << helper() << std::endl;\n  return 0;\n}'
    for _ in range(2):
        assert out(cpp(program)) == "3\n"
    error = cpp("int main(int argc, char** argv) { return argc + 2; }").error
    assert (error.name, error.value) == ("ExitStatus", "3")


def test_failures_of_cpp(cpp):
    cpp("#include <stdexcept>\nint kept = 5;")
    error = cpp('int half = 1;\nstd::cout << "before";\nthrow std::runtime_error("boom");\nint never = 2;').error
    assert (error.name, error.value) == ("std::runtime_error", "boom") and "line 3" in error.traceback
    assert cpp("half").text == "(int) 1"
    error = cpp("int z =\n  nope;").error
    assert error.name == "CompileError" and "'nope' was not declared" in error.value and ":2:" in error.traceback
    assert cpp("never").error.name == "CompileError"
    assert cpp("foo(").error.value == "'(' is not closed"
    # What a cell breaks is the cell: the ones before it are as they were.
    error = cpp("kept = 6; int* nothing = nullptr; *nothing = 1;").error
    assert error.name == "SIGSEGV" and "kept" in error.value
    assert cpp("exit(4);").error.value == "4"
    for busy in ("while (true);", 'std::system("sleep 600");\nwhile (true);'):
        with pytest.raises(TimeoutException):
            cpp(busy, timeout=5)
    assert cpp("kept", timeout=600).text == "(int) 5"


def test_variables_and_directories_of_cpp(code, cpp):
    own = cpp('std::string(getenv("OWN"))', envs={"OWN": "mine"})
    assert own.text == '(std::string) "mine"'
    assert cpp('getenv("OWN") == nullptr').text == "(bool) true"
    made = code.create_code_context(language="cpp", cwd="/tmp")
    assert code.run_code("#include <filesystem>\nstd::filesystem::current_path().string()", context=made).text == '(std::string) "/tmp"'
    code.remove_code_context(made)


def test_compilers_of_the_shell_work(server):
    from e2b import Sandbox

    sandbox = Sandbox.create("base", timeout=7200)
    try:
        sandbox.files.write("hello.cpp", "#include <iostream>\nint main() { std::cout << \"hello\"; }\n")
        assert sandbox.commands.run("g++ -o hello hello.cpp && ./hello", timeout=600).stdout == "hello"
        sandbox.commands.run("sudo apt-get -qq -o Acquire::Retries=5 update && apt-get -qq -o Acquire::Retries=5 --yes --no-install-recommends install ruby golang-go", timeout=1500)
        assert sandbox.commands.run("ruby -e 'print 1 + 1'").stdout == "2"
        sandbox.files.write("hello.go", 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Print("hello") }\n')
        assert sandbox.commands.run("go run hello.go", timeout=1200).stdout == "hello"
    finally:
        sandbox.kill()
