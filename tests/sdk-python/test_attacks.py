"""Attacks that are more than one command: on what all sandboxes share, and on the server from the network. Each test is named
for what it tries."""

import fcntl
import json
import os
import socket
import threading
import time
from pathlib import Path

import pytest
from e2b import CommandExitException, Sandbox

from harness import volatile


def python(code):
    return f"python3 - <<'END'\n{code}\nEND"


def as_root(sandbox, command, **options):
    return sandbox.commands.run(command, user="root", timeout=600, **options).stdout


OPEN = """
import socket
for name, *arguments in [
    ("SOCK_PACKET", 2, 10, 0x300), ("SOCK_PACKET without blocking", 2, 10 | 0o4000, 0x300), ("AF_PACKET", 17, 3, 0x300),
    ("AF_VSOCK", 40, 1, 0), ("AF_ALG", 38, 5, 0), ("AF_KEY", 15, 3, 2), ("AF_TIPC", 30, 1, 0), ("SCTP", 2, 1, 132),
    ("DCCP", 2, 6, 33), ("L2TP", 2, 2, 115), ("nftables", 16, 3, 12), ("IPsec", 16, 3, 6), ("kernel crypto", 16, 3, 21),
    ("MPTCP", 2, 1, 262), ("MPTCP over IPv6", 10, 1, 262), ("UDP-Lite", 2, 2, 136), ("raw ICMP", 2, 3, 1), ("raw IP", 2, 3, 255),
    ("raw ICMPv6", 10, 3, 58), ("families of modules", 16, 3, 16), ("sockets of others", 16, 3, 4), ("device events", 16, 3, 15),
]:
    try:
        socket.socket(*arguments).close()
        print(name)
    except OSError:
        pass
"""


def test_sockets_below_the_internet_protocols_are_refused(sandbox):
    """An IPv4 socket of type SOCK_PACKET is a packet socket to the kernel: forged frames, and a large piece of its code."""
    assert as_root(sandbox, python(OPEN)) == ""


def test_sockets_that_programs_need_still_open(sandbox):
    code = "import socket\nfor a in [(2, 1), (2, 2), (10, 1), (2, 2, 1), (2, 1, 6), (2, 2, 17), (1, 5), (16, 3, 0), (16, 3, 9)]: socket.socket(*a).close()"
    as_root(sandbox, python(code + "\nsocket.socketpair()"))


def test_asynchronous_io_of_the_host_cannot_be_used_up(sandbox):
    used = python(
        """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
made = 0
while made < 1000 and libc.syscall(206, 100, ctypes.byref(ctypes.c_ulong(0))) == 0: made += 1
print(made)
"""
    )
    assert as_root(sandbox, used) == "0\n"


def test_how_the_host_was_booted_is_not_told(sandbox):
    assert as_root(sandbox, "cat /proc/cmdline /proc/interrupts") == ""


def test_shocker_opening_files_by_handle_is_refused(sandbox):
    """Root may read any directory, and file handles know no mount namespace: 2 is the root of most file systems."""
    code = """
import ctypes, os
class Handle(ctypes.Structure): _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("id", ctypes.c_uint * 2)]
libc = ctypes.CDLL(None, use_errno=True)
for path in ["/", "/run/sandcove", "/dev/null"]:
    at = os.open(path, os.O_RDONLY)
    for number in [2, 256]:
        handle = Handle(8, 1, (ctypes.c_uint * 2)(number, 0))
        print(libc.syscall(304, at, ctypes.byref(handle), os.O_RDONLY), ctypes.get_errno())
"""
    assert as_root(sandbox, python(code)) == "-1 1\n" * 6


def test_the_agents_log_is_no_way_out(sandbox):
    """Descriptors of PID 1 are links to files of the host; root may read its own sandbox's log by them, and no more."""
    code = """
import os
for descriptor in os.listdir("/proc/1/fd"):
    path = f"/proc/1/fd/{descriptor}"
    target = os.readlink(path)
    if not target.startswith("/") or target.startswith("/dev/"): continue
    for flags in [os.O_WRONLY, os.O_RDWR]:
        try: os.open(path, flags); print("opened", target, flags)
        except PermissionError: pass
    for beside in ["..", "../..", "../../../sandcove.db"]:
        if os.path.exists(f"{path}/{beside}"): print("beside", target, beside)
"""
    assert as_root(sandbox, python(code)) == ""


