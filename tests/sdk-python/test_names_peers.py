"""What a sandbox reaches by name when one side is slow, silent, numerous or false. The server runs behind a small internet."""

from e2b import Sandbox

from harness.internet import DATAGRAMS, EXAMPLE, METADATA, PRIVATE, TURNS, WHOLE, WWW
from harness.server import wait_until
from test_names import EVERYTHING, get, internet, python, run, sandbox  # noqa: F401


def datagram(box, address):
    """What answers a datagram to a port of HTTP/3."""
    return python(
        box,
        f"""
import socket
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asking.settimeout(1)
for _ in range(3):
    try:
        asking.sendto(b"hello", ("{address}", {DATAGRAMS}))
        print(asking.recv(99).decode())
        break
    except OSError:
        continue
""",
    )


def test_datagrams_go_to_addresses_and_never_by_name():
    with Sandbox.create(timeout=600) as box:
        assert datagram(box, EXAMPLE) == EXAMPLE
        assert [datagram(box, address) for address in (PRIVATE, METADATA)] == ["", ""]
    with sandbox(["example.com"]) as box:
        # Nobody could see for which name they are.
        assert get(box, "https://example.com") == EXAMPLE and datagram(box, EXAMPLE) == ""
    with sandbox(["example.com", EXAMPLE]) as box:
        assert datagram(box, EXAMPLE) == EXAMPLE and datagram(box, WWW) == ""
    with sandbox([], [EXAMPLE]) as box:
        assert datagram(box, EXAMPLE) == "" and datagram(box, WWW) == WWW


def test_a_name_that_leads_inside_at_times_leads_nowhere_then():
    with sandbox([TURNS]) as box:
        # The sandbox asks, and so does the proxy: whatever answer each gets, and in whatever order.
        command = f"for i in $(seq 12); do curl -s --max-time 5 http://{TURNS} || echo none; echo; done"
        reached = run(box, command).split()
        assert EXAMPLE in reached and set(reached) <= {EXAMPLE, "none"}
        # With the answer that it likes.
        for address in (PRIVATE, METADATA, "127.0.0.1"):
            told = run(box, f"for i in $(seq 4); do curl -s --max-time 5 --resolve {TURNS}:80:{address} http://{TURNS} || echo none; echo; done")
            assert set(told.split()) <= {EXAMPLE, "none"}, address


def test_a_thousand_connections_at_once_all_arrive_and_the_next_thousand_too():
    with sandbox(["example.com"]) as box:
        # What became of them, by how often.
        code = f"""
import asyncio, collections
async def ask(number):
    reader, writer = await asyncio.open_connection("example.com", {WHOLE})
    head = b"POST / HTTP/1.1\\r\\nHost: example.com\\r\\n\\r\\n"
    writer.write(head + b"x" * (10_000 + number - len(head)))
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return int(answer.split()[-1]) == 10_000 + number if answer else "closed"
async def main():
    outcomes = await asyncio.gather(*map(ask, range(1000)), return_exceptions=True)
    print(dict(collections.Counter(map(str, outcomes))))
asyncio.run(main())
"""
        # Each looks up the name, too.
        for _ in range(3):
            assert python(box, code) == "{'True': 1000}"


def test_peers_that_say_nothing_or_little_hold_up_no_others():
    with sandbox(["example.com"]) as slow, sandbox(["example.com"]) as other:
        # Heads that never end, of TLS and of HTTP, a byte at a time, and connections whose other side says nothing.
        slow.files.write(
            "/tmp/slow.py",
            f"""
import socket, time
heads = [bytes.fromhex("16030102000100") + bytes(500), b"GET / HTTP/1.1\\r\\nHost: example.com\\r\\nX: " + b"x" * 500, b""]
peers = [(socket.create_connection(("example.com", port), 600), heads[number % 3])
         for number, port in enumerate([443, 80, {WHOLE}] * 30)]
print("slow", flush=True)
for at in range(500):
    for peer, head in peers:
        try:
            peer.send(head[at : at + 1])
        except OSError:
            pass
    time.sleep(0.5)
""",
        )
        slow.commands.run("python3 /tmp/slow.py > /tmp/said 2>&1", background=True, timeout=0)
        wait_until(lambda: run(slow, "cat /tmp/said") == "slow", what="its connections are there")
        for box in (other, slow):
            assert get(box, "https://example.com") == EXAMPLE and get(box, "http://example.com") == EXAMPLE
        # What they do not say is not waited for when the rules change either.
        slow.update_network({"deny_out": [EVERYTHING]})
        assert get(slow, "https://example.com", patience=3) is None and get(other, "https://example.com") == EXAMPLE
