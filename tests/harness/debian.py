"""Programs and libraries of Debian packages, for one test and nobody else: they are unpacked, not installed."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

CACHE = Path(os.environ.get("SANDCOVE_VERSIONS_DIR", Path(__file__).resolve().parents[1] / ".versions"))


def unpacked(package: str, name: str) -> Path:
    """The file called `name` of a package."""
    place = CACHE / package
    if not list(place.rglob(name)):
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as download:
            subprocess.run(["apt-get", "download", package], cwd=download, check=True, capture_output=True, timeout=180)
            (file,) = Path(download).glob("*.deb")
            subprocess.run(["dpkg-deb", "--extract", file, place], check=True)
    return next(place.rglob(name))
