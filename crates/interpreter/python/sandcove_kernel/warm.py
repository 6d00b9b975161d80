"""The warm process of a template: it is outside of any sandbox, and is forked into new sandboxes, in which the fork is the zygote.

It runs in a jail of its own, whose user and PID namespaces are the parents of the sandboxes'. When it is warm it writes one byte
to its control socket (SOCK_SEQPACKET). From then on every message requests one fork; it is a JSON object with

- ``capabilities``: bit mask of the capabilities to keep,
- ``seccomp``: the last filter to load, as hexadecimal,

and comes with descriptors: the sandbox's PID, network and user namespaces, its first process as a pidfd, a socket to report on,
and the control socket to serve there (see ``zygote``). The forked process writes one byte to the socket for reports when it
exists, waits for a byte, by which time the host has put it into the sandbox's control group, and writes another byte when it is
in place. It keeps none of the jail's rights. Any error closes both sockets.
"""

import ctypes
import gc
import json
import os
import signal
import socket
import sys
import traceback

from . import counters, immortal, pages, zygote
from .sample_cells import run_sample_cells

CLONE_NEWNS = 0x0002_0000
CLONE_NEWCGROUP = 0x0200_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000
#: The namespaces that are entered together, through a pidfd.
OTHERS = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP

PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
SECCOMP_SET_MODE_FILTER = 1
CAPABILITY_VERSION_3 = 0x2008_0522
#: The numbers of seccomp and capset.
SYSCALLS = {"x86_64": (317, 126), "aarch64": (277, 91)}

libc = ctypes.CDLL(None, use_errno=True)


class FilterProgram(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def serve(control: socket.socket, shell) -> None:
    """Forks for every request; returns when the host has closed ``control``."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        sys.exit(f"the warm process has {threads} threads, and a fork would have one: leave modules that start threads cold")
    gc.unfreeze()
    cells = [lambda: run_sample_cells(shell), lambda: run_sample_cells(shell, thoroughly=True)]
    counters.gather(immortal.make_immortal(), *cells)
    _trim()
    gc.freeze()
    pages.learn(cells[0])
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    control.send(b"w")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 65536, 16)
        if not message:
            return
        try:
            forked = _fork_into(descriptors[0], own)
        except OSError as error:
            # The sandbox ended meanwhile; the host notices when its socket is closed below.
            print(f"failed to fork into a sandbox: {error}", file=sys.stderr)
            forked = None
        if forked == 0:
            try:
                control.close()
                os.close(own)
                _enter(json.loads(message), descriptors, shell)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        for descriptor in descriptors:
            os.close(descriptor)


def _trim() -> None:
    """Gives free memory back to the system, so that forks need no page tables for it."""
    trim = getattr(libc, "malloc_trim", None)
    if trim is not None:
        trim(0)


def _fork_into(sandbox: int, own: int) -> int:
    """Forks a child that is a process of the sandbox's PID namespace; only children enter one, this process stays in its own."""
    _check(libc.setns(sandbox, CLONE_NEWPID), "enter a PID namespace")
    child = None
    try:
        child = os.fork()
    finally:
        if child != 0:
            _check(libc.setns(own, CLONE_NEWPID), "leave a PID namespace")
    return child


def _enter(request: dict, descriptors: list[int], shell) -> None:
    """Moves into the sandbox and serves there until its end; does not return."""
    processes, network, users, first, report, served = descriptors
    host = socket.socket(fileno=report)
    host.send(b"f")
    # The network belongs to the user namespace above the sandbox's, so it is entered from there.
    _check(libc.setns(network, CLONE_NEWNET), "enter the network namespace")
    _check(libc.setns(users, CLONE_NEWUSER), "enter the user namespace")
    _check(libc.setns(first, OTHERS), "enter the other namespaces")
    for descriptor in (processes, network, users, first):
        os.close(descriptor)
    nothing = os.open(os.devnull, os.O_RDWR)
    if not host.recv(1):
        raise OSError("the host has given up")
    os.setresgid(0, 0, 0)
    os.setgroups([])
    os.setresuid(0, 0, 0)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.close(nothing)
    # Once more, so that PID 1 of the sandbox becomes the parent: what is no descendant of it cannot be stored on disk with it.
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    os.chdir("/")
    os.umask(0o022)
    _give_up(request["capabilities"], bytes.fromhex(request["seccomp"]))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    host.send(b"w")
    host.close()
    zygote.serve(socket.socket(fileno=served), shell)
    os._exit(0)


def _give_up(kept: int, program: bytes) -> None:
    """Drops all rights that the sandbox's own processes do not have."""
    for capability in range(64):
        # Numbers beyond the last one that the kernel knows are refused, and need not be dropped.
        if not kept >> capability & 1 and libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            if ctypes.get_errno() != 22:
                _check(-1, "drop a capability")
    seccomp, capset = SYSCALLS[os.uname().machine]
    filter_program = FilterProgram(len(program) // 8, program)
    _check(libc.syscall(seccomp, SECCOMP_SET_MODE_FILTER, 0, ctypes.byref(filter_program)), "load the filter")
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    low, high = kept & 0xFFFF_FFFF, kept >> 32
    sets = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    _check(libc.syscall(capset, header, sets), "give up capabilities")
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


def _check(result: int, action: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"failed to {action}: {os.strerror(error)}")


if sys.byteorder != "little":
    raise ImportError("capability sets are written for little-endian machines only")
