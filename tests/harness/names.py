"""Names below `localhost` that lead to this machine, as on a machine with Debian's libnss-myhostname, for one program and nobody else."""

from __future__ import annotations

import os
import threading

from harness import debian


def leading_here(command: list[str]) -> list[str]:
    """The command, in a mount namespace where the C library resolves `*.localhost`."""
    library = debian.unpacked("libnss-myhostname", "libnss_myhostname.so.2")
    switch = debian.CACHE / "libnss-myhostname/nsswitch.conf"
    # Programs that run already read this file: one that is being written would be empty for them.
    written = switch.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    written.write_text("passwd: files\ngroup: files\nhosts: files myhostname dns\n")
    written.replace(switch)
    script = """
    mount --bind "$0" /etc/nsswitch.conf || exit 1
    export LD_LIBRARY_PATH="$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    shift && exec "$@"
    """
    return ["unshare", "--mount", "sh", "-c", script, str(switch), str(library.parent), *command]
