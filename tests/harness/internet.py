"""A small internet in network namespaces: one for a server and its sandboxes, one for the rest of the world. Nothing in it
leaves this machine.

    with Internet() as internet:
        server.within = internet.command      # what the server is started with
        internet.forward(server.port)         # and then reached as ever
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import ssl
import struct
import subprocess
import sys
from pathlib import Path

from .server import ROOT

TLS = ROOT / "crates/server/tests/tls"
# The server's end of the line and the world's.
HOST, UPSTREAM = "93.184.215.2", "93.184.215.1"
# A machine behind the server's host, on a line of its own.
INNER, INNER_GATEWAY, INNER_NETWORK = "93.184.217.2", "93.184.217.1", "93.184.217.0/24"
RESOLVER, OTHER_RESOLVER = "9.9.9.9", "8.8.8.8"
EXAMPLE, WWW, ORG, ELSEWHERE, PRIVATE = "93.184.216.34", "93.184.216.35", "93.184.216.36", "93.184.216.44", "10.0.0.1"
# A host with the services of `echo.mjs`, and one that pretends to be it.
API, IMPOSTOR = "93.184.216.50", "93.184.216.51"
ECHO_PORTS = {80: 8180, 443: 8143}
# A host with the proxy of `socks.py`.
PROXY, PROXY_PORT, PROXY_TLS_PORT = "93.184.216.60", 1080, 1443
# One service in every range that sandboxes must not reach, the clouds' metadata among them; and addresses of the host's own.
METADATA = "169.254.169.254"
PRIVATE_RANGES = (
    "10.20.30.40", "100.64.0.1", "169.254.1.1", METADATA, "172.16.0.1", "172.31.255.1", "192.168.0.1", PRIVATE,
    "192.0.0.10", "192.0.2.10", "198.18.0.1", "198.51.100.1", "203.0.113.1",
)  # fmt: skip
HOST_ADDRESSES = ("10.77.0.1", "100.77.0.1", "169.254.77.1", "172.17.0.1", "192.168.77.1")
NAMES = {
    RESOLVER: {
        "example.com": EXAMPLE,
        "www.example.com": WWW,
        "long.example.com": WWW,
        "example.org": ORG,
        "api.example.com": API,
        "elsewhere.example.com": API,
        "proxy.example.com": PROXY,
        "private.example.com": PRIVATE,
        "host.example.com": HOST,
        "loop.example.com": "127.0.0.1",
        "turns.example.com": EXAMPLE,
    },
    OTHER_RESOLVER: {"example.com": ELSEWHERE},
}
# Its answer has room in no datagram.
LONG = "long.example.com"
# Every third answer has another address, which sandboxes must not reach.
TURNS = "turns.example.com"
WEB, WEB_TLS, BANNER, WHOLE = 80, 443, 22, 8080
# Where programs that speak HTTP/3 send datagrams.
DATAGRAMS = 443


class Internet:
    def __init__(self) -> None:
        names = ("sandcove-host", "sandcove-world", "sandcove-inner")
        self._host, self._world, self._inner = (f"{name}-{os.getpid()}" for name in names)
        self._programs: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Internet:
        try:
            for namespace in (self._host, self._world, self._inner):
                ip("netns", "add", namespace)
                ip("-n", namespace, "link", "set", "lo", "up")
            ip("-n", self._host, "link", "add", "up0", "type", "veth", "peer", "name", "down0", "netns", self._world)
            ip("-n", self._host, "link", "add", "lan0", "type", "veth", "peer", "name", "eth0", "netns", self._inner)
            for namespace, link, address in (
                (self._host, "up0", HOST), (self._world, "down0", UPSTREAM), (self._host, "lan0", INNER_GATEWAY), (self._inner, "eth0", INNER),
            ):  # fmt: skip
                ip("-n", namespace, "address", "add", f"{address}/24", "dev", link)
                ip("-n", namespace, "link", "set", link, "up")
            # A host as it is installed: it forwards nothing, whatever the machine of these tests does. Interfaces are switched off only
            # when this is changed.
            subprocess.run([*self.command, "sh", "-c", "cd /proc/sys/net/ipv4; echo 1 > ip_forward; echo 0 > ip_forward"], check=True)
            ip("-n", self._host, "route", "add", "default", "via", UPSTREAM)
            ip("-n", self._inner, "route", "add", "default", "via", INNER_GATEWAY)
            # A neighbour who tries.
            ip("-n", self._world, "route", "add", INNER_NETWORK, "via", HOST)
            for address in (RESOLVER, OTHER_RESOLVER, EXAMPLE, WWW, ORG, ELSEWHERE, API, IMPOSTOR, PROXY, *PRIVATE_RANGES):
                ip("-n", self._world, "address", "add", f"{address}/32", "dev", "lo")
            for address in HOST_ADDRESSES:
                ip("-n", self._host, "address", "add", f"{address}/32", "dev", "lo")
            # The host has services too, which are nobody's business.
            for namespace, arguments in ((self._world, ["world"]), (self._host, ["host"]), (self._inner, ["inner"])):
                program = self._start(namespace, arguments, stdout=subprocess.PIPE)
                assert program.stdout.readline() == b"ready\n", f"the services of {namespace} did not start"
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._programs:
            program.kill()
            program.wait()
        for namespace in (self._host, self._world, self._inner):
            subprocess.run(["ip", "netns", "delete", namespace], check=False)

    @property
    def command(self) -> list[str]:
        """What runs a program where the server is. Only the network is another one."""
        return ["nsenter", f"--net=/run/netns/{self._host}", "--"]

    @property
    def outside(self) -> list[str]:
        """What runs a program in the rest of the world."""
        return ["nsenter", f"--net=/run/netns/{self._world}", "--"]

    def forward(self, port: int) -> None:
        """Has this machine's `port` lead to the same one there."""
        with socket.create_server(("127.0.0.1", port), backlog=128) as listener:
            self._start(self._host, ["forward", str(listener.fileno()), str(port)], pass_fds=[listener.fileno()])

    def serve_echo(self, certificate: Path, key: Path, log: Path) -> None:
        """Has the services of `echo.mjs` answer at the address `API`."""
        rules = "\n".join(f"  ip daddr {API} tcp dport {port} redirect to :{own}" for port, own in ECHO_PORTS.items())
        # From sandboxes, and from a proxy that is in the same place.
        hooks = [("c", "prerouting", "dstnat"), ("o", "output", "-100")]
        chains = "\n".join(f"chain {name} {{\n  type nat hook {hook} priority {priority};\n{rules}\n}}" for name, hook, priority in hooks)
        subprocess.run([*self.outside, "nft", "-f", "-"], input=f"table ip echo {{\n{chains}\n}}\n", text=True, check=True)
        script = Path(__file__).with_name("echo.mjs")
        command = [*self.outside, "node", str(script), str(certificate), str(key), str(log), *map(str, ECHO_PORTS.values())]
        program = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._programs.append(program)
        assert program.stdout.readline() == b"ready\n", "the services of the test host did not start"

    def serve_proxy(self, certificate: Path, key: Path, log: Path, user: str, password: str) -> subprocess.Popen[bytes]:
        """Runs the proxy of `socks.py` in the rest of the world."""
        ports = [str(PROXY_PORT), str(PROXY_TLS_PORT)]
        command = [*self.outside, sys.executable, "-m", "harness.socks", str(log), user, password, *ports, str(certificate), str(key)]
        program = subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE)
        self._programs.append(program)
        assert program.stdout.readline() == b"ready\n", "the proxy did not start"
        return program

    def serve_twin(self, *arguments: object) -> None:
        """Runs the services of `twin.py` in the rest of the world, at the proxy's address."""
        command = [*self.outside, sys.executable, "-m", "harness.twin", *map(str, arguments)]
        program = subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE)
        self._programs.append(program)
        assert program.stdout.readline() == b"ready\n", "the twin did not start"

    def _start(self, namespace: str, arguments: list[str], **options: object) -> subprocess.Popen[bytes]:
        command = ["nsenter", f"--net=/run/netns/{namespace}", "--", sys.executable, "-m", "harness.internet", *arguments]
        program = subprocess.Popen(command, cwd=Path(__file__).parents[1], **options)
        self._programs.append(program)
        return program


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Tells where a request arrived."""
    await reader.readuntil(b"\r\n\r\n")
    await answer(writer, writer.get_extra_info("sockname")[0])


async def whole(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers when the other side has said that there is no more, and not before."""
    await answer(writer, str(len(await reader.read(-1))))


