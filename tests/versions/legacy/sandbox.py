"""What programs for `e2b` 0.14 to 0.17 do with a sandbox; says on one line what worked. The last release is 0.17.1."""

import io
import os
import sys
import time
import traceback
import urllib.error
import urllib.request

from e2b import Sandbox
from e2b.sandbox.exception import CurrentWorkingDirectoryDoesntExistException, FilesystemException

steps = []
TIMEOUT = 120


def fail(*error) -> None:
    """Ends the program at once: threads of clients do not end by themselves."""
    traceback.print_exception(*error)
    os._exit(1)


sys.excepthook = fail


def until(condition) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, "nothing came of it"
        time.sleep(0.02)


sandbox = Sandbox(metadata={"purpose": "smoke"}, env_vars={"ALL": "yes"})
try:
    steps.append("create")
    assert sandbox.id.count("-") == 1
    (listed,) = [one for one in Sandbox.list() if one.sandbox_id == sandbox.id]
    assert listed.metadata == {"purpose": "smoke"} and listed.cpu_count > 0
    steps.append("list")

    lines, codes = [], []
    process = sandbox.process.start(
        "echo out; echo err >&2; printf last; exit 3", on_stdout=lines.append, on_stderr=lines.append, on_exit=codes.append
    )
    output = process.wait(TIMEOUT)
    assert (output.stdout, output.stderr, process.exit_code) == ("out\nlast", "err", 3), output
    until(lambda: codes)
    assert codes == [3] and sorted(message.line for message in lines) == ["err", "last", "out"]
    assert sandbox.process.start_and_wait("whoami; pwd").stdout == "user\n/home/user"
    assert sandbox.process.start_and_wait("echo $ALL $ONE", env_vars={"ONE": "1"}).stdout == "yes 1"
    assert sandbox.process.start_and_wait("pwd", cwd="/tmp").stdout == "/tmp"
    many = sandbox.process.start_and_wait("seq 20000")
    assert many.stdout.split("\n") == [str(number) for number in range(1, 20001)]
    try:
        sandbox.process.start("true", cwd="/no/such")
        raise AssertionError("a missing directory did not raise")
    except CurrentWorkingDirectoryDoesntExistException:
        pass
    steps.append("process")

    cat = sandbox.process.start("while read line; do echo got $line; done")
    for number in range(5):
        cat.send_stdin(f"{number}\n")
    until(lambda: cat.stdout.count("\n") == 4)
    assert cat.stdout == "\n".join(f"got {number}" for number in range(5))
    cat.kill()
    cat.wait(TIMEOUT)
    sleeper = sandbox.process.start("sleep 600 & echo $!; wait")
    until(lambda: sleeper.stdout)
    sleeper.kill()
    sleeper.wait(TIMEOUT)
    steps.append("stdin kill")

    files = sandbox.filesystem
    files.make_dir("/home/user/a/b")
    files.write("/home/user/a/b/t.txt", "tëxt\n")
    assert files.read("/home/user/a/b/t.txt") == "tëxt\n"
    files.write_bytes("a/bytes", bytes(range(256)))
    assert files.read_bytes("/home/user/a/bytes") == bytes(range(256))
    assert sorted((one.name, one.is_dir) for one in files.list("/home/user/a")) == [("b", True), ("bytes", False)]
    files.write("/home/user/run.sh", "#!/bin/sh\necho ran")
    assert sandbox.process.start_and_wait("./run.sh").stdout == "ran"
    files.remove("/home/user/a/b")
    files.remove("/home/user/a/b")
    assert [one.name for one in files.list("a")] == ["bytes"]
    for fail in (lambda: files.read("/no/such"), lambda: files.write("/no/such/file", "x"), lambda: files.list("/no/such")):
        try:
            fail()
            raise AssertionError("a missing file did not raise")
        except FilesystemException as error:
            assert "no such file or directory" in str(error), error
    large = "0123456789abcdef" * (1 << 20)
    files.write("/tmp/large", large)
    assert files.read("/tmp/large") == large
    steps.append("files")

    events = []
    watcher = files.watch_dir("/home/user/a")
    watcher.add_event_listener(events.append)
    watcher.start()
    files.write("/home/user/a/new", "1")
    files.make_dir("/home/user/a/dir")
    until(lambda: {("new", "Create"), ("new", "Write"), ("dir", "Create")} <= {(one.name, one.operation) for one in events})
    assert {one.path for one in events} == {"/home/user/a/new", "/home/user/a/dir"}
    assert all(one.is_dir == (one.name == "dir") for one in events)
    watcher.stop()
    steps.append("watch")

    data = []
    terminal = sandbox.terminal.start(on_data=data.append, cols=80, rows=24)
    terminal.send_data("echo $TERM-ü; stty size\n")
    until(lambda: "xterm-ü\r\n24 80" in "".join(data))
    terminal.resize(100, 30)
    terminal.send_data("stty size; exit\n")
    terminal.wait()
    assert "30 100" in terminal.data
    steps.append("terminal")

    content = b"\x00\xffbytes" * 100_000
    file = io.BytesIO(content)
    file.name = "up load.bin"
    assert sandbox.upload_file(file) == "/home/user/up load.bin"
    assert sandbox.download_file("/home/user/up load.bin") == content
    assert sandbox.process.start_and_wait("wc -c 'up load.bin'; echo more >> 'up load.bin'").stdout.startswith(str(len(content)))
    steps.append("upload download")

    sandbox.process.start("python3 -m http.server 8765 --directory /tmp")
    url = f"{sandbox.get_protocol()}://{sandbox.get_hostname(8765)}/"

    def serves() -> bool:
        try:
            return urllib.request.urlopen(url, timeout=60).status == 200
        except urllib.error.HTTPError:
            return False

    until(serves)
    steps.append("port")

    left = sandbox.process.start("echo $$ > /tmp/pid; exec sleep 600")
    until(lambda: "pid" in [one.name for one in files.list("/tmp")])
    sandbox.keep_alive(300)
    sandbox.close()
    again = Sandbox.reconnect(sandbox.id)
    until(lambda: again.process.start_and_wait("kill -0 $(cat /tmp/pid) 2>/dev/null && echo alive; true").stdout == "")
    assert again.filesystem.read("/home/user/run.sh").endswith("ran")
    steps.append("close reconnect")

    ports = []
    scanned = Sandbox.reconnect(again.id, on_scan_ports=ports.append, cwd="/home/user/made")
    assert scanned.process.start_and_wait("pwd").stdout == "/home/user/made"
    server = scanned.process.start("python3 -m http.server 8766")
    until(lambda: any(one.port == 8766 and one.state == "LISTEN" for found in ports for one in found))
    steps.append("ports cwd")
    sandbox = scanned
finally:
    Sandbox.kill(sandbox.id)
until(lambda: sandbox.id not in [one.sandbox_id for one in Sandbox.list()])
try:
    Sandbox.reconnect(sandbox.id, timeout=3).process.start_and_wait("true", timeout=3)
    raise AssertionError("a killed sandbox answered")
except AssertionError:
    raise
except Exception:
    steps.append("kill")
print("ok:", " ".join(steps), flush=True)
os._exit(0)
