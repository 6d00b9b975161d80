"""Runs the smoke of every chosen client release against a running server and prints a table.

    table.py [--python 2.7.0,2.20.0,…|minors] [--js …|minors]    with E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY set

`minors` means one release, the last, of every minor series from 2.7 on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("SANDCOVE_VERSIONS_DIR", HERE.parent / ".versions"))
FIRST = (2, 7, 0)
SHORT = {"python": "2.7.0,2.20.0,2.45.1,newest", "js": "2.7.0,2.20.0,2.45.0,newest"}


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


def released(language: str) -> list[tuple[int, ...]]:
    if language == "python":
        out = run([sys.executable, "-m", "pip", "index", "versions", "e2b", "--json"])
        names = json.loads(out.stdout)["versions"] if out.returncode == 0 else listed_by_pip()
    else:
        names = json.loads(run(["npm", "view", "e2b", "versions", "--json"]).stdout)
    return sorted(tuple(map(int, name.split("."))) for name in names if name.replace(".", "").isdigit())


def listed_by_pip() -> list[str]:
    out = run([sys.executable, "-m", "pip", "index", "versions", "e2b"])
    line = next(line for line in out.stdout.splitlines() if line.startswith("Available versions:"))
    return [name.strip() for name in line.split(":", 1)[1].split(",")]


def chosen(language: str, wish: str) -> list[str]:
    versions = released(language)
    if wish == "minors":
        last = {version[:2]: version for version in versions if version >= FIRST}
        return [".".join(map(str, version)) for version in sorted(last.values())]
    newest = ".".join(map(str, versions[-1]))
    return [newest if name == "newest" else name for name in wish.split(",") if name]


def python_smoke(version: str) -> subprocess.CompletedProcess[str]:
    place = CACHE / f"python-{version}"
    if not (place / "done").exists():
        made = run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(place), f"e2b=={version}"])
        if made.returncode:
            return made
        (place / "done").touch()
    return run([sys.executable, str(HERE / "smoke.py")], env={**os.environ, "PYTHONPATH": str(place)}, timeout=120)


def js_smoke(version: str) -> subprocess.CompletedProcess[str]:
    place = CACHE / f"js-{version}"
    if not (place / "done").exists():
        place.mkdir(parents=True, exist_ok=True)
        made = run(["npm", "install", "--silent", "--no-save", "--prefix", str(place), f"e2b@{version}"])
        if made.returncode:
            return made
        (place / "done").touch()
    (place / "smoke.mjs").write_text((HERE / "smoke.mjs").read_text())
    return run(["node", str(place / "smoke.mjs")], timeout=120)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=SHORT["python"])
    parser.add_argument("--js", default=SHORT["js"])
    wishes = parser.parse_args()
    failed = passed = 0
    print(f"{'client':<8} {'release':<9} result")
    for language, smoke in (("python", python_smoke), ("js", js_smoke)):
        for version in chosen(language, getattr(wishes, language)):
            try:
                done = smoke(version)
                fine = done.returncode == 0
                text = done.stdout.strip() if fine else (done.stderr or done.stdout).strip().splitlines()[-1:]
            except subprocess.TimeoutExpired:
                fine, text = False, "timed out"
            passed, failed = passed + fine, failed + (not fine)
            print(f"{language:<8} {version:<9} {text}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
