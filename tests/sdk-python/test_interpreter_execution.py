"""Running code: streams and callbacks, errors, limits of the client, interrupts, kernels and sandboxes that die."""

import hashlib
import queue
import re
import shlex
import threading
import time
from datetime import datetime

import pytest
from e2b import SandboxException, TimeoutException

from harness.interpreters import clients, code, context, together  # noqa: F401
from harness.server import wait_until


def test_state_is_kept_and_cells_are_counted(code, context):
    assert code.run_code("x = 41", context=context).execution_count == 1
    execution = code.run_code("x + 1", context=context)
    assert (execution.text, execution.execution_count) == ("42", 2)
    assert execution.results[0].is_main_result


def test_an_empty_cell_is_not_counted(code, context):
    for nothing in ("", "  \n \n"):
        execution = code.run_code(nothing, context=context)
        assert (execution.execution_count, execution.results, execution.error) == (1, [], None)
    assert code.run_code("# a comment", context=context).execution_count == 1
    assert code.run_code("1", context=context).execution_count == 2


# Streams


def test_callbacks_get_everything_as_it_comes(code):
    out, err, results, errors = [], [], [], []
    execution = code.run_code(
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\ndisplay(5)\n1/0",
        on_stdout=out.append,
        on_stderr=err.append,
        on_result=results.append,
        on_error=errors.append,
    )
    assert ("".join(message.line for message in out), {message.error for message in out}) == ("out\n", {False})
    assert ("".join(message.line for message in err), {message.error for message in err}) == ("err\n", {True})
    assert [result.text for result in results] == ["5"]
    assert [error.name for error in errors] == ["ZeroDivisionError"]
    assert execution.results == results and execution.error == errors[0]
    assert (execution.logs.stdout, execution.logs.stderr) == ([message.line for message in out], [message.line for message in err])
    assert datetime.fromisoformat(out[0].timestamp).utcoffset() is not None


def test_output_arrives_while_the_cell_runs(code):
    # After each line the cell waits for a file that is only made when the line has arrived.
    program = (
        "import os, time\nfor i in range(3):\n    print(i, flush=True)\n"
        "    while not os.path.exists(f'/tmp/heard-{i}'): time.sleep(0.01)\n    os.remove(f'/tmp/heard-{i}')"
    )
    heard = queue.Queue()

    def acknowledge():
        lines = []
        for i in range(3):
            lines.append(heard.get(timeout=600))
            code.files.write(f"/tmp/heard-{i}", "", user="root")
        return lines

    _, lines = together(
        lambda: code.run_code(program, on_stdout=lambda message: heard.put(message.line), timeout=600), acknowledge
    )
    assert lines == ["0\n", "1\n", "2\n"]


def test_quick_writes_are_one_message_and_flushes_part_them(code):
    # What is written within 200 ms is one message, so that all is one if the whole call took no longer.
    took = []

    def was_quick() -> bool:
        began = time.monotonic()
        together, apart = code.run_code("for i in range(3): print(i)"), code.run_code("for i in range(3): print(i, flush=True)")
        took.append(time.monotonic() - began)
        assert "".join(together.logs.stdout) == "".join(apart.logs.stdout) == "0\n1\n2\n"
        assert all(message.count("\n") <= 1 for message in apart.logs.stdout), "no message goes on behind a flush"
        if took[-1] < 0.2:
            assert (together.logs.stdout, apart.logs.stdout) == (["0\n1\n2\n"], ["0\n", "1\n", "2\n"])
        return took[-1] < 0.2

    wait_until(was_quick, 300, "two cells in 200 ms")


def test_output_below_python_is_not_lost(code):
    execution = code.run_code(
        "import os, subprocess, sys\nos.write(1, b'raw ')\nos.write(2, b'raw err')\n"
        "subprocess.run(['echo', 'child'])\nsubprocess.run('echo child err >&2', shell=True)\nprint('python')"
    )
    # Python's own output and that of processes come by two ways: "child" may be between what is printed and the end of its line.
    text = "".join(execution.logs.stdout)
    assert sorted(text) == sorted("raw child\npython\n") and all(word in text for word in ("raw ", "child\n", "python")), text
    assert "raw err" in "".join(execution.logs.stderr) and "child err" in "".join(execution.logs.stderr)


