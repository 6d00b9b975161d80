"""What no sandbox may reach, whatever its rules: private networks, cloud metadata, the host, other sandboxes. At every address that is
tried a service answers: to the host, and to the sandbox once the rule that is tested is taken away."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import pytest

from durability import clear
from e2b import Sandbox
from harness.internet import EXAMPLE, HOST, HOST_ADDRESSES, INNER, ORG, OTHER_RESOLVER, PRIVATE_RANGES
from harness.server import API_KEY, wait_until
from test_names import closed, get, internet, python, run, sandbox  # noqa: F401: the fixture

# Rules that name the addresses, and rules that have connections go through the server.
RULES = {
    "no rules": {"deny": ()},
    "addresses": {"allow": (EXAMPLE, *PRIVATE_RANGES, HOST, *HOST_ADDRESSES)},
    "ranges": {"allow": (EXAMPLE, "10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16")},
    "names": {"allow": ("*", "10.0.0.0/8")},
}


@pytest.fixture(params=RULES)
def box(request, internet):  # noqa: F811
    with sandbox(**RULES[request.param]) as box:
        # The name comes from the request, so a request by address counts for the name that resolves to it.
        assert get(box, "http://example.com" if request.param == "names" else f"http://{EXAMPLE}") == EXAMPLE
        yield box


@pytest.fixture
def plain(internet):  # noqa: F811
    with sandbox(deny=()) as plain:
        yield plain


def on_the_host(internet, *command):  # noqa: F811
    return subprocess.run([*internet.command, *command], check=True, capture_output=True, text=True).stdout


def answers_the_host(internet, url):  # noqa: F811
    return on_the_host(internet, "curl", "-s", "--max-time", "120", url)


def answering(box, urls, patience=3):
    """Those that answer a sandbox, of several it asks at once."""
    asked = [f"{{ curl -gsk --max-time {patience} -o /dev/null {shlex.quote(url)} && echo {shlex.quote(url)}; }} &" for url in urls]
    return set(run(box, f"{' '.join(asked)} wait").split())


def all_answer(box, urls):
    """A control."""
    wait_until(lambda: answering(box, urls, patience=30) == urls, what="everything answers")


@contextmanager
def without(internet, server, *what):  # noqa: F811
    """Takes rules out of the firewall; a server that starts puts everything back."""
    listed = json.loads(on_the_host(internet, "nft", "--json", "list", "tables"))["nftables"]
    [table] = [one["table"]["name"] for one in listed if "table" in one]
    for kind, name in what:
        on_the_host(internet, "nft", "flush", kind, "inet", table, name)
    yield
    server.stop()
    server.start()


def test_private_networks_and_metadata_do_not_answer(box, internet):  # noqa: F811
    for address in PRIVATE_RANGES:
        assert answers_the_host(internet, f"http://{address}/") == address
    assert not answering(box, [f"{scheme}://{address}/" for address in PRIVATE_RANGES for scheme in ("http", "https")])


def test_only_the_rule_keeps_private_networks_away(plain, internet, server):  # noqa: F811
    urls = {f"http://{address}/" for address in PRIVATE_RANGES}
    with without(internet, server, ("set", "blocked")):
        all_answer(plain, urls)
    assert not answering(plain, urls)


def host_urls(box):
    """Every way to say the host: its public address, private ones, and the sandbox's gateway."""
    gateway = run(box, "ip route | awk '/default/ {print $3}'")
    return {f"http://{address}/" for address in (HOST, *HOST_ADDRESSES, gateway)}


def test_the_host_does_not_answer(box, internet):  # noqa: F811
    urls = host_urls(box)
    for url in urls:
        assert answers_the_host(internet, url) in url
    assert not answering(box, [*urls, *(url.replace("http", "https") for url in urls)])
    assert run(box, f"ping -c 1 -W 1 {HOST}") is None


def test_only_the_rule_keeps_the_host_away(plain, internet, server):  # noqa: F811
    urls = host_urls(plain)
    with without(internet, server, ("chain", "input")):
        all_answer(plain, urls)
    assert not answering(plain, urls)


