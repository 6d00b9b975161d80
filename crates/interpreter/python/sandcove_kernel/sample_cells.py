"""Sample cells, which warm a kernel up before its first cell."""

import sys

from .shell import ZMQInteractiveShell


def run_sample_cells(shell: ZMQInteractiveShell, *, thoroughly: bool = False) -> None:
    """Runs code, fails, and formats common values, so that what this needs is loaded and its memory belongs to this process.

    Leaves no trace in the session and sends no frames. ``thoroughly`` adds what is worth its time only once for many kernels.
    """
    channel, shell.channel = shell.channel, None
    try:
        shell.run_cell("1/0", store_history=False)
        shell.run_cell("None", store_history=False)
        shell.should_run_async("1", transformed_cell="1")
        for sample in (1, "", [1], {"a": 1}, *_frames(thoroughly)):
            shell.display_formatter.format(sample)
    finally:
        shell.channel, shell.failed = channel, False
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            if hasattr(sys, name):
                delattr(sys, name)


def _frames(thoroughly: bool) -> list:
    pandas = sys.modules.get("pandas")
    if pandas is None:
        return []
    frame = pandas.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "x"], "c": [0.5, 1.5, 2.5]})
    # Most of the memory that any of these needs, the first one needs already.
    more = [frame.groupby("b").sum(), frame.sort_values("c").head(2)] if thoroughly else []
    return [frame.describe(), *more]
