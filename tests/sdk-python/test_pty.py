"""`pty`: terminals that are typed into, resized, left, joined and killed."""

import pytest
from e2b import (
    AuthenticationException,
    CommandExitException,
    NotFoundException,
    PtySize,
    SandboxException,
    SandboxNotRunningException,
    TimeoutException,
)

from flavours import Terminal, create, type_in_pieces
from harness.server import wait_until


def test_a_shell_is_typed_into_and_left(box):
    terminal = Terminal(box)
    terminal.type("echo $((40 + 2))-$TERM-$LANG\n")
    terminal.says("42-xterm-256color-C.UTF-8")
    terminal.type("exit\n")
    assert terminal.wait().exit_code == 0


def test_its_exit_code_raises(box):
    terminal = Terminal(box)
    terminal.type("exit 9\n")
    with pytest.raises(CommandExitException) as raised:
        terminal.wait()
    assert raised.value.exit_code == 9


def test_user_directory_and_variables(box):
    terminal = Terminal(box, user="root", cwd="/tmp", envs={"HELLO": "wörld", "TERM": "dumb"})
    terminal.type("echo $(whoami):$(pwd):$HELLO:$TERM; exit\n")
    terminal.says("root:/tmp:wörld:dumb")
    assert terminal.wait().exit_code == 0


def test_it_is_a_terminal_of_the_asked_size(box):
    terminal = Terminal(box)
    terminal.type("stty size; test -t 0 && test -t 1 && test -t 2 && echo is-a-$(echo tty)\n")
    terminal.says("24 80")
    terminal.says("is-a-tty")
    # A program of its own waits for the signal: the shell's line editor takes it for itself while it reads.
    terminal.type("bash -c 'trap \"stty size; exit\" WINCH; echo waits-$((1 + 1)); while :; do sleep 0.05; done'\n")
    terminal.says("waits-2")
    box.pty.resize(terminal.pid, PtySize(rows=50, cols=132))
    terminal.says("50 132")
    terminal.type("exit\n")
    terminal.wait()


def test_control_c_interrupts(box):
    terminal = Terminal(box)
    # The program itself says that it runs: what the shell says comes before its child is in the foreground, and Ctrl-C could miss it.
    terminal.type("sh -c 'echo start$(echo ed); exec sleep 6000'; echo code-$?\n")
    terminal.says("started")
    terminal.type("\x03")
    terminal.type("echo go-$(echo on)\n")
    terminal.says("go-on")
    terminal.type("\x04")  # end of input: the shell leaves
    assert terminal.wait().exit_code == 0


def test_input_is_streamed(box):
    terminal = Terminal(box)
    type_in_pieces(box.pty, terminal.pid, ["echo st", b"reamed-$((1 + 1", "))\n"])
    terminal.says("streamed-2")
    terminal.type("exit\n")
    terminal.wait()


def test_unicode_goes_through(box):
    terminal = Terminal(box)
    terminal.type("echo '漢字 🦀' | rev\n")
    terminal.says("🦀 字漢")
    terminal.type("exit\n")
    terminal.wait()


def test_a_second_client_joins(box):
    first = Terminal(box)
    first.says("$")
    second = Terminal(box, pid=first.pid)
    second.type("echo both-$((3 * 7))\n")
    first.says("both-21")
    second.says("both-21")
    second.type("exit 4\n")
    for terminal in [first, second]:
        with pytest.raises(CommandExitException) as raised:
            terminal.wait()
        assert raised.value.exit_code == 4


def test_kill(box):
    terminal = Terminal(box)
    assert terminal.pid in [p.pid for p in box.commands.list()]
    assert box.pty.kill(terminal.pid) is True
    with pytest.raises(CommandExitException) as raised:
        terminal.wait()
    assert raised.value.exit_code == -1
    assert box.pty.kill(terminal.pid) is False


def test_timeout(box):
    # It may be over before the terminal has begun.
    with pytest.raises(TimeoutException):
        Terminal(box, timeout=1).wait()


def test_errors(box):
    for call in [
        lambda: box.pty.send_stdin(999_999, b"x"),
        lambda: box.pty.resize(999_999, PtySize(rows=1, cols=1)),
        lambda: Terminal(box, pid=999_999),
    ]:
        with pytest.raises(NotFoundException):
            call()
    assert box.pty.kill(999_999) is False
    with pytest.raises(AuthenticationException):
        Terminal(box, user="nobody-here")
    with pytest.raises(SandboxException):
        Terminal(box, cwd="/no/such/directory")
    command = box.commands.run("sleep 6000", background=True, timeout=0)
    for call in [
        lambda: box.pty.send_stdin(command.pid, b"x"),
        lambda: box.pty.resize(command.pid, PtySize(rows=1, cols=1)),
    ]:
        with pytest.raises(SandboxException):
            call()
    command.kill()


def test_twenty_at_once(box):
    terminals = [Terminal(box) for _ in range(20)]
    for number, terminal in enumerate(terminals):
        terminal.type(f"echo t{number}-$((1 + 1)); exit\n")
    for number, terminal in enumerate(terminals):
        terminal.says(f"t{number}-2")
        assert terminal.wait().exit_code == 0
    # The agent closes its end when all that was said has been sent.
    wait_until(lambda: box.commands.run("ls /dev/pts").stdout.split() == ["ptmx"], what="the end of all terminals")


def test_a_killed_sandbox_ends_its_terminals(flavour):
    box = create(flavour, timeout=1800)
    terminal = Terminal(box)
    terminal.says("$")
    box.kill()
    with pytest.raises(SandboxNotRunningException):
        terminal.wait()
