"""Runs the smoke of every chosen client release against a running server and prints a table.

    table.py [--python 2.7.0,2.20.0,…|minors] [--js …|minors] [--legacy yes|no] [--packages NAME,…|all] [--workers N] [--tls]
    with E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY set

`minors` means one release, the last, of every minor series. Those before 2.7 do not know E2B_SANDBOX_URL: what they send to
names is led to the server, and some also run in their debug mode, against a sandbox whose ports `sandcove sandbox forward`
(SANDCOVE_BIN) makes local ones. Those before 1.0 have a table of their own, in `legacy`.

With --tls, every release finds a server with `--tls local` by its name, with nothing but what `sandcove env --sdk` prints
(SANDCOVE_DATA_DIR has to be the server's). `--packages` are those of `packages`, which find it in no other way.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from legacy import releases
from packages import PACKAGES, Package

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness import names  # noqa: E402

CACHE = Path(os.environ.get("SANDCOVE_VERSIONS_DIR", HERE.parent / ".versions"))
BIN = os.environ.get("SANDCOVE_BIN", str(HERE.parent.parent / "target/release/sandcove"))
FIRST = (2, 7, 0)
DEBUG = {"python": ["1.0.6", "1.5.6", "1.11.1"], "js": ["1.0.7", "1.5.3", "1.13.2"]}
# Of every year's releases at least one.
SHORT = {"python": "1.0.6,1.5.6,2.5.0,2.7.0,2.20.0,newest", "js": "1.0.7,1.5.3,2.5.0,2.7.0,2.20.0,newest"}


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


def patiently(command, attempts=4) -> subprocess.CompletedProcess[str]:
    """Asks a registry, again when it fails or hangs: npm at times waits for ever, with no connection open."""
    for attempt in range(attempts):
        if attempt:
            time.sleep(5 * attempt)
        try:
            done = run(command, timeout=180)
        except subprocess.TimeoutExpired as error:
            done = subprocess.CompletedProcess(command, 1, "", f"`{' '.join(command)}` took longer than {error.timeout} s")
        if done.returncode == 0:
            break
    return done


# A release is tried in several ways at once, and installed by the first.
PLACES: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
FINDING = threading.Lock()


def install(place: Path, command) -> subprocess.CompletedProcess[str] | None:
    """Installs a release at a place, unless it is there; what went wrong."""
    with FINDING:
        lock = PLACES[place]
    with lock:
        if (place / "done").exists():
            return None
        place.mkdir(parents=True, exist_ok=True)
        made = patiently(command)
        if made.returncode:
            return made
        (place / "done").touch()
    return None


def released(language: str) -> list[tuple[int, ...]]:
    if language == "python":
        out = run([sys.executable, "-m", "pip", "index", "versions", "e2b", "--json"], timeout=180)
        names = json.loads(out.stdout)["versions"] if out.returncode == 0 else listed_by_pip()
    else:
        out = patiently(["npm", "view", "e2b", "versions", "--json"])
        assert out.returncode == 0, out.stdout + out.stderr
        names = json.loads(out.stdout)
    return sorted(tuple(map(int, name.split("."))) for name in names if name.replace(".", "").isdigit())


def listed_by_pip() -> list[str]:
    out = patiently([sys.executable, "-m", "pip", "index", "versions", "e2b"])
    assert out.returncode == 0, out.stdout + out.stderr
    line = next(line for line in out.stdout.splitlines() if line.startswith("Available versions:"))
    return [name.strip() for name in line.split(":", 1)[1].split(",")]


def chosen(language: str, wish: str) -> list[str]:
    versions = released(language)
    if wish == "minors":
        last = {version[:2]: version for version in versions if version >= (1, 0)}
        return [".".join(map(str, version)) for version in sorted(last.values())]
    newest = ".".join(map(str, versions[-1]))
    return [newest if name == "newest" else name for name in wish.split(",") if name]


def ways(language: str, version: str) -> list[str]:
    """How a release finds the server."""
    if tuple(map(int, version.split("."))) >= FIRST:
        return ["address"]
    return ["name", "debug"] if version in DEBUG[language] else ["name"]


def ask_api(method: str, path: str, body: object = None) -> bytes:
    headers = {"X-API-Key": os.environ["E2B_API_KEY"], "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(os.environ["E2B_API_URL"] + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


@contextlib.contextmanager
def forwarded_sandbox():
    """A sandbox at the ports that clients in their debug mode use."""
    wish = {"templateID": "code-interpreter-v1", "timeout": 7200, "secure": False}
    sandbox = json.loads(ask_api("POST", "/sandboxes", wish))["sandboxID"]
    command = [BIN, "sandbox", "--url", os.environ["E2B_API_URL"], "forward", sandbox, "49983", "49999"]
    try:
        deadline = time.monotonic() + 120
        while True:
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forward:
                try:
                    if any(line.startswith("127.0.0.1:49999 ") for line in forward.stdout):
                        yield
                        return
                finally:
                    forward.terminate()
            # A connection of another program may have one of them for a moment.
            if time.monotonic() > deadline:
                raise RuntimeError("the ports could not be forwarded")
            time.sleep(1)
    finally:
        ask_api("DELETE", f"/sandboxes/{sandbox}")


def environment(language: str, version: str, way: str) -> dict[str, str]:
    """The variables of a client; by TLS those that `sandcove env` prints, and none of this process."""
    if way != "tls":
        return dict(os.environ)
    command = [BIN, "env", "--sdk", version, "--lang", {"python": "py", "js": "js"}[language], "--shell", "file"]
    out = run(command)
    assert out.returncode == 0, out.stderr
    printed = dict(line.split("=", 1) for line in out.stdout.splitlines())
    assert "E2B_API_URL" not in printed, printed
    return {name: value for name, value in os.environ.items() if not name.startswith("E2B_")} | printed


def by(way: str, command: list[str]) -> list[str]:
    return names.leading_here(command) if way == "tls" else command


def python_smoke(version: str, way: str) -> subprocess.CompletedProcess[str]:
    place = CACHE / f"python-{version}"
    # What an earlier attempt has left is replaced.
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--retries=5", "--upgrade", "--target", str(place)]
    if failed := install(place, [*pip, f"e2b=={version}"]):
        return failed
    smoke = [str(HERE / ("smoke_debug.py" if way == "debug" else "smoke.py"))] + ["--by-name"] * (way == "name")
    variables = {**environment("python", version, way), "PYTHONPATH": str(place)}
    return run(by(way, [sys.executable, *smoke]), env=variables, timeout=600)


def js_smoke(version: str, way: str) -> subprocess.CompletedProcess[str]:
    place = CACHE / f"js-{version}"
    npm = ["npm", "install", "--loglevel=error", "--fetch-retries=5", "--no-save", "--prefix", str(place)]
    if failed := install(place, [*npm, f"e2b@{version}"]):
        return failed
    smoke = "smoke_debug.mjs" if way == "debug" else "smoke.mjs"
    led = ["--import", str(HERE / "by_name.mjs")] * (way == "name")
    # Modules are looked for beside the file that imports them.
    (place / smoke).write_text((HERE / smoke).read_text())
    return run(by(way, ["node", *led, str(place / smoke)]), env=environment("js", version, way), timeout=600)


def legacy_smoke(release: releases.Release, front: dict[str, str] | None) -> tuple[bool, str]:
    """Runs a release of the first generation, through TLS in front of the server, or else in it."""
    place = CACHE / release.place
    if release.language == "python":
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--retries=5", "--upgrade", "--target", str(place)]
        installed = install(place, [*pip, f"{release.package}=={release.version}", *release.beside])
    else:
        npm = ["npm", "install", "--loglevel=error", "--fetch-retries=5", "--no-save", "--prefix", str(place)]
        installed = install(place, [*npm, f"{release.package}@{release.version}"])
    if installed:
        return outcome(installed)
    if front is not None:
        command, env = releases.command(release, place, sys.executable, front)
        return within(lambda: run(command, env=env, timeout=600))
    printed = environment(release.language, "0.x", "tls")
    variables = {name: printed[name] for name in printed if name.startswith(("E2B_", "NODE_", "SSL_", "REQUESTS_"))}
    command, env = releases.command(release, place, sys.executable, variables, resolved=True)
    return within(lambda: run(by("tls", command), env=env, timeout=600))


def package_smoke(package: Package) -> tuple[bool, str]:
    """Runs the program of a package, which finds the server by its name."""
    place = CACHE / f"package-{package.name}-{package.release}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--retries=5", "--upgrade", "--target", str(place)]
    if failed := install(place, [*pip, f"{package.name}=={package.release}", *package.beside]):
        return outcome(failed)
    variables = {**environment("python", "1.x", "tls"), "PYTHONPATH": str(place)}
    return within(lambda: run(by("tls", [sys.executable, str(package.program)]), env=variables, timeout=600))


def result(job: tuple[str, str, str]) -> tuple[bool, str]:
    language, version, way = job
    return within(lambda: SMOKES[language](version, way))


def within(smoke) -> tuple[bool, str]:
    try:
        return outcome(smoke())
    except subprocess.TimeoutExpired as error:
        said = [text if isinstance(text, str) else (text or b"").decode(errors="replace") for text in (error.stdout, error.stderr)]
        return False, "\n".join([f"took longer than {error.timeout} s:", *said])


def outcome(done: subprocess.CompletedProcess[str]) -> tuple[bool, str]:
    if done.returncode == 0:
        return True, done.stdout.strip()
    return False, f"failed:\n{done.stdout}{done.stderr}"


SMOKES = {"python": python_smoke, "js": js_smoke}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=SHORT["python"])
    parser.add_argument("--js", default=SHORT["js"])
    parser.add_argument("--legacy", choices=["yes", "no"], default="yes")
    parser.add_argument("--packages", default="")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--tls", action="store_true")
    wishes = parser.parse_args()
    packages = [one for one in PACKAGES if wishes.packages == "all" or one.name in wishes.packages.split(",")]
    if packages and not wishes.tls:
        parser.error("--packages needs --tls: these packages find a server by its name only")
    jobs = [
        (language, version, way)
        for language in SMOKES
        for version in chosen(language, getattr(wishes, language))
        for way in (["tls"] if wishes.tls else ways(language, version))
    ]
    # These share a sandbox: one after the other.
    debug, others = ([job for job in jobs if (job[2] == "debug") is wanted] for wanted in (True, False))
    failures = []

    def show(name: str, fine: bool, text: str) -> None:
        if not fine:
            lines = text.splitlines()
            error = next((line for line in reversed(lines) if "Error" in line), lines[-1])
            failures.append(f"{' '.join(name.split())}: {error.strip()}")
        print(f"{name} {text}", flush=True)

    print(f"{'client':<8} {'release':<9} {'by':<8} result")
    with contextlib.ExitStack() as stack:
        if debug:
            stack.enter_context(forwarded_sandbox())
        workers = stack.enter_context(ThreadPoolExecutor(wishes.workers))
        for some, results in ((debug, map(result, debug)), (others, workers.map(result, others))):
            for (language, version, way), (fine, text) in zip(some, results):
                show(f"{language:<8} {version:<9} {way:<8}", fine, text)
        legacy = releases.RELEASES if wishes.legacy == "yes" else []
        front = stack.enter_context(releases.front(os.environ["E2B_API_URL"])) if legacy and not wishes.tls else None
        for release, (fine, text) in zip(legacy, workers.map(lambda release: legacy_smoke(release, front), legacy)):
            name = "e2b" if release.package == "e2b" else "code"
            show(f"{release.language:<8} {release.version:<9} {f'{name} TLS':<8}", fine, text)
        for package, (fine, text) in zip(packages, workers.map(package_smoke, packages)):
            show(f"{package.name:<18} {package.release:<8}", fine, text)
    jobs += legacy + packages
    for failure in failures:
        print(f"failed: {failure}")
    print(f"{len(jobs) - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
