"""Makes objects immortal: their references are not counted, so their pages are not written to and stay shared after a fork.

Without this a first cell with pandas copies most pages it only reads, because of reference counts.
"""

import ctypes
import gc
import sys
import sysconfig
import types

#: Members of a code object that are not made anew for every access. The garbage collector does not know them: it does not track
#: code objects.
CODE_MEMBERS = ("co_consts", "co_names", "co_filename", "co_name", "co_qualname", "co_linetable", "co_exceptiontable")


def make_immortal() -> list[types.CodeType | types.FunctionType]:
    """Makes every existing object immortal (PEP 683), as ``None`` is, and returns the functions and code objects among them.

    Only for a process that is forked and does nothing else: nothing that exists now is ever freed. An interpreter without
    immortal objects is left as it is, and the list is empty.
    """
    mark = ctypes.c_uint32.from_address(id(None)).value if _known() else 0
    found: list[types.CodeType | types.FunctionType] = []
    if not mark >> 31:
        return found
    seen: set[int] = set()
    waiting = gc.get_objects()
    while waiting:
        item = waiting.pop()
        # A frame goes on running; what it refers to does not stay.
        if item is seen or item is waiting or item is found or id(item) in seen or isinstance(item, types.FrameType):
            continue
        seen.add(id(item))
        # Not what only claims to be one, as proxies do.
        if type(item) in (types.CodeType, types.FunctionType):
            found.append(item)
        if type(item) is types.CodeType:
            waiting.extend(getattr(item, name) for name in CODE_MEMBERS)
        waiting.extend(gc.get_referents(item))
        half = ctypes.c_uint32.from_address(id(item))
        if not half.value >> 31:
            half.value = mark
    return found


def _known() -> bool:
    """Whether this interpreter keeps a count in the first half word of an object, and immortality in that count."""
    return (
        sys.implementation.name == "cpython"
        and (3, 12) <= sys.version_info < (3, 15)
        and sys.byteorder == "little"
        and ctypes.sizeof(ctypes.c_void_p) == 8
        and not sysconfig.get_config_var("Py_GIL_DISABLED")
        and not hasattr(sys, "gettotalrefcount")
    )
