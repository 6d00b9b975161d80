"""Pythons as images have them: without a distribution around them, without pip, below a prefix of their own, on another C library.

All but the last kind are this machine's Python with its libraries. IPython comes from wheels that pip downloads once.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path

from harness import images, real_images
from harness.images import Entry, directory, file, libraries_of, program, symlink
from harness.real_images import run
from harness.wheels import PLACE, wanted

NAME = f"python{sys.version_info[0]}.{sys.version_info[1]}"
# What no template needs: tests, other programs, and parts that need libraries of their own.
LEFT_OUT = ("test", "tests", "__pycache__", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "dist-packages", "site-packages", "sitecustomize.py", "pydoc_data", "EXTERNALLY-MANAGED")
EXTENSIONS_LEFT_OUT = ("_test", "_xx", "xx", "_curses", "_tkinter", "_dbm", "_gdbm", "nis", "ossaudiodev", "readline", "spwd", "_sqlite3")
IPYTHON = wanted()


def python(prefix: str = "usr/local", is_merged: bool = True) -> list[Entry]:
    """Entries of an archive: a Python below `prefix` without pip, its standard library, and the libraries that it loads. With `is_merged`,
    the image has `/lib` in `/usr`.
    """
    executable = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    stdlib = Path(sysconfig.get_path("stdlib")).resolve()
    libraries = set(libraries_of(executable))
    entries = [*parents(f"{prefix}/bin"), *parents(f"{prefix}/lib/{NAME}")]
    entries += [program(f"{prefix}/bin/{NAME}", executable.read_bytes()), symlink(f"{prefix}/bin/python3", NAME), symlink(f"{prefix}/bin/python", NAME)]
    for path in sorted(stdlib.rglob("*")):
        relative = path.relative_to(stdlib)
        is_extension = relative.parts[0] == "lib-dynload"
        if any(part in LEFT_OUT or part.startswith("config-") for part in relative.parts) or not path.exists():
            continue
        if is_extension and path.name.startswith(EXTENSIONS_LEFT_OUT):
            continue
        name = f"{prefix}/lib/{NAME}/{relative}"
        entries.append(directory(name) if path.is_dir() else file(name, path.read_bytes()))
        if path.suffix == ".so":
            libraries |= libraries_of(path)
    return once(entries + shared(libraries, is_merged))


def shared(libraries: set[str], is_merged: bool) -> list[Entry]:
    """Shared libraries at the paths by which programs load them. That of a Python with a prefix of its own is beside the C library, where
    every loader looks.
    """
    entries = []
    system = Path(next(path for path in sorted(libraries) if path.endswith("/libc.so.6"))).parent
    for path in sorted(libraries):
        name = path.lstrip("/")
        if not name.startswith(("lib", "usr/lib")):
            name = f"{system}/{Path(path).name}".lstrip("/")
        if is_merged and not name.startswith("usr/"):
            name = f"usr/{name}"
        entries += [*parents(str(Path(name).parent)), program(name, Path(path).read_bytes())]
    return entries


def parents(path: str) -> list[Entry]:
    """The directory `path` and those above it."""
    parts = path.split("/")
    return [directory("/".join(parts[:count])) for count in range(1, len(parts) + 1)]


def once(entries: list[Entry]) -> list[Entry]:
    """Each path once: directories come with every file below them."""
    found: dict[str, Entry] = {}
    for entry in entries:
        found.setdefault(entry[0].name, entry)
    return list(found.values())


def packages(prefix: str = "usr/local") -> str:
    """The directory below `prefix` from which this machine's Python loads packages: Debian's has another name."""
    is_debian = "dist-packages" in Path(sysconfig.get_path("stdlib"), "site.py").read_text()
    return f"{prefix}/lib/{NAME}/{'dist-packages' if is_debian else 'site-packages'}"


def unpacked(wheels: list[Path], to: str) -> list[Entry]:
    """The packages of wheels as installed in the directory `to`, without their programs."""
    entries = parents(to)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                if not info.is_dir():
                    entries += [*parents(str(Path(to, info.filename).parent)), file(f"{to}/{info.filename}", archive.read(info))]
    return once(entries)


def wheels(cache: Path, *names: str) -> list[Path]:
    """Wheels of these packages and all that they need, downloaded once."""
    place = cache / f"wheels-{NAME}-{'-'.join(name.split('>')[0] for name in names)}"
    if not place.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            run(sys.executable, "-m", "pip", "download", "--quiet", "--retries", "10", "--timeout", "60", "--only-binary", ":all:", "--dest", f"{scratch}/wheels", *names)
            Path(scratch, "wheels").rename(place)
    return sorted(place.glob("*.whl"))


def kept(found: list[Path]) -> list[Entry]:
    """Wheels as files, where `OFFLINE` has pip find them."""
    place = PLACE.lstrip("/")
    return [*parents(place), *(file(f"{place}/{wheel.name}", wheel.read_bytes()) for wheel in found)]


# CPython and the one library that the interpreter needs beside it, as Debian's mirrors have their sources.
MUSL_NAME = "python3.13"
# That of libffi in later ones has no `configure` yet.
SUITES = {MUSL_NAME: "trixie", "libffi": "bookworm"}


def musl_python(cache: Path) -> bytes:
    """An archive with a Python on musl below /usr/local, as Alpine's images have it, compiled once from Debian's sources. It takes some
    minutes, and has neither TLS nor compression.
    """
    archive = cache / "musl-python.tar"
    if archive.exists():
        return archive.read_bytes()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        place = Path(scratch)
        ffi, root, python = place / "ffi", place / "root", source(MUSL_NAME, place)
        environment = {**os.environ, "CC": str(compiler(place)), "LC_ALL": "C"}
        libffi = source("libffi", place)
        run("./configure", f"--prefix={ffi}", "--disable-shared", "--with-pic", "--disable-docs", "--disable-multi-os-directory", cwd=libffi, env=environment)
        run("make", "-j2", "install", cwd=libffi, env=environment)
        # No library of this machine.
        environment |= {"PKG_CONFIG": "false", "LIBFFI_CFLAGS": f"-I{ffi}/include", "LIBFFI_LIBS": f"-L{ffi}/lib -lffi"}
        run("./configure", "--prefix=/usr/local", "--without-ensurepip", "--disable-test-modules", cwd=python, env=environment)
        run("make", "-j2", cwd=python, env=environment)
        run("make", "install", f"DESTDIR={root}", cwd=python, env=environment)
        for unneeded in ("share", "include", f"lib/{MUSL_NAME}/test", f"lib/{MUSL_NAME}/idlelib", f"lib/lib{MUSL_NAME}.a"):
            path = root / "usr/local" / unneeded
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        for static in root.glob(f"usr/local/lib/{MUSL_NAME}/config-*"):
            shutil.rmtree(static)
        assert list(root.glob(f"usr/local/lib/{MUSL_NAME}/lib-dynload/_ctypes.*")), "the interpreter needs ctypes"
        unfinished = place / "root.tar"
        with tarfile.open(unfinished, "w", format=tarfile.PAX_FORMAT) as made:
            made.add(root / "usr", arcname="usr", filter=as_root)
        unfinished.rename(archive)
    return archive.read_bytes()


def compiler(place: Path) -> Path:
    """A compiler for musl that has the kernel's headers too, which `musl-gcc` does not search with those of another C library, and that
    names no directories of this machine.
    """
    headers = place / "headers"
    headers.mkdir()
    for name in ("linux", "asm-generic"):
        (headers / name).symlink_to(f"/usr/include/{name}")
    (headers / "asm").symlink_to(f"/usr/include/{os.uname().machine}-linux-gnu/asm")
    script = place / "cc"
    script.write_text(f'#!/bin/sh\ncase "$*" in *print-multiarch*) exit 0;; esac\nexec musl-gcc -idirafter {headers} "$@"\n')
    script.chmod(0o755)
    return script


def as_root(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if info.name.endswith("/__pycache__"):
        return None
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def source(name: str, place: Path) -> Path:
    """Unpacks Debian's source of a package, through apt with sources of its own."""
    directory = place / f"source-{name}"
    directory.mkdir()
    state = place / f"apt-{name}"
    (state / "lists/partial").mkdir(parents=True)
    listed = state / "sources.list"
    listed.write_text(f"deb-src http://deb.debian.org/debian {SUITES[name]} main\n")
    options = [f"-oDir::Etc::SourceList={listed}", "-oDir::Etc::SourceParts=-", f"-oDir::State::Lists={state}/lists", f"-oDir::Cache={state}", "-oAPT::Sandbox::User=root", "-oAcquire::Retries=5"]
    run("apt-get", *options, "-qq", "update")
    run("apt-get", *options, "-qq", "source", "--download-only", name, cwd=directory)
    (tarball,) = directory.glob("*.orig.tar.*[!c]")
    run("tar", "-xf", tarball, "--strip-components=1", cwd=directory)
    return directory


def musl_image(cache: Path) -> images.Image:
    """BusyBox and a Python on musl, with IPython from wheels."""
    base = real_images.musl()
    pure = [wheel for wheel in wheels(cache, IPYTHON) if wheel.name.endswith("-none-any.whl")]
    installed = images.tarball(*unpacked(pure, f"usr/local/lib/{MUSL_NAME}/site-packages"))
    return images.Image([*base.layers, musl_python(cache), installed], env=base.env)
