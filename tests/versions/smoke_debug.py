"""The few steps of a Python release from before 2.7, which reaches a sandbox only in its debug mode: at fixed local ports,
without an API. Says on one line what worked."""

import sys

import httpx
from e2b import Sandbox

try:
    from e2b import CommandExitException
except ImportError:  # its first home
    from e2b.sandbox.commands.command_handle import CommandExitException

steps = []
sandbox = Sandbox(debug=True, api_key="e2b_00")
assert sandbox.is_running()
steps.append("connect")
assert sandbox.commands.run("echo hi").stdout == "hi\n"
try:
    sandbox.commands.run("exit 3")
    raise AssertionError("exit 3 did not raise")
except CommandExitException as error:
    assert error.exit_code == 3
assert sandbox.commands.run("whoami", user="root").stdout == "root\n"
steps.append("command")
background = sandbox.commands.run("cat", background=True)
sandbox.commands.send_stdin(background.pid, "x")
assert background.pid in [process.pid for process in sandbox.commands.list()]
assert sandbox.commands.kill(background.pid) is True
steps.append("background")
sandbox.files.write("f.txt", "text")
assert sandbox.files.read("f.txt") == "text"
assert "f.txt" in [entry.name for entry in sandbox.files.list(".")]
sandbox.files.write("b", b"\x00\xff")
assert bytes(sandbox.files.read("b", format="bytes")) == b"\x00\xff"
sandbox.files.rename("b", "c")
sandbox.files.remove("c")
assert not sandbox.files.exists("c")
steps.append("files")
watch = sandbox.files.watch_dir(".")
sandbox.files.write("watched", "1")
assert watch.get_new_events()
watch.stop()
steps.append("watch")
# What e2b-code-interpreter of that age sends.
execution = httpx.post("http://localhost:49999/execute", json={"code": "20 + 22", "context_id": None}, timeout=300)
assert '"text": "42"' in execution.text or '"text":"42"' in execution.text, execution.text
steps.append("code")
print("ok:", " ".join(steps), file=sys.stdout)