def test_other_sandboxes_do_not_answer(plain, internet, server):  # noqa: F811
    with sandbox(deny=()) as other:
        other.commands.run("cd $(mktemp -d); echo here > index.html; python3 -m http.server 8000 --bind 0.0.0.0", background=True, timeout=0)
        address = run(other, "hostname -I")
        urls = [f"http://{address}:8000/", f"http://{address}:49983/health"]
        run(other, f"until curl -s {urls[0]}; do sleep 0.05; done")
        assert not answering(plain, urls)
        with without(internet, server, ("chain", "forward")):
            assert get(plain, urls[0]) == "here"
            all_answer(plain, set(urls))
        assert not answering(plain, urls)


def test_the_next_version_of_the_protocol_leads_nowhere(plain, internet):  # noqa: F811
    index = int(run(plain, "cat /sys/class/net/eth0/iflink"))
    [link] = [link for link in json.loads(on_the_host(internet, "ip", "--json", "address")) if link["ifindex"] == index]
    assert [one["family"] for one in link["addr_info"]] == ["inet"], "the host has no other address on the link"
    assert run(plain, "ip -6 route show default") == ""
    assert run(plain, "ip -6 address add fd00::2/64 dev eth0") is None, "it cannot give itself an address"
    assert not answering(plain, ["http://[fd00::1]/", "http://[2001:db8::1]/"])


def in_network_of(box, server, code):
    """A command that runs `code` in the network of a sandbox with rights that nobody inside has: raw sockets."""
    record = json.loads((server.data_dir / "run" / box.sandbox_id / "jail.json").read_text())
    return ["nsenter", "--target", str(record["pid"]), "--net", sys.executable, "-uc", code]


def python_in_network_of(box, server, code):
    return subprocess.run(in_network_of(box, server, code), check=True, capture_output=True, text=True, timeout=1200).stdout.strip()


# Who says that a datagram is prohibited, and where it was going: of the first such message that is about port 7777.
PROHIBITED = """
import socket, struct
listening = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
listening.settimeout(1)
def prohibited(send):
    # The kernel sends one such message a second, and six at first.
    for _ in range(30):
        send()
        try:
            while True:
                message, sender = listening.recvfrom(999)
                kind, code, port = message[20], message[21], struct.unpack('>H', message[50:52])[0]
                if (kind, code, port) == (3, 13, 7777):
                    return sender[0], socket.inet_ntoa(message[44:48])
        except TimeoutError:
            pass
def ask(address):
    return prohibited(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', (address, 7777)))
"""
# Gives a datagram any source.
FORGED = """
import socket, struct
def datagram(source, address):
    udp = struct.pack('>HHHH', 5, 7777, 9, 0) + b'x'
    head = struct.pack('>BBHHHBBH4s4s', 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0, socket.inet_aton(source), socket.inet_aton(address))
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW).sendto(head + udp, (address, 0))
"""


def test_what_is_denied_is_answered(internet):  # noqa: F811
    """A program that may not go somewhere hears of it, and does not wait."""
    with sandbox() as box:
        said = python(
            box,
            f"""
import errno, socket
def refusal(work):
    try:
        work()
    except OSError as error:
        print(errno.errorcode.get(error.errno, error))
def ask(server):
    asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asking.settimeout(120)
    asking.connect((server, 53))
    asking.send(b'anything')
    asking.recv(9)
known = [line.split()[1] for line in open('/etc/resolv.conf') if 'nameserver' in line][0]
refusal(lambda: ask(known))
refusal(lambda: ask('{OTHER_RESOLVER}'))
refusal(lambda: socket.create_connection(('{EXAMPLE}', 80), timeout=120))
""",
        )
        assert said.split() == ["EHOSTUNREACH", "EHOSTUNREACH", "ECONNREFUSED"]


def test_answers_tell_nothing_of_the_host(plain, server):
    """Addresses of the host, of other sandboxes and of nobody are the same to who asks."""
    gateway = run(plain, "ip route | awk '/default/ {print $3}'")
    with sandbox(deny=()) as other:
        for address in (HOST, *HOST_ADDRESSES, gateway, run(other, "hostname -I"), "10.99.99.99", *PRIVATE_RANGES[:2]):
            # Refused, where curl would else wait for its time to be up, which is 28.
            assert run(plain, f"curl -s --max-time 120 http://{address}:7777/; echo $?") == "7", address
            assert python_in_network_of(plain, server, f"{PROHIBITED}\nprint(*ask('{address}'))") == f"{gateway} {address}"


