"""``python -m sandcove_kernel`` with ``--warm FD``, ``--zygote FD`` or ``--check``; see ``warm``, ``zygote`` and ``check``."""

import argparse
import os
import socket
import sys

#: Where builds of templates install IPython.
PACKAGES = "/usr/local/lib/sandcove-interpreter"


def own(descriptor: int) -> socket.socket:
    """Takes over the socket that a descriptor refers to. Standard input becomes an empty file."""
    taken = socket.socket(fileno=os.dup(descriptor))
    if descriptor == 0:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
    else:
        os.close(descriptor)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(prog="sandcove_kernel")
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--zygote", type=int, metavar="FD", help="warm up once, then fork a kernel for each request")
    mode.add_argument("--warm", type=int, metavar="FD", help="warm up once, then fork into a sandbox for each request")
    mode.add_argument("--check", action="store_true", help="warm up, and report what that came to as JSON")
    arguments = parser.parse_args()

    # What the kernel needs, in a template whose Python lacks it; last, so that the template's own packages come first.
    if os.path.isdir(PACKAGES):
        sys.path.append(PACKAGES)

    from . import warmup, zygote

    if arguments.check:
        from . import check

        check.check()
    elif arguments.zygote is not None:
        control = own(arguments.zygote)
        zygote.serve(control, warmup.warm_up())
    else:
        from . import warm

        control = own(arguments.warm)
        warm.serve(control, warmup.warm_up())


main()
