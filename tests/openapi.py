#!/usr/bin/env python3
"""Holds a running server to its own description, with schemathesis: `tests/openapi.py URL [options of schemathesis run]`.

Calls every call with values that follow the description and values that do not; what is answered must be described. Use a
server that nobody needs: things of its first team are changed and deleted. The credentials come from SANDCOVE_API_KEY,
SANDCOVE_ADMIN_TOKEN and SANDCOVE_ACCESS_TOKEN; calls whose credential is missing are still made, and refused.

    tests/openapi.py http://127.0.0.1:3000                 # takes some minutes
    tests/openapi.py http://127.0.0.1:3000 --phases fuzzing --max-examples 5
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
import uuid
from pathlib import Path

CONFIG = Path(__file__).resolve().with_name("openapi.toml")


def call(url: str, key: str, method: str, path: str, body: object = None) -> dict:
    request = urllib.request.Request(
        url + path,
        method=method,
        headers={"X-API-Key": key, "Content-Type": "application/json"},
        data=json.dumps(body).encode() if body is not None else None,
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or "null")


def run(url: str, *options: str, key: str | None = None) -> subprocess.CompletedProcess:
    """Runs schemathesis; files of volumes are those of a volume made for it."""
    key = key or os.environ["SANDCOVE_API_KEY"]
    volume = call(url, key, "POST", "/volumes", {"name": f"openapi-{uuid.uuid4()}"})
    environment = {
        **os.environ,
        "API_KEY": key,
        "ACCESS_TOKEN": os.environ.get("SANDCOVE_ACCESS_TOKEN", "sk_e2b_none"),
        "ADMIN_TOKEN": os.environ.get("SANDCOVE_ADMIN_TOKEN", "none"),
        "VOLUME_TOKEN": volume["token"],
        "VOLUME_ID": volume["volumeID"],
    }
    program = Path(sys.executable).with_name("schemathesis")
    arguments = ["--phases", "examples,coverage,fuzzing", *options]
    try:
        # It remembers failures in the directory it runs in.
        with tempfile.TemporaryDirectory() as directory:
            return subprocess.run(
                [program, "--config-file", CONFIG, "run", f"{url}/openapi.json", *arguments],
                cwd=directory,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
    finally:
        call(url, key, "DELETE", f"/volumes/{volume['volumeID']}")


if __name__ == "__main__":
    done = run(*sys.argv[1:])
    print(done.stdout)
    sys.exit(done.returncode)
