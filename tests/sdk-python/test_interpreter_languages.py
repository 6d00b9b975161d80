"""JavaScript, TypeScript and Bash: values, state, output, errors, displays and directories."""

import pytest

from harness.interpreters import clients, code  # noqa: F401

SCRIPTS = ["javascript", "typescript"]


@pytest.fixture
def run(code, request):
    """Runs cells in a context of the test's language that nobody else uses."""
    made = code.create_code_context(language=request.param)
    yield lambda program: code.run_code(program, context=made)
    code.remove_code_context(made)


def each(*languages):
    return pytest.mark.parametrize("run", languages, indirect=True)


@each(*SCRIPTS)
def test_values_of_scripts(run):
    assert run("1 + 1").execution_count == 2
    for program, text in [
        ("'text'", "text"),
        ("undefined", "undefined"),
        ("null", "null"),
        ("({ x: 1, s: 't' })", "{ x: 1, s: 't' }"),
        ("[1, 2, 3]", "[ 1, 2, 3 ]"),
        ("10n", "10n"),
        ("new Map([[1, 2]])", "Map(1) { 1 => 2 }"),
        ("Promise.resolve(7)", "7"),
        ("await new Promise((done) => setTimeout(() => done('slept'), 20))", "slept"),
        ("const waited = await Promise.resolve(9); waited", "9"),
        ("let unused = 3", "undefined"),
    ]:
        execution = run(program)
        assert execution.error is None, (program, execution.error)
        assert (execution.text, execution.results[0].is_main_result) == (text, True), program


@each(*SCRIPTS)
def test_names_live_on_and_are_declared_once(run):
    run("const a = 1; let b = 2; var c = 3; function d() { return 4 }; class E { f() { return 5 } }")
    run("const g = await Promise.resolve(6)")
    assert run("b = 7; [a, b, c, d(), new E().f(), g]").text == "[ 1, 7, 3, 4, 5, 6 ]"
    again = run("let a = 2").error
    assert (again.name, again.value) == ("SyntaxError", "Identifier 'a' has already been declared")
    assert run("a").text == "1"


@each(*SCRIPTS)
def test_streams_of_scripts(run):
    execution = run("console.log('out', { a: 1 }); console.error('err'); console.warn('warn'); process.stdout.write('raw')")
    assert "".join(execution.logs.stdout) == "out { a: 1 }\nraw"
    assert "".join(execution.logs.stderr) == "err\nwarn\n"
    assert "日本 👩" in "".join(run("console.log('日本 👩 \\u2028')").logs.stdout)
    big = run("for (let i = 0; i < 200000; i++) console.log('x'.repeat(9))")
    assert len("".join(big.logs.stdout)) == 2_000_000


@each(*SCRIPTS)
def test_modules_are_imported(run):
    assert run("import fs from 'fs'; fs.existsSync('/')").text == "true"
    assert run("import { join } from 'node:path'; join('a', 'b')").text == "a/b"
    assert run("import * as os from 'os'; typeof os.cpus").text == "function"
    assert run("(await import('path')).sep").text == "/"
    assert run("require('util').inspect('x')").text == "'x'"
    assert run("import nothing from 'no-such-package'").error.value.startswith("Cannot find package")


@each(*SCRIPTS)
def test_errors_of_scripts(run):
    for program, name, value in [
        ("throw new TypeError('boom')", "TypeError", "boom"),
        ("nothing", "ReferenceError", "nothing is not defined"),
        ("throw 5", "number", "5"),
        ("throw 'text'", "string", "text"),
        ("await Promise.reject(new Error('late'))", "Error", "late"),
        ("JSON.parse('{')", "SyntaxError", "Expected property name or '}' in JSON at position 1"),
    ]:
        error = run(program).error
        assert (error.name, error.value.partition(" (line")[0]) == (name, value)
    assert "index.ts" in run("let = ").error.value
    traceback = run("function deep() { throw new Error('x') }\ndeep()").error.traceback
    assert "deep" in traceback and "node:vm" not in traceback
    assert "node:vm" not in run("new Error('shown')").text
    assert run("1").text == "1"


