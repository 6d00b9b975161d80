"""Attacks on the host and its network from a sandbox with internet. Services of the host listen at all of its addresses, and count."""

import json
import socket
import subprocess
import threading

import pytest
from e2b import CommandExitException

from harness.server import wait_until


class Services:
    """One port of the host, TCP and UDP, both families: whatever arrives is counted."""

    def __init__(self) -> None:
        self.stream = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
        self.port = self.stream.getsockname()[1]
        self.datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self.datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.datagrams.bind(("::", self.port))
        self.heard = []
        for listen in (self._accept, self._receive):
            threading.Thread(target=listen, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, peer = self.stream.accept()
            except OSError:
                return
            self.heard.append(("tcp", peer))
            connection.close()

    def _receive(self) -> None:
        while True:
            try:
                self.heard.append(("udp", self.datagrams.recvfrom(100)[1]))
            except OSError:
                return

    def senders(self, first: int) -> list[tuple[str, str]]:
        return [(kind, peer[0].removeprefix("::ffff:")) for kind, peer in self.heard[first:]]

    def close(self) -> None:
        self.stream.close()
        self.datagrams.close()


@pytest.fixture(scope="module")
def services():
    services = Services()
    with socket.create_connection(("127.0.0.1", services.port), timeout=60):
        wait_until(lambda: services.heard, 60, "the control")
    yield services
    services.close()


def addresses() -> dict[str, str]:
    """The host's own, and those that mean it."""
    links = json.loads(subprocess.run(["ip", "-json", "address"], capture_output=True, text=True, check=True).stdout)
    own = {one["local"]: one["family"] for link in links for one in link["addr_info"] if link["ifname"] in ("lo", "eth0", "docker0")}
    named = {f"own {address}": address for address, family in own.items() if family == "inet"}
    return {
        **named,
        "the gateway": "gateway",
        "any address": "0.0.0.0",
        "loopback by another number": "127.0.0.2",
        "loopback of the next protocol": "::1",
        "a mapped loopback": "::ffff:127.0.0.1",
        "the link of the next protocol": "fe80::1%eth0",
        "metadata": "169.254.169.254",
        "broadcast": "255.255.255.255",
        "all hosts": "224.0.0.1",
        "all nodes": "ff02::1%eth0",
        "a translated loopback": "64:ff9b::7f00:1",
        "a tunnelled loopback": "2002:7f00:1::",
    }


ADDRESSES = addresses()
TRY = """
import socket, sys
address, port = sys.argv[1], int(sys.argv[2])
if address == "gateway": address = [line.split()[2] for line in open("/proc/net/route") if line.split()[1] == "00000000"][0]; \\
    address = ".".join(str(b) for b in reversed(bytes.fromhex(address)))
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    try:
        for family, _, _, _, to in socket.getaddrinfo(address, port, type=kind):
            with socket.socket(family, kind) as s:
                s.settimeout(1)
                # The mark by which the firewall knows the server's own connections.
                try: s.setsockopt(socket.SOL_SOCKET, 36, 0x53)
                except OSError: pass
                s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                if kind == socket.SOCK_STREAM: s.connect(to)
                else: s.sendto(b"attack", to)
                print("sent", kind, to)
    except OSError as error: print(error)
"""


def run(box, command):
    try:
        return box.commands.run(command, user="root", timeout=600).stdout
    except CommandExitException as failed:
        return failed.stdout + failed.stderr


@pytest.mark.parametrize("name", ADDRESSES)
def test_no_service_of_the_host_is_reached(box, services, name):
    before = len(services.heard)
    box.files.write("/tmp/try.py", TRY)
    run(box, f"python3 /tmp/try.py {ADDRESSES[name]} {services.port}")
    # The control says when a datagram would have come.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        control.sendto(b"control", ("127.0.0.1", services.port))
    wait_until(lambda: ("udp", "127.0.0.1") in services.senders(before), 60, "the control")
    assert len(services.heard) == before + 1, services.heard[before:]


RAW = """
import socket, struct, sys
kind, to, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
source = {"loopback": "127.0.0.1", "host": to, "neighbour": "10.1.2.3", "internet": "8.8.8.8"}[kind]
udp = struct.pack("!HHHH", 53, port, 14, 0) + b"attack"
head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0, socket.inet_aton(source), socket.inet_aton(to))
try:
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    s.sendto(head + udp, (to, 0))
except OSError as error: print(error)
"""


@pytest.mark.parametrize("source", ["loopback", "host", "neighbour", "internet"])
def test_no_forged_datagram_arrives(box, services, source):
    before = len(services.heard)
    box.files.write("/tmp/raw.py", RAW)
    gateway = run(box, "ip route | awk '/default/ {print $3}'").strip()
    for to in {gateway, *(address for name, address in ADDRESSES.items() if name.startswith("own ") and not address.startswith("127."))}:
        run(box, f"python3 /tmp/raw.py {source} {to} {services.port}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        control.sendto(b"control", ("127.0.0.1", services.port))
    wait_until(lambda: ("udp", "127.0.0.1") in services.senders(before), 60, "the control")
    assert len(services.heard) == before + 1, services.heard[before:]
