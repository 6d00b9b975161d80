"""A server in two processes: what the one that parses what strangers send may do, and what happens when one of them ends."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from durability import running
from e2b import Sandbox
from e2b.exceptions import SandboxException
from harness import volatile
from harness.server import ADMIN_TOKEN, API_KEY, free_port, wait_until

ACCOUNT = 60888


@pytest.fixture(autouse=True)
def _of_its_own(server):
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")


def server_process(server) -> int:
    """The process without rights."""
    host, *others = volatile.parts(server.pid)
    assert host == server.pid and len(others) == 1, others
    return others[0]


def status(pid: int) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


def in_its_place(server, script: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in Python with the rights, the files and the network of the server process, but for its filter of system calls."""
    rights = ["setpriv", f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    command = ["nsenter", f"--target={server_process(server)}", "--mount", "--wd=/", "--", *rights, "python3", "-Ic", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env={"PATH": "/usr/bin:/usr/sbin:/bin:/sbin"})


@pytest.fixture(params=["plain", "certificate"])
def either(server, request):
    """The server without and with a certificate, which is another start."""
    if request.param == "plain":
        yield server
        return
    variables = {"SANDCOVE_TLS": "local", "SANDCOVE_REDIRECT_LISTEN": f"127.0.0.1:{free_port()}"}
    server.stop()
    before, server.variables = server.variables, {**server.variables, **variables}
    server.start()
    yield server
    server.stop()
    server.variables = before
    server.start()


def test_the_server_process_has_no_rights(either):
    found = status(server_process(either))
    for which in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(found[which], 16) == 0, which
    assert found["Uid"].split() == found["Gid"].split() == [str(ACCOUNT)] * 4
    assert found["Groups"].split() == [] and found["NoNewPrivs"] == "1" and found["Seccomp"] == "2"
    # The other one keeps them.
    assert int(status(either.pid)["CapEff"], 16) and status(either.pid)["Uid"].split()[0] == "0"


def test_every_thread_of_it_is_without_rights(server):
    tasks = volatile.matching(f"/proc/{server_process(server)}/task", "*/status")
    texts = [text for text in map(volatile.text, tasks) if text]
    assert len(texts) > 1
    for text in texts:
        assert re.search(r"^CapEff:\t0+$", text, re.M) and re.search(rf"^Uid:\t{ACCOUNT}\b", text, re.M)
        assert re.search(r"^Seccomp:\t2$", text, re.M)


def test_it_has_few_files(either):
    own = either.data_dir / "server"
    script = f"""
import os
def writable(top):
    for directory, names, files in os.walk(top):
        if directory.startswith(("/usr", "/etc", "/nix")):
            names[:] = [name for name in names if os.access(os.path.join(directory, name), os.R_OK)]
        yield from (path for path in [directory, *(os.path.join(directory, name) for name in files)]
                    if not os.path.islink(path) and os.access(path, os.W_OK))
print(sorted({{os.path.dirname(path) if os.path.isfile(path) else path for path in writable("/")}}))
for path in ["/root", "/home", "/run", "/sys", "/dev", "/proc/1", "/proc/self", {str(either.data_dir / "pool")!r}, {str(either.data_dir / "server.json")!r}]:
    print(path, os.path.exists(path))
print(os.listdir({str(either.data_dir)!r}))
"""
    done = in_its_place(either, script)
    assert done.returncode == 0, done.stderr
    writable, *places, below = done.stdout.splitlines()
    allowed = ("/tmp", str(own))
    assert [path for path in eval(writable) if not path.startswith(allowed)] == []
    assert [place for place in places if not place.endswith(" False")] == []
    assert eval(below) == ["server"]
    # On the host, the directory is for nobody else.
    assert own.stat().st_mode & 0o777 == 0o700 and own.stat().st_uid == ACCOUNT


def test_its_descriptors_lead_to_its_own_files(either):
    links = [volatile.link(entry) or "" for entry in volatile.matching(f"/proc/{server_process(either)}/fd", "*")]
    files = {link for link in links if link.startswith("/")}
    log = os.path.realpath(either.log)
    strange = {link for link in files if not link.startswith((f"{either.data_dir}/server/", "/dev/null")) and link != log}
    assert files and not strange


def test_it_cannot_reach_the_host_process(either):
    script = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print(libc.ptrace(16, {either.pid}, None, None), ctypes.get_errno())
try:
    os.kill({either.pid}, 0)
    print("it may send signals")
except PermissionError:
    print("not permitted")
for namespace in (0x00020000, 0x40000000):
    print(libc.unshare(namespace))
print(libc.setuid(0), libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))
"""
    done = in_its_place(either, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["-1 1", "not permitted", "-1", "-1", "-1 -1"]


def test_its_environment_has_no_secrets(either):
    own = Path(f"/proc/{server_process(either)}/environ").read_bytes() + Path(f"/proc/{server_process(either)}/cmdline").read_bytes()
    assert b"__server" in own and API_KEY.encode() not in own and ADMIN_TOKEN.encode() not in own


def ends(pid: int) -> bool:
    return volatile.text(f"/proc/{pid}/stat") is None or status_of(pid) in ("Z", "X")


def status_of(pid: int) -> str:
    return ((volatile.text(f"/proc/{pid}/stat") or ") X").rpartition(")")[2].split() or ["X"])[0]


@pytest.mark.parametrize("which", ["the server process", "the host process"])
def test_when_one_process_is_killed_the_other_ends_and_sandboxes_go_on(either, which):
    sandbox = running()
    sandbox.files.write("kept", which)
    counting = sandbox.commands.run("while :; do echo >> /tmp/count; sleep 0.1; done", background=True, timeout=0)
    host, own = either.pid, server_process(either)
    os.kill(own if which == "the server process" else host, signal.SIGKILL)
    wait_until(lambda: either.process.poll() is not None, what="the end of the host process")
    wait_until(lambda: ends(own), what="the end of the server process")
    assert either.process.returncode == (1 if which == "the server process" else -signal.SIGKILL)
    either.start()
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.files.read("kept") == which
    assert again.commands.run(f"kill -0 {counting.pid} && echo runs").stdout == "runs\n"
    before = int(again.commands.run("wc -l < /tmp/count").stdout)
    wait_until(lambda: int(again.commands.run("wc -l < /tmp/count").stdout) > before, what="it counts")
    again.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_both_is_an_orderly_stop(either, number):
    """As a terminal and service managers send it."""
    sandbox = running()
    own = server_process(either)
    for pid in (own, either.pid):
        os.kill(pid, number)
    assert either.process.wait(timeout=300) == 0
    assert ends(own)
    either.start()
    assert Sandbox.connect(sandbox.sandbox_id).kill()


def test_one_process_as_root_and_two_take_turns(server, monkeypatch):
    sandbox = running()
    sandbox.files.write("kept", "all the time")
    for account in ("0", str(ACCOUNT), "0", "60999", str(ACCOUNT)):
        monkeypatch.setitem(server.variables, "SANDCOVE_SERVER_ACCOUNT", account)
        server.kill9()
        server.start()
        owners = {path.lstat().st_uid for path in [server.data_dir / "server", *volatile.matching(server.data_dir / "server", "*")]}
        assert owners == {int(account)}
        assert len(volatile.parts(server.pid)) == (1 if account == "0" else 2)
        again = Sandbox.connect(sandbox.sandbox_id)
        assert again.files.read("kept") == "all the time"
    again.kill()


def as_of_an_earlier_version(server) -> None:
    """Puts the files of a server that does not run into the data directory itself, as root's."""
    own = server.data_dir / "server"
    # It had no audit log, and no stamp of known keys.
    shutil.rmtree(own / "audit", ignore_errors=True)
    (own / "sandcove.db-keys").unlink(missing_ok=True)
    for name in ("builds", "file-sets"):
        (own / name).mkdir(exist_ok=True)
    for path in list(own.iterdir()):
        if path.name != "lock":
            shutil.move(path, server.data_dir / path.name)
    shutil.rmtree(own)
    subprocess.run(["chown", "-R", "0:0", *map(str, server.data_dir.glob("sandcove.db*"))], check=True)


