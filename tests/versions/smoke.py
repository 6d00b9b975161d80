"""The same few steps for every Python release from 2.7 on; says on one line what worked."""

import sys

from e2b import Sandbox

try:
    from e2b import CommandExitException
except ImportError:  # its first home
    from e2b.sandbox.commands.command_handle import CommandExitException

steps = []
create = getattr(Sandbox, "create", None)
sandbox = create(timeout=60) if create else Sandbox(timeout=60)
try:
    steps.append("create")
    assert sandbox.commands.run("echo hi").stdout == "hi\n"
    try:
        sandbox.commands.run("exit 3")
        raise AssertionError("exit 3 did not raise")
    except CommandExitException as error:
        assert error.exit_code == 3
    steps.append("command")
    background = sandbox.commands.run("cat", background=True, stdin=True)
    sandbox.commands.send_stdin(background.pid, "x")
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
    sandbox.set_timeout(90)
    assert sandbox.is_running()
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.commands.run("cat f.txt").stdout == "text"
    steps.append("connect")
    listed = Sandbox.list()
    listed = listed.next_items() if hasattr(listed, "next_items") else listed
    assert sandbox.sandbox_id in [one.sandbox_id for one in listed]
    steps.append("list")
finally:
    killed = sandbox.kill()
assert killed is True
assert not sandbox.is_running()
steps.append("kill")
print("ok:", " ".join(steps), file=sys.stdout)