# Takes every descriptor of PID 1, and asks by each for what btrfs tells of itself.
TAKEN = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
first = libc.syscall(434, 1, 0)
for number in range(64):
    descriptor = libc.syscall(438, first, number, 0)
    about = ctypes.create_string_buffer(1024)
    if descriptor >= 0 and libc.ioctl(descriptor, ctypes.c_ulong(0x8400941F), about) == 0: print("asked by", number)
    if descriptor >= 0 and libc.fstatfs(descriptor, about) == 0 and int.from_bytes(about[:8], "little") == 0x9123683E:
        print("a file of the pool:", number)
"""


def test_the_agents_log_asks_the_pool_nothing(sandbox, server):
    """Root may take the descriptors of its PID 1, and with a file of the host's pool it could have the pool write to disk."""
    assert as_root(sandbox, python(TAKEN)) == ""
    record = json.loads((server.data_dir / "run" / sandbox.sandbox_id / "jail.json").read_text())
    links = {volatile.link(descriptor) or "closed" for descriptor in volatile.matching(f"/proc/{record['pid']}/fd", "*")}
    assert not any(str(server.data_dir) in link or "agent.log" in link for link in links), links
    assert any("/memfd:log" in link for link in links), "PID 1 has a log"
    assert not (server.data_dir / "pool/sandboxes" / sandbox.sandbox_id / "agent.log").exists()


def test_code_does_not_run_for_whoever_knows_the_id(interpreter, server):
    """Every shared address of a service contains the id."""
    import requests

    def execute(**headers):
        to = {"E2b-Sandbox-Id": interpreter.sandbox_id, "E2b-Sandbox-Port": "49999", **headers}
        code = {"code": "open('/tmp/ran', 'a').write('x')"}
        return requests.post(f"{server.url}/execute", json=code, headers=to, timeout=120).status_code

    other = Sandbox.create(timeout=1800)
    try:
        assert [execute(), execute(**{"X-Access-Token": other._envd_access_token})] == [403, 403]
    finally:
        other.kill()
    assert not interpreter.files.exists("/tmp/ran")
    assert execute(**{"X-Access-Token": interpreter._envd_access_token}) == 200
    assert interpreter.files.read("/tmp/ran") == "x"
    # What the official client does goes on, contexts included.
    context = interpreter.create_code_context()
    assert interpreter.run_code("1 + 1", context=context).text == "2"


def test_the_boot_message_is_gone_when_code_runs(sandbox):
    """It holds the access token. The only file in memory is the log."""
    assert as_root(sandbox, "ls -l /proc/*/fd 2>/dev/null | grep memfd | grep -vc /memfd:log || true") == "0\n"
    with pytest.raises(CommandExitException):
        sandbox.commands.run("cat /proc/1/mem /proc/1/maps /proc/1/environ", user="user")


def test_empty_files_in_memory_count_as_memory(sandbox, server):
    fill = "import os\nos.makedirs('/dev/shm/i')\nfor n in range(3_000_000): os.mknod(f'/dev/shm/i/{n}')"
    with pytest.raises(CommandExitException):
        as_root(sandbox, python(fill))
    assert sandbox.commands.run("echo alive").stdout == "alive\n" and server.healthy()


def ask(server, request: str, patience: float = 300) -> list[str]:
    """Sends bytes as they are; the status lines of all answers until the server closes the connection, or says nothing more."""
    answer = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as connection:
        connection.sendall(request.encode())
        connection.settimeout(patience)
        try:
            while part := connection.recv(65536):
                answer += part
        except OSError:
            pass
    return [line.split(" ")[1] for line in answer.decode(errors="replace").splitlines() if line.startswith("HTTP/1.")]


