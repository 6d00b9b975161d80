"""Starts `sandcove view` on runs that `sandcove eval` stores, for tests of its routes and of its page."""

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

from verdicts import ENVIRONMENT, ROOT

BINARY = os.environ.get("SANDCOVE_BIN") or str(ROOT / "target/release/sandcove")


def environment(home):
    return {**os.environ, **ENVIRONMENT, "PROMPTFOO_CONFIG_DIR": str(home)}


def evaluate(home, suite, *more):
    """Runs a suite, which is kept in the directory `home`."""
    path = Path(home) / "suite.yaml"
    path.write_text(suite)
    command = [BINARY, "eval", "-c", str(path), "--no-table", "--no-progress-bar", *more]
    done = subprocess.run(command, env=environment(home), cwd=home, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode in (0, 100), done.stdout + done.stderr


@contextmanager
def viewer(home, *more):
    """A running viewer: the address it prints, and its process."""
    command = [BINARY, "view", str(home), "--port", "0", "-n", *more]
    with subprocess.Popen(command, env=environment(home), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.terminate()
