"""What templates cost: the import of a large image, the first command of a custom template, the disk of many, and cached steps.

    templates.py [import] [create] [disk] [pip]    (all of them by default; as root)
    with SANDCOVE_BIN, an empty data directory in SANDCOVE_BENCH_DATA_DIR, and `e2b` installed

Starts a server of its own. The import needs Debian's `docker-registry`, `skopeo` and `umoci`: they serve, and unpack in turn with the
server, an image of 2 GB of files of this machine's /usr in four layers. Each time the configuration is another, so that nothing is there
already, and the two take turns at going first. What the others write is on the same file system and synced, as the server's is. Prints Markdown.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from harness.images import directory, program, symlink, tarball  # noqa: E402
from harness.memory import agent_of, peak_mib, reset_peak, status_mib  # noqa: E402
from harness.pool import btrfs  # noqa: E402
from harness.real_images import RealRegistry, run  # noqa: E402
from harness.server import Server  # noqa: E402

DATA_DIR = Path(os.environ.get("SANDCOVE_BENCH_DATA_DIR", "/var/lib/sandcove-bench"))
LAYERS, LAYER_BYTES, ROUNDS = 4, 512 << 20, 3
SANDBOXES, TEMPLATES = 100, 20


def used(server: Server) -> int:
    pool = server.data_dir / "pool"
    btrfs("filesystem", "sync", pool)
    space = os.statvfs(pool)
    return (space.f_blocks - space.f_bfree) * space.f_frsize


def large_image(layout: Path, scratch: Path) -> int:
    """Files of /usr, in layers, and BusyBox in one below, so that a sandbox can read them; the size of the files."""
    run("umoci", "init", "--layout", layout)
    run("umoci", "new", "--image", f"{layout}:base")
    programs = scratch / "programs.tar"
    busybox = Path(shutil.which("busybox") or "").read_bytes()
    links = [symlink(f"bin/{name}", "busybox") for name in ("sh", "find", "cat", "wc")]
    programs.write_bytes(tarball(directory("bin"), program("bin/busybox", busybox), *links))
    run("umoci", "raw", "add-layer", "--image", f"{layout}:base", programs)
    paths = (Path(top) / name for top, _, names in sorted(os.walk("/usr")) for name in sorted(names))
    total = 0
    for number in range(LAYERS):
        layer, size = scratch / f"{number}.tar", 0
        with tarfile.open(layer, "w") as archive:
            for path in paths:
                if path.is_file() and not path.is_symlink():
                    archive.add(path, arcname=f"data/{number}{path}", recursive=False)
                    size += path.stat().st_size
                if size >= LAYER_BYTES:
                    break
        run("umoci", "raw", "add-layer", "--image", f"{layout}:base", layer)
        layer.unlink()
        total += size
    return total


def imports(server: Server) -> None:
    with tempfile.TemporaryDirectory(dir=DATA_DIR) as place, RealRegistry(server.registry_port, Path(place) / "registry") as registry:
        scratch, peer = Path(place), server.data_dir / "pool/bench"
        size = large_image(scratch / "layout", scratch)
        before = reset_peak(server.pid)
        print(f"\nImport of {size / 1e9:.2f} GB of files in {LAYERS} layers, seconds, load {os.getloadavg()[0]:.1f} at the begin:\n")
        print("| round | Sandcove | skopeo copy | umoci unpack | sync | skopeo + umoci + sync | load |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
        ours, theirs, rows = [], [], []
        for number in range(ROUNDS):
            tag = f"round{number}"
            run("umoci", "config", "--image", f"{scratch}/layout:base", "--tag", tag, "--config.label", f"round={number}")
            reference = f"{registry.host}/large:{tag}"
            run("skopeo", "--insecure-policy", "copy", "-q", "--dest-tls-verify=false", f"oci:{scratch}/layout:{tag}", f"docker://{reference}")
            # The second one finds the registry's files in the page cache: they take turns.
            sides = {"sandcove": lambda: ours.append(import_seconds(reference, number)), "others": lambda: rows.append(others(reference, tag, peer))}
            for side in sorted(sides, reverse=number % 2 == 0):
                sides[side]()
            copied, unpacked, synced = rows[-1]
            theirs.append(sum(rows[-1]))
            print(f"| {number + 1} | {ours[-1]:.1f} | {copied:.1f} | {unpacked:.1f} | {synced:.1f} | {theirs[-1]:.1f} | {os.getloadavg()[0]:.1f} |", flush=True)
        mine, other = statistics.median(ours), statistics.median(theirs)
        print(f"\nMedian {mine:.1f} s ({size / mine / 1e6:.0f} MB/s) and {other:.1f} s: {other / mine:.1f} times as fast.")
        peak, after = peak_mib(server.pid), status_mib(server.pid, "VmRSS")
        print(f"Resident memory of the server: {before} MiB before, {peak} MiB at most, {after} MiB after {ROUNDS} imports.")
        agents = {name: agent_peak(server, name) for name in ("base", f"large-{ROUNDS - 1}")}
        print(f"Resident memory of agents, at most, once a command has read every file: {', '.join(f'{name} {mib} MiB' for name, mib in agents.items())}.")


def import_seconds(reference: str, number: int) -> float:
    """The time from the begin of the import in the log of a build to its end."""
    from e2b import Template

    times = {}

    def note(entry) -> None:
        if "Pulling image" in entry.message:
            times["begin"] = entry.timestamp
        elif "builder" in entry.message or "DEFAULT USER" in entry.message or "FROM " in entry.message:
            times.setdefault("end", entry.timestamp)

    Template.build(Template().from_image(reference), f"large-{number}", on_build_logs=note)
    return (times["end"] - times["begin"]).total_seconds()


def others(reference: str, tag: str, peer: Path) -> tuple[float, float, float]:
    """Seconds of `skopeo copy`, `umoci unpack` and a sync, on the file system of the server."""
    peer.mkdir()
    began = time.monotonic()
    run("skopeo", "--insecure-policy", "copy", "-q", "--src-tls-verify=false", f"docker://{reference}", f"oci:{peer}/layout:{tag}")
    copied = time.monotonic()
    run("umoci", "unpack", "--image", f"{peer}/layout:{tag}", peer / "bundle")
    unpacked = time.monotonic()
    run("sync", "-f", peer)
    synced = time.monotonic()
    shutil.rmtree(peer)
    return copied - began, unpacked - copied, synced - unpacked


def agent_peak(server: Server, template: str) -> int:
    """The largest resident size of the agent of a sandbox that has read all its data, MiB."""
    from e2b import Sandbox

    with Sandbox.create(template, timeout=600) as box:
        box.commands.run("find /data -type f -exec cat {} + 2>/dev/null | wc -c", user="root", timeout=600)
        return peak_mib(agent_of(server, box))


def creates(server: Server) -> None:
    from e2b import Sandbox, Template

    Template.build(Template().from_template("base").run_cmd("echo custom > note"), "bench-custom")
    names, times = ["base", "bench-custom"], {"base": [], "bench-custom": []}
    for number in range(SANDBOXES + 5):
        for name in names:
            began = time.perf_counter()
            box = Sandbox.create(name, timeout=60)
            created = time.perf_counter()
            box.commands.run("true")
            took = time.perf_counter()
            # The first ones fill the pool.
            if number >= 5:
                times[name].append((created - began, took - began))
            box.kill()
            time.sleep(0.3)
    print(f"\nCreate -> first command through the Python SDK, {SANDBOXES} in turn, milliseconds, load {os.getloadavg()[0]:.1f} at the end:\n")
    print("| template | create p50 | create p99 | first command p50 | first command p99 |\n| --- | ---: | ---: | ---: | ---: |")
    for name in names:
        cells = []
        for column in (0, 1):
            cuts = statistics.quantiles([row[column] * 1000 for row in times[name]], n=100, method="inclusive")
            cells += [f"{cuts[49]:.1f}", f"{cuts[98]:.1f}"]
        print(f"| {name} | {' | '.join(cells)} |")


def disk(server: Server) -> None:
    from e2b import Template

    before = used(server)
    began = time.monotonic()
    for number in range(TEMPLATES):
        Template.build(Template().from_template("base").run_cmd("head -c 1M /dev/urandom > own"), f"bench-disk-{number}", skip_cache=True)
    took = time.monotonic() - began
    print(f"\n{TEMPLATES} templates on `base` with 1 MiB of their own each: {(used(server) - before) / (1 << 20):.1f} MiB of disk, built in {took:.1f} s.")


def pip(server: Server) -> None:
    from e2b import Template

    took = []
    for name in ("bench-pip-1", "bench-pip-2"):
        began = time.monotonic()
        Template.build(Template().from_template("base").pip_install(["requests==2.32.5"]), name)
        took.append(time.monotonic() - began)
    print(f"\nA template with `pip_install(['requests'])` on `base`: {took[0]:.2f} s cold, {took[1]:.2f} s cached (with the SDK's polling).")


def main() -> None:
    wanted = sys.argv[1:] or ["import", "create", "disk", "pip"]
    server = Server(DATA_DIR)
    server.start()
    os.environ.update(server.env)
    try:
        for name, work in [("create", creates), ("disk", disk), ("pip", pip), ("import", imports)]:
            if name in wanted:
                work(server)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
