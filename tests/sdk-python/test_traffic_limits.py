"""Limits of a team on the traffic of each of its sandboxes. The server runs behind a small internet."""

import time

from e2b import Sandbox
from harness.internet import EXAMPLE, WEB, WHOLE
from harness.teams import Team
from test_names import internet, python  # noqa: F401

MEGABYTE = 1_000_000
# Of 2 Mbit/s, and what may pass at once: besides, that of one second.
RATE, BURST = 250_000, 256 << 10


def box(team: Team) -> Sandbox:
    return Sandbox.connect(team.create(), api_key=team.key)


def upload(sandbox, size: int) -> float:
    """Seconds that an upload takes."""
    code = f"""
import socket
peer = socket.create_connection(('{EXAMPLE}', {WHOLE}), 300)
peer.sendall(b'x' * {size})
peer.shutdown(socket.SHUT_WR)
print(peer.makefile().read().split()[-1])
"""
    began = time.monotonic()
    assert python(sandbox, code) == str(size)
    return time.monotonic() - began


def test_a_sandbox_does_not_send_faster_than_its_team_may(server, internet):  # noqa: F811
    team = Team(server.url)
    limited = Team(server.url, bandwidthMbps=2)
    try:
        size = 5 * MEGABYTE
        # However busy the machine is: what is limited cannot be faster than this.
        least = (size - BURST - RATE) / RATE
        assert upload(box(limited), size) >= least
        # Of the same transfer without a limit, no more is asked than that it is not held up for as long.
        assert upload(box(team), size) < least
        limited.limit(bandwidthMbps=0)
        assert upload(box(limited), size) < least
    finally:
        team.clear()
        limited.clear()


def test_connections_beyond_the_rate_wait(server, internet):  # noqa: F811
    limited = Team(server.url, connectionsPerSecond=2)
    try:
        count, rate, burst = 8, 2, 4
        code = f"""
import socket, time
began = time.monotonic()
for _ in range({count}):
    socket.create_connection(('{EXAMPLE}', {WEB}), 300).close()
print(time.monotonic() - began)
"""
        assert float(python(box(limited), code)) >= (count - burst - 1) / rate
        shown = limited.admin("GET", f"/admin/teams/{limited.id}").json()["limits"]
        assert (shown["connectionsPerSecond"], shown["bandwidthMbps"]) == (2, 0)
    finally:
        limited.clear()
