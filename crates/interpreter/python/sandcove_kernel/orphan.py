"""Forks of which PID 1 of their PID namespace becomes the parent, because the process between has ended.

A copy of the warm process takes milliseconds to make and to end, and the process between needs none. It shares the memory of the warm process,
which stands still meanwhile (vfork), and runs a few instructions that write to no stack. For processors whose instructions are not known here, it is
an ordinary fork.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal

CLONE_CHILD_CLEARTID = 0x0020_0000
CLONE_CHILD_SETTID = 0x0100_0000
PR_GET_TID_ADDRESS = 40

libc = ctypes.CDLL(None, use_errno=True)

#: `long between(int report, char *byte, long flags, int *thread)` for x86-64 Linux. The process that calls it gets the id of the process
#: between, or a negative error; its fork, the child of that process, gets 0.
BETWEEN = bytes.fromhex(
    "4989d0"  #       mov r8, rdx        flags
    "4989ca"  #       mov r10, rcx       thread
    "b83a000000"  #   mov eax, 58        vfork()
    "0f05"  #         syscall
    "85c0"  #         test eax, eax
    "7538"  #         jnz return         the caller goes on
    "ba01000000"  #   mov edx, 1
    "b801000000"  #   mov eax, 1         write(report, byte, 1): it exists
    "0f05"  #         syscall
    "83f801"  #       cmp eax, 1
    "751e"  #         jne end
    "31c0"  #         xor eax, eax       read(report, byte, 1): it may go on
    "0f05"  #         syscall
    "83f801"  #       cmp eax, 1
    "7515"  #         jne end
    "4c89c7"  #       mov rdi, r8
    "31f6"  #         xor esi, esi
    "31d2"  #         xor edx, edx
    "4531c0"  #       xor r8d, r8d
    "b838000000"  #   mov eax, 56        clone(flags, 0, 0, thread, 0)
    "0f05"  #         syscall
    "85c0"  #         test eax, eax
    "7409"  #         jz return          the fork goes on
    "31ff"  #   end:  xor edi, edi
    "b8e7000000"  #   mov eax, 231       exit_group(0)
    "0f05"  #         syscall
    "c3"  #   return: ret
)


class Forker:
    """Makes the forks, in the way that this machine offers."""

    def __init__(self) -> None:
        #: Where the C library keeps the number of the thread, which a fork has to set.
        self._thread = ctypes.c_void_p()
        self._byte = ctypes.create_string_buffer(1)
        self._between = None
        for hook in ("BeforeFork", "AfterFork_Parent", "AfterFork_Child"):
            getattr(ctypes.pythonapi, f"PyOS_{hook}").restype = None
        asked = libc.prctl(PR_GET_TID_ADDRESS, ctypes.byref(self._thread), 0, 0, 0)
        if asked == 0 and os.uname().machine == "x86_64" and ctypes.sizeof(ctypes.c_void_p) == 8:
            self._between = self._load()

    def _load(self):
        self._code = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._code.write(BETWEEN)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._code))
        if libc.mprotect(ctypes.c_void_p(address), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
            return None
        kind = ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p)
        return kind(address)

    def fork(self, report: int) -> bool:
        """Forks, and returns true in the fork. The process between writes ``f`` to the socket ``report`` when it exists, and waits for a byte before it
        forks: by then the host has put it into the control group that the memory of the fork counts for. Without that byte there is no fork.
        """
        if self._between is None:
            return self._fork_twice(report)
        self._byte.value = b"f"
        api = ctypes.pythonapi
        flags = CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | signal.SIGCHLD
        api.PyOS_BeforeFork()
        process = self._between(report, self._byte, flags, self._thread)
        if process == 0:
            api.PyOS_AfterFork_Child()
            return True
        api.PyOS_AfterFork_Parent()
        if process < 0:
            raise OSError(-process, f"failed to fork: {os.strerror(-process)}")
        return False

    def _fork_twice(self, report: int) -> bool:
        if os.fork() != 0:
            return False
        os.write(report, b"f")
        if not os.read(report, 1) or os.fork() != 0:
            os._exit(0)
        return True
