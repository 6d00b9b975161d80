"""What a sandbox may reach by name. The server runs in a network of its own, with a small internet around it."""

import os
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2b import CommandExitException, Sandbox

from durability import clear
from harness.internet import (
    BANNER, ELSEWHERE, EXAMPLE, HOST, LONG, ORG, OTHER_RESOLVER, PRIVATE, RESOLVER, WHOLE, WWW, Internet,
)
from harness.server import open_descriptors, wait_until

EVERYTHING = "0.0.0.0/0"


@pytest.fixture(scope="module", autouse=True)
def internet(server):
    """The usual server, started again behind a small internet."""
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    clear(server)
    server.stop()
    os.environ["SANDCOVE_DNS"] = RESOLVER
    try:
        with Internet() as internet:
            internet.forward(server.port)
            server.within = internet.command
            try:
                server.start()
                yield internet
                clear(server)
            finally:
                server.stop()
    finally:
        del os.environ["SANDCOVE_DNS"]
        server.within = []
        server.start()


@contextmanager
def sandbox(allow=(), deny=(EVERYTHING,), **options):
    network = {"allow_out": list(allow), "deny_out": list(deny)}
    if "dns_servers" in options:
        network["dns_servers"] = options.pop("dns_servers")
    sandbox = Sandbox.create(timeout=1800, network=network, **options)
    try:
        yield sandbox
    finally:
        sandbox.kill()


def run(sandbox, command):
    """What a command prints, or nothing when it fails."""
    try:
        return sandbox.commands.run(command, user="root", timeout=600).stdout.strip()
    except CommandExitException:
        return None


def get(sandbox, url, *options, patience=120):
    """The address a request arrived at."""
    return run(sandbox, f"curl -sk --max-time {patience} {' '.join(options)} {url}")


def closed(sandbox, url, *options):
    """Whether a request fails."""
    return get(sandbox, url, *options, patience=2) is None


def python(sandbox, code):
    return run(sandbox, f"python3 - <<'END'\n{code}\nEND")


def look_up(sandbox, name, server=None, attempts=60):
    """The address of a name, asked of the server it knows or of another one."""
    server = repr(server) if server else "[line.split()[1] for line in open('/etc/resolv.conf') if 'nameserver' in line][0]"
    return python(
        sandbox,
        f"""
import socket, struct
query = struct.pack('>HHHHHH', 7, 256, 1, 0, 0, 0)
query += b''.join(bytes([len(label)]) + label.encode() for label in '{name}'.split('.')) + bytes([0, 0, 1, 0, 1])
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asking.settimeout(1)
for _ in range({attempts}):
    asking.sendto(query, ({server}, 53))
    try:
        print(socket.inet_ntoa(asking.recv(512)[-4:]))
        break
    except TimeoutError:
        continue
else:
    raise SystemExit(1)
""",
    )


def unanswered(sandbox, server=None):
    return look_up(sandbox, "example.com", server, attempts=2) is None


def test_an_exact_name_opens_tls_and_plain_requests():
    with sandbox(["Example.COM"]) as box:
        assert get(box, "https://example.com") == EXAMPLE
        assert get(box, "https://EXAMPLE.com") == EXAMPLE
        assert get(box, "http://example.com") == EXAMPLE
        for url in ["https://www.example.com", "http://www.example.com", "https://example.org", "http://example.org"]:
            assert closed(box, url), url
        # By address: a TLS connection names nobody, a plain request says whom it means.
        assert closed(box, f"https://{EXAMPLE}")
        assert closed(box, f"http://{EXAMPLE}")
        assert closed(box, f"http://{EXAMPLE}", "-H 'Host: example.org'")
        assert get(box, f"http://{ORG}", "-H 'Host: example.com'") == EXAMPLE
        assert get(box, "https://example.com", f"--resolve example.com:443:{ORG}") == EXAMPLE


def test_a_forged_hosts_file_leads_nowhere():
    with sandbox(["example.com"]) as box:
        assert run(box, f"echo '{ORG} example.com' >> /etc/hosts; getent ahostsv4 example.com").startswith(ORG)
        assert get(box, "https://example.com") == EXAMPLE


def test_wildcards():
    with sandbox(["*.example.com"]) as box:
        assert get(box, "https://www.example.com") == WWW
        assert get(box, f"https://{LONG}") == WWW
        assert closed(box, "https://example.com") and closed(box, "https://example.org")
    with sandbox(["*"]) as box:
        assert get(box, "https://example.com") == EXAMPLE
        assert get(box, "http://example.org") == ORG
        assert closed(box, f"https://{EXAMPLE}")


def test_names_and_addresses_together():
    with sandbox(["example.com", ORG, "93.184.216.44/32"]) as box:
        assert get(box, "https://example.com") == EXAMPLE
        assert get(box, f"https://{ORG}") == ORG and get(box, f"http://{ELSEWHERE}") == ELSEWHERE
        assert banner(box, ORG) == "SSH-2.0-world"
        assert closed(box, f"https://{WWW}") and banner(box, WWW, patience=1) is None


