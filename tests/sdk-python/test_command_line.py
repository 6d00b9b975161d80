"""The `sandcove` command beside a running server: forwarded ports, keys, code that runs once."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from harness.command_line import BINARY, Terminal, command_line, sandcove, without_a_word
from harness.server import wait_until

# Answers GET with what it was asked, echoes the bytes of an upgraded connection, and streams on /slow.
SERVICE = r"""
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade") == "echo":
            self.send_response(101); self.send_header("Connection", "Upgrade"); self.send_header("Upgrade", "echo")
            self.end_headers()
            while data := self.connection.recv(4096):
                self.connection.sendall(data)
            self.close_connection = True
            return
        body = f"{self.path} {self.headers.get('X-Access-Token')}".encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
ThreadingHTTPServer(("127.0.0.1", 8080), Handler).serve_forever()
"""


@contextmanager
def forwarded(server, sandbox_id: str, port: int):
    command = [BINARY, "sandbox", "forward", sandbox_id, f"{port}:0", "--data-dir", str(server.data_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            local, _, remote = process.stdout.readline().strip().partition(" -> ")
            assert remote == f"{sandbox_id}:{port}"
            yield int(local.rsplit(":", 1)[1])
        finally:
            process.terminate()
    assert process.returncode == 0, "a forward that is asked to end has not failed"


@pytest.fixture
def service(sandbox):
    serve(sandbox)
    return sandbox


def test_a_service_is_reached_through_a_local_port(server, service):
    with forwarded(server, service.sandbox_id, 8080) as port:
        answer = requests.get(f"http://localhost:{port}/a%20b?c=d", timeout=120)
        assert answer.text == "/a%20b?c=d None", "the sandbox's own token is not for programs in it"
        big = os.urandom(5_000_000)
        assert requests.post(f"http://localhost:{port}/", data=big, timeout=120).content == big


def test_an_upgraded_connection_passes_both_ways(server, service):
    with forwarded(server, service.sandbox_id, 8080) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=120) as stream:
            stream.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += stream.recv(1)
            assert head.startswith(b"HTTP/1.1 101")
            for message in (b"\x00\xff", b"more"):
                stream.sendall(message)
                assert stream.recv(100) == message


def test_a_forwarded_agent_needs_no_token(server, sandbox):
    with forwarded(server, sandbox.sandbox_id, 49983) as port:
        url = f"http://127.0.0.1:{port}/files?path=f.txt&username=user"
        assert requests.post(url, files={"file": b"text"}, timeout=120).status_code == 200
    assert sandbox.files.read("f.txt") == "text"


@pytest.fixture
def private(server):
    from e2b import Sandbox

    sandbox = Sandbox.create(timeout=1800, network={"allow_public_traffic": False})
    yield sandbox
    sandbox.kill()


def serve(sandbox) -> None:
    sandbox.files.write("/home/user/service.py", SERVICE)
    sandbox.commands.run("python3 service.py", background=True, timeout=0)
    sandbox.commands.run("until curl -s http://127.0.0.1:8080/ >/dev/null; do sleep 0.05; done")


def test_private_traffic_is_forwarded_with_its_token(server, private):
    serve(private)
    ends = private.get_info().end_at
    with forwarded(server, private.sandbox_id, 8080) as port:
        assert requests.get(f"http://127.0.0.1:{port}/a", timeout=120).text.startswith("/a ")
    assert private.get_info().end_at == ends


def test_a_port_nobody_listens_on_is_a_502(server, sandbox):
    with forwarded(server, sandbox.sandbox_id, 8081) as port:
        assert requests.get(f"http://127.0.0.1:{port}/", timeout=120).status_code == 502


def test_forwarding_for_nobody_fails(server):
    done = sandcove(server, "sandbox", "forward", "inobody", "8080:0")
    assert done.returncode == 1
    assert "inobody" in done.stderr and "http" not in done.stderr, "the server's words without the request"


def test_a_key_is_shown_once_works_and_ends(server):
    def status(key: str) -> int:
        return requests.get(f"{server.url}/v2/sandboxes", headers={"X-API-Key": key}, timeout=120).status_code

    made = json.loads(sandcove(server, "keys", "create", "for a test", "--json").stdout)
    assert status(made["key"]) == 200
    listed = sandcove(server, "keys", "list", "--json").stdout
    assert made["key"][4:] not in listed
    (key,) = [key for key in json.loads(listed) if key["id"] == made["id"]]
    assert key["name"] == "for a test"
    assert sandcove(server, "keys", "delete", made["id"]).stdout == made["id"] + "\n"
    assert status(made["key"]) == 401
    assert sandcove(server, "keys", "delete", made["id"]).returncode == 1


def test_the_key_of_the_command_itself_stays(server):
    own = json.loads((Path(server.data_dir) / "server.json").read_text())["apiKey"]
    keys = json.loads(sandcove(server, "keys", "list", "--json").stdout)
    (key,) = [key for key in keys if own.endswith(key["mask"]["maskedValueSuffix"])]
    done = sandcove(server, "keys", "delete", key["id"])
    assert done.returncode == 1
    assert "SANDCOVE_API_KEY" in done.stderr


def test_run_says_what_a_template_without_interpreter_needs(server):
    done = sandcove(server, "run", "-c", "1+1", "--template", "base")
    assert done.returncode == 1
    assert "has no code interpreter; use `--template code-interpreter-v1`" in done.stderr


def test_run_prints_and_fails_as_the_code_does(server):
    done = sandcove(server, "run", "-c", "print('out'); 20 + 22")
    assert (done.returncode, done.stdout) == (0, "out\n42\n")
    done = sandcove(server, "run", "-c", "1 / 0")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "-" * 75 and lines[-1] == "ZeroDivisionError: division by zero"
    assert lines[2:4] == ["<string>, line 1", "----> 1 1 / 0"], "every line has its end"
    assert "\x1b" not in done.stderr, "colour is for terminals"


SCRIPT = """
import os, sys
print(sys.argv, os.path.basename(__file__), __name__)
21 * 2
if sys.argv[1:] == ["plot"]:
    import matplotlib.pyplot as plt
    plt.plot([1, 2])
    plt.show()
