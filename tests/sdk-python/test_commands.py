"""`commands`: every method, the errors it documents, and many at once."""

import asyncio
import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from e2b import (
    AsyncSandbox,
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    Sandbox,
    SandboxException,
    SandboxNotRunningException,
    TimeoutException,
)

from flavours import create, type_in_pieces
from harness.server import wait_until


def test_output_and_exit_code(box):
    result = box.commands.run("echo out; echo err >&2")
    assert (result.stdout, result.stderr, result.exit_code, result.error) == ("out\n", "err\n", 0, None)


def test_a_failing_command_raises_with_what_it_said(box):
    with pytest.raises(CommandExitException) as raised:
        box.commands.run("echo out; echo err >&2; exit 3")
    error = raised.value
    assert (error.stdout, error.stderr, error.exit_code, error.error) == ("out\n", "err\n", 3, "exit status 3")


@pytest.mark.parametrize("signal, said", [("TERM", "signal: terminated"), ("KILL", "signal: killed")])
def test_a_signal_is_no_exit_code(box, signal, said):
    with pytest.raises(CommandExitException) as raised:
        box.commands.run(f"kill -{signal} $$")
    assert (raised.value.exit_code, raised.value.error) == (-1, said)


def test_missing_and_not_executable_commands(box):
    for command, code in [("no-such-command-here", 127), ("/etc/passwd", 126)]:
        with pytest.raises(CommandExitException) as raised:
            box.commands.run(command)
        assert raised.value.exit_code == code and raised.value.stderr


def test_what_the_kernel_cannot_take(box):
    """A single argument or variable may have 128 KiB, and none may hold a zero byte."""
    for options in [{"cmd": f"true {'x' * (1 << 20)}"}, {"cmd": "true", "envs": {"A": "x" * (1 << 18)}}]:
        with pytest.raises(InvalidArgumentException, match="too long"):
            box.commands.run(**options)
    for options in [{"cmd": "echo \0"}, {"cmd": "true", "envs": {"A": "\0"}}, {"cmd": "true", "cwd": "/\0"}]:
        with pytest.raises(InvalidArgumentException):
            box.commands.run(**options)
    assert box.commands.run("echo ${#A}", envs={"A": "x" * 100_000}).stdout == "100000\n"


def test_callbacks_see_the_output_in_order(box):
    out, err = [], []
    other = Sandbox.connect(box.sandbox_id)

    def seen(text):
        out.append(text)
        other.files.write(f"/tmp/seen-{len(out)}", "")

    # Each line is written when the one before has been seen here, so gathered output would never end.
    result = box.commands.run(
        "for i in 1 2 3; do echo o$i; echo e$i >&2; until [ -e /tmp/seen-$i ]; do sleep 0.01; done; done; rm /tmp/seen-*",
        on_stdout=seen,
        on_stderr=err.append,
    )
    assert out == ["o1\n", "o2\n", "o3\n"] and "".join(out) == result.stdout
    assert "".join(err) == result.stderr == "e1\ne2\ne3\n"


def test_output_need_not_be_kept(box):
    seen = []
    result = box.commands.run("echo x", on_stdout=seen.append, retain_output=False)
    assert (seen, result.stdout, result.stderr) == (["x\n"], None, None)


def test_characters_split_over_chunks_come_whole(box):
    text = "zażółć 🦀 漢字\n"
    script = "import os,time\nfor b in %r: os.write(1, bytes([b])); time.sleep(.003)" % text.encode()
    box.files.write("/tmp/split.py", script)
    seen = []
    result = box.commands.run("python3 /tmp/split.py", on_stdout=seen.append)
    assert result.stdout == "".join(seen) == text
    assert "\ufffd" in box.commands.run("printf '\\xe2\\x82'").stdout


