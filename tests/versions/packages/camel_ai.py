"""Runs code with the package's interpreter."""

from camel.interpreters import E2BInterpreter

interpreter = E2BInterpreter(require_confirm=False)
try:
    assert "42" in interpreter.run("x = 6 * 7\nprint(x)", "python")
    assert "43" in interpreter.run("x + 1", "python")
    assert "hello" in interpreter.run("echo hello", "bash")
    assert "ZeroDivisionError" in interpreter.run("1 / 0", "python")
finally:
    interpreter._sandbox.kill()
print("ok: python state bash error")
