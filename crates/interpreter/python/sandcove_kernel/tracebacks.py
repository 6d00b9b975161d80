"""Caches what IPython asks ``inspect`` for every frame of a traceback: one answer per file and one per function.

``inspect.getmodule`` walks all loaded modules to find that the code of a cell belongs to none of them. A warm process has more
than a thousand modules, and the traceback of a ``RecursionError`` a thousand frames.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Iterator
from types import FrameType

from IPython.core import ultratb

try:
    from IPython.core import tbtools
except ImportError:  # IPython 8
    tbtools = None

#: Stands in ``inspect.modulesbyfile`` for "no module": no module has this name.
NO_MODULE = "\0"


class Answers:
    """The cache for one traceback. Modules and files may change before the next."""

    def __init__(self) -> None:
        #: Modules by file name.
        self.modules: dict = {}
        #: Source lines, None if there are none, by the identity of the code. The code is kept too, so that it stays unique.
        self.lines: dict = {}


class Inspect:
    """Stands for the module ``inspect`` in IPython's traceback code, and nowhere else."""

    def __init__(self) -> None:
        self._answers: Answers | None = None

    def __getattr__(self, name: str):
        return getattr(inspect, name)

    @contextlib.contextmanager
    def remembering(self) -> Iterator[None]:
        """Keeps answers until the end of the block."""
        outer, self._answers = self._answers, Answers()
        try:
            yield
        finally:
            self._answers = outer

    def getmodule(self, item, *arguments):
        """``inspect.getmodule``. For a frame the result depends on its file name only."""
        answers = self._answers
        if answers is None or arguments or not isinstance(item, FrameType):
            return inspect.getmodule(item, *arguments)
        file = item.f_code.co_filename
        if _is_no_path(file):
            return None
        if file not in answers.modules:
            answers.modules[file] = inspect.getmodule(item)
        return answers.modules[file]

    def getsourcelines(self, item):
        """``inspect.getsourcelines``. For a frame the result depends on its code only."""
        answers = self._answers
        if answers is None or not isinstance(item, FrameType):
            return inspect.getsourcelines(item)
        code = item.f_code
        if id(code) not in answers.lines:
            answers.lines[id(code)] = code, _lines(item)
        _, lines = answers.lines[id(code)]
        if lines is None:
            raise OSError("source code not available")
        return lines


def _lines(frame: FrameType):
    with _in_no_module(frame.f_code.co_filename):
        try:
            return inspect.getsourcelines(frame)
        except OSError:
            return None


def _is_no_path(file: str) -> bool:
    """Whether a file name is one such as ``<string>``, or that of a cell. ``linecache`` asks no module for their lines."""
    return file.startswith("<") and file.endswith(">")


@contextlib.contextmanager
def _in_no_module(file: str) -> Iterator[None]:
    """Makes ``inspect`` know in the block, without a search, that code whose file name is no path belongs to no module."""
    if not _is_no_path(file) or file in inspect.modulesbyfile:
        yield
        return
    inspect.modulesbyfile[file] = NO_MODULE
    try:
        yield
    finally:
        inspect.modulesbyfile.pop(file, None)


def install(formatter) -> None:
    """Makes IPython, and this formatter of tracebacks, use the cache. Searches the loaded modules now, or the first traceback
    would have to wait for it.
    """
    ours = Inspect()
    for module in (tbtools, ultratb):
        if getattr(module, "inspect", None) is inspect:
            module.inspect = ours
    original = formatter.structured_traceback

    @functools.wraps(original)
    def structured_traceback(*arguments, **keywords):
        with ours.remembering():
            return original(*arguments, **keywords)

    formatter.structured_traceback = structured_traceback
    inspect.getmodule(compile("", "<search>", "exec"))