async def banner(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Speaks first, as SSH does."""
    writer.write(b"SSH-2.0-world\r\n")
    writer.close()


async def answer(writer: asyncio.StreamWriter, text: str) -> None:
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode())
    await writer.drain()
    writer.close()


asked_in_turn = itertools.count()


def dns_answer(query: bytes, names: dict[str, str], over_udp: bool) -> bytes:
    labels, at = [], 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode())
        at += 1 + length
    name, question = ".".join(labels).lower(), query[12 : at + 5]
    address, is_a = names.get(name), query[at + 1 : at + 3] == b"\0\1"
    if name == TURNS and is_a and next(asked_in_turn) % 3 == 1:
        address = PRIVATE
    too_long = over_udp and name == LONG
    records = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0 if name == TURNS else 60, 4) + socket.inet_aton(address) if address and is_a else b""
    count = 1 if records and not too_long else 0
    flags = 0x8180 | (0x0200 if too_long else 0) | (0 if address else 3)
    return query[:2] + struct.pack(">HHHHH", flags, 1, count, 0, 0) + question + (records if count else b"")


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, sender: tuple[str, int]) -> None:
        self._transport.sendto(dns_answer(data, self._names, over_udp=True), sender)


class Echo(asyncio.DatagramProtocol):
    """Tells where a datagram arrived."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, sender: tuple[str, int]) -> None:
        self._transport.sendto(self._transport.get_extra_info("sockname")[0].encode(), sender)


async def serve(side: str) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(TLS / "receiver.pem", TLS / "receiver.key")
    for handler, port, context in ((web, WEB, None), (web, WEB_TLS, tls), (whole, WHOLE, None), (banner, BANNER, None)):
        await asyncio.start_server(handler, "0.0.0.0", port, ssl=context)
        await asyncio.start_server(handler, "::", port, ssl=context)
    loop = asyncio.get_running_loop()
    # One each, or answers would come from another address.
    for address in (EXAMPLE, WWW, *PRIVATE_RANGES) if side == "world" else ():
        await loop.create_datagram_endpoint(Echo, local_addr=(address, DATAGRAMS))
    for resolver, names in NAMES.items() if side == "world" else ():

        async def over_tcp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, names=names) -> None:
            try:
                while True:
                    query = await reader.readexactly(struct.unpack(">H", await reader.readexactly(2))[0])
                    reply = dns_answer(query, names, over_udp=False)
                    writer.write(struct.pack(">H", len(reply)) + reply)
                    await writer.drain()
            except asyncio.IncompleteReadError:
                writer.close()

        await asyncio.start_server(over_tcp, resolver, 53)
        await loop.create_datagram_endpoint(lambda names=names: Datagrams(names), local_addr=(resolver, 53))
    print("ready", flush=True)
    await asyncio.Event().wait()


async def forward(listener: socket.socket, port: int) -> None:
    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(1 << 16):
                writer.write(piece)
                await writer.drain()
            writer.write_eof()
        except OSError:
            writer.close()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))
        for one in (writer, there_writer):
            one.close()

    server = await asyncio.start_server(pass_on, sock=listener)
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "forward":
        asyncio.run(forward(socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3])))
    else:
        asyncio.run(serve(sys.argv[1]))