def test_files_of_an_earlier_version_are_taken_over(server):
    """An earlier version had them in the data directory itself, as root's."""
    sandbox = running()
    server.kill9()
    own = server.data_dir / "server"
    as_of_an_earlier_version(server)
    server.start()
    assert not list(server.data_dir.glob("sandcove.db*")) and not (server.data_dir / "builds").exists()
    assert (own / "sandcove.db").stat().st_uid == ACCOUNT
    assert Sandbox.connect(sandbox.sandbox_id).kill()
    with pytest.raises(SandboxException):
        Sandbox.connect(sandbox.sandbox_id)


# Where a start dies: the host process in what it does with the files, then the server process in what it does before it serves.
POINTS = [
    *("adopt.builds", "adopt.file-sets", "adopt.sandcove.db-wal", "adopt.sandcove.db", "adopt.giving", "adopt.given"),
    *("server.renounced", "server.introduced", "store.opened", "store.migrated", "recover.found", "server.opened"),
]


@pytest.mark.parametrize("point", POINTS)
def test_a_start_that_dies_while_it_takes_files_over_is_continued_by_the_next(server, tmp_path, monkeypatch, point):
    crash_file = tmp_path / "point"
    crash_file.write_text("")
    sandbox = running()
    sandbox.files.write("kept", point)
    made = sandcove(server, "keys", "create", "kept").stdout
    # With its log of the database, as if its last changes were in no other file.
    server.kill9()
    as_of_an_earlier_version(server)
    monkeypatch.setitem(server.variables, "SANDCOVE_CRASH_FILE", str(crash_file))
    for _ in range(2):
        crash_file.write_text(point)
        try:
            server.start()
        except RuntimeError:
            continue
        # The second start has nothing to move any more.
        assert point.startswith("adopt.sandcove.db") or point in ("adopt.builds", "adopt.file-sets")
        break
    else:
        crash_file.write_text("")
        server.start()
    crash_file.write_text("")
    assert owners(server) == {ACCOUNT} and not list(server.data_dir.glob("sandcove.db*"))
    assert "kept" in sandcove(server, "keys", "list").stdout and made.startswith("e2b_")
    assert sandcove(server, "keys", "delete", "kept").returncode == 0
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.files.read("kept") == point
    assert again.kill()
    monkeypatch.undo()
    server.stop()
    server.start()


