"""The memory that a kernel's first cells need, found out once by a fork of the warm process and fetched in one go by every kernel.

A fork shares its pages with its parent until it writes to them, and has no entries for those of files. A first cell that meets them one by
one waits for each.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
import traceback

MADV_POPULATE_READ = 22
MADV_POPULATE_WRITE = 23
#: Bits of an entry in `/proc/self/pagemap`: the page is there, and no other process has it.
PRESENT = 1 << 63
EXCLUSIVE = 1 << 56
#: Pages of files that are no further apart than this are fetched in one call; they are shared by all who have them.
GAP = 4

libc = ctypes.CDLL(None, use_errno=True)
libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

#: What to fetch: for each advice, ranges of addresses.
_needed: list[tuple[int, int, int]] = []


def learn(warm_up) -> None:
    """Runs ``warm_up`` in a fork of this process, and notes the pages it came to need."""

    def needed():
        warm_up()
        return _own_pages()

    _needed[:] = from_fork(needed, "QQQ")


def from_fork(function, layout: str) -> list[tuple]:
    """Runs ``function`` in a fork of this process, and returns its tuples of numbers, which ``layout`` packs; an empty list if it fails."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            packed = b"".join(struct.pack(layout, *found) for found in function())
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(packed)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        return list(struct.iter_unpack(layout, pipe.read()))


def fetch() -> bool:
    """Fetches the pages that were noted; false if there are none, or the kernel of this host cannot."""
    for start, length, advice in _needed:
        # What is no longer mapped, or not yet, is left out.
        if libc.madvise(start, length, advice) != 0 and ctypes.get_errno() == 22:
            return False
    return bool(_needed)


def _own_pages():
    """Ranges of pages that this process has written to, or has of a file."""
    size = mmap.PAGESIZE
    with open("/proc/self/maps") as maps:
        mappings = maps.read().splitlines()
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        for line in mappings:
            addresses, rights, _, device, *_ = line.split(maxsplit=5)
            if rights[0] != "r" or rights[3] != "p" or "[v" in line:
                continue
            start, end = (int(address, 16) for address in addresses.split("-"))
            pagemap.seek(start // size * 8)
            entries = memoryview(pagemap.read((end - start) // size * 8)).cast("Q")
            if rights[1] == "w":
                wanted, gap, advice = PRESENT | EXCLUSIVE, 0, MADV_POPULATE_WRITE
            else:
                wanted, gap, advice = PRESENT, GAP, MADV_POPULATE_READ
            for first, last in runs((number for number, entry in enumerate(entries) if entry & wanted == wanted), gap):
                yield start + first * size, (last - first + 1) * size, advice


def runs(numbers, gap: int):
    """First and last numbers of the runs in which no more than ``gap`` numbers are missing at a time."""
    first = last = None
    for number in numbers:
        if first is not None and number - last - 1 > gap:
            yield first, last
            first = None
        if first is None:
            first = number
        last = number
    if first is not None:
        yield first, last


if sys.byteorder != "little":
    raise ImportError("entries of the page map are read for little-endian machines only")
