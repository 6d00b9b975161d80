"""What programs for `e2b-code-interpreter` 0.0.x do; says on one line what worked. The last release is 0.0.10."""

import os
import sys
import traceback

from e2b_code_interpreter import CodeInterpreter

steps = []
TIMEOUT = 120


def fail(*error) -> None:
    """Ends the program at once: threads of clients do not end by themselves."""
    traceback.print_exception(*error)
    os._exit(1)


sys.excepthook = fail

sandbox = CodeInterpreter()
run = sandbox.notebook.exec_cell
try:
    run("x = 20", timeout=TIMEOUT)
    execution = run("x + 22", timeout=TIMEOUT)
    assert (execution.text, execution.error) == ("42", None), execution
    # The first releases do not say.
    assert getattr(execution, "execution_count", 2) == 2
    assert execution.results[0].is_main_result
    steps.append("state")
    streamed = []
    execution = run("import sys\nprint('out')\nprint('err', file=sys.stderr)", on_stdout=streamed.append, on_stderr=streamed.append)
    assert (execution.logs.stdout, execution.logs.stderr, execution.text) == (["out\n"], ["err\n"], None), execution.logs
    assert sorted((message.line, bool(message.error)) for message in streamed) == [("err\n", True), ("out\n", False)]
    steps.append("streams")
    execution = run("1/0")
    assert execution.error.name == "ZeroDivisionError" and "1/0" in execution.error.traceback, execution.error
    steps.append("error")
    shown = []
    execution = run(
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nimport pandas as pd\npd.DataFrame({'a': [1]})",
        on_result=shown.append,
        timeout=TIMEOUT,
    )
    assert [result.is_main_result for result in execution.results] == [False, True]
    assert execution.results[0].png and execution.results[1].html and len(shown) == 2
    steps.append("results")
    assert run("const x = 1").error.name == "SyntaxError"
    sandbox.filesystem.write("/home/user/data.csv", "a\n1\n")
    assert run("open('data.csv').read()").text == "'a\\n1\\n'".strip("'")
    run("open('data.csv', 'a').write('2')")
    assert sandbox.filesystem.read("/home/user/data.csv") == "a\n1\n2"
    steps.append("files")

    default = sandbox.notebook.default_kernel_id
    other = sandbox.notebook.create_kernel(cwd="/tmp")
    assert set(sandbox.notebook.list_kernels()) == {default, other}
    assert run("import os; os.getcwd()", kernel_id=other).text == "/tmp"
    assert run("x", kernel_id=other).error.name == "NameError"
    steps.append("create list")
    sandbox.notebook.restart_kernel(other)
    run("y = 1", kernel_id=other)
    sandbox.notebook.restart_kernel()
    assert run("x").error.name == "NameError"
    assert run("y", kernel_id=other).text == "1"
    steps.append("restart")
    sandbox.notebook.shutdown_kernel(other)
    assert sandbox.notebook.list_kernels() == [default]
    steps.append("shutdown")

    run("kept = 'here'")
    sandbox.keep_alive(300)
    sandbox.close()
    again = CodeInterpreter.reconnect(sandbox.id)
    assert again.notebook.exec_cell("kept").text == "here"
    steps.append("reconnect")
finally:
    CodeInterpreter.kill(sandbox.id)
steps.append("kill")
print("ok:", " ".join(steps), flush=True)
os._exit(0)
