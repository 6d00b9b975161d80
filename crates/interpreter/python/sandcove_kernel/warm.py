"""A warm process outside of any sandbox, which is forked into new sandboxes.

It runs in a jail of its own, whose user namespace is the parent of the sandboxes'. When it is warm it writes one byte to its
control socket (SOCK_SEQPACKET). From then on every message requests one fork; it is a JSON object with

- ``capabilities``: bit mask of the capabilities to keep,
- ``seccomp``: the last filter to load, as hexadecimal,

and comes with descriptors: the sandbox's first process as a pidfd, the control socket to serve there (see ``zygote``), and the
``cgroup.procs`` files the forked process writes itself into. The forked process keeps none of the jail's rights. It writes one
byte to the socket it is to serve when it is in place; any error closes that socket.

The sandbox may not have its own root yet. When its first process changes to it, the kernel takes along what was forked.
"""

import ctypes
import gc
import json
import os
import signal
import socket
import sys
import traceback

from . import immortal, zygote

CLONE_NEWNS = 0x0002_0000
CLONE_NEWCGROUP = 0x0200_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000
#: The namespaces of a sandbox besides the PID namespace; with a pidfd all are entered in one step, the user namespace first.
NAMESPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS

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
    gc.unfreeze()
    immortal.make_immortal()
    gc.freeze()
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
    sandbox, served, *groups = descriptors
    nothing = os.open(os.devnull, os.O_RDWR)
    for group in groups:
        os.write(group, b"0")
        os.close(group)
    _check(libc.setns(sandbox, NAMESPACES), "setns")
    os.close(sandbox)
    # The process sees control groups from its own, which it has just entered.
    _check(libc.unshare(CLONE_NEWCGROUP), "unshare")
    os.setresgid(0, 0, 0)
    os.setgroups([])
    os.setresuid(0, 0, 0)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.close(nothing)
    os.setsid()
    os.chdir("/")
    os.umask(0o022)
    _give_up(request["capabilities"], bytes.fromhex(request["seccomp"]))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    control = socket.socket(fileno=served)
    # The host changes the root only after this: processes inside by then are taken along.
    control.send(b"w")
    zygote.serve(control, shell)
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
