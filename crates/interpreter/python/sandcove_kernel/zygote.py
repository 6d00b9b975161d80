"""The zygote: the warm process of a sandbox, which forks kernels.

Its control socket keeps message boundaries (SOCK_SEQPACKET). The interpreter server sends one byte with three descriptors: the
socket of the new kernel and the writing ends of its output pipes. The child says ``hello`` on its own socket; if it cannot, that
socket is closed. When a kernel ends, the zygote sends its process id and the signal that ended it, or 0 (``1234 9``). There is
nothing else: the end of the control socket ends the zygote, and its kernels with it.
"""

import ctypes
import os
import signal
import socket
import sys

from . import attach

PR_SET_PDEATHSIG = 1


def serve(control: socket.socket, shell) -> None:
    """Forks a kernel for every request; returns when the server has closed ``control``."""
    threads = os.listdir("/proc/self/task")
    if len(threads) != 1:
        print(f"warm process has {len(threads)} threads; forked kernels may hang", file=sys.stderr)
    # The server watches the children through pidfds, which do not have their status.
    signal.signal(signal.SIGCHLD, lambda *_: _report_ends(control))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getpid()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 16, 3)
        if not message:
            return
        if len(descriptors) != 3:
            print(f"fork request came with {len(descriptors)} descriptors instead of 3", file=sys.stderr)
        elif os.fork() == 0:
            control.close()
            _die_with(parent)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # Its own group, so that a signal meant for a kernel and its children reaches no other.
            os.setsid()
            link, stdout, stderr = descriptors
            attach.serve(shell, socket.socket(fileno=link), stdout, stderr)
        for descriptor in descriptors:
            os.close(descriptor)


def _report_ends(control: socket.socket) -> None:
    """Reaps the children that have ended, and reports them unless the server has long read nothing."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        try:
            control.send(b"%d %d" % (pid, ended_by), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            pass


def _die_with(parent: int) -> None:
    """Asks the kernel to end this process when the zygote ends, however that happens."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
