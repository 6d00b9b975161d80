"""Resolves the names of the test's domain to this host, as a name server or `libnss-myhostname` does. Python loads it by itself when its
directory is in PYTHONPATH, so that programs stay as they are."""

import os
import socket

DOMAIN = "." + os.environ.get("E2B_DOMAIN", "").split(":")[0]
original = socket.getaddrinfo


def getaddrinfo(host, *arguments, **options):
    return original("127.0.0.1" if isinstance(host, str) and host.endswith(DOMAIN) else host, *arguments, **options)


if len(DOMAIN) > 1:
    socket.getaddrinfo = getaddrinfo
