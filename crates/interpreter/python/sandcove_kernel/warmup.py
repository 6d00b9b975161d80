"""Warms a process up before it has a client: imports, the shell, formatters, fonts.

Runs in one thread and leaves one thread, so the process may be forked afterwards.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import sys

from .environment import BACKEND

#: Libraries whose import is slow and which most code uses; a missing one is skipped.
LIBRARIES = ("numpy", "pandas", "matplotlib.pyplot", "PIL.Image", "PIL.PngImagePlugin", "PIL.JpegImagePlugin")
#: Modules of the standard library that a first cell would otherwise wait for.
STANDARD = ("asyncio", "ctypes", "decimal", "json", "pexpect", "random", "ssl", "subprocess", "uuid")
#: The variable with the modules that a template wants instead.
CHOICE = "SANDCOVE_WARM_MODULES"
#: Prefix of variables that are not for kernels.
OWN = "SANDCOVE_"
#: Number of threads of numeric libraries while warming: their pools would not survive a fork.
THREADS = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")}
#: Threads of OpenBLAS wait for work by spinning for 2 to the power of this many cycles. The default of 26 takes some 25 ms of a
#: processor for each new kernel, whether or not it has anything to multiply.
SPINNING = {"OPENBLAS_THREAD_TIMEOUT": "16"}
#: How often the sample cells run. After this many runs the interpreter has specialized its code; doing that after a fork would
#: copy every page it writes to.
REPETITIONS = 4


def warm_up(missing: dict | None = None):
    """Builds the shell of this process and returns it. ``missing`` gets modules that cannot be imported, with the reason."""
    chosen = os.environ.get(CHOICE)
    wanted = LIBRARIES if chosen is None else tuple(chosen.replace(",", " ").split())
    for name in [name for name in os.environ if name.startswith(OWN)]:
        del os.environ[name]
    settings = THREADS | SPINNING
    inherited = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    os.environ["MPLBACKEND"] = BACKEND
    # The directory of kernels whose own directory does not exist.
    _go_home()
    # `python -m` put the directory of this package first; user code expects its own directory there.
    sys.path[0] = ""
    sys.argv = [""]

    from . import blas, formatters, images, tracebacks
    from .sample_cells import run_sample_cells
    from .shell import IPKernelApp, ZMQInteractiveShell, configuration

    shell = ZMQInteractiveShell.instance(config=configuration())
    shell.refuse_input()
    # With a log of its own: else the first use of its log configures logging for the whole process, and closes files that cells log to.
    log = logging.getLogger("traitlets")
    log.addHandler(logging.NullHandler())
    IPKernelApp.instance(log=log).kernel = shell.kernel
    for name in STANDARD + wanted:
        try:
            importlib.import_module(name)
        except BaseException as error:  # a broken third-party package must not cost the kernel
            is_optional = chosen is None or name in STANDARD
            if not (is_optional and isinstance(error, ImportError)):
                print(f"failed to import {name} ahead: {error!r}", file=sys.stderr)
                if missing is not None:
                    missing[name] = repr(error)
    formatters.install(shell)
    images.install()
    tracebacks.install(shell.InteractiveTB)
    blas.find_setters()
    for _ in range(REPETITIONS):
        run_sample_cells(shell, thoroughly=True)
    _warm_figures(shell)
    for name, value in inherited.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    # All kernels forked from here share what exists now: the collector must not touch, and so copy, it.
    gc.collect()
    gc.freeze()
    return shell


def _go_home() -> None:
    try:
        os.chdir(os.path.expanduser("~"))
    except OSError:
        os.chdir("/")


def _warm_figures(shell) -> None:
    """Draws one figure, so that fonts are found and the renderer is loaded."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    try:
        from matplotlib import font_manager, rcParams

        if any(font.name == "Noto Sans CJK JP" for font in font_manager.fontManager.ttflist):
            rcParams["font.family"] = ["sans-serif", "Noto Sans CJK JP"]
        pyplot.switch_backend(BACKEND)
        figure = pyplot.figure()
        figure.add_subplot().set_title("warm")
        shell.display_formatter.format(figure)
        pyplot.close(figure)
        # Open font files. A fork forgets them by itself, but what is immortal by then would never be closed.
        font_manager._get_font.cache_clear()
    except Exception as error:
        print(f"failed to draw ahead: {error!r}", file=sys.stderr)
