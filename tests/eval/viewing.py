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
    done = subprocess.run(command, env=environment(home), cwd=home, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
    assert done.returncode in (0, 100), done.stdout + done.stderr


@contextmanager
def network():
    """What to put before commands that should run in a network of their own, with nothing but a loopback interface."""
    command = ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat"]
    # It ends when its input does, which is when whoever started it is gone.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "up\n", "a network namespace needs root"
        yield ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
        holder.stdin.close()


@contextmanager
def viewer(home, *more, within=()):
    """A running viewer: the address it prints, and its process."""
    command = [*within, BINARY, "view", str(home), "--port", "0", "-n", *more]
    with subprocess.Popen(command, env=environment(home), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.terminate()
