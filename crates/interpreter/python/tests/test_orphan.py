"""Forks whose parent ends at once, made by a test process that another one waits for as the host does."""

import os
import platform
import socket
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from sandcove_kernel import orphan  # noqa: E402

@pytest.fixture(params=["between", "twice"])
def forking(request):
    """The number of a process that makes one fork, which tells about itself, and a socket to both."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = os.fork()
    if process == 0:
        try:
            ours.close()
            forker = orphan.Forker()
            if request.param == "twice":
                forker._between = None
            kept = [bytearray(b"x" * 100_000) for _ in range(10)]
            if forker.fork(theirs.fileno()):
                # The fork is a whole process: it has its memory, runs threads, and forks.
                seen = []
                thread = threading.Thread(target=lambda: seen.append(len(kept)))
                thread.start()
                thread.join()
                child = os.fork()
                if child == 0:
                    os._exit(7)
                ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                facts = (os.getpid(), os.getppid(), threading.get_native_id(), seen[0], ended)
                theirs.send(repr(facts).encode())
        finally:
            os._exit(0)
    theirs.close()
    yield process, ours
    ours.close()
    assert os.waitpid(process, 0)[1] == 0


def test_a_fork_has_another_parent_and_is_a_whole_process(forking):
    process, ours = forking
    assert ours.recv(16) == b"f"
    ours.send(b"g")
    pid, parent, thread, seen, ended = eval(ours.recv(1000))
    assert pid not in (process, os.getpid()) and thread == pid
    assert parent not in (pid, process)
    assert (seen, ended) == (10, 7)


def test_there_is_no_fork_before_the_host_allows_it(forking):
    process, ours = forking
    assert ours.recv(16) == b"f"
    ours.close()
    assert os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT).si_status == 0


@pytest.mark.skipif(platform.machine() != "x86_64", reason="there are instructions for x86-64 only")
def test_the_process_between_is_no_copy_on_x86_64():
    assert orphan.Forker()._between is not None