def test_nothing_is_answered_to_a_forged_address(plain, server):
    """Else a sandbox could have the host send messages to others, in here and out there."""
    with sandbox(deny=()) as victim:
        own, its = run(plain, "hostname -I"), run(victim, "hostname -I")
        # The way it is sent works when the address is its own: the answer comes.
        send = f"prohibited(lambda: datagram('{own}', '10.99.99.98'))"
        assert python_in_network_of(plain, server, f"{PROHIBITED}{FORGED}\nprint({send}[1])") == "10.99.99.98"
        code = f"{PROHIBITED}\nprint('listening')\nprint(prohibited(lambda: None)[1])"
        with subprocess.Popen(in_network_of(victim, server, code), stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout.readline() == "listening\n"
            assert python_in_network_of(plain, server, f"{FORGED}\nfor _ in range(3): datagram('{its}', '10.99.99.97')") == ""
            # The first that it hears of is what it sends itself.
            run(victim, "echo -n x > /dev/udp/10.99.99.96/7777")
            assert watch.stdout.readline() == "10.99.99.96\n"


def deliveries(server, hook):
    """What became of the deliveries to a webhook: the status of the receiver, or the class of the error."""
    found = server_api(server, "GET", f"/events/webhooks/{hook}/deliveries")["data"]
    attempts = [attempt for delivery in found for attempt in delivery["attempts"]]
    return {attempt.get("responseHttpStatusCode") or attempt["errorClass"] for attempt in attempts}


def server_api(server, method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"X-API-Key": API_KEY, "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(server.url + path, data, headers, method=method), timeout=120) as answer:
        return json.loads(answer.read() or "null")


def test_webhooks_do_not_lead_to_the_host(internet, server):  # noqa: F811
    """Its address is one of the internet by its form, and a firewall around the host does not see what comes from inside."""
    assert answers_the_host(internet, f"http://{HOST}/") == HOST
    hooks = {}
    for address in (EXAMPLE, HOST):
        wish = {"name": address, "url": f"http://{address}/", "events": ["sandbox.lifecycle.created"], "signatureSecret": "0123456789"}
        hooks[address] = server_api(server, "POST", "/events/webhooks", wish)["id"]
    try:
        with sandbox(deny=()):
            for hook in hooks.values():
                wait_until(lambda hook=hook: deliveries(server, hook), what="a delivery is tried")
        assert deliveries(server, hooks[EXAMPLE]) == {200}
        assert deliveries(server, hooks[HOST]) == {"transport_error"}
    finally:
        for hook in hooks.values():
            server_api(server, "DELETE", f"/events/webhooks/{hook}")


def reached_from_outside(internet, patience=3):  # noqa: F811
    """What answers at the address behind the host, to a neighbour of the host."""
    command = [*internet.outside, "curl", "-s", "--max-time", str(patience), f"http://{INNER}/"]
    return subprocess.run(command, capture_output=True, text=True).stdout


def forwarding(internet, interface):  # noqa: F811
    return on_the_host(internet, "cat", f"/proc/sys/net/ipv4/conf/{interface}/forwarding").strip()


def test_the_host_does_not_become_a_router(plain, internet):  # noqa: F811
    """Packets of sandboxes are forwarded, and those of a neighbour are not."""
    assert answers_the_host(internet, f"http://{INNER}/") == INNER
    assert get(plain, f"http://{EXAMPLE}") == EXAMPLE and get(plain, f"http://{INNER}") == INNER
    assert reached_from_outside(internet) == ""
    # The switch for all is the operator's.
    assert forwarding(internet, "all") == "0"
    [table] = [line.split()[2] for line in on_the_host(internet, "nft", "list", "tables").splitlines()]
    on_the_host(internet, "nft", "flush", "set", "inet", table, "opened")
    try:
        assert reached_from_outside(internet, patience=120) == INNER, "only the rule keeps it away"
    finally:
        on_the_host(internet, "nft", "add", "element", "inet", table, "opened", '{ "up0", "lan0" }')
    assert reached_from_outside(internet) == ""


def test_a_restart_knows_what_an_earlier_server_opened(plain, internet, server):  # noqa: F811
    server.kill9()
    server.start()
    assert get(plain, f"http://{EXAMPLE}") == EXAMPLE
    assert reached_from_outside(internet) == ""


def test_forwarding_ends_with_the_last_sandbox(internet, server):  # noqa: F811
    assert forwarding(internet, "up0") == "1"
    clear(server)
    server.stop()
    try:
        assert {forwarding(internet, interface) for interface in ("up0", "lan0", "default", "all")} == {"0"}
    finally:
        server.start()


def test_a_host_that_forwards_is_left_as_it_is(internet, server):  # noqa: F811
    """As one with containers."""
    clear(server)
    server.stop()
    switch = ["sh", "-c", "echo $0 > /proc/sys/net/ipv4/ip_forward"]
    on_the_host(internet, *switch, "1")
    try:
        server.start()
        assert reached_from_outside(internet, patience=120) == INNER
        server.stop()
        assert forwarding(internet, "all") == "1" and reached_from_outside(internet, patience=120) == INNER
    finally:
        on_the_host(internet, *switch, "0")
        server.start()


def test_all_sandboxes_together_leave_the_host_connections(internet, server):  # noqa: F811
    table = on_the_host(internet, "nft", "list", "ruleset")
    [each] = {int(number) for number in re.findall(r"@connections \{ iifname ct count over (\d+)", table)}
    size = int(on_the_host(internet, "cat", "/proc/sys/net/netfilter/nf_conntrack_max"))
    # As many as the server has by default, and those that it makes ahead.
    assert each * (1000 + 64) <= size * 3 / 4 or each == 64


def test_queries_count_for_seconds_where_the_kernel_can(internet, server, tmp_path):  # noqa: F811
    def ruleset() -> str:
        return on_the_host(internet, "nft", "list", "ruleset")

    assert 'ct timeout set "queries"' in ruleset()
    clear(server)
    server.stop()
    # An older kernel refuses the whole table.
    nft = tmp_path / "nft"
    nft.write_text(f"#!/bin/sh\ncat > {tmp_path}/script\ngrep -q 'ct timeout' {tmp_path}/script && exit 1\nexec {shutil.which('nft')} -f {tmp_path}/script\n")
    nft.chmod(0o755)
    server.variables["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    try:
        server.start()
        assert "ct timeout" not in ruleset() and "ct count" in ruleset()
        with sandbox(["example.com"]) as box:
            assert get(box, "http://example.com") == EXAMPLE
        clear(server)
        server.stop()
    finally:
        del server.variables["PATH"]
        server.start()


def test_a_sandbox_without_a_network_needs_no_rules_of_its_own(internet, server):  # noqa: F811
    """Its link is in the group of closed links. A change of the policy opens it, a restart of the server does not, and its slot is open again."""

    def chains():
        rules = on_the_host(internet, "nft", "list", "ruleset")
        return sorted(line.split()[1] for line in rules.splitlines() if line.strip().startswith("chain ") and line.split()[1][-1].isdigit())

    before = chains()
    box = Sandbox.create(timeout=1800, allow_internet_access=False)
    try:
        assert chains() == before
        assert closed(box, f"http://{EXAMPLE}") and closed(box, "http://example.com")
        server.kill9()
        server.start()
        assert chains() == before
        assert closed(box, f"http://{EXAMPLE}")
        box.update_network({"allow_out": [EXAMPLE], "deny_out": ["0.0.0.0/0"]})
        assert get(box, f"http://{EXAMPLE}") == EXAMPLE and closed(box, f"http://{ORG}")
        assert len(chains()) > len(before)
        box.update_network({"allow_internet_access": True})
        assert get(box, f"http://{ORG}") == ORG
        box.update_network({"deny_out": ["0.0.0.0/0"]})
        assert closed(box, f"http://{EXAMPLE}")
        server.kill9()
        server.start()
        assert closed(box, f"http://{EXAMPLE}")
        box.pause()
        box = box.connect()
        assert closed(box, f"http://{EXAMPLE}")
    finally:
        box.kill()
    wait_until(lambda: chains() == before, 600)
    # Whichever slots are taken next are open.
    for _ in range(4):
        with sandbox(deny=()) as box:
            assert get(box, f"http://{EXAMPLE}") == EXAMPLE