sys.exit(int(sys.argv[1]) if sys.argv[1:2] == ["3"] else None)
"""


def test_a_file_runs_as_a_script(server, tmp_path):
    script = tmp_path / "a.py"
    script.write_text(SCRIPT)
    done = sandcove(server, "run", str(script), "3", "x y", "--json")
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout == "['/home/user/a.py', '3', 'x y', '--json'] a.py __main__\n", "values are not printed"
    done = sandcove(server, "run", "--out", str(tmp_path / "out"), str(script), "plot")
    assert (done.returncode, done.stderr) == (0, f"saved {tmp_path}/out/a-1.png\n")
    assert (tmp_path / "out/a-1.png").read_bytes().startswith(b"\x89PNG")
    done = sandcove(server, "run", str(script), "plot")
    assert done.stderr == "hint: 1 picture not saved; --out DIR saves pictures\n"


def test_scripts_in_other_languages_have_arguments_and_a_status(server, tmp_path):
    node = tmp_path / "a.mjs"
    node.write_text("console.log(process.argv.slice(2)); 1 + 1; process.exit(5)")
    done = sandcove(server, "run", str(node), "x")
    assert (done.returncode, done.stdout, done.stderr) == (5, "[ 'x' ]\n", "")
    shell = tmp_path / "a.sh"
    shell.write_text('read line; echo "$(basename $0) $1 $line"; exit 6')
    done = sandcove(server, "run", str(shell), "a b", stdin="typed\n")
    assert (done.returncode, done.stdout, done.stderr) == (6, "a.sh a b typed\n", "")


def test_run_says_what_it_does_not_know(server, tmp_path):
    (tmp_path / "a.xyz").write_text("print(1)")
    done = sandcove(server, "run", str(tmp_path / "a.xyz"))
    assert done.returncode == 1 and "unknown file extension `.xyz`; use .py, .js" in done.stderr
    done = sandcove(server, "run", "-l", "cobol", "-c", "1")
    assert done.returncode == 1 and done.stderr.startswith("error: unknown language `cobol`")
    done = sandcove(server, "run")
    assert done.returncode == 1 and "with -c" in done.stderr
    done = sandcove(server, "run", "-c", "input()")
    assert done.returncode == 1 and "asks for input" in done.stderr and "/run/" not in done.stderr


def test_a_run_that_takes_too_long_is_stopped(server):
    done = sandcove(server, "run", "--timeout", "2", "-c", "while True: pass")
    assert (done.returncode, done.stderr) == (124, "error: stopped after 2 s\n")


def test_a_run_as_json_has_everything(server):
    done = sandcove(server, "run", "--json", "-c", "print('out'); import sys; print('err', file=sys.stderr); 1 / 0")
    document = json.loads(done.stdout)
    assert done.returncode == document["exitCode"] == 1
    assert (document["stdout"], document["stderr"], document["timedOut"]) == ("out\n", "err\n", False)
    assert document["error"]["name"] == "ZeroDivisionError" and "\n" in document["error"]["traceback"]
    assert json.loads(sandcove(server, "run", "--json", "-c", "6 * 7").stdout)["results"][0]["text"] == "42"


def listed(server) -> set[str]:
    return {entry["sandboxID"] for entry in json.loads(sandcove(server, "sandbox", "list", "--json").stdout)}


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_told_to_end_takes_its_sandbox_with_it(server, sent):
    before = listed(server)
    command = command_line(server, "run", "-c", "print('go', flush=True); import time; time.sleep(6000)")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "go\n"
        process.send_signal(sent)
        assert process.wait(timeout=300) == 128 + sent
    assert listed(server) <= before


def test_a_reader_that_goes_away_ends_a_run(server):
    before = listed(server)
    command = command_line(server, "run", "-c", "while True: print(1)")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "1\n"
        process.stdout.close()
        assert process.wait(timeout=300) == 128 + signal.SIGPIPE
        assert process.stderr.read() == ""
    assert listed(server) <= before


def test_exec_passes_input_variables_directory_and_account(server, sandbox):
    big = "line\n" * 300_000
    done = sandcove(server, "sandbox", "exec", sandbox.sandbox_id, "wc", "-l", stdin=big)
    assert (done.returncode, done.stdout.strip()) == (0, "300000"), "input ends when it ends here"
    tell = "echo $A $B $PWD $(id -un)"
    options = ["-e", "A=1", "-e", "B=x y", "-w", "/tmp", "-u", "root"]
    done = sandcove(server, "sandbox", "exec", *options, sandbox.sandbox_id, "sh", "-c", tell)
    assert done.stdout == "1 x y /tmp root\n"


@pytest.mark.parametrize("line, status", [("exit 7", 7), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)])
def test_the_status_of_exec_is_that_of_the_command(server, sandbox, line, status):
    assert sandcove(server, "sandbox", "exec", sandbox.sandbox_id, "sh", "-c", line).returncode == status


def test_a_detached_command_goes_on(server, sandbox):
    done = sandcove(server, "sandbox", "exec", "-d", sandbox.sandbox_id, "sleep", "6000")
    pid = int(done.stdout)
    # It is the shell's process until that has become the command.
    sandbox.commands.run(f"until grep -qx sleep /proc/{pid}/comm; do kill -0 {pid} || exit 1; sleep 0.05; done", timeout=300)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_reach_the_command_and_all_it_started(server, sandbox, sent):
    # The end of a command is the end of its output, so that the job must not hold that.
    line = "sleep 6301 &>/dev/null & echo go; sleep 302302; echo still here"
    command = command_line(server, "sandbox", "exec", sandbox.sandbox_id, "bash", "-c", line)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "go\n"
        sandbox.commands.run("until pgrep -f '^sleep 302302' >/dev/null; do sleep 0.05; done")
        process.send_signal(sent)
        assert process.wait(timeout=300) == 128 + sent
        assert process.stdout.read() == ""
    # A background job of a shell without job control ignores SIGINT, here as on any machine.

    def has_ended() -> bool:
        left = sandbox.commands.run("pgrep -af '^sleep' || true").stdout
        return "sleep 302302" not in left and (sent == signal.SIGINT or left == "")

    wait_until(has_ended, what="the end of the command and of its job")


def test_a_command_that_ignores_a_signal_is_killed_by_the_second(server, sandbox):
    line = "trap 'echo no' TERM; echo go; while true; do sleep 0.1; done"
    command = command_line(server, "sandbox", "exec", sandbox.sandbox_id, "bash", "-c", line)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "go\n"
        process.terminate()
        assert process.stdout.readline() == "no\n"
        process.terminate()
        assert process.wait(timeout=300) == 143
    wait_until(lambda: sandbox.commands.run("pgrep -f '[t]rap' || true").stdout == "", what="the end of the command")


def test_a_reader_that_goes_away_ends_the_command(server, sandbox):
    command = command_line(server, "sandbox", "exec", sandbox.sandbox_id, "yes")
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.read(2) == b"y\n"
        process.stdout.close()
        assert process.wait(timeout=300) == 128 + signal.SIGPIPE
        assert process.stderr.read() == b""
    wait_until(lambda: sandbox.commands.run("pgrep -x yes || true").stdout == "", what="the end of the command")


def test_a_sandbox_that_ends_under_a_command_is_named(server, sandbox):
    command = command_line(server, "sandbox", "exec", sandbox.sandbox_id, "sh", "-c", "echo go; exec sleep 6000")
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **options) as process:
        assert process.stdout.readline() == "go\n"
        sandbox.kill()
        assert process.wait(timeout=300) == 1
        assert f"sandbox {sandbox.sandbox_id} was killed or reached its end of life" in process.stderr.read()


def test_an_interrupted_bench_leaves_no_sandbox(server):
    def listed():
        return {sandbox["sandboxID"] for sandbox in json.loads(sandcove(server, "sandbox", "list", "--json").stdout)}

    before = listed()
    command = command_line(server, "bench", "-n", "1000", "--first", "command", "-c", "2")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as bench:
        wait_until(lambda: listed() - before, what="a sandbox of the bench")
        bench.send_signal(signal.SIGINT)
        assert bench.wait(timeout=120) == 1
        assert bench.stderr.read() == "error: interrupted\n"
    assert listed() <= before


NOBODY_READS = [
    ["doctor"],
    ["keys", "list"],
    ["sandbox", "list"],
    ["status"],
    ["env"],
    ["eval", "list"],
    ["eval", "init", "suite"],
    ["bench", "-n", "1", "--warm", "0", "--first", "command"],
    ["--help"],
    ["--version"],
]


@pytest.mark.parametrize("arguments", NOBODY_READS, ids=" ".join)
def test_output_nobody_reads_is_no_failure_and_a_full_disk_is_one(server, tmp_path, arguments):
    environment = {**os.environ, "HOME": str(tmp_path)}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        options = {"stdin": subprocess.DEVNULL, "env": environment, "text": True, "timeout": 1200}
        command = command_line(server, *arguments)
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, cwd=tmp_path / "a", **options)
        # What is missing on this host decides what `doctor` returns.
        assert done.returncode == 0 or arguments == ["doctor"], done.stderr
        assert "error" not in done.stderr and "panicked" not in done.stderr
        # The same with nobody who reads errors.
        done = subprocess.run([BINARY, "sandbox", "info", "-x"], stdout=closed, stderr=closed, **options)
        assert done.returncode == 2
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, cwd=tmp_path / "b", **options)
    printed = arguments != ["eval", "list"]
    if printed:
        assert done.returncode == 1
        assert "failed to write to standard output: No space left on device" in done.stderr
    assert "panicked" not in done.stderr


@pytest.mark.parametrize("verb", ["exec", "connect"])
def test_a_shell_on_a_terminal(server, sandbox, verb):
    shell = ["bash"] if verb == "exec" else []
    terminal = Terminal(command_line(server, "sandbox", verb, sandbox.sandbox_id, *shell))
    terminal.until("$ ")
    terminal.type("echo size $(stty size) $TERM\n")
    terminal.until("size 33 111 xterm-256color")
    terminal.resize(20, 70)
    os.kill(terminal.pid, signal.SIGWINCH)
    terminal.type("until [ \"$(stty size)\" = '20 70' ]; do sleep 0.05; done; echo is $((20 + 1)) now\n")
    terminal.until("is 21 now")
    # Ctrl-C is for the program in the sandbox, and not for the command here.
    # It says itself that it runs: what the shell says comes before its child is in the foreground, and Ctrl-C could miss it.
    terminal.type("sh -c 'echo be$((1))gun; exec sleep 6000'\n")
    terminal.until("be1gun")
    terminal.type("\x03")
    terminal.until("^C")
    terminal.until("$ ")
    terminal.type("exit 7\n")
    assert terminal.end() == 7


def test_a_terminal_is_given_back_as_it_was(server, sandbox):
    script = (
        "import subprocess, sys, termios\n"
        "before = termios.tcgetattr(0)\n"
        "status = subprocess.run(sys.argv[1:]).returncode\n"
        "print('same' if termios.tcgetattr(0) == before else 'changed', status)\n"
    )
    command = command_line(server, "sandbox", "exec", sandbox.sandbox_id, "sh", "-c", "echo it is $(tty)")
    terminal = Terminal([sys.executable, "-c", script, *command])
    terminal.until("it is /dev/pts/")
    terminal.until("same 0")
    assert terminal.end() == 0


def test_exec_without_a_terminal_gives_none_unless_asked(server, sandbox):
    exec_ = ["sandbox", "exec"]
    assert sandcove(server, *exec_, sandbox.sandbox_id, "tty").stdout == "not a tty\n"
    assert sandcove(server, *exec_, "-it", sandbox.sandbox_id, "tty").stdout.startswith("/dev/pts/")
    done = sandcove(server, "sandbox", "connect", sandbox.sandbox_id)
    assert done.returncode == 1 and "needs a terminal" in done.stderr


def test_flags_go_before_variables_and_these_before_the_server_of_this_machine(server, tmp_path):
    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = without_a_word(SANDCOVE_DATA_DIR=str(server.data_dir), **variables)
        return subprocess.run([BINARY, *arguments], env=environment, capture_output=True, text=True, timeout=1200)

    assert run("sandbox", "list").returncode == 0
    for verb in (["sandbox", "list"], ["run", "-c", "1"], ["bench", "-n", "1"]):
        refused = run(*verb, E2B_API_KEY="e2b_bad")
        assert refused.returncode == 1 and "does not accept the API key\nhint: " in refused.stderr
        away = run(*verb, E2B_API_URL="http://127.0.0.1:1", E2B_API_KEY="k")
        assert away.returncode == 1 and "no answer from http://127.0.0.1:1: Connection refused" in away.stderr
        keyless = run(*verb, E2B_API_URL="http://127.0.0.1:1")
        assert keyless.returncode == 1 and "no API key for http://127.0.0.1:1\nhint: " in keyless.stderr
    (tmp_path / "key").write_text(server.env["E2B_API_KEY"] + "\n")
    away = {"E2B_API_URL": "http://127.0.0.1:1", "E2B_API_KEY": "bad"}
    flags = ["--url", server.url, "--api-key-file", str(tmp_path / "key")]
    assert run("sandbox", *flags, "list", **away).returncode == 0
    assert run("--data-dir", str(server.data_dir), "sandbox", "list", **away).returncode == 0
    assert "--api-key " not in run("sandbox", "--help").stdout, "what every account of the machine can read"


@pytest.fixture
def anybody(tmp_path_factory):
    """The command as an account without rights runs it."""
    directory = tmp_path_factory.mktemp("anybody")
    binary = directory / "sandcove"
    binary.write_bytes(Path(BINARY).read_bytes())
    for path in (binary, directory, *directory.parents[:3]):
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", str(binary), *arguments]
        options = {"capture_output": True, "text": True, "timeout": 1200, "cwd": "/"}
        return subprocess.run(command, env=without_a_word(**variables), **options)

    return run


def test_without_root_the_variables_are_enough(server, anybody):
    variables = {"SANDCOVE_DATA_DIR": str(server.data_dir)}
    for verb in (["status"], ["sandbox", "list"], ["run", "-c", "1"], ["keys", "list"], ["down"]):
        done = anybody(*verb, **variables)
        assert done.returncode == 1 and "Permission denied" in done.stderr
        assert "hint: run the command with sudo; " in done.stderr and "E2B_API_URL" in done.stderr
    done = anybody("run", "-c", "20 + 22", **variables, **server.env)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert "running at" in anybody("status", **variables, **server.env).stdout
    nowhere = {"SANDCOVE_DATA_DIR": "/nonexistent/sandcove"}
    done = anybody("run", "-c", "1", **nowhere)
    assert done.returncode == 1 and "starting one needs root" in done.stderr


def test_status_without_a_server_is_that_of_a_stopped_service(tmp_path):
    command = [BINARY, "--data-dir", str(tmp_path)]
    done = subprocess.run([*command, "status"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "not running\n")
    assert subprocess.run([*command, "status", "--json"], capture_output=True).returncode == 3
    assert subprocess.run([*command, "down"], capture_output=True).returncode == 0


def test_what_is_printed_for_a_shell_holds_no_key_in_a_log(server):
    up = sandcove(server, "up")
    assert up.returncode == 0, up.stderr
    assert server.env["E2B_API_KEY"] not in up.stdout + up.stderr
    read = subprocess.run(["bash", "-c", 'eval "$0"; env', up.stdout], env=without_a_word(), capture_output=True, text=True)
    for name, value in server.env.items():
        assert f"{name}={value}" in read.stdout.splitlines()
    shown = sandcove(server, "env").stdout
    assert f"export E2B_API_KEY={server.env['E2B_API_KEY']}" in shown.splitlines()
    assert sandcove(server, "env", "E2B_API_URL").stdout == f"{server.url}\n"
    terminal = Terminal(command_line(server, "up"))
    terminal.until(server.env["E2B_API_KEY"])
    assert terminal.end() == 0


def test_options_a_running_server_does_not_have_are_not_ignored(server):
    done = sandcove(server, "up", "--max-sandboxes", "3", "--listen", "127.0.0.1:1")
    assert done.returncode == 1 and done.stdout == ""
    assert "without `--max-sandboxes 3` `--listen 127.0.0.1:1`\nhint: stop it with `sandcove down`" in done.stderr
    assert sandcove(server, "up", "--listen", f"127.0.0.1:{server.port}").returncode == 0


def test_keys_have_names_of_their_own_and_are_deleted_by_them(server):
    for name in ("", "  "):
        done = sandcove(server, "keys", "create", name)
        assert done.returncode == 1 and "must not be empty" in done.stderr
    key = sandcove(server, "keys", "create", "by name").stdout.strip()
    again = sandcove(server, "keys", "create", "by name")
    assert again.returncode == 1 and "a key named `by name` already exists" in again.stderr
    assert sandcove(server, "keys", "delete", "by name").returncode == 0
    made = json.loads(sandcove(server, "keys", "create", "by prefix", "--json").stdout)
    done = sandcove(server, "keys", "delete", made["id"][:13])
    assert (done.returncode, done.stdout) == (0, made["id"] + "\n")
    assert key not in sandcove(server, "keys", "list").stdout
    assert sandcove(server, "keys", "delete", "e2b_").returncode == 1, "the beginning of every key is none"


def test_sandboxes_are_listed_with_what_they_are(server):
    from e2b import Sandbox

    with Sandbox.create(timeout=1800, metadata={"test": "a b", "more": "&="}) as sandbox:
        header, *lines = sandcove(server, "sandbox", "list").stdout.splitlines()
        assert header.split() == ["id", "template", "state", "cpus", "memory", "started", "ends", "metadata"]
        (line,) = [line for line in lines if line.startswith(sandbox.sandbox_id + "  ")]
        assert "  base  " in line and " MiB  " in line and line.endswith("more=&= test=a b")
        found = {
            " ".join(filters): sandbox.sandbox_id in sandcove(server, "sandbox", "list", *filters).stdout
            for filters in (["-m", "test=a b"], ["-m", "more=&="], ["-m", "test=a"], ["--state", "running"],
                            ["--state", "paused"], ["-t", "base"], ["-t", "code-interpreter-v1"])
        }
        assert [words for words, is_found in found.items() if is_found] == [
            "-m test=a b", "-m more=&=", "--state running", "-t base"
        ]


def test_a_log_filter_that_is_none_is_refused(server):
    done = sandcove(server, "status", env={**os.environ, "SANDCOVE_LOG": "sandcove=nonsense"})
    assert done.returncode == 1 and 'invalid SANDCOVE_LOG "sandcove=nonsense"' in done.stderr


@pytest.mark.parametrize("verb", ["up", "serve"])
def test_a_server_that_does_not_start_leaves_no_directory(verb, tmp_path):
    directory = tmp_path / "new"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run([BINARY, verb, "--data-dir", directory, "--listen", address], capture_output=True, text=True, timeout=1200)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"error: failed to listen on {address}: Address already in use" in done.stderr and "hint: " in done.stderr
    assert not directory.exists() and str(directory) not in done.stderr
    # One that was there before stays.
    directory.mkdir()
    done = subprocess.run([BINARY, verb, "--data-dir", directory, "--tls-cert", "/none", "--tls-key", "/none"], capture_output=True, timeout=1200)
    assert done.returncode == 1 and directory.exists()


def test_a_pool_that_cannot_be_mounted_is_told_and_kept(tmp_path):
    image = tmp_path / "pool.img"
    image.write_bytes(b"made by another kernel" * 1000)
    serve = [BINARY, "serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]
    done = subprocess.run(serve, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 1
    assert f"failed to mount `{image}`" in done.stderr
    assert image.read_bytes().startswith(b"made by another kernel")
