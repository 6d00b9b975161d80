"""The second half of a kernel's start: the fork of a zygote becomes a process that serves a client of its own."""

from __future__ import annotations

import asyncio
import os
import socket
import sys

from .channel import Channel
from .interrupts import INTERRUPTS
from .randomness import reseed
from .serve import serve_requests
from .shell import ZMQInteractiveShell
from .streams import KernelStream


def serve(shell: ZMQInteractiveShell, link: socket.socket, stdout: int, stderr: int) -> None:
    """Serves requests on ``link`` until the server closes it; does not return. ``stdout`` and ``stderr`` become descriptors 1 and 2."""
    for descriptor, standard in ((stdout, 1), (stderr, 2)):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    reseed()
    _prefer_as_victim()
    INTERRUPTS.ignore()

    channel = Channel(link)
    sys.stdout = KernelStream(channel, "stdout", 1)
    sys.stderr = KernelStream(channel, "stderr", 2)
    shell.connect(channel)
    channel.send(b"hello", b"%d" % os.getpid())

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    requests = loop.create_task(serve_requests(shell, channel))
    while not requests.done():
        try:
            loop.run_until_complete(requests)
        except (KeyboardInterrupt, SystemExit, RuntimeError, IndexError):
            # User code stopped the loop, raised through a task of its own, or ran a loop inside of this one (`nest_asyncio`) that called what this
            # one was about to call. The kernel goes on.
            continue
    os._exit(0)


def _prefer_as_victim() -> None:
    """Makes the system kill user code first when memory runs out, not the services of the sandbox."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
    except OSError:
        pass
