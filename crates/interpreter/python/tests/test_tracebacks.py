"""Tracebacks are those of IPython, for less work."""

import inspect
import sys
import traceback
from pathlib import Path

import pytest
from IPython.core import tbtools, ultratb

sys.path.insert(0, str(Path(__file__).parents[1]))

from sandcove_kernel import tracebacks
from sandcove_kernel.shell import ZMQInteractiveShell, configuration

FILE = "def deeper(n):\n    return deeper(n + 1)\n"
CELLS = {
    "a line": "1/0",
    "nested functions": "def inner(): return {}['k']\ndef outer():\n    x = 1\n    return inner()\nouter()",
    "recursion": "def f(n): return 1 if n == 0 else n * f(n - 1)\nf(-3)",
    "recursion of three": "def a(n): return b(n)\ndef b(n):\n    n += 1\n    return c(n)\ndef c(n): return a(n)\na(1)",
    "recursion in repr": "class R:\n    def __repr__(self): return repr(self)\nrepr(R())",
    "recursion while handling": "def h():\n    try: h()\n    except RecursionError: raise ValueError('x')\nh()",
    "lambda": "sorted([3, 1], key=lambda x: 1/0)",
    "generator": "list(1/0 for _ in range(3))",
    "context": "try:\n    1/0\nexcept ZeroDivisionError:\n    {}['k']",
    "cause": "try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise ValueError('v') from e",
    "a cause that is its own": "e = ValueError(); e.__cause__ = e\nraise e",
    "notes": "e = ValueError('v'); e.add_note('note')\nraise e",
    "many contexts": "def g(n):\n    try:\n        if n == 0: 1/0\n        g(n - 1)\n    except Exception:\n"
    "        raise ValueError(n)\ng(30)",
    "exec of a text": "exec('def k(n): return k(n + 1)\\nk(1)')",
    "eval": "eval('1/0')",
    "code with a name that is no file": "exec(compile('def k(n): return k(n + 1)\\nk(1)', 'rules', 'exec'))",
    "code of a file that is not there": "exec(compile('def k(n): return k(n + 1)\\nk(1)', 'gone.py', 'exec'))",
    "code with the name of a cell": "exec(compile('1/0', f.__code__.co_filename if 'f' in globals() else '<x>', 'exec'))",
    "a module of one's own": "import sandcove_test_module as m\nm.deeper(1)",
    "a module that is unloaded": "import sys, sandcove_test_module as m\ndel sys.modules['sandcove_test_module']\nm.deeper(1)",
    "the standard library": "import json\njson.loads('{')",
    "a frozen module": "import importlib\nimportlib.import_module('no_such_module_x')",
    "a magic": "%timeit -n1 -r1 1/0",
    "hidden frames": "def q():\n    __tracebackhide__ = True\n    return 1/0\ndef p(): return q()\np()",
    "a deleted source": "def z(): return 1/0\nimport linecache; linecache.cache.pop(z.__code__.co_filename, None)\nz()",
    "the module of the cell replaced": "import sys, types\nkept = sys.modules['__main__']\n"
    "sys.modules['__main__'] = types.ModuleType('__main__')\ntry:\n    1/0\nfinally: sys.modules['__main__'] = kept",
    "inspect reassigned": "import inspect\nkept = inspect.getsourcelines\ninspect.getsourcelines = None\n"
    "try:\n    len(1)\nfinally: inspect.getsourcelines = kept",
}


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    directory = tmp_path_factory.mktemp("modules")
    (directory / "sandcove_test_module.py").write_text(FILE)
    sys.path.insert(0, str(directory))
    shell = ZMQInteractiveShell.instance(config=configuration())
    tracebacks.install(shell.InteractiveTB)
    yield shell
    sys.path.remove(str(directory))
    for module in (tbtools, ultratb):
        module.inspect = inspect


def error(shell, cell: str) -> BaseException:
    outcome = shell.run_cell(cell, store_history=True)
    assert outcome.error_in_exec is not None
    return outcome.error_in_exec


def ours(shell, error: BaseException) -> list[str]:
    return shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__, tb_offset=1)


def ipythons(shell, error: BaseException, monkeypatch) -> list[str]:
    formatter = shell.InteractiveTB
    with monkeypatch.context() as patch:
        for module in (tbtools, ultratb):
            patch.setattr(module, "inspect", inspect)
        return type(formatter).structured_traceback(
            formatter, type(error), error, error.__traceback__, tb_offset=1
        )


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
@pytest.mark.parametrize("mode", ["Context", "Verbose"])
def test_a_traceback_is_ipythons(shell, monkeypatch, cell, mode):
    failure = error(shell, cell)
    shell.InteractiveTB.set_mode(mode)
    try:
        assert ours(shell, failure) == ipythons(shell, failure, monkeypatch)
    finally:
        shell.InteractiveTB.set_mode("Context")


def searches(shell, monkeypatch, failure: BaseException) -> int:
    """How often formatting asks ``inspect``, which may search all modules for each answer."""
    asked = []

    def counting(name):
        original = getattr(inspect, name)
        return lambda *arguments: asked.append(name) or original(*arguments)

    with monkeypatch.context() as patch:
        for name in ("getmodule", "getsourcelines"):
            patch.setattr(inspect, name, counting(name))
        ours(shell, failure)
    return len(asked)


@pytest.mark.parametrize(
    "name", [name for name, cell in CELLS.items() if "k(1)" in cell or "recursion" in name or "deeper" in cell]
)
def test_a_deep_traceback_takes_few_searches(shell, monkeypatch, name):
    failure = error(shell, CELLS[name])
    assert len(list(traceback.walk_tb(failure.__traceback__))) > 300
    assert searches(shell, monkeypatch, failure) < 25


def test_code_of_cells_is_not_searched_for(shell, monkeypatch):
    """Even a single search through all modules costs as much as the rest of a small traceback."""
    failure = error(shell, "def f(): 1/0\ndef g(): f()\ng()")
    known, searched = dict(inspect.modulesbyfile), []

    class Modules(dict):
        def copy(self):
            searched.append(True)
            return super().copy()

    with monkeypatch.context() as patch:
        patch.setattr(sys, "modules", Modules(sys.modules))
        ours(shell, failure)
        assert not searched
        ipythons(shell, failure, monkeypatch)
        assert searched
    assert inspect.modulesbyfile == known


def test_what_is_loaded_later_is_found(shell, monkeypatch, tmp_path):
    """Nothing is remembered from one traceback to the next: a file may become that of a module of IPython's."""
    (tmp_path / "late.py").write_text("def fail(): 1/0\n")
    failure = error(
        shell, f"p = {str(tmp_path / 'late.py')!r}\nd = {{}}\nexec(compile(open(p).read(), p, 'exec'), d)\nd['fail']()"
    )
    assert any("late.py" in block for block in ours(shell, failure))
    module = type(sys)("IPython.late")
    module.__file__ = str(tmp_path / "late.py")
    monkeypatch.setitem(sys.modules, "IPython.late", module)
    assert not any("late.py" in block for block in ours(shell, failure))
    assert ours(shell, failure) == ipythons(shell, failure, monkeypatch)
