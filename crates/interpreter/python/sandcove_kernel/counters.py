"""Code whose counters change is put side by side, so that kernels copy few pages for it.

The interpreter counts, in the instructions of a function, how often it ran those that it could not specialize. So a kernel writes to the
code of nearly every function that it calls, which lies wherever its module was loaded: one or two words in each of hundreds of pages that it
would otherwise share with all other kernels. The functions that first cells call are found out once, by a fork of the warm process, and
their code is moved to pages of its own.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import types
import weakref

from . import pages

#: Addresses of code objects are multiples of this.
ALIGNMENT = 16
POINTER = ctypes.sizeof(ctypes.c_void_p)
#: The flag of types whose objects have a header of the garbage collector in front, which would have to be moved, too.
HAS_COLLECTOR_HEADER = 1 << 14


def gather(code: list[types.CodeType | types.FunctionType], *runs) -> int:
    """Moves what any of ``runs`` changes of ``code``, that of the first to the front, and returns the number of code objects moved.

    All of ``code`` and what refers to it is immortal: neither what is moved nor what referred to it is ever freed.
    """
    place = _place_of_code()
    if place is None or _is_compiled():
        return 0
    candidates = [item for item in code if _is_movable(item)]
    changed = {number: None for run in runs for number in _changed_by(run, candidates)}
    moved = _move([candidates[number] for number in changed])
    for item in code:
        if type(item) is types.FunctionType:
            _redirect(id(item) + place, moved)
        elif type(item) is types.CodeType:
            first = id(item.co_consts) + tuple.__basicsize__
            for number, constant in enumerate(item.co_consts):
                if type(constant) is types.CodeType:
                    _redirect(first + number * POINTER, moved)
    return len(moved)


def _is_compiled() -> bool:
    """Whether the interpreter may have compiled code, which refers to code objects by their addresses."""
    compiler = getattr(sys, "_jit", None)
    return compiler.is_enabled() if compiler else os.environ.get("PYTHON_JIT", "0") != "0"


def _is_movable(item) -> bool:
    """Whether an object is a code object, and the memory at its address is all there is of it."""
    kind = types.CodeType
    if type(item) is not kind or kind.__flags__ & HAS_COLLECTOR_HEADER or weakref.getweakrefcount(item):
        return False
    length = ctypes.c_ssize_t.from_address(id(item) + object.__basicsize__).value
    # Anything else is a table beside it, of a debugger for example.
    size = kind.__basicsize__ + length * kind.__itemsize__
    return item.__sizeof__() == size + -size % POINTER


def _changed_by(run, candidates: list[types.CodeType]) -> list[int]:
    """Which of the code objects have other memory after ``run``, which runs in a fork."""

    def find() -> list[tuple[int]]:
        before = [_bytes_of(code) for code in candidates]
        run()
        return [(number,) for number, code in enumerate(candidates) if _bytes_of(code) != before[number]]

    return [number for number, in pages.from_fork(find, "Q")]


def _bytes_of(code: types.CodeType) -> bytes:
    """The memory of a code object, without the count of its references."""
    header = object.__basicsize__
    return ctypes.string_at(id(code) + header, code.__sizeof__() - header)


def _move(codes: list[types.CodeType]) -> dict[int, int]:
    """Copies code objects side by side, to memory that is never given back; returns new addresses by old ones."""
    sizes = [code.__sizeof__() for code in codes]
    total = sum(size + -size % ALIGNMENT for size in sizes)
    if total == 0:
        return {}
    block = mmap.mmap(-1, total, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # It outlives every object that refers to it, to the end of the process.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(block))
    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    moved = {}
    for code, size in zip(codes, sizes):
        ctypes.memmove(address, id(code), size)
        moved[id(code)] = address
        address += size + -size % ALIGNMENT
    return moved


def _redirect(address: int, moved: dict[int, int]) -> None:
    pointer = ctypes.c_void_p.from_address(address)
    if pointer.value in moved:
        pointer.value = moved[pointer.value]


def _place_of_code() -> int | None:
    """Offset of the pointer to the code in a function, which no interface of the interpreter tells."""
    found = [
        offset
        for offset in range(object.__basicsize__, types.FunctionType.__basicsize__, POINTER)
        if ctypes.c_void_p.from_address(id(_redirect) + offset).value == id(_redirect.__code__)
    ]
    return found[0] if len(found) == 1 else None