def test_a_hundred_megabytes_of_output_are_complete(box):
    size = 100 << 20
    digest, length = hashlib.sha256(), 0

    def take(text):
        nonlocal length
        data = text.encode()
        digest.update(data)
        length += len(data)

    line = "0123456789abcdef" * 3 + "0123456789abcde\n"
    box.commands.run(
        f"yes '{line[:-1]}' | head -c {size}", on_stdout=take, retain_output=False, timeout=1200, request_timeout=1200
    )
    expected = hashlib.sha256()
    for _ in range(size // (1 << 20)):
        expected.update(line.encode() * ((1 << 20) // len(line)))
    assert length == size
    assert digest.digest() == expected.digest()


def test_stdin(box):
    command = box.commands.run("cat", background=True, stdin=True, timeout=0)
    box.commands.send_stdin(command.pid, "öne\n")
    command.send_stdin(b"two\n")
    type_in_pieces(box.commands, command.pid, ["three\n", b"four", "\n"])
    command.close_stdin()
    assert command.wait().stdout == "öne\ntwo\nthree\nfour\n"


def test_stdin_of_a_megabyte_arrives_whole(box):
    command = box.commands.run("sha256sum", background=True, stdin=True, timeout=0)
    data = bytes(range(256)) * 4096
    type_in_pieces(box.commands, command.pid, [data[i : i + 65536] for i in range(0, len(data), 65536)])
    box.commands.close_stdin(command.pid)
    assert command.wait().stdout.split()[0] == hashlib.sha256(data).hexdigest()


def test_stdin_is_closed_unless_asked_for(box):
    assert box.commands.run("cat; echo end", timeout=300).stdout == "end\n"
    command = box.commands.run("sleep 6000", background=True, timeout=0)
    with pytest.raises(SandboxException):
        box.commands.send_stdin(command.pid, "x")
    command.kill()


def test_input_errors(box):
    for call in [
        lambda: box.commands.send_stdin(999_999, "x"),
        lambda: box.commands.close_stdin(999_999),
        lambda: type_in_pieces(box.commands, 999_999, ["x"]),
        lambda: box.commands.connect(999_999),
    ]:
        with pytest.raises(NotFoundException):
            call()


def test_list_shows_what_runs(box):
    command = box.commands.run("sleep 6000", background=True, envs={"A": "b"}, cwd="/tmp", timeout=0)
    info = next(p for p in box.commands.list() if p.pid == command.pid)
    assert (info.cmd, info.args, info.envs, info.cwd) == ("/bin/bash", ["-l", "-c", "sleep 6000"], {"A": "b"}, "/tmp")
    command.kill()
    wait_until(lambda: command.pid not in [p.pid for p in box.commands.list()], what="gone from the list")


def test_kill(box):
    command = box.commands.run("sleep 6000", background=True, timeout=0)
    assert command.kill() is True
    with pytest.raises(CommandExitException) as raised:
        command.wait()
    assert (raised.value.exit_code, raised.value.error) == (-1, "signal: killed")
    assert box.commands.kill(command.pid) is False
    assert box.commands.kill(999_999) is False


def test_connect_follows_a_running_command(box):
    """Both who started it and who came later see all that is said after they came, and the exit code."""
    started = box.commands.run("read go; echo one; echo two >&2; exit 5", background=True, stdin=True, timeout=0)
    joined = box.commands.connect(started.pid)
    assert joined.pid == started.pid
    joined.send_stdin("go\n")
    for handle in [joined, started]:
        with pytest.raises(CommandExitException) as raised:
            handle.wait()
        assert (raised.value.stdout, raised.value.stderr, raised.value.exit_code) == ("one\n", "two\n", 5)


def test_what_was_said_while_nobody_listened_is_told_to_the_next(box):
    line = "until [ -e /tmp/alone ]; do sleep 0.01; done; echo early; mv /tmp/alone /tmp/said; read go; echo late; rm /tmp/said"
    started = box.commands.run(line, background=True, stdin=True, timeout=0)
    started.disconnect()
    box.files.write("/tmp/alone", "")
    wait_until(lambda: box.files.exists("/tmp/said"), what="the first word")
    joined = box.commands.connect(started.pid)
    joined.send_stdin("go\n")
    assert joined.wait().stdout == "early\nlate\n"


def test_an_ended_command_still_tells_its_exit_code(box):
    started = box.commands.run("exit 7", background=True, timeout=0)
    wait_until(lambda: started.pid not in [p.pid for p in box.commands.list()], what="the end")
    with pytest.raises(CommandExitException) as raised:
        box.commands.connect(started.pid).wait()
    assert raised.value.exit_code == 7


def test_disconnect_leaves_the_command_running(box):
    started = box.commands.run("sleep 0.5; echo done > /tmp/disconnected", background=True, timeout=0)
    started.disconnect()
    wait_until(lambda: box.files.exists("/tmp/disconnected"), what="the rest of the command")
    box.files.remove("/tmp/disconnected")


def test_timeout_ends_the_command(box):
    with pytest.raises(TimeoutException) as raised:
        box.commands.run("echo $$ > /tmp/timed; exec sleep 6000", timeout=10)
    assert "timeout" in str(raised.value).lower()
    pid = box.files.read("/tmp/timed").strip()
    wait_until(lambda: not box.files.exists(f"/proc/{pid}/stat"), what="the end of the timed out command")


def test_timeout_of_a_background_command_and_of_a_connection(box):
    # It may be over before the command has begun.
    with pytest.raises(TimeoutException):
        box.commands.run("sleep 6000", background=True, timeout=1).wait()
    command = box.commands.run("read go; echo end", background=True, stdin=True, timeout=0)
    with pytest.raises(TimeoutException):
        box.commands.connect(command.pid, timeout=0.5).wait()
    box.commands.send_stdin(command.pid, "go\n")
    assert command.wait().stdout == "end\n"  # a connection's end is not the command's


def test_no_timeout_at_all(box):
    assert box.commands.run("sleep 0.2; echo x", timeout=0).stdout == "x\n"


def test_users(box):
    assert box.commands.run("whoami; echo $HOME; pwd").stdout == "user\n/home/user\n/home/user\n"
    assert box.commands.run("whoami; echo $HOME; pwd", user="root", cwd="~").stdout == "root\n/root\n/root\n"
    assert box.commands.run("sudo -n whoami").stdout == "root\n"
    with pytest.raises(AuthenticationException):
        box.commands.run("true", user="nobody-here")


def test_a_process_starts_in_the_home_of_its_user(box):
    """Where relative paths of files lead as well."""
    box.commands.run("useradd --create-home ada", user="root")
    for user, home in [("user", "/home/user"), ("root", "/root"), ("ada", "/home/ada")]:
        assert box.commands.run("pwd", user=user).stdout == f"{home}\n"
        box.files.write("mine", "x", user=user)
        assert box.commands.run("cat mine", user=user).stdout == "x"
        box.commands.run("rm mine", user=user)


def test_working_directories(box):
    box.files.make_dir("/home/user/wörk")
    for cwd, expected in [("/tmp", "/tmp"), ("wörk", "/home/user/wörk"), ("~/wörk", "/home/user/wörk")]:
        assert box.commands.run("pwd", cwd=cwd).stdout == f"{expected}\n"
    box.files.make_dir("/root/closed", user="root")
    box.commands.run("chmod 700 /root", user="root")
    for cwd in ["/no/such/directory", "/etc/passwd", "/root/closed"]:
        with pytest.raises(SandboxException):
            box.commands.run("pwd", cwd=cwd)
    with pytest.raises(InvalidArgumentException, match="/no/such/directory"):
        box.commands.run("pwd", cwd="/no/such/directory")


def test_sandbox_variables(box):
    out = box.commands.run("echo $E2B_SANDBOX $E2B_SANDBOX_ID; cat /run/e2b/.E2B_SANDBOX_ID").stdout
    assert out == f"true {box.sandbox_id}\n{box.sandbox_id}"
    template, in_file = box.commands.run("echo $E2B_TEMPLATE_ID; cat /run/e2b/.E2B_TEMPLATE_ID").stdout.split()
    assert template and template == in_file == box.get_info().template_id
    assert box.sandbox_id in box.commands.run("curl -s $E2B_EVENTS_ADDRESS/me").stdout


def test_the_nearer_variable_wins(flavour):
    box = create(flavour, timeout=1800, envs={"WHO": "sandbox", "KEPT": "yes", "E2B_SANDBOX": "no"})
    try:
        say = "echo $WHO $KEPT $E2B_SANDBOX"
        assert box.commands.run(say).stdout == "sandbox yes true\n"
        assert box.commands.run(say, envs={"WHO": "command"}).stdout == "command yes true\n"
        assert box.commands.run(say).stdout == "sandbox yes true\n"
        assert box.commands.run("echo $WHO", user="root").stdout == "sandbox\n"
    finally:
        box.kill()


def test_arguments_reach_the_shell_unchanged(box):
    assert box.commands.run("echo \"a  b\" '$HOME' \\\\ `echo c`; printf '%s' \"$X\"", envs={"X": "l1\nl2 \"q\""}).stdout == (
        "a  b $HOME \\ c\nl1\nl2 \"q\""
    )


def test_a_killed_sandbox_ends_its_commands(flavour):
    box = create(flavour, timeout=1800)
    command = box.commands.run("echo up; sleep 600", background=True, timeout=0)
    box.kill()
    with pytest.raises(SandboxNotRunningException, match="killed or reached its"):
        command.wait()
    with pytest.raises(SandboxNotRunningException):
        box.commands.run("true")
    with pytest.raises(SandboxNotRunningException):
        box.commands.list()


def test_a_sandbox_whose_time_is_up_ends_its_commands(flavour):
    box = create(flavour, timeout=1800)
    try:
        command = box.commands.run("sleep 6000", background=True, timeout=0)
        box.set_timeout(1)
        with pytest.raises(TimeoutException, match="killed or reached its"):
            command.wait()
    finally:
        box.kill()


def streaming(number: int) -> tuple[str, str]:
    return f"for i in 1 2 3 4 5; do echo {number}-$i; sleep 0.2; done", "".join(f"{number}-{i}\n" for i in range(1, 6))


async def test_two_hundred_streams_at_once():
    sandbox = await AsyncSandbox.create(timeout=1800)
    try:

        async def one(number):
            command, expected = streaming(number)
            assert (await sandbox.commands.run(command, timeout=0)).stdout == expected

        await asyncio.gather(*(one(number) for number in range(200)))
    finally:
        await sandbox.kill()


def test_fifty_threads_at_once(server):
    sandbox = Sandbox.create(timeout=1800)
    try:

        def one(number):
            command, expected = streaming(number)
            assert sandbox.commands.run(command, timeout=0).stdout == expected

        with ThreadPoolExecutor(50) as pool:
            list(pool.map(one, range(50)))
    finally:
        sandbox.kill()


AGENT_STATE = "ls /proc/1/fd | wc -l; ls /proc/1/task | wc -l; grep -l 'State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l"


def test_a_thousand_commands_leave_nothing_in_the_agent(server):
    sandbox = Sandbox.create(timeout=1800)
    try:

        def state():
            return [int(n) for n in sandbox.commands.run(f"{AGENT_STATE}; awk '/VmRSS/{{print $2}}' /proc/1/status", user="root").stdout.split()]

        for _ in range(20):
            sandbox.commands.run("true")
        fds, _, _, rss_kib = state()
        for number in range(1000):
            assert sandbox.commands.run(f"echo {number}; (true &)").stdout == f"{number}\n"
        wait_until(lambda: state()[2] == 0, what="no zombies")
        wait_until(lambda: state()[0] <= fds + 2, what="descriptors are closed")
        wait_until(lambda: state()[3] <= rss_kib + 8192, what="memory is given back")
        wait_until(lambda: sandbox.commands.list() == [], what="no command is listed")
    finally:
        sandbox.kill()


def test_what_programs_expect_of_the_base_template(box):
    found = box.commands.run("command -v gh socat fusermount3 yarn; getent passwd node | cut -d : -f 1,6,7; stat -c %a /home/user; hostname; hostname -f").stdout
    assert found.split() == ["/usr/bin/gh", "/usr/bin/socat", "/usr/bin/fusermount3", "/usr/bin/yarn", "node:/home/node:/bin/bash", "755", "e2b.local", "e2b.local"]
