"""Random numbers that are this kernel's own."""

import random
import sys


def reseed() -> None:
    """Seeds the global generators anew: kernels that were forked from one process, or restored from one memory, must not share them."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
