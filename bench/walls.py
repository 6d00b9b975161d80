"""What a program reaches of the kernel, as root inside, in Sandcove, nsjail, bubblewrap and runc: the same probes in the same root file system.

    walls.py [--data-dir DIR]      as root, with a server running, `E2B_*` set as `sandcove env` prints, and gcc

The others run as they do by default: runc with the configuration that `runc spec` writes, bubblewrap with all namespaces, nsjail with
`-Mo`. Those that are not installed are named and left out. Prints a Markdown table; every difference is shown, whoever it speaks for.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from peers import ENVIRONMENT, bwrap, runc, template_root

SOURCE = Path(__file__).with_suffix(".c")
PROGRAM = "/tmp/walls"
SIGNS = {"closed": "closed", "open": "**open**", "absent": "–"}

Probes = dict[tuple[str, str], str]


def read(output: str) -> Probes:
    rows = (line.split("\t") for line in output.splitlines())
    return {(subject, what): word for subject, what, word, _ in rows}


def in_sandcove(program: Path) -> Probes:
    from e2b import Sandbox

    box = Sandbox.create("code-interpreter-v1", timeout=120)
    try:
        box.files.write(PROGRAM, program.read_bytes(), user="root")
        return read(box.commands.run(f"chmod 755 {PROGRAM} && exec {PROGRAM}", user="root", timeout=60).stdout)
    finally:
        box.kill()


@contextmanager
def nsjail(root: Path, *command: str):
    """The command line that runs `command` in a new jail."""
    yield ["nsjail", "-Mo", "--really_quiet", "--rw", "--chroot", str(root), "--", *command]


def in_peer(isolated, root: Path) -> Probes:
    with isolated(root, PROGRAM) as line:
        done = subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    if not done.stdout:
        raise RuntimeError(done.stderr.strip()[-500:])
    return read(done.stdout)


def version(program: str) -> str:
    if program == "nsjail":
        return "nsjail"
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    words = done.stdout.split()
    return f"{'bubblewrap' if program == 'bwrap' else program} {words[1] if program == 'bwrap' else words[2]}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", default=os.environ.get("SANDCOVE_DATA_DIR", "/var/lib/sandcove"))
    wishes = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, template_root(Path(wishes.data_dir, "pool/layers")) as root:
        program = Path(directory, "walls")
        subprocess.run(["gcc", "-static", "-O1", "-o", program, SOURCE], check=True)
        shutil.copy(program, root / "tmp/walls")
        columns = {"Sandcove": in_sandcove(program)}
        for name, isolated in {"nsjail": nsjail, "bwrap": bwrap, "runc": runc}.items():
            if not shutil.which(name):
                print(f"{name}: not installed", file=sys.stderr)
                continue
            try:
                columns[version(name)] = in_peer(isolated, root)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                print(f"{name}: failed: {error}", file=sys.stderr)
    print(f"{datetime.date.today()}, Linux {platform.release()}, root file system of `code-interpreter-v1`, root inside\n")
    print(f"| | | {' | '.join(columns)} |")
    print("| --- | --- |" + " --- |" * len(columns))
    previous = ""
    for subject, what in columns["Sandcove"]:
        cells = [SIGNS[probes.get((subject, what), "absent")] for probes in columns.values()]
        print(f"| {subject if subject != previous else ''} | {what} | {' | '.join(cells)} |")
        previous = subject
    counts = {name: collections.Counter(probes.values())["open"] for name, probes in columns.items()}
    print(f"| | open, of {len(columns['Sandcove'])} | {' | '.join(str(counts[name]) for name in columns)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
