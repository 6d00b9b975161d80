"""Pages that a fork needs are found out once, and fetched by every later fork."""

import mmap
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from sandcove_kernel import pages  # noqa: E402

PAGE = mmap.PAGESIZE


@pytest.fixture
def block():
    """Sixty-four pages of this process, all written to."""
    block = mmap.mmap(-1, 64 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(64):
        block[page * PAGE] = page
    yield block
    pages._needed.clear()


def own(block: mmap.mmap) -> set[int]:
    """Numbers of the pages of the block that no other process has."""
    import ctypes

    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        pagemap.seek(address // PAGE * 8)
        entries = memoryview(pagemap.read(64 * 8)).cast("Q")
    return {number for number, entry in enumerate(entries) if entry & pages.EXCLUSIVE}


def in_a_fork(function) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, repr(function()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def test_a_fork_fetches_what_the_warm_up_wrote_to_and_nothing_more(block):
    def warm_up():
        for page in (3, 4, 40):
            block[page * PAGE] = 255

    pages.learn(warm_up)
    os.wait()
    assert bytes(block[page * PAGE] for page in (3, 4, 40)) == bytes([3, 4, 40]), "the warm-up is another process's"

    def fetched():
        before = own(block)
        return before, pages.fetch(), own(block), [block[page * PAGE] for page in (3, 4, 40)]

    assert in_a_fork(fetched) == repr((set(), True, {3, 4, 40}, [3, 4, 40]))


def test_without_a_warm_up_there_is_nothing_to_fetch():
    pages._needed.clear()
    assert pages.fetch() is False


def test_a_warm_up_that_fails_notes_nothing(block, capfd):
    def fails():
        raise ValueError("no")

    pages.learn(fails)
    os.wait()
    assert pages.fetch() is False


def test_memory_that_has_gone_is_left_out(block):
    address = 1 << 46
    pages._needed[:] = [(address, PAGE, pages.MADV_POPULATE_WRITE)]
    assert pages.fetch() is True


def test_runs_have_gaps_up_to_a_length():
    assert list(pages.runs([], 2)) == []
    assert list(pages.runs([1, 2, 5, 9, 10], 2)) == [(1, 5), (9, 10)]
    assert list(pages.runs([1, 2, 4], 0)) == [(1, 2), (4, 4)]