def test_output_of_threads_is_that_of_the_cell(code):
    program = "import threading\nthreads = [threading.Thread(target=print, args=(f'{i}\\n',), kwargs={'end': ''}) for i in range(20)]\n"
    execution = code.run_code(program + "[t.start() for t in threads]; [t.join() for t in threads]; None")
    assert sorted(map(int, "".join(execution.logs.stdout).split())) == list(range(20))


# Some of these end lines for the clients, which read lines of JSON.
TEXT = "åß∂ 日本語 👩‍👩‍👧 \u202e \x00\x07 \r \x0b \x1c \x85 \u2028 \u2029 end"


def test_unicode_and_controls_arrive_unchanged(code):
    execution = code.run_code(f"text = {TEXT!r}\nprint(text)\ndisplay(text)\ntext")
    assert "".join(execution.logs.stdout) == TEXT + "\n"
    assert execution.results[0].text == execution.results[1].text == repr(TEXT)[1:-1]
    assert code.run_code("raise ValueError(text)").error.value == TEXT


def test_characters_written_in_parts_stay_whole(code):
    execution = code.run_code("import os, time\nfor b in '日本👩'.encode(): os.write(1, bytes([b])); time.sleep(0.02)")
    assert "".join(execution.logs.stdout) == "日本👩"


def test_bytes_that_are_no_text_do_no_harm(code):
    execution = code.run_code("import os\nos.write(1, bytes(range(256)))\nprint('after')\nb'\\xff\\x00'")
    assert execution.text == r"b'\xff\x00'" and execution.error is None
    # The bytes go through a pipe of their own, and may come between a line and its end.
    assert "after" in "".join(execution.logs.stdout)
    assert code.run_code("print('lone \\ud800 surrogate')").error is None


def test_a_result_of_ten_megabytes(code):
    execution = code.run_code("'0123456789' * (1024 * 1024)")
    assert execution.text == "0123456789" * (1024 * 1024)


def test_fifty_megabytes_of_output_are_complete(clients):
    sandbox = clients.create()
    program = (
        "import hashlib, sys\ndigest = hashlib.sha256()\nfor i in range(50):\n"
        "    block = (f'{i:015d}\\n' * 65536)\n    digest.update(block.encode()); sys.stdout.write(block)\n"
        "digest.hexdigest()"
    )
    execution = sandbox.run_code(program, timeout=1200)
    whole = "".join(execution.logs.stdout).encode()
    assert len(whole) == 50 * 1024 * 1024
    assert hashlib.sha256(whole).hexdigest() == execution.text


# Errors


