"""Disks of the virtual machine, built once for a recipe and kept: Debian with its own kernel, and a data directory with the built-in templates."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"
# Certificate authorities that a host's administrator has added. The virtual machine needs the same ones: templates have them.
AUTHORITIES = Path("/usr/local/share/ca-certificates")
# Debian releases, with the versions of their Python.
RELEASES = {"bookworm": "3.11", "trixie": "3.13"}
# The packages of the installation guide, what tests start, and the kernel of clouds, which has the drivers of QEMU's devices.
PACKAGES = [
    "linux-image-cloud-amd64", "systemd-sysv", "udev", "dbus", "kmod", "apparmor",
    "mmdebstrap", "btrfs-progs", "nftables", "iproute2", "util-linux", "tar", "debian-archive-keyring", "ca-certificates",
    "python3", "procps", "e2fsprogs", "zstd",
]  # fmt: skip
# Nobody reads the manuals, and a crash of the host in the middle of it is no loss.
LIGHT = ["--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*"]
# Sizes of disks, GiB. Their files are sparse.
SYSTEM_GIB, DATA_GIB, POOL_GIB = 6, 24, 16
# Name of the disk with the data directory, and where the virtual machine mounts it.
DATA_LABEL, DATA_MOUNT = "data", "/var/lib/sandcove-vm"


@dataclass
class Disks:
    """Files that a virtual machine boots from. It changes none of them."""

    kernel: Path
    initrd: Path
    system: Path
    data: Path


def disks(cache: Path, release: str, binary: Path, filesystem: str) -> Disks:
    """Builds the disks that are missing."""
    system = built(cache / f"{release}-{recipe(release)}", lambda directory: make_system(directory, release))
    version = subprocess.run([binary, "--version"], check=True, capture_output=True).stdout
    data = built(cache / f"data-{filesystem}-{key(version, layers_key())}", lambda directory: make_data(directory, binary, filesystem))
    return Disks(system / "vmlinuz", system / "initrd", system / "system.ext4", data / "data")


def recipe(release: str) -> str:
    return key(release.encode(), *(name.encode() for name in PACKAGES), REQUIREMENTS.read_bytes(), *(path.read_bytes() for path in UNITS))


UNITS = [HERE / "sandcove-vm.service", HERE / "ethernet.network"]


def layers_key() -> bytes:
    """What the built-in templates are made of; the authorities of this host are in them."""
    directories = (ROOT / "crates/image/recipes", AUTHORITIES)
    return b"".join(path.read_bytes() for directory in directories for path in sorted(directory.rglob("*")) if path.is_file())


def key(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def built(directory: Path, make) -> Path:
    """Makes a directory at once or not at all. Another run may be making it."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make_missing(directory, make)
    return directory


def make_missing(directory: Path, make) -> None:
    if not directory.exists():
        scratch = directory.with_name(f"{directory.name}.part")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        print(f"building {directory}", flush=True)
        make(scratch)
        scratch.rename(directory)


def make_system(directory: Path, release: str) -> None:
    root = directory / "root"
    units = " ".join(f"'{path}'" for path in UNITS)
    hooks = [
        f'cp {units} "$1/etc/systemd/system/" && mkdir -p "$1/etc/systemd/network" "$1{DATA_MOUNT}"',
        'mv "$1/etc/systemd/system/ethernet.network" "$1/etc/systemd/network/"',
        'chroot "$1" systemctl --quiet enable sandcove-vm.service systemd-networkd.service',
        # Nothing asks for a name server, and the server reads this file when it starts.
        'echo nameserver 10.0.2.3 >"$1/etc/resolv.conf" && echo vm >"$1/etc/hostname" && echo 127.0.0.1 localhost vm >"$1/etc/hosts"',
    ]
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}", *LIGHT]
    subprocess.run([*command, *(f"--customize-hook={hook}" for hook in hooks), release, root], check=True)
    # By this host's pip, which knows how this host reaches the index.
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries=10", "--only-binary=:all:"]
    place = [f"--python-version={RELEASES[release]}", f"--target={root / 'opt/tests/packages'}"]
    subprocess.run([*pip, *place, f"--requirement={REQUIREMENTS}"], check=True)
    for name, found in (("vmlinuz", "vmlinuz-*"), ("initrd", "initrd.img-*")):
        shutil.copyfile(next((root / "boot").glob(found)), directory / name)
    image = sparse(directory / "system.ext4", SYSTEM_GIB)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-d", root, image], check=True)
    shutil.rmtree(root)


def make_data(directory: Path, binary: Path, filesystem: str) -> None:
    """A data directory before its first start, on a file system of its own, but with the built-in templates. This host unpacks them in half
    a minute, an emulated machine in a quarter of an hour. The pool has full quotas, as old kernels do not mount one with simple quotas."""
    image = sparse(directory / "data", DATA_GIB)
    subprocess.run([f"mkfs.{filesystem}", "-q", "-L", DATA_LABEL, image], check=True)
    with mounted(image, directory / "mount") as mount:
        if filesystem == "btrfs":
            subprocess.run(["btrfs", "quota", "enable", mount], check=True)
        data_dir = mount / "sandcove"
        data_dir.mkdir(mode=0o700)
        if filesystem != "btrfs":
            pool = sparse(data_dir / "pool.img", POOL_GIB)
            subprocess.run(["mkfs.btrfs", "--quiet", "--metadata", "single", "--label", "sandcove", pool], check=True)
            with mounted(pool, directory / "pool"):
                subprocess.run(["btrfs", "quota", "enable", directory / "pool"], check=True)
        settings = {"SANDCOVE_LANGUAGES": "lean", "SANDCOVE_POOL_MEMORY": "0"}
        for command in (["up", "--listen", "127.0.0.1:0"], ["purge", "--keep-data", "--yes"]):
            subprocess.run([binary, "--data-dir", data_dir, *command], check=True, env=os.environ | settings)
        shutil.rmtree(data_dir / "server")
        (data_dir / "server.json").unlink()


@contextmanager
def mounted(image: Path, point: Path):
    point.mkdir()
    subprocess.run(["mount", "-o", "loop", image, point], check=True)
    try:
        yield point
    finally:
        # The loop device of the pool is detached a moment later than it is unmounted.
        until = time.monotonic() + 30
        while (done := subprocess.run(["umount", point], capture_output=True)).returncode and time.monotonic() < until:
            time.sleep(0.1)
        done.check_returncode()
        point.rmdir()


def sparse(path: Path, gib: int) -> Path:
    path.touch()
    os.truncate(path, gib << 30)
    return path
