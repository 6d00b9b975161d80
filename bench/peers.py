"""How Sandcove compares with other ways to run the same code on this host, measured in the same run.

    peers.py [--runs N] [--data-dir DIR] [--sandcove PATH]      as root, with a server running

Every peer gets the root file system of the template `code-interpreter-v1`, so that all run the same Python and pandas.
Peers that are not installed are named and left out. Times are medians in milliseconds: from nothing to the first result of
pandas, of `1+1` once it runs, and from nothing to the end of a first command. Prints two Markdown tables.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

PANDAS = "import pandas as pd; pd.DataFrame({'a': range(100)}).describe()"
WARM_ROUNDS = 10
# Reads an expression or statements a line, answers with one line when they are done.
LOOP = (
    "import sys\n"
    "scope = {}\n"
    "for line in sys.stdin:\n"
    "    head, _, last = line.strip().rpartition('; ')\n"
    "    exec(head, scope)\n"
    "    print(repr(eval(last, scope)).replace('\\n', ' '), flush=True)\n"
)
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}


@contextmanager
def template_root(layers: Path):
    """The template as one writable directory."""
    newest = [max(layers.glob(f"{name}-*"), key=os.path.getmtime) for name in ("code-interpreter", "base")]
    place = Path(tempfile.mkdtemp(prefix="peers-", dir="/run"))
    root, upper, work = (place / name for name in ("root", "upper", "work"))
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
    for directory in (root, upper, work):
        directory.mkdir()
    options = f"lowerdir={':'.join(map(str, newest))},upperdir={upper},workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, root], check=True)
    try:
        yield root
    finally:
        subprocess.run(["umount", root], check=False)
        subprocess.run(["umount", place], check=False)
        place.rmdir()


def converse(command: list[str], **options) -> tuple[float, list[float]]:
    """First result and warm times of a program that answers a line with a line."""
    start = time.perf_counter()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=ENVIRONMENT, **pipes, **options) as process:

        def ask(line: str) -> None:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            if not process.stdout.readline():
                raise RuntimeError(process.stderr.read().strip().splitlines()[-1:])

        ask(PANDAS)
        first = time.perf_counter() - start
        warm = []
        for _ in range(WARM_ROUNDS):
            at = time.perf_counter()
            ask("1+1")
            warm.append(time.perf_counter() - at)
        process.stdin.close()
        process.wait(timeout=30)
    return first, warm


@contextmanager
def runc(root: Path, *command: str):
    """The command line that runs `command` in a new container."""
    with tempfile.TemporaryDirectory() as bundle:
        subprocess.run(["runc", "spec", "--bundle", bundle], check=True)
        path = Path(bundle, "config.json")
        spec = json.loads(path.read_text())
        spec["root"] = {"path": str(root), "readonly": False}
        spec["process"].update(terminal=False, args=command, cwd="/")
        spec["process"].pop("rlimits", None)
        spec["process"]["env"] = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
        path.write_text(json.dumps(spec))
        yield ["runc", "run", "--bundle", bundle, f"peers-{os.getpid()}-{time.monotonic_ns()}"]


@contextmanager
def bwrap(root: Path, *command: str):
    """The command line that runs `command` in new namespaces."""
    isolate = ["--unshare-all", "--die-with-parent", "--bind", str(root), "/", "--proc", "/proc", "--dev", "/dev"]
    yield ["bwrap", *isolate, *command]


def loop(isolated, root: Path) -> tuple[float, list[float]]:
    with isolated(root, "python3", "-u", "-c", LOOP) as line:
        return converse(line)


def command(isolated, root: Path) -> float:
    with isolated(root, "/bin/bash", "-l", "-c", "echo hello") as line:
        start = time.perf_counter()
        subprocess.run(line, env=ENVIRONMENT, check=True, capture_output=True)
        return time.perf_counter() - start


def bare(root: Path) -> tuple[float, list[float]]:
    """A new process for every piece of code, not isolated."""

    def once(code: str) -> float:
        start = time.perf_counter()
        subprocess.run(["chroot", str(root), "python3", "-c", code], env=ENVIRONMENT, check=True, capture_output=True)
        return time.perf_counter() - start

    return once(f"{PANDAS.replace('; ', '; print(')})"), [once("print(1+1)") for _ in range(WARM_ROUNDS)]


def jupyter(python: str) -> tuple[float, list[float]]:
    """A kernel through jupyter_client, not isolated; the Python that has it also needs pandas."""
    done = subprocess.run([python, __file__, "--jupyter-once"], check=True, capture_output=True, text=True)
    first, warm = json.loads(done.stdout)
    return first, warm


def jupyter_once() -> None:
    from jupyter_client.manager import start_new_kernel

    def run(code: str) -> None:
        reply = client.execute_interactive(code, output_hook=lambda message: None, timeout=60)
        if reply["content"]["status"] != "ok":
            raise RuntimeError(reply["content"])

    start = time.perf_counter()
    manager, client = start_new_kernel()
    try:
        run(PANDAS)
        first = time.perf_counter() - start
        warm = []
        for _ in range(WARM_ROUNDS):
            at = time.perf_counter()
            run("1+1")
            warm.append(time.perf_counter() - at)
    finally:
        manager.shutdown_kernel(now=True)
    print(json.dumps([first, warm]))


def sandcove(program: str, arguments: list[str], runs: int) -> tuple[str, float, float, float]:
    # Like the peers, one after the other: what one leaves to do is done when the next begins.
    command = [program, "bench", "-n", str(runs), "--pause", "300", "--json", *arguments]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    p50 = {series["name"]: series["p50_ms"] for series in report["series"]}
    machine = report["machine"]
    about = f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_mib']} MiB, Linux {machine['kernel']}"
    return about, p50["create -> first result with pandas"], p50["run_code 1+1, warm"], p50["create -> first command"]


def measured(peer, runs: int) -> tuple[float, float]:
    peer()  # what is read from disk only once is nobody's time
    samples = [peer() for _ in range(runs)]
    warm = [each for _, times in samples for each in times]
    return statistics.median(first for first, _ in samples) * 1e3, statistics.median(warm) * 1e3


def has_jupyter(python: str) -> bool:
    check = subprocess.run([python, "-c", "import jupyter_client, ipykernel, pandas"], capture_output=True)
    return check.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--data-dir", default=os.environ.get("SANDCOVE_DATA_DIR", "/var/lib/sandcove"))
    parser.add_argument("--sandcove", default="sandcove")
    parser.add_argument("--jupyter", default=os.environ.get("JUPYTER_PYTHON", sys.executable), metavar="PYTHON")
    parser.add_argument("--jupyter-once", action="store_true", help=argparse.SUPPRESS)
    wishes = parser.parse_args()
    if wishes.jupyter_once:
        jupyter_once()
        return 0
    about, *own, own_command = sandcove(wishes.sandcove, ["--data-dir", wishes.data_dir], wishes.runs)
    rows = [("Sandcove, over HTTP", *own)]
    with template_root(Path(wishes.data_dir, "pool/layers")) as root:
        peers = {
            "runc, Python in a loop": (shutil.which("runc"), lambda: loop(runc, root)),
            "bwrap, Python in a loop": (shutil.which("bwrap"), lambda: loop(bwrap, root)),
            "python3 -c, not isolated, a process a cell": (shutil.which("chroot"), lambda: bare(root)),
            "jupyter_client and ipykernel, not isolated": (has_jupyter(wishes.jupyter), lambda: jupyter(wishes.jupyter)),
        }
        for name, (installed, peer) in peers.items():
            if not installed:
                print(f"{name}: not installed", file=sys.stderr)
                continue
            try:
                rows.append((name, *measured(peer, wishes.runs)))
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                print(f"{name}: failed: {error}", file=sys.stderr)
        commands = [("Sandcove, over HTTP", own_command)]
        for isolated in (runc, bwrap):
            if shutil.which(isolated.__name__):
                command(isolated, root)
                times = [command(isolated, root) for _ in range(wishes.runs)]
                commands.append((isolated.__name__, statistics.median(times) * 1e3))
    print(f"{datetime.date.today()}, {about}, median of {wishes.runs}\n")
    print("| | create to first pandas result, ms | times Sandcove | warm 1+1, ms | times Sandcove |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, first, warm in rows:
        print(f"| {name} | {first:.0f} | {first / own[0]:.1f} | {warm:.2f} | {warm / own[1]:.2f} |")
    print("\n| | create to end of `echo`, ms | times Sandcove |")
    print("| --- | ---: | ---: |")
    for name, time_ms in commands:
        print(f"| {name} | {time_ms:.1f} | {time_ms / own_command:.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
