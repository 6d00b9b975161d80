"""Thread counts of OpenBLAS: one thread while a process must be forkable, all processors in a kernel."""

import ctypes
import os

#: The names under which builds of OpenBLAS export the function.
SETTERS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


_setters = []


def find_setters() -> None:
    """Finds the functions while there is time, before a kernel is forked."""
    _setters.clear()
    for path in _loaded():
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        found = (getattr(library, name, None) for name in SETTERS)
        _setters.extend([setter for setter in found if setter is not None][:1])


def use_all_processors() -> None:
    """Sets the number of threads of each OpenBLAS found, unless the environment names one."""
    if "OPENBLAS_NUM_THREADS" in os.environ or "OMP_NUM_THREADS" in os.environ:
        return
    count = len(os.sched_getaffinity(0))
    if count > 1:
        for setter in _setters:
            setter(ctypes.c_int(count))


def _loaded() -> list[str]:
    try:
        with open("/proc/self/maps") as maps:
            paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if "openblas" in line}
    except (OSError, IndexError):
        return []
    return sorted(paths)