@pytest.mark.parametrize(
    ("program", "name", "value"),
    [
        ("1/0", "ZeroDivisionError", "division by zero"),
        ("nothing", "NameError", "name 'nothing' is not defined"),
        ("{}['k']", "KeyError", "'k'"),
        ("raise Exception", "Exception", ""),
        ("import no_such_module", "ModuleNotFoundError", "No module named 'no_such_module'"),
        ("assert 1 == 2, 'apart'", "AssertionError", "apart"),
        ("class Own(Exception): pass\nraise Own('mine')", "Own", "mine"),
        ("def deep(n): return deep(n + 1)\ndeep(0)", "RecursionError", "maximum recursion depth exceeded"),
        ("raise ExceptionGroup('many', [ValueError(1)])", "ExceptionGroup", "many (1 sub-exception)"),
        ("import asyncio\nawait asyncio.sleep(0)\nraise KeyError('late')", "KeyError", "'late'"),
        ("raise SystemExit(3)", "SystemExit", "3"),
        ("%no_such_magic", "UsageError", "Line magic function `%no_such_magic` not found."),
        ("raise ValueError('\\ud800')", "ValueError", "?"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt", ""),
    ],
)
def test_exceptions_are_reported(code, program, name, value):
    execution = code.run_code(program)
    assert (execution.error.name, execution.error.value) == (name, value)
    assert execution.results == []
    assert "\x1b" not in execution.error.traceback
    assert code.run_code("1 + 1").text == "2"


def test_a_traceback_shows_the_lines_and_the_cause(code, context):
    program = "def f():\n    return {}['k']\n\ntry:\n    f()\nexcept KeyError as error:\n    raise RuntimeError('outer') from error"
    traceback = code.run_code(program, context=context).error.traceback
    assert "Cell In[1], line 2" in traceback
    assert "----> 2     return {}['k']" in traceback
    assert "The above exception was the direct cause of the following exception" in traceback
    assert traceback.index("KeyError: 'k'") < traceback.index("RuntimeError: outer")


def test_syntax_errors_name_the_place(code, context):
    error = code.run_code("x = (1,\ny = 2", context=context).error
    assert error.name == "SyntaxError"
    assert re.search(r"\(.*, line \d\)", error.value)
    assert "Cell In[1], line" in error.traceback
    assert code.run_code("  if x:\n 3", context=context).error.name == "IndentationError"


def test_exceptions_that_cannot_be_shown_do_no_harm(code):
    program = "class Bad(Exception):\n    def __str__(self): raise ValueError('no text')\nraise Bad()"
    assert code.run_code(program).error is not None
    assert code.run_code("class Shy:\n    def __repr__(self): raise KeyError('shy')\nShy()").error.name == "KeyError"
    assert code.run_code("1 + 1").text == "2"


def test_leaving_is_an_error_and_the_state_stays(code, context):
    code.run_code("x = 1", context=context)
    execution = code.run_code("import sys\nsys.exit(4)", context=context)
    assert (execution.error.name, execution.error.value) == ("SystemExit", "4")
    assert code.run_code("x", context=context).text == "1"


@pytest.mark.parametrize("kernel", ["get_ipython()", "__import__('IPython').Application.instance()"])
def test_a_cell_restarts_its_kernel(code, context, kernel):
    """As people do after they have installed a package."""
    code.run_code("x = 1", context=context)
    assert code.run_code(f"{kernel}.kernel.do_shutdown(True)", context=context).error is None
    execution = code.run_code("'x' in globals()", context=context)
    assert (execution.text, execution.execution_count) == ("False", 1)


def test_a_log_of_a_cell_goes_on_when_a_library_asks_for_its_own(code):
    program = (
        "import logging, traitlets.log\n"
        "own = logging.getLogger('own'); own.addHandler(logging.FileHandler('/tmp/own.log', mode='w'))\n"
        "own.warning('one'); traitlets.log.get_logger().debug('theirs'); own.warning('two')\n"
        "open('/tmp/own.log').read().split()"
    )
    assert code.run_code(program).text == "['one', 'two']"


@pytest.mark.parametrize("ask", ["input()", "input('name? ')", "import getpass; getpass.getpass()"])
def test_input_is_refused(code, ask):
    assert code.run_code(ask).error.name == "StdinNotImplementedError"


# What a notebook can do


def test_top_level_await(code):
    program = "import asyncio\nasync def double(x):\n    await asyncio.sleep(0.01)\n    return 2 * x\nawait double(21)"
    assert code.run_code(program).text == "42"
    assert code.run_code("sum(await asyncio.gather(*map(double, range(5))))").text == "20"
    assert code.run_code("task = asyncio.create_task(double(4))").error is None
    assert code.run_code("await task").text == "8"
    assert code.run_code("async with asyncio.timeout(0.05): await asyncio.sleep(5)").error.name == "TimeoutError"


def test_shell_lines(code):
    assert "".join(code.run_code("!echo hello").logs.stdout) == "hello\r\n"
    assert code.run_code("files = !printf 'a\\nb\\n'\nfiles").text == "['a', 'b']"
    assert "".join(code.run_code("word = 'there'\n!echo {word}").logs.stdout) == "there\r\n"
    assert code.run_code("!exit 3\n_exit_code").text == "3"


def test_cell_magics(code):
    execution = code.run_code("%%bash\nfor i in 1 2; do echo $i; done\necho oops >&2")
    assert "".join(execution.logs.stdout) == "1\n2\n"
    assert "oops" in "".join(execution.logs.stderr)
    assert code.run_code("%%bash\nexit 3").error.name == "CalledProcessError"
    code.run_code("%%writefile /tmp/made.py\nvalue = 5")
    assert code.run_code("%run /tmp/made.py\nvalue").text == "5"
    assert code.run_code("%%capture kept\nprint('hidden')").logs.stdout == []
    assert code.run_code("kept.stdout").text == "hidden\\n"
    assert code.run_code("%%html\n<b>bold</b>").results[0].html == "<b>bold</b>\n"


def test_line_magics(code):
    assert "loop" in "".join(code.run_code("%timeit -n 2 -r 2 1 + 1").logs.stdout)
    assert "Wall time" in "".join(code.run_code("%time sum(range(10))").logs.stdout)
    code.run_code("%cd /tmp")
    assert code.run_code("%pwd").text == "/tmp"
    code.run_code("%cd /home/user")
    code.run_code("marked = 1")
    assert "marked" in "".join(code.run_code("%who").logs.stdout)


def test_history_and_last_values(code, context):
    code.run_code("6 * 7", context=context)
    assert code.run_code("_ + 1", context=context).text == "43"
    assert code.run_code("_1, Out[2], In[1]", context=context).text == "(42, 43, '6 * 7')"
    assert code.run_code("5;", context=context).results == []


def test_help_is_printed(code):
    shown = code.run_code("len?").results[0]
    assert "Return the number of items" in shown.text and not shown.is_main_result
    assert "len(obj" in "".join(code.run_code("help(len)").logs.stdout)


def test_packages_are_installed_from_a_cell(code):
    execution = code.run_code("%pip install --quiet --retries 10 --timeout 60 six\nimport six\nsix.__name__", timeout=1200)
    assert (execution.error, execution.text) == (None, "six")


def test_programs_in_several_processes(code):
    program = (
        "from concurrent.futures import ProcessPoolExecutor\nimport multiprocessing, math\n"
        "context = multiprocessing.get_context('fork')\n"
        "with ProcessPoolExecutor(2, mp_context=context) as pool: total = sum(pool.map(math.factorial, range(5)))\ntotal"
    )
    assert code.run_code(program, timeout=600).text == "34"


def test_code_runs_as_root_in_the_home_of_the_user(clients):
    execution = clients.create().run_code("import os\nos.getuid(), os.getcwd(), os.path.expanduser('~'), __name__")
    assert execution.text == "(0, '/home/user', '/root', '__main__')"


def test_nothing_is_imported_for_the_user(code, context):
    names = code.run_code("sorted(n for n in globals() if not n.startswith('_'))", context=context).text
    assert set(eval(names)) <= {"In", "Out", "display", "exit", "get_ipython", "open", "quit"}


#: Runs a cell in a plain IPython and prints the processor time it took, seconds.
PLAIN = """
import io, sys, time
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.colors = "nocolor"
out, sys.stdout = sys.stdout, io.StringIO()
shell.run_cell("1/0", store_history=True)
before = time.process_time()
shell.run_cell(sys.argv[1], store_history=True)
print(time.process_time() - before, file=out)
"""


@pytest.mark.parametrize(
    "program",
    [
        "def f(n): return 1 if n == 0 else n * f(n - 1)\nf(-3)",
        "class R:\n    def __repr__(self): return repr(self)\nrepr(R())",
        "exec('def k(n): return k(n + 1)\\nk(1)')",
    ],
)
def test_a_long_traceback_costs_no_more_than_in_plain_ipython(code, context, program):
    clock = "import time; time.process_time()"
    code.run_code("1/0", context=context)
    before = float(code.run_code(clock, context=context).text)
    assert code.run_code(program, context=context).error.name == "RecursionError"
    ours = float(code.run_code(clock, context=context).text) - before
    code.files.write("/tmp/plain.py", PLAIN)
    plain = float(code.commands.run(f"python3 /tmp/plain.py {shlex.quote(program)}", timeout=1200).stdout)
    # It is a tenth and less; our other two cells are counted too.
    assert ours < plain


# Limits, interrupts and deaths


def test_a_client_timeout_interrupts_and_keeps_the_state(code, context):
    code.run_code("x = 'kept'", context=context)
    # It never ends by itself: that the next cell runs is the proof that it was interrupted. It has begun long before.
    with pytest.raises(TimeoutException, match="Execution timed out"):
        code.run_code("import time\ntry:\n    while True: time.sleep(0.1)\nfinally:\n    ended = True", context=context, timeout=4)
    assert code.run_code("x, ended", context=context).text == "('kept', True)"


@pytest.mark.parametrize(
    "busy",
    [
        "while True: pass",
        "import asyncio\nawait asyncio.sleep(6000)",
        "import subprocess\nsubprocess.run(['sleep', '6000'])",
        "!sleep 6000",
        "import threading\nthreading.Event().wait()",
        "import numpy\nwhile True: numpy.linalg.svd(numpy.random.rand(200, 200))",
        "while True: print('x' * 1000)",
        "while True:\n    try:\n        import time; time.sleep(6000)\n    except ValueError: pass",
    ],
)
def test_whatever_runs_can_be_interrupted(code, busy):
    made = code.create_code_context()
    code.run_code("x = 1", context=made)
    with pytest.raises(TimeoutException):
        code.run_code(busy, context=made, timeout=0.5)
    assert code.run_code("x", context=made, timeout=600).text == "1"
    code.remove_code_context(made)


def test_javascript_starts_again_after_an_interrupt(code):
    made = code.create_code_context(language="javascript")
    with pytest.raises(TimeoutException):
        code.run_code("while (true) {}", context=made, timeout=0.5)
    assert code.run_code("1 + 1", context=made, timeout=600).text == "2"
    code.remove_code_context(made)


@pytest.mark.parametrize("busy", ["sleep 6000", "while :; do :; done", "f() { sleep 6000; }; f; (f); f | cat", "read line < <(sleep 6000)"])
def test_bash_keeps_its_state_over_an_interrupt(code, busy):
    made = code.create_code_context(language="bash")
    code.run_code("X=1; cd /tmp", context=made)
    with pytest.raises(TimeoutException):
        code.run_code(f"{busy}; X=2", context=made, timeout=0.5)
    assert "".join(code.run_code("echo $X; pwd", context=made, timeout=600).logs.stdout) == "1\n/tmp\n"
    code.remove_code_context(made)


def test_a_zero_timeout_is_none(code):
    assert code.run_code("import time; time.sleep(1); 'late'", timeout=0).text == "late"


def test_a_silent_cell_outlives_the_keepalives(code, context):
    assert code.run_code("import time; time.sleep(6); 'quiet'", context=context).text == "quiet"


@pytest.mark.parametrize(
    "death", ["import os; os.kill(os.getpid(), 9)", "import os; os._exit(1)", "import ctypes; ctypes.string_at(0)"]
)
def test_a_dead_kernel_is_an_error_and_comes_back(code, death):
    made = code.create_code_context()
    code.run_code("x = 1", context=made)
    execution = code.run_code(f"print('last words', flush=True)\n{death}", context=made)
    assert execution.error.name == "ContextRestarting"
    assert "".join(execution.logs.stdout).startswith("last words\n")
    again = code.run_code("'x' in globals()", context=made)
    assert (again.text, again.execution_count) == ("False", 1)
    code.remove_code_context(made)


@pytest.mark.parametrize(
    ("language", "death"), [("javascript", "process.kill(process.pid, 'SIGKILL')"), ("bash", "kill -9 $$")]
)
def test_other_kernels_come_back_too(code, language, death):
    made = code.create_code_context(language=language)
    assert code.run_code(death, context=made).error.name == "ContextRestarting"
    assert "alive" in "".join(code.run_code({"bash": "echo alive"}.get(language, "console.log('alive')"), context=made).logs.stdout)
    code.remove_code_context(made)


def test_a_kernel_that_dies_idle_comes_back(code):
    made = code.create_code_context()
    pid = code.run_code("import os; os.getpid()", context=made).text
    code.commands.run(f"kill -9 {pid}", user="root")
    execution = code.run_code("1 + 1", context=made)
    if execution.error is not None:  # It may meet the death, but only once.
        assert execution.error.name == "ContextRestarting"
        execution = code.run_code("1 + 1", context=made)
    assert execution.text == "2"
    code.remove_code_context(made)


def test_a_killed_sandbox_ends_its_execution(clients):
    sandbox = clients.create()
    caught, started = [], threading.Event()

    def run():
        try:
            sandbox.run_code("print('on', flush=True)\nimport time; time.sleep(6000)", on_stdout=lambda _: started.set())
        except Exception as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(300)
    sandbox.kill()
    thread.join(300)
    assert not thread.is_alive()
    assert isinstance(caught[0], TimeoutException)
    assert "sandbox was killed while the request was in progress" in str(caught[0])


def test_code_after_the_kill_is_an_error_of_the_client(clients):
    sandbox = clients.create()
    sandbox.kill()
    with pytest.raises(SandboxException):
        sandbox.run_code("1")