def test_names_do_not_lead_to_where_sandboxes_must_not_go(server):
    with sandbox(["*", "10.0.0.0/8"]) as box:
        for name in ["private", "host", "loop"]:
            host = f"{name}.example.com"
            for url in [f"https://{host}", f"http://{host}", f"http://{host}:{server.port}/health"]:
                assert closed(box, url, f"--connect-to ::{EXAMPLE}:"), url
        assert closed(box, f"http://{PRIVATE}") and closed(box, f"http://{HOST}")
        assert get(box, "http://example.com") == EXAMPLE


def banner(box, address, patience=120):
    return python(
        box,
        f"""
import socket
peer = socket.create_connection(('{address}', {BANNER}), timeout={patience})
print(peer.recv(99).decode())
""",
    )


def test_nothing_is_read_ahead_without_names():
    """A program that waits for the other side to speak gets its first word at once."""
    for rules in [{"deny": []}, {"allow": [EXAMPLE]}, {"allow": ["example.com", EVERYTHING]}]:
        with sandbox(**rules) as box:
            assert banner(box, EXAMPLE) == "SSH-2.0-world", rules


def test_a_connection_closed_on_one_side_is_passed_on():
    with sandbox(["example.com"]) as box:
        assert (
            python(
                box,
                f"""
import socket
peer = socket.create_connection(('example.com', {WHOLE}), timeout=300)
head = b'POST / HTTP/1.1\\r\\nHost: example.com\\r\\n\\r\\n'
for byte in head:
    peer.send(bytes([byte]))
peer.sendall(b'x' * (1000000 - len(head)))
peer.shutdown(socket.SHUT_WR)
print(peer.makefile().read().splitlines()[-1])
""",
            )
            == "1000000"
        )


def test_name_servers():
    with sandbox(["example.com"]) as box:
        assert look_up(box, "example.com") == look_up(box, "example.com", RESOLVER) == EXAMPLE
        assert unanswered(box, OTHER_RESOLVER)
    with sandbox(["example.com"], dns_servers=[OTHER_RESOLVER]) as box:
        assert look_up(box, "example.com") == look_up(box, "example.com", OTHER_RESOLVER) == ELSEWHERE
        assert unanswered(box, RESOLVER)
        assert get(box, "https://example.com") == ELSEWHERE
        assert banner(box, OTHER_RESOLVER) == "SSH-2.0-world", "all traffic to them may pass"
    with sandbox(["example.com"], dns_servers=[]) as box:
        assert unanswered(box) and unanswered(box, RESOLVER)
        assert get(box, "https://example.com", f"--resolve example.com:443:{EXAMPLE}") == EXAMPLE
    with sandbox(["example.com"], dns_servers=[OTHER_RESOLVER, OTHER_RESOLVER]) as box:
        assert look_up(box, "example.com") == ELSEWHERE
    with sandbox(dns_servers=[OTHER_RESOLVER]) as box:
        assert unanswered(box, OTHER_RESOLVER), "without names they change nothing"


def test_questions_for_names_follow_the_rules_of_addresses():
    for allow in [OTHER_RESOLVER, "8.8.0.0/16"]:
        with sandbox([allow]) as box:
            assert look_up(box, "example.com", OTHER_RESOLVER) == ELSEWHERE
            assert unanswered(box, RESOLVER)


def test_an_update_replaces_everything():
    with sandbox(["example.com"]) as box:
        assert get(box, "https://example.com") == EXAMPLE
        for update, opened, shut in [
            ({"allow_out": ["*.example.com"], "deny_out": [EVERYTHING]}, "https://www.example.com", "https://example.com"),
            ({"allow_out": [ORG], "deny_out": [EVERYTHING]}, f"https://{ORG}", "https://www.example.com"),
            ({"deny_out": [EVERYTHING]}, None, f"https://{ORG}"),
            ({}, "https://www.example.com", None),
            ({"deny_out": [EXAMPLE]}, f"https://{ORG}", f"https://{EXAMPLE}"),
            ({"allow_out": ["example.org", EXAMPLE], "deny_out": [EVERYTHING]}, f"https://{EXAMPLE}", "https://example.com:444"),
            ({"allow_internet_access": False}, None, f"https://{EXAMPLE}"),
            ({"allow_out": ["*"], "deny_out": [EVERYTHING]}, "https://example.org", f"https://{ORG}"),
            ({"allow_internet_access": True}, f"https://{ORG}", None),
        ]:
            box.update_network(update)
            assert opened is None or get(box, opened) is not None, update
            assert shut is None or closed(box, shut), update


