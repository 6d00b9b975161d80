"""The environment of a kernel."""

import os
import time

from . import blas

#: The matplotlib backend of every kernel, whose figures are displayed with the cell.
BACKEND = "module://matplotlib_inline.backend_inline"


def replace_environment(payload: bytes) -> None:
    """Makes ``K=V`` pairs separated by NUL the whole environment."""
    os.environ.clear()
    os.environ["MPLBACKEND"] = BACKEND
    for pair in payload.split(b"\0"):
        key, separator, value = pair.partition(b"=")
        if separator and key:
            os.environb[key] = value
    time.tzset()
    blas.use_all_processors()
