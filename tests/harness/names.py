"""Names below `localhost` that lead to this machine, as on a machine with Debian's libnss-myhostname, for one program and nobody else."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

PACKAGE = "libnss-myhostname"
LIBRARY = "libnss_myhostname.so.2"
CACHE = Path(os.environ.get("SANDCOVE_VERSIONS_DIR", Path(__file__).resolve().parents[1] / ".versions"))


def prepared() -> Path:
    """The directory of the library and of a `nsswitch.conf` that asks it. Nothing is installed."""
    place = CACHE / PACKAGE
    if not list(place.rglob(LIBRARY)):
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as download:
            subprocess.run(["apt-get", "download", PACKAGE], cwd=download, check=True, capture_output=True, timeout=180)
            (package,) = Path(download).glob("*.deb")
            subprocess.run(["dpkg-deb", "--extract", package, place], check=True)
    (place / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files myhostname dns\n")
    return place


def leading_here(command: list[str]) -> list[str]:
    """The command, in a mount namespace where the C library resolves `*.localhost`."""
    place = prepared()
    (library,) = place.rglob(LIBRARY)
    script = 'mount --bind "$0" /etc/nsswitch.conf && LD_LIBRARY_PATH="$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" && export LD_LIBRARY_PATH && shift && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, str(place / "nsswitch.conf"), str(library.parent), *command]
