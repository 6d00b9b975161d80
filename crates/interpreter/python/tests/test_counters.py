"""Code that changes when it runs is moved side by side, and runs as before. In forks that end at once: what refers to moved code is never freed."""

import os
import sys
import types
import weakref
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

from sandcove_kernel import counters, pages  # noqa: E402


def add(first, second=1):
    return first + second


def outer(values):
    def inner(value):
        return [value, *(value + more for more in values)]

    return [inner(value) for value in values]


def unused():
    return add(1)


def change(*functions):
    """Writes to the code of functions as the interpreter does, in a place where it does no harm."""
    import ctypes

    def changing():
        for function in functions:
            code = function if isinstance(function, types.CodeType) else function.__code__
            first_line = ctypes.c_int.from_address(id(code) + OFFSET)
            assert first_line.value == code.co_firstlineno
            first_line.value += 1000

    return changing


def _offset_of_first_line() -> int:
    import ctypes

    found = [
        offset
        for offset in range(16, types.CodeType.__basicsize__, 4)
        if all(
            ctypes.c_int.from_address(id(function.__code__) + offset).value == function.__code__.co_firstlineno
            for function in (add, outer, unused, change)
        )
    ]
    return found[0]


OFFSET = _offset_of_first_line()
NESTED = [constant for constant in outer.__code__.co_consts if isinstance(constant, types.CodeType)]
KNOWN = [add, outer, unused, add.__code__, outer.__code__, unused.__code__, *NESTED]


def in_a_fork(function) -> list[int]:
    """The numbers that ``function`` comes to in a process that ends right after it."""
    found = [number for number, in pages.from_fork(lambda: [(number,) for number in function()], "q")]
    os.wait()
    return found


def test_code_that_changes_is_moved_side_by_side_and_runs_as_before():
    def moved():
        before = {item: id(item.__code__) for item in (add, outer, unused)}
        count = counters.gather(KNOWN, change(add, outer))
        places = sorted(id(item.__code__) for item in (add, outer))
        assert unused() == 2 and add(2, 3) == 5 and outer([1, 2]) == [[1, 2, 3], [2, 3, 4]]
        for _ in range(1000):
            assert unused() == 2 and outer([1, 2]) == [[1, 2, 3], [2, 3, 4]]
        assert add.__code__ == add.__code__.replace() and add.__code__.co_name == "add"
        yield count
        yield places[1] - places[0] < 4096
        yield sum(before[item] != id(item.__code__) for item in (add, outer, unused))

    assert in_a_fork(moved) == [2, True, 2]


def test_code_within_code_is_moved_too():
    def moved():
        inner = NESTED[0]
        yield counters.gather(KNOWN, change(inner))
        assert outer([1, 2]) == [[1, 2, 3], [2, 3, 4]]
        yield sum(id(constant) == id(inner) for constant in outer.__code__.co_consts)

    assert in_a_fork(moved) == [1, 0]


def test_what_the_first_run_changes_comes_first():
    def moved():
        yield counters.gather(KNOWN, change(outer), change(add, outer))
        yield id(outer.__code__) < id(add.__code__)

    assert in_a_fork(moved) == [2, True]


def test_the_runs_leave_nothing_behind():
    line = add.__code__.co_firstlineno
    assert in_a_fork(lambda: [counters.gather(KNOWN, change(add)), add.__code__.co_firstlineno]) == [1, line]


def test_code_that_something_else_refers_to_by_its_address_stays():
    def moved():
        reference = weakref.ref(add.__code__)
        yield counters.gather(KNOWN, change(add, outer))
        yield reference() is add.__code__

    assert in_a_fork(moved) == [1, True]


def test_nothing_is_moved_where_the_interpreter_compiles(monkeypatch):
    monkeypatch.setenv("PYTHON_JIT", "1")
    assert in_a_fork(lambda: [counters.gather(KNOWN, change(add))]) == [0]


def test_a_proxy_of_a_function_is_left_alone():
    """It claims to be a function, and has neither code nor constants in the place of one."""
    assert in_a_fork(lambda: [counters.gather([mock.Mock(spec=add), *KNOWN], change(add))]) == [1]


def test_a_run_that_fails_moves_nothing(capfd):
    def fails():
        raise ValueError("no")

    assert in_a_fork(lambda: [counters.gather(KNOWN, fails)]) == [0]
