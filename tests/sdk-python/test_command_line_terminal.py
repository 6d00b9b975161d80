"""The `sandcove` command on a terminal: leaving a process and coming back, and bars of long copies."""

from __future__ import annotations

import json
import os
import re

import pytest

from harness.command_line import Terminal, command_line, sandcove

CTRL_P, CTRL_Q = "\x10", "\x11"
MIB = 1 << 20


def left(terminal: Terminal) -> str:
    """Types the keys of Docker; returns the process that goes on."""
    terminal.type(CTRL_P + CTRL_Q)
    terminal.until("detached from process ")
    pid = terminal.until(", which goes on").strip()
    hint = terminal.until(" connects to it again")
    assert re.search(rf"hint: `sandcove sandbox connect \w+ --pid {pid}`", hint), hint
    assert terminal.end() == 0
    return pid


@pytest.mark.parametrize("verb", ["exec", "connect"])
def test_a_process_that_was_left_goes_on_and_is_connected_to_again(server, sandbox, verb):
    shell = ["-it", sandbox.sandbox_id, "bash"] if verb == "exec" else [sandbox.sandbox_id]
    terminal = Terminal(command_line(server, "sandbox", verb, *shell))
    terminal.until("$ ")
    terminal.type("kept=$((6 * 7)); (while sleep 0.1; do echo >>/tmp/beat; done) & echo be$((1))gun\n")
    terminal.until("be1gun")
    pid = left(terminal)
    beats = f"kill -0 {pid}; rm -f /tmp/beat; until [ -s /tmp/beat ]; do sleep 0.05; done"
    assert sandcove(server, "sandbox", "exec", sandbox.sandbox_id, beats).returncode == 0, "its background job runs on"
    again = Terminal(command_line(server, "sandbox", "connect", sandbox.sandbox_id, "--pid", pid))
    again.type("echo still $kept $$\n")
    again.until(f"still 42 {pid}\r\n")
    assert left(again) == pid
    last = Terminal(command_line(server, "sandbox", "connect", sandbox.sandbox_id, "--pid", pid))
    last.type("kill %1; exit 9\n")
    assert last.end() == 9
    nobody = Terminal(command_line(server, "sandbox", "connect", sandbox.sandbox_id, "--pid", "999999"))
    assert nobody.end() == 1 and "failed to connect to process 999999" in nobody.seen.decode()


def test_other_keys_detach_if_they_are_chosen_and_one_alone_reaches_the_process(server, sandbox):
    read = "stty raw -echo; echo rea$((0))dy; head -c 3 | od -An -tx1; sleep 7000"
    options = ["--detach-keys", "ctrl-x,d"]
    terminal = Terminal(command_line(server, "sandbox", "exec", *options, sandbox.sandbox_id, read))
    terminal.until("rea0dy")
    terminal.type(CTRL_P + CTRL_Q)
    terminal.type("\x18x")
    terminal.until("10 11 18")
    terminal.type("\x18d")
    terminal.until("detached from process ")
    assert terminal.end() == 0
    done = sandcove(server, "sandbox", "exec", "--detach-keys", "ctrl-1", sandbox.sandbox_id, "true")
    assert done.returncode == 2 and "unknown key `ctrl-1`" in done.stderr and "ctrl-p,ctrl-q" in done.stderr


def test_the_sandbox_of_a_shell_that_was_left_goes_on(server):
    terminal = Terminal(command_line(server, "sandbox", "create", "base"))
    terminal.until("sandbox ")
    sandbox_id = terminal.until("\n").strip()
    try:
        terminal.until("$ ")
        terminal.type(CTRL_P + CTRL_Q)
        terminal.until("which goes on")
        terminal.until(f"the sandbox goes on for 300 s; `sandcove sandbox timeout {sandbox_id} 1h`")
        assert terminal.end() == 0
        assert json.loads(sandcove(server, "sandbox", "info", sandbox_id).stdout)["state"] == "running"
    finally:
        assert sandcove(server, "sandbox", "kill", sandbox_id).returncode == 0


def test_a_bar_shows_the_copy_of_a_large_file_on_a_terminal(server, sandbox, tmp_path):
    large, small, back = tmp_path / "large", tmp_path / "small", tmp_path / "back"
    large.write_bytes(os.urandom(64 * MIB))
    small.write_bytes(b"x" * MIB)
    there = f"{sandbox.sandbox_id}:/home/user/"

    def shown(*arguments: str) -> str:
        terminal = Terminal(command_line(server, "sandbox", "cp", *arguments))
        assert terminal.end() == 0, terminal.seen
        return terminal.seen.decode()

    assert re.search(r"large \[=*>? *\] +\d+% of 64\.00 MiB", shown(str(large), there))
    assert re.search(r"/large \[=*>? *\] +\d+% of 64\.00 MiB", shown(f"{there}large", str(back)))
    assert back.read_bytes() == large.read_bytes()
    # A small file is copied before anybody reads it, and a log has no bars.
    assert shown(str(small), there) == ""
    assert sandcove(server, "sandbox", "cp", str(large), there).stderr == ""


def test_a_copy_that_goes_nowhere_says_what_to_type(server, sandbox, tmp_path):
    (tmp_path / "here").write_text("x")
    here, there = str(tmp_path / "here"), f"{sandbox.sandbox_id}:/home/user"
    for arguments, said in (
        ([here, "there"], f"are both on this machine\nhint: one side must be ID:PATH, such as `sandcove sandbox cp {here} ID:/home/user/`"),
        ([here, "My Box:/tmp"], "`My Box` is not the id of a sandbox\nhint: `sandcove sandbox list` shows all"),
        ([f"{there}/a", f"{there}/b"], f"hint: copy through a pipe: `sandcove sandbox cp {there}/a - | sandcove sandbox cp - {there}/b`"),
        ([f"{there}", here + "-new"], "is a directory\nhint: pass --recursive to copy it with everything in it"),
        (["-r", f"{sandbox.sandbox_id}:files", here + "-new"], "hint: name the directory by its absolute path, such as `/home/user/files`"),
    ):
        done = sandcove(server, "sandbox", "cp", *arguments)
        assert done.returncode == 1 and said in done.stderr, done
    for arguments in ([], [here]):
        done = sandcove(server, "sandbox", "cp", *arguments)
        assert done.returncode == 2 and "<PATH> <ID:PATH>" in done.stderr and "<ID:PATH> <PATH>" in done.stderr, done