def test_an_update_cuts_what_it_no_longer_allows():
    with sandbox(["example.com", "example.org"]) as box:
        hold = """
import socket, time
def hold(name):
    peer = socket.create_connection((name, 8080), timeout=600)
    peer.sendall(f'GET / HTTP/1.1\\r\\nHost: {name}\\r\\n\\r\\n'.encode())
    return peer
cut, kept = hold('example.com'), hold('example.org')
time.sleep(2)
print('open', flush=True)
try:
    print('cut' if cut.recv(9) == b'' else 'answered', flush=True)
except ConnectionResetError:
    print('cut', flush=True)
kept.shutdown(socket.SHUT_WR)
print(kept.recv(9), flush=True)
"""
        box.files.write("/tmp/hold.py", hold)
        handle = box.commands.run("python3 /tmp/hold.py > /tmp/held 2>&1", background=True, timeout=0)
        wait_until(lambda: "open" in (run(box, "cat /tmp/held") or ""), what="the connections are open")
        box.update_network({"allow_out": ["example.org"], "deny_out": [EVERYTHING]})
        handle.wait()
        assert run(box, "cat /tmp/held").split("\n")[1:] == ["cut", "b'HTTP/1.1 '"]


@pytest.mark.parametrize("mode", ["memory", "filesystem"])
def test_rules_outlive_a_pause(mode):
    with sandbox(["example.com"], dns_servers=[RESOLVER]) as box:
        box.pause(**({"mode": "filesystem"} if mode == "filesystem" else {}))
        box = Sandbox.connect(box.sandbox_id)
        assert get(box, "https://example.com") == EXAMPLE
        assert closed(box, "https://example.org") and closed(box, f"http://{EXAMPLE}")


@pytest.mark.parametrize("how", ["kill9", "stop"])
def test_rules_outlive_the_server(server, how):
    with sandbox(["example.com"]) as box:
        assert get(box, "https://example.com") == EXAMPLE
        getattr(server, how)()
        server.start()
        assert get(box, "https://example.com") == EXAMPLE
        assert closed(box, "https://example.org") and closed(box, f"http://{EXAMPLE}")


def test_a_restart_opens_nothing_for_a_moment(server):
    with sandbox([ORG]) as box:
        box.files.write(
            "/tmp/try.py",
            f"""
import socket, time
print("trying", flush=True)
while True:
    try:
        socket.create_connection(("{EXAMPLE}", 80), timeout=0.02).close()
        print("open", flush=True)
    except OSError:
        pass
""",
        )
        tries = box.commands.run("python3 /tmp/try.py > /tmp/tried", background=True, timeout=0)
        wait_until(lambda: run(box, "cat /tmp/tried"), what="it tries")
        server.kill9()
        server.start()
        assert get(box, f"http://{ORG}") == ORG
        assert run(box, "cat /tmp/tried") == "trying"
        assert run(box, f"kill -0 {tries.pid}") == "", "it tried all the time"


def test_one_sandbox_does_not_take_all_connections(server):
    wait_until(lambda: not proxies(server), what="earlier sandboxes are gone")
    before = open_descriptors(server.pid)
    with sandbox(["example.com"]) as greedy, sandbox(["example.com"]) as other:
        greedy.files.write(
            "/tmp/hold.py",
            f"""
import socket, time
held = []
for _ in range(340):
    peer = socket.create_connection(("example.com", {WHOLE}), timeout=600)
    peer.send(b"GET / HTTP/1.1\\r\\nHost: example.com\\r\\n\\r\\n")
    held.append(peer)
print("held", flush=True)
time.sleep(600)
""",
        )
        greedy.commands.run("python3 /tmp/hold.py > /tmp/held", background=True, timeout=0)
        wait_until(lambda: run(greedy, "cat /tmp/held") == "held", what="it holds connections")
        assert get(other, "https://example.com") == EXAMPLE
        # Two descriptors each for as many as may pass, 256; the rest wait in the kernel, which has room for as many as are left.
        assert open_descriptors(server.pid) - before < 2 * 256 + 64
    wait_until(lambda: open_descriptors(server.pid) - before < 64, what="connections of a killed sandbox are closed")


def proxies(server):
    """Addresses of the egress proxies."""
    found = set()
    for line in Path(f"/proc/{server.pid}/net/tcp").read_text().splitlines()[1:]:
        (address, port), state = line.split()[1].split(":"), line.split()[3]
        address = socket.inet_ntoa(bytes.fromhex(address)[::-1])
        if state == "0A" and address.startswith("10."):
            found.add((address, int(port, 16)))
    return found


def rules(internet):
    """Chains of single sandboxes."""
    listed = subprocess.run([*internet.command, "nft", "list", "ruleset"], check=True, capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if "jump " in line]


def test_an_egress_proxy_is_its_sandboxs_own_and_gone_with_it(server, internet):
    wait_until(lambda: not proxies(server) and not rules(internet), what="earlier sandboxes have left nothing")
    with sandbox(["example.com"]) as box, sandbox([]) as other:
        [(address, port)] = proxies(server)
        url = f"http://{address}:{port}"
        assert closed(box, url, "-H 'Host: example.com'"), "it takes only what was meant for others"
        assert closed(other, url, "-H 'Host: example.com'"), "and only its own sandbox's"
        there = subprocess.run([*internet.command, "curl", "-s", "--max-time", "20", "-H", "Host: example.com", url])
        assert there.returncode != 0, "not even the host's own"
    wait_until(lambda: not proxies(server) and not rules(internet), what="egress proxies and rules are gone")
