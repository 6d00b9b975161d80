"""What no sandbox may reach, whatever its rules: private networks, cloud metadata, the host, other sandboxes. At every address that is
tried a service answers: to the host, and to the sandbox once the rule that is tested is taken away."""

import json
import shlex
import subprocess
from contextlib import contextmanager

import pytest

from harness.internet import EXAMPLE, HOST, HOST_ADDRESSES, OTHER_RESOLVER, PRIVATE_RANGES
from harness.server import wait_until
from test_names import get, internet, python, run, sandbox  # noqa: F401: the fixture

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
    return on_the_host(internet, "curl", "-s", "--max-time", "20", url)


def answering(box, urls):
    """Those that answer a sandbox, of several it asks at once."""
    asked = [f"{{ curl -gsk --max-time 3 -o /dev/null {shlex.quote(url)} && echo {shlex.quote(url)}; }} &" for url in urls]
    return set(run(box, f"{' '.join(asked)} wait").split())


def all_answer(box, urls):
    """A control. The kernel takes a second or two to find that a link's own IPv6 address is nobody else's, and answers then."""
    wait_until(lambda: answering(box, urls) == urls, 20, "everything answers")


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


def host_urls(box, internet):  # noqa: F811
    """Every way to say the host: its public address, private ones, the sandbox's gateway and the link between both."""
    gateway = run(box, "ip route | awk '/default/ {print $3}'")
    links = json.loads(on_the_host(internet, "ip", "--json", "address"))
    index = int(run(box, "cat /sys/class/net/eth0/iflink"))
    [link] = [link for link in links if link["ifindex"] == index]
    [local] = [one["local"] for one in link["addr_info"] if one.get("scope") == "link"]
    return {f"http://{address}/" for address in (HOST, *HOST_ADDRESSES, gateway)}, f"http://[{local}%25eth0]/"


def test_the_host_does_not_answer(box, internet):  # noqa: F811
    urls, local = host_urls(box, internet)
    for url in urls:
        assert answers_the_host(internet, url) in url
    assert not answering(box, [local, *urls, *(url.replace("http", "https") for url in urls)])
    assert run(box, f"ping -c 1 -W 1 {HOST}") is None


def test_only_the_rule_keeps_the_host_away(plain, internet, server):  # noqa: F811
    urls, local = host_urls(plain, internet)
    with without(internet, server, ("chain", "input")):
        all_answer(plain, {local, *urls})
    assert not answering(plain, {local, *urls})


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


def test_the_next_version_of_the_protocol_leads_nowhere(plain):
    assert run(plain, "ip -6 route show default") == ""
    assert run(plain, "ip -6 address add fd00::2/64 dev eth0") is None, "it cannot give itself an address"
    assert not answering(plain, ["http://[fd00::1]/", "http://[2001:db8::1]/"])


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
    asking.settimeout(30)
    asking.connect((server, 53))
    asking.send(b'anything')
    asking.recv(9)
known = [line.split()[1] for line in open('/etc/resolv.conf') if 'nameserver' in line][0]
refusal(lambda: ask(known))
refusal(lambda: ask('{OTHER_RESOLVER}'))
refusal(lambda: socket.create_connection(('{EXAMPLE}', 80), timeout=30))
""",
        )
        assert said.split() == ["EHOSTUNREACH", "EHOSTUNREACH", "ECONNREFUSED"]


def test_answers_tell_nothing_of_the_host(plain):
    """Addresses of the host, of other sandboxes and of nobody are the same to who asks."""
    gateway = run(plain, "ip route | awk '/default/ {print $3}'")
    with sandbox(deny=()) as other:
        for address in (HOST, *HOST_ADDRESSES, gateway, run(other, "hostname -I"), "10.99.99.99", *PRIVATE_RANGES[:2]):
            # Refused, where curl would else wait for its time to be up, which is 28.
            assert run(plain, f"curl -s --max-time 20 http://{address}:7777/; echo $?") == "7", address
            assert python(plain, f"{PROHIBITED}\nprint(*ask('{address}'))") == f"{gateway} {address}"


def test_nothing_is_answered_to_a_forged_address(plain):
    """Else a sandbox could have the host send messages to others, in here and out there."""
    with sandbox(deny=()) as victim:
        own, its = run(plain, "hostname -I"), run(victim, "hostname -I")
        # The way it is sent works when the address is its own: the answer comes.
        send = f"prohibited(lambda: datagram('{own}', '10.99.99.98'))"
        assert python(plain, f"{PROHIBITED}{FORGED}\nprint({send}[1])") == "10.99.99.98"
        code = f"{PROHIBITED}\nprint('listening', flush=True)\nprint(prohibited(lambda: None)[1])"
        watch = victim.commands.run(f"python3 - <<'END'\n{code}\nEND", user="root", background=True, timeout=120)
        lines = iter(watch)
        assert "listening" in next(lines)[0]
        assert python(plain, f"{FORGED}\nfor _ in range(3): datagram('{its}', '10.99.99.97')") == ""
        # The first that it hears of is what it sends itself.
        run(victim, "echo -n x > /dev/udp/10.99.99.96/7777")
        assert "".join(out or "" for out, _, _ in lines).split() == ["10.99.99.96"]
