"""IPython for builds that are not about the index it comes from: downloaded once, with patience, and copied into templates."""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
import tempfile
from pathlib import Path

from e2b import Sandbox

from harness.server import ROOT

CACHE = Path(os.environ.get("SANDCOVE_TEMPLATE_CACHE", "/var/cache/sandcove-tests")) / "wheels"
# Where templates have the wheels, and what has pip take them and ask no index.
PLACE = "/opt/wheels"
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": PLACE}
# For builds that are about the index.
PATIENT = {"PIP_RETRIES": "10", "PIP_TIMEOUT": "60"}


def wanted() -> str:
    """What builds install where Python has no IPython."""
    return re.search(r'^WANTED = "(.+)"$', (ROOT / "crates/server/src/builds/interpreter.py").read_text(), re.M)[1]


def downloaded() -> Path:
    """A directory `wheels` of what the Python of the template `base` needs for IPython."""
    with Sandbox.create("base", timeout=3600) as sandbox:
        python = sandbox.commands.run("python3 -VV").stdout.strip()
        directory = CACHE / hashlib.sha256(f"{python} {wanted()}".encode()).hexdigest()[:16]
        if (directory / "wheels").exists():
            return directory / "wheels"
        options = "--quiet --disable-pip-version-check --retries 10 --timeout 60 --only-binary :all: --dest wheels"
        sandbox.commands.run(f"python3 -m pip download {options} '{wanted()}' && tar -cf wheels.tar wheels", timeout=1800)
        archive = bytes(sandbox.files.read("wheels.tar", format="bytes"))
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            packed.extractall(scratch, filter="data")
        try:
            (Path(scratch) / "wheels").rename(directory / "wheels")
        except OSError:
            # Another run of tests was quicker.
            assert (directory / "wheels").exists()
    return directory / "wheels"
