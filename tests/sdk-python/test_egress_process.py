"""The process of the egress proxies: what it may do, and what happens when it ends. The server runs behind a small internet."""

import os
import signal
from pathlib import Path

from harness import volatile
from harness.internet import EXAMPLE
from harness.server import ADMIN_TOKEN, API_KEY, wait_until
from test_names import closed, get, internet, proxies, run, sandbox  # noqa: F401
from test_two_processes import ends, server_process, status

ACCOUNT = 60889


def process(server) -> int:
    [found] = volatile.egress(server.pid)
    return found


def test_it_has_no_rights_no_files_and_no_network(server, internet):  # noqa: F811
    with sandbox(["example.com"]) as box:
        assert get(box, "https://example.com") == EXAMPLE
        pid = process(server)
        for task in volatile.matching(f"/proc/{pid}/task", "*/status"):
            found = dict(line.split(":\t", 1) for line in volatile.text(task).splitlines() if ":\t" in line)
            for which in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                assert int(found[which], 16) == 0, which
            assert found["Uid"].split() == found["Gid"].split() == [str(ACCOUNT)] * 4
            assert found["Groups"].split() == [] and found["NoNewPrivs"] == "1" and found["Seccomp"] == "2"
        assert os.listdir(f"/proc/{pid}/root/") == []
        assert " ro," in Path(f"/proc/{pid}/mounts").read_text() and len(Path(f"/proc/{pid}/mounts").read_text().splitlines()) == 1
        assert os.readlink(f"/proc/{pid}/ns/net") not in [os.readlink(f"/proc/{other}/ns/net") for other in volatile.parts(server.pid)]
        own = Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
        assert API_KEY.encode() not in own and ADMIN_TOKEN.encode() not in own
        # Neither it nor the server can trace or stop the other one.
        assert status(server_process(server))["Uid"].split()[0] != str(ACCOUNT)


def test_it_is_started_when_a_sandbox_needs_it_and_ends_with_the_server(server, internet):  # noqa: F811
    server.stop()
    server.start()
    assert volatile.egress(server.pid) == []
    with sandbox(["example.com"]) as box:
        pid = process(server)
        server.kill9()
        wait_until(lambda: ends(pid), what="the end of the process")
        server.start()
        assert get(box, "https://example.com") == EXAMPLE


def test_when_it_is_killed_connections_wait_for_the_next_one(server, internet):  # noqa: F811
    with sandbox(["example.com"]) as box, sandbox(["example.org"]) as other:
        assert get(box, "https://example.com") == EXAMPLE
        before, listeners = process(server), proxies(server)
        os.kill(before, signal.SIGKILL)
        # The rules hold all the time, and nobody is refused for it.
        assert get(box, "https://example.com") == EXAMPLE
        assert process(server) != before and proxies(server) == listeners
        assert closed(box, "https://example.org") and closed(other, "https://example.com")
        box.update_network({"allow_out": ["example.org"], "deny_out": ["0.0.0.0/0"]})
        assert closed(box, "https://example.com")


def test_one_that_does_not_answer_is_not_waited_for_by_others(server, internet):  # noqa: F811
    with sandbox(["example.com"]), sandbox([]) as plain:
        pid = process(server)
        os.kill(pid, signal.SIGSTOP)
        try:
            assert run(plain, "echo works") == "works"
            with sandbox(deny=[]) as another:
                assert get(another, f"http://{EXAMPLE}") == EXAMPLE
        finally:
            os.kill(pid, signal.SIGCONT)


def test_signals_to_all_processes_are_an_orderly_stop(server, internet):  # noqa: F811
    with sandbox(["example.com"]) as box:
        pid = process(server)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, number)
        assert get(box, "https://example.com") == EXAMPLE and process(server) == pid
        server.stop()
        wait_until(lambda: ends(pid), what="the end of the process")
        server.start()