def sandcove(server, *arguments: str, within=()) -> subprocess.CompletedProcess[str]:
    command = [*within, str(server.binary), *arguments, "--data-dir", str(server.data_dir)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def owners(server) -> set[int]:
    own = server.data_dir / "server"
    return {path.lstat().st_uid for path in [own, *volatile.matching(own, "*"), *volatile.matching(own, "*/*")]}


def test_keys_are_managed_with_the_rights_of_the_server_process(server):
    """Beside a server, after an orderly stop, and after one that has left its log of the database."""
    for end in [lambda: None, server.stop, server.start, server.kill9]:
        end()
        made = sandcove(server, "keys", "create", "for a test")
        assert made.returncode == 0 and made.stdout.startswith("e2b_"), made.stderr
        assert "for a test" in sandcove(server, "keys", "list").stdout
        assert owners(server) == {ACCOUNT}
        # That of this machine's commands, which is known from a file of root's, is kept.
        refused = sandcove(server, "keys", "delete", API_KEY)
        assert refused.returncode == 1 and "the commands of this machine use" in refused.stderr
        assert sandcove(server, "keys", "delete", "for a test").returncode == 0
    server.start()
    assert running().kill()


@pytest.mark.parametrize("name", ["sandcove.db", "sandcove.db-wal", "sandcove.db-shm", "sandcove.db-journal"])
def test_a_link_in_the_servers_directory_leads_root_nowhere(server, name):
    """As a server process that was taken over could make it."""
    server.stop()
    victim = server.data_dir / "victim"
    victim.write_text("of root")
    victim.chmod(0o666)
    own = server.data_dir / "server" / name
    kept = own.with_name("kept")
    if own.exists():
        own.rename(kept)
    try:
        own.symlink_to(victim)
        done = sandcove(server, "keys", "create", "for a test")
        assert victim.read_text() == "of root" and victim.stat().st_uid == 0
        assert name != "sandcove.db" or "is not a file" in done.stderr
        looked = doctor(server)["server directory"]
        assert looked["status"] == "warn" and name in looked["found"] and looked["hint"]
    finally:
        own.unlink(missing_ok=True)
        if kept.exists():
            kept.rename(own)
        victim.unlink()
    sandcove(server, "keys", "delete", "for a test")
    server.start()
    assert doctor(server)["server directory"]["status"] == "ok"


def doctor(server, *within: str) -> dict[str, dict]:
    return {check["name"]: check for check in json.loads(sandcove(server, "doctor", "--json", within=within).stdout)}


def test_doctor_checks_the_account_and_its_directory(server, monkeypatch):
    fine = doctor(server)
    assert fine["server account"]["status"] == "ok", fine["server account"]
    assert fine["server directory"]["status"] == "ok" and f"of {ACCOUNT}" in fine["server directory"]["found"]
    for within, expected in [
        (["unshare", "--user", "--map-root-user"], f"there is no id {ACCOUNT} in this user namespace"),
        (["setpriv", "--bounding-set=-setuid", "--inh-caps=-setuid", "--"], "it takes CAP_SETUID, which this process does not have"),
        (["env", "SANDCOVE_SERVER_ACCOUNT=0"], "none: the server runs in one process, as root"),
        (["env", "SANDCOVE_SERVER_ACCOUNT=1"], "1 is the user `daemon`"),
    ]:
        found = doctor(server, *within)["server account"]
        assert found["status"] == "warn" and expected in found["found"] and found["hint"], found
    # What root leaves beside a server that runs.
    left = server.data_dir / "server/left-by-root"
    left.write_text("")
    found = doctor(server)["server directory"]
    assert found["status"] == "warn" and "`left-by-root`" in found["found"] and "restart the server" in found["hint"], found
    server.stop()
    assert doctor(server)["server directory"]["status"] == "ok"
    server.start()
    assert left.stat().st_uid == ACCOUNT and doctor(server)["server directory"]["status"] == "ok"
    left.unlink()


def test_a_database_from_a_backup_is_usable_for_keys_before_the_first_start(server):
    server.stop()
    database = server.data_dir / "server/sandcove.db"
    os.chown(database, 0, 0)
    done = sandcove(server, "keys", "list")
    assert done.returncode == 0, done.stderr
    assert owners(server) == {ACCOUNT}
    server.start()


@pytest.mark.parametrize("account", [ACCOUNT, 0], ids=["two processes", "one process"])
def test_traces_have_the_parts_of_a_start(server, account, monkeypatch):
    """The host process does them, and only the server process sends traces."""
    bodies = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    collector = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    monkeypatch.setitem(server.variables, "SANDCOVE_SERVER_ACCOUNT", str(account))
    monkeypatch.setitem(server.variables, "OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    server.stop()
    server.start()
    sandbox = running()
    # Stopping, the server sends the rest.
    server.stop()
    sent = b"".join(bodies)
    for name in [b"create", b"queue", b"launch", b"assign", b"record"]:
        # A name of a span in protobuf: its field, its length.
        assert bytes([0x2A, len(name)]) + name in sent, name
    assert sent.count(bytes([0x2A, 6]) + b"assign") == 1
    collector.shutdown()
    monkeypatch.undo()
    server.start()
    assert Sandbox.connect(sandbox.sandbox_id).kill()


def test_services_are_started_with_strict_modes(server):
    server.stop()
    within, server.within = server.within, ["sh", "-c", 'umask 0077; exec "$@"', "sh"]
    try:
        server.start()
        assert len(volatile.parts(server.pid)) == 2
        sandbox = running()
        sandbox.files.write("file", "text")
        assert sandbox.kill()
        server.stop()
    finally:
        server.within = within
    server.start()


def test_without_the_rights_to_change_its_account_it_runs_in_one_process(server):
    server.stop()
    within, server.within = server.within, ["setpriv", "--bounding-set=-setuid", "--inh-caps=-setuid", "--"]
    try:
        server.start()
        assert len(volatile.parts(server.pid)) == 1
        # Which sandboxes need too; but nothing is lost.
        assert "the server runs in one process, as root, and not as 60888: it takes CAP_SETUID" in server.tail()
        server.stop()
    finally:
        server.within = within
    server.start()