@each(*SCRIPTS)
def test_displays_of_scripts(run):
    assert run("$$.html('<b>')").results[0].html == "<b>"
    assert run("$$.svg('<svg/>')").results[0].svg == "<svg/>"
    assert run("$$.png('iVBOR')").results[0].png == "iVBOR"
    assert run("$$.json({ a: [1] })").results[0].json == {"a": [1]}
    mime = run("$$.mime({ 'text/markdown': '# x', 'x/y': 'z' })").results[0]
    assert (mime.markdown, mime.extra) == ("# x", {"x/y": "z"})
    shown, main = run("$$.display().html('<u>'); 5").results
    assert (shown.html, shown.is_main_result, main.text, main.is_main_result) == ("<u>", False, "5", True)


@each("typescript", "javascript")
def test_types_are_stripped(run):
    program = (
        "interface Named { name: string; age?: number }\nenum Colour { Red, Green }\n"
        "type Either = 'a' | 'b'\nabstract class Shape { abstract area(): number }\n"
        "class Square extends Shape { constructor(private side: number) { super() } area() { return this.side ** 2 } }\n"
        "function same<T>(x: T): T { return x }\nconst who: Named = { name: 'x' }\n"
        "const list: Array<number | string> = [same<number>(4), new Square(3).area(), Colour.Green, who!.name as string]\nlist"
    )
    assert run(program).text == "[ 4, 9, 1, 'x' ]"
    assert "index.ts" in run("let n: number = ;").error.value


@each("bash")
def test_a_shell_keeps_its_state(run):
    first = run("x=5; f() { echo f $1 $x; }; cd /tmp; export Y=1")
    assert (first.execution_count, first.results, first.error) == (1, [], None)
    assert "".join(run("f a; pwd; printenv Y").logs.stdout) == "f a 5\n/tmp\n1\n"
    assert "".join(run("cat <<EOF\nhere $x\nEOF").logs.stdout) == "here 5\n"
    assert "".join(run("printf '日本 no end'").logs.stdout) == "日本 no end"
    assert "".join(run("x=日本; echo ${#x}").logs.stdout) == "2\n"


@each("bash")
def test_the_status_is_the_error_and_stderr_is_output(run):
    for program, status in [("false", "1"), ("(exit 42)", "42"), ("no-such-command", "127")]:
        error = run(program).error
        assert (error.name, error.value, error.traceback) == ("", status, "")
    execution = run("echo out; echo err >&2")
    assert ("".join(execution.logs.stdout), execution.logs.stderr) == ("out\nerr\n", [])
    assert "not found" in "".join(run("no-such-command").logs.stdout)
    assert "syntax error" in "".join(run("if true; then").logs.stdout)
    assert run('echo "open').error.value == "2"
    assert "".join(run("echo on").logs.stdout) == "on\n"


@each("bash")
def test_leaving_a_shell_starts_another(run):
    run("x=1")
    execution = run("echo bye; exit 3")
    assert "".join(execution.logs.stdout) == "bye\nRestarting Bash\n"
    after = run("echo ${x-unset}")
    assert ("".join(after.logs.stdout), after.execution_count) == ("unset\n", 1)


@each("bash")
def test_much_output_of_a_shell_is_complete(run):
    out = "".join(run("seq 1 300000").logs.stdout)
    assert out.endswith("\n300000\n") and out.count("\n") == 300000


def test_languages_share_files_and_nothing_else(code):
    code.run_code("shared = 1; open('/tmp/from-python', 'w').write('py')")
    assert code.run_code("typeof shared", language="javascript").text == "undefined"
    assert "".join(code.run_code("echo ${shared-unset}; cat /tmp/from-python", language="bash").logs.stdout) == "unset\npy"
    code.run_code("globalThis.only = 1", language="js")
    assert code.run_code("globalThis.only", language="ts").text == "undefined"
    assert code.run_code("globalThis.only", language="javascript").text == "1"
