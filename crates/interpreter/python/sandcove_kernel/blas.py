"""OpenBLAS was loaded with one thread, to be forkable; a kernel may use all processors again."""

import ctypes
import os

#: The names under which builds of OpenBLAS export the function.
SETTERS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


def use_all_processors() -> None:
    """Sets the number of threads of each loaded OpenBLAS, unless the environment names one."""
    if "OPENBLAS_NUM_THREADS" in os.environ or "OMP_NUM_THREADS" in os.environ:
        return
    count = len(os.sched_getaffinity(0))
    if count < 2:
        return
    for path in _loaded():
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for name in SETTERS:
            setter = getattr(library, name, None)
            if setter is not None:
                setter(ctypes.c_int(count))
                break


def _loaded() -> list[str]:
    try:
        with open("/proc/self/maps") as maps:
            paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if "openblas" in line}
    except (OSError, IndexError):
        return []
    return sorted(paths)