@pytest.mark.parametrize(
    "path",
    ["/init", "//init", "/%69nit", "/%2569nit", "/x/../init", "/init/", "/INIT", "/%2finit", "/init?x", "/init%00", "/init;x",
     "/\\init", "http://x/init", "init", "/freeze", "/upgrade"],
)  # fmt: skip
def test_the_agents_control_routes_are_closed_to_clients(sandbox, server, path):
    body = '{"accessToken":"stolen"}'
    statuses = ask(
        server,
        f"POST {path} HTTP/1.1\r\nHost: 49983-{sandbox.sandbox_id}.localhost\r\n"
        f"X-Access-Token: {sandbox._envd_access_token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}",
    )
    assert statuses in (["404"], ["400"])
    assert sandbox.commands.run("echo mine").stdout == "mine\n"


SMUGGLED = "POST /smuggled HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    "framing",
    ["Content-Length: 5\r\nTransfer-Encoding: chunked", f"Transfer-Encoding: chunked\r\nContent-Length: {5 + len(SMUGGLED)}",
     "Transfer-Encoding: xchunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
     f"Content-Length: 0\r\nContent-Length: {len(SMUGGLED)}", "Content-Length: +5", "Content-Length : 5"],
)  # fmt: skip
def test_no_request_is_smuggled_to_a_service(sandbox, server, framing):
    """Whatever the framing says, the service never sees a request of which the server does not know."""
    service = """
import http.server
class Seen(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        with open("/tmp/seen", "a") as log: log.write(self.path + "\\\\n")
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Seen).serve_forever()
"""
    sandbox.files.write("/tmp/service.py", service.replace("\\\\n", "\\n"))
    sandbox.commands.run("python3 /tmp/service.py", background=True, timeout=0)
    sandbox.commands.run("until (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.05; done")
    host = f"Host: 8000-{sandbox.sandbox_id}.localhost\r\n"
    assert ask(server, f"POST /first HTTP/1.1\r\n{host}Content-Length: 0\r\nConnection: close\r\n\r\n") == ["200"]
    ask(server, f"POST /second HTTP/1.1\r\n{host}{framing}\r\n\r\n0\r\n\r\n{SMUGGLED}", patience=5)
    assert "/smuggled" not in sandbox.files.read("/tmp/seen")


def test_another_sandboxs_token_opens_nothing(sandbox, server):
    other = Sandbox.create(timeout=1800)
    try:
        for address in [
            f"Host: 49983-{sandbox.sandbox_id}.localhost",
            f"Host: localhost\r\nE2b-Sandbox-Id: {sandbox.sandbox_id}\r\nE2b-Sandbox-Port: 49983",
        ]:
            request = "POST /process.Process/List HTTP/1.1\r\n{}\r\nX-Access-Token: {}\r\nContent-Type: application/json\r\n" \
                "Content-Length: 2\r\nConnection: close\r\n\r\n{{}}"
            assert ask(server, request.format(address, other._envd_access_token)) == ["401"]
            assert ask(server, request.format(address, sandbox._envd_access_token)) == ["200"]
    finally:
        other.kill()


def test_a_signature_for_one_file_opens_no_other(sandbox, server):
    import requests

    sandbox.files.write("/tmp/shared", "shared")
    sandbox.files.write("/tmp/private", "private")
    url = sandbox.download_url("/tmp/shared")
    assert "signature" in url and requests.get(url, timeout=120).text == "shared"
    for changed in [url.replace("shared", "private"), url.replace("signature=v1_", "signature=v1_A"), url.split("&signature")[0]]:
        # 502: without an id in the address, the signature is what tells whose URL it is.
        assert requests.get(changed, timeout=120).status_code in (401, 502)
    assert requests.post(url, files={"file": b"x"}, timeout=120).status_code in (401, 502)


def test_a_service_that_never_ends_its_answer_holds_up_nobody(sandbox, server):
    sandbox.commands.run("python3 -c \"import socket,time\ns=socket.create_server(('127.0.0.1',8001),backlog=64)\nk=[]\nwhile 1: k.append(s.accept())\"", background=True, timeout=0)  # fmt: skip
    request = f"GET / HTTP/1.1\r\nHost: 8001-{sandbox.sandbox_id}.localhost\r\n\r\n"
    stuck = [threading.Thread(target=ask, args=(server, request, 30)) for _ in range(32)]
    for one in stuck:
        one.start()
    assert server.healthy() and sandbox.commands.run("echo free").stdout == "free\n"
    for one in stuck:
        one.join()


