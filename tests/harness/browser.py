"""Chromium in a network of its own, in which a server of the host is at the same address.

Chromium drops connections whenever an interface comes or goes, as those of sandboxes do. So it gets a network with a loopback interface
only, and a bridge carries connections to the server out of it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

CHROMIUM = os.environ.get("SANDCOVE_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
# Milliseconds that a page may take. A machine may be busy with other tests.
TIMEOUT = 180_000

BRIDGE = """
import asyncio, sys

async def carry(reader, writer):
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()

async def main(listen, target):
    async def connected(reader, writer):
        try:
            far = await (asyncio.open_unix_connection(target) if "/" in target else asyncio.open_connection("127.0.0.1", int(target)))
        except OSError:
            writer.close()
            return
        await asyncio.gather(carry(reader, far[1]), carry(far[0], writer))
    server = await (asyncio.start_unix_server(connected, listen) if "/" in listen else asyncio.start_server(connected, "127.0.0.1", int(listen)))
    print("up", flush=True)
    async with server:
        # It ends when its input does, which is when whoever started it is gone.
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main(*sys.argv[1:]))
"""


@contextmanager
def carried(command):
    """A helper process, once it has said that it is up."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n", f"`{command[0]}` did not start; a network namespace needs root"
        try:
            yield process
        finally:
            process.stdin.close()


@contextmanager
def browser(port: int):
    """A browser, for which the server at `port` of this host is at the same port."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=TIMEOUT)
    bridge = [sys.executable, "-c", BRIDGE]
    network = ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat"]
    with tempfile.TemporaryDirectory() as directory, carried(network) as holder:
        within = ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
        socket = f"{directory}/bridge"
        program = Path(directory) / "chromium"
        program.write_text(f'#!/bin/sh\nexec {shlex.join([*within, CHROMIUM])} "$@"\n')
        program.chmod(0o755)
        with carried([*bridge, socket, str(port)]), carried([*within, *bridge, str(port), socket]), sync_playwright() as playwright:
            # Chromium's own sandbox does not work for root.
            options = {"executable_path": program, "args": ["--no-sandbox"], "timeout": 2 * TIMEOUT}
            with playwright.chromium.launch(**options) as browser:
                yield browser
