"""The request loop of a kernel: one cell at a time, inside a running event loop as in a notebook."""

import asyncio
import os
import sys

from . import pages
from .channel import Channel
from .environment import replace_environment
from .interrupts import INTERRUPTS
from .randomness import reseed
from .sample_cells import run_sample_cells
from .shell import ZMQInteractiveShell


async def serve_requests(shell: ZMQInteractiveShell, channel: Channel) -> None:
    """Answers frames until the server closes the socket."""
    while (frame := await channel.receive()) is not None:
        kind, payload = frame
        if kind == "execute":
            await execute(shell, channel, payload.decode("utf-8", "replace"))
            if shell.leaving:
                return
        elif kind == "warmup":
            # What the cells would need, without their time: the warm process has run them.
            if not pages.fetch():
                run_sample_cells(shell)
        elif kind == "reseed":
            reseed()
        elif kind == "environ":
            replace_environment(payload)
        elif kind == "env":
            key, _, value = payload.partition(b"=")
            os.environb[key] = value
        elif kind == "unenv":
            os.environb.pop(payload, None)
        elif kind == "cwd":
            shell.set_directory(os.fsdecode(payload))


async def execute(shell: ZMQInteractiveShell, channel: Channel, code: str) -> None:
    """Runs one cell, and sends ``done`` at the end whatever happens."""
    channel.send(b"started", b"%d" % shell.execution_count)
    try:
        await run_cell(shell, code)
    except (KeyboardInterrupt, asyncio.CancelledError):
        # The interrupt came outside of the cell; inside, IPython would have reported it.
        pass
    finally:
        channel.send(b"done", b"leaving" if shell.leaving else b"")


async def run_cell(shell: ZMQInteractiveShell, code: str) -> None:
    """Runs ``code`` as notebooks do: a cell that awaits becomes a task, any other runs to its end."""
    problem = result = None
    shell.failed = False
    try:
        transformed = shell.transform_cell(code)
    except Exception:
        transformed, problem = code, sys.exc_info()

    if shell.should_run_async(code, transformed_cell=transformed, preprocessing_exc_tuple=problem):
        cell = asyncio.ensure_future(
            shell.run_cell_async(
                code, store_history=True, transformed_cell=transformed, preprocessing_exc_tuple=problem
            )
        )
        with INTERRUPTS.cancelling(cell):
            try:
                result = await cell
            finally:
                shell.events.trigger("post_execute")
                if result is not None:
                    shell.events.trigger("post_run_cell", result)
    else:
        with INTERRUPTS.raised():
            result = shell.run_cell(code, store_history=True)

    if result is not None and not result.success:
        shell.report(result.error_before_exec or result.error_in_exec)