def test_no_interpreter_is_left_behind_in_the_hosts_view_of_files(server):
    """Interpreters are forked into sandboxes that are being born. Many at once, so that some are forked at the worst time."""
    from concurrent.futures import ThreadPoolExecutor

    from e2b_code_interpreter import Sandbox as Interpreter

    look = "import os\nprint(os.path.exists('/layers'), os.path.exists('/run/sandcove'), os.path.samefile('/', '/proc/1/root'))"

    def seen(_):
        sandbox = Interpreter.create(timeout=1800)
        try:
            ran = sandbox.run_code(look)
            return "".join(ran.logs.stdout) + (ran.error.value if ran.error else "")
        finally:
            sandbox.kill()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(seen, range(64))) == {"False True True\n"}


@pytest.mark.parametrize("shared", ["/dev/null", "/dev/urandom", "/run/sandcove/sandcove-agent"])
def test_locks_and_watches_are_not_shared(sandbox, shared):
    """Files that all sandboxes have: a lock would tell another team something, without any network."""
    other = Sandbox.create(timeout=1800)
    try:
        holder = sandbox.commands.run(f"flock --exclusive {shared} -c 'echo held; sleep 600'", user="root", background=True, timeout=0)
        assert next(iter(holder))[0] == "held\n"
        assert sandbox.commands.run(f"flock --nonblock {shared} true || echo locked", user="root").stdout == "locked\n"
        assert other.commands.run(f"flock --nonblock {shared} true || echo locked", user="root").stdout == ""
        sandbox.commands.run("touch -d 2001-01-01 /dev/null", user="root")
        assert other.commands.run("stat -c %y /dev/null").stdout[:4] != "2001" and time.gmtime(os.stat("/dev/null").st_mtime)[0] != 2001
        holder.kill()
    finally:
        other.kill()


def test_no_ipv6_neighbours_are_made_on_the_host(sandbox):
    """One table holds the neighbours of the host and of all sandboxes; it has room for a thousand."""

    def entries():
        return int(Path("/proc/net/stat/ndisc_cache").read_text().splitlines()[1].split()[0], 16)

    flood = """
import socket
sender = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
for host in range(200):
    try: sender.sendto(b"x", (f"fe80::7:{host:x}", 9, 0, socket.if_nametoindex("eth0")))
    except OSError: pass
local = socket.create_server(("::1", 0), family=socket.AF_INET6)
socket.create_connection(local.getsockname()[:2])
"""
    before = entries()
    as_root(sandbox, python(flood))
    assert entries() < before + 50
    assert "eth0" not in as_root(sandbox, "cat /proc/net/if_inet6")


def owner(namespace):
    """The user namespace that has rights over a namespace."""
    NS_GET_USERNS = 0xB701
    with open(namespace) as opened:
        descriptor = fcntl.ioctl(opened, NS_GET_USERNS)
        try:
            return os.fstat(descriptor).st_ino
        finally:
            os.close(descriptor)


def test_nobody_inside_has_rights_over_the_network(server, sandbox):
    record = json.loads((server.data_dir / "run" / sandbox.sandbox_id / "jail.json").read_text())
    own = os.stat(f"/proc/{record['pid']}/ns/user").st_ino
    assert owner(f"/proc/{record['pid']}/ns/mnt") == own
    assert owner(f"/proc/{record['pid']}/ns/net") != own
    # What this takes from them they have by settings.
    code = "import socket; socket.create_server(('127.0.0.1', 81)); socket.socket(2, 2, 1)"
    sandbox.commands.run(f'python3 -c "{code}"', user="user")
    sandbox.commands.run(f'python3 -c "{code}"', user="root")


def test_nobody_inside_gets_the_control_socket(server):
    request = b"POST /init HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
    attack = python(f"""
import socket
control = socket.socket(socket.AF_UNIX)
control.connect("\\0sandcove-control")
try:
    control.sendall({request!r})
    print("answer:", control.recv(99))
except OSError as error:
    print("closed:", error)
""")
    with Sandbox.create() as sandbox:
        for user in ("user", "root"):
            answer = sandbox.commands.run(attack, user=user, timeout=600).stdout
            assert answer == "answer: b''\n" or answer.startswith("closed:"), answer
