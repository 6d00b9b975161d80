"""OCI images that are generated: layers from entries of archives, and images from files of this host or from a few lines of C."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import json
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
OTHER_ARCHITECTURE = {"amd64": "arm64", "arm64": "amd64"}[ARCHITECTURE]

Entry = tuple[tarfile.TarInfo, bytes]


def entry(path: str, kind: bytes = tarfile.REGTYPE, content: bytes | str = b"", mode: int = 0o644, **more) -> Entry:
    """An entry of an archive, whatever its path is; `more` are members of `TarInfo`, such as `uid` and `linkname`."""
    data = content.encode() if isinstance(content, str) else content
    info = tarfile.TarInfo(path)
    info.type, info.mode, info.size = kind, mode, len(data)
    for name, value in more.items():
        setattr(info, name, value)
    return info, data


def file(path: str, content: bytes | str = b"", mode: int = 0o644, **more) -> Entry:
    return entry(path, content=content, mode=mode, **more)


def program(path: str, content: bytes | str) -> Entry:
    return file(path, content, 0o755)


def directory(path: str, mode: int = 0o755, **more) -> Entry:
    return entry(path, tarfile.DIRTYPE, mode=mode, **more)


def symlink(path: str, target: str) -> Entry:
    return entry(path, tarfile.SYMTYPE, mode=0o777, linkname=target)


def hardlink(path: str, target: str) -> Entry:
    return entry(path, tarfile.LNKTYPE, linkname=target)


def device(path: str, kind: bytes, major: int, minor: int) -> Entry:
    return entry(path, kind, mode=0o666, devmajor=major, devminor=minor)


def whiteout(path: str) -> Entry:
    """The mark that `path` of the layers below is not there."""
    above, _, name = path.rpartition("/")
    return file(f"{above}/.wh.{name}" if above else f".wh.{name}")


def opaque(path: str) -> Entry:
    """The mark that nothing of the layers below is in the directory `path`."""
    return file(f"{path}/.wh..wh..opq")


def tarball(*entries: Entry) -> bytes:
    """A plain archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, data in entries:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


OCI = "application/vnd.oci.image"
DOCKER = "application/vnd.docker"


@dataclass
class Image:
    """An image: archives of layers, the lowest first, and members of its configuration."""

    layers: list[bytes]
    env: list[str] = field(default_factory=list)
    config: dict = field(default_factory=dict)
    architecture: str = ARCHITECTURE
    # Whether its documents have Docker's media types.
    is_docker: bool = False
    is_compressed: bool = True

    @functools.cached_property
    def blobs(self) -> list[bytes]:
        """The layers as a registry has them."""
        return [gzip.compress(layer, 1, mtime=0) for layer in self.layers] if self.is_compressed else self.layers

    @functools.cached_property
    def configuration(self) -> bytes:
        diffs = [digest_of(layer) for layer in self.layers]
        return json.dumps({
            "architecture": self.architecture,
            "os": "linux",
            "config": {"Env": self.env, **self.config},
            "rootfs": {"type": "layers", "diff_ids": diffs},
            "history": [{"created_by": "a test"} for _ in diffs],
        }).encode()  # fmt: skip

    @property
    def manifest_type(self) -> str:
        return f"{DOCKER}.distribution.manifest.v2+json" if self.is_docker else f"{OCI}.manifest.v1+json"

    @functools.cached_property
    def manifest(self) -> bytes:
        config = f"{DOCKER}.container.image.v1+json" if self.is_docker else f"{OCI}.config.v1+json"
        layer = f"{DOCKER}.image.rootfs.diff.tar" if self.is_docker else f"{OCI}.layer.v1.tar"
        if self.is_compressed:
            layer += ".gzip" if self.is_docker else "+gzip"
        return json.dumps({
            "schemaVersion": 2,
            "mediaType": self.manifest_type,
            "config": describe(config, self.configuration),
            "layers": [describe(layer, blob) for blob in self.blobs],
        }).encode()  # fmt: skip


def describe(media_type: str, data: bytes, **more) -> dict:
    return {"mediaType": media_type, "digest": digest_of(data), "size": len(data), **more}


INDEX_TYPE = f"{OCI}.index.v1+json"


def index(*images: Image) -> bytes:
    """A document that names an image for each architecture."""
    manifests = [
        describe(image.manifest_type, image.manifest, platform={"architecture": image.architecture, "os": "linux"})
        for image in images
    ]
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": manifests}).encode()


ACCOUNTS = [
    file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"),
    file("etc/group", "root:x:0:\ndaemon:x:1:\n"),
    file("etc/shadow", "root:*:19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\n", 0o640),
]
TOOLS = ["cat", "chmod", "chown", "dirname", "env", "head", "id", "ln", "ls", "mkdir", "mv", "readlink", "rm", "sleep", "sort", "stat", "touch", "uname"]


def tree(distribution: str, *shells: str) -> list[Entry]:
    """A small system of programs of this host, with `/bin` in `/usr` as most distributions have it; `sh` is Debian's dash."""
    libraries = set()
    programs = []
    for name in [*shells, *TOOLS]:
        path = Path(shutil.which("dash" if name == "sh" else name) or "").resolve()
        programs.append(program(f"usr/bin/{name}", path.read_bytes()))
        libraries |= libraries_of(path)
    entries = [
        *[directory(path) for path in ("etc", "usr", "usr/bin", "usr/lib", "usr/lib64", "var", "home", "dev", "proc", "sys", "run")],
        directory("tmp", 0o1777),
        directory("root", 0o700),
        *[symlink(name, f"usr/{name}") for name in ("bin", "lib", "lib64")],
        file("etc/os-release", f'ID={distribution}\nVERSION_ID="1"\nPRETTY_NAME="{distribution} of a test"\n'),
        *ACCOUNTS,
        *programs,
    ]
    below = {str(Path(path.removeprefix("/usr").lstrip("/")).parent) for path in libraries}
    entries += [directory(f"usr/{path}") for path in sorted(below) if path not in ("lib", "lib64")]
    entries += [program(f"usr/{path.removeprefix('/usr').lstrip('/')}", Path(path).read_bytes()) for path in sorted(libraries)]
    return entries


def libraries_of(path: Path) -> set[str]:
    listed = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    return set(re.findall(r"(/\S+) \(0x", listed))


@functools.cache
def debian_like() -> Image:
    """A shell, bash and a few programs, with variables."""
    layer = tarball(*tree("debian", "sh", "bash"))
    return Image([layer], env=["FROM_IMAGE=1", "EMPTY=", "PATH=/opt/own:/usr/local/bin:/usr/bin:/bin"], config={"User": "daemon", "WorkingDir": "/srv", "Cmd": ["true"]})


@functools.cache
def without_bash() -> Image:
    """As small distributions are: `sh` only, and nothing that creates accounts or unpacks archives."""
    return Image([tarball(*tree("alpine", "sh"))], is_docker=True)


@functools.cache
def without_shell() -> Image:
    """One static program and nothing else, not even directories."""
    source = '#include <stdio.h>\nint main(void) { puts("hello from a static program"); return 0; }\n'
    with tempfile.TemporaryDirectory() as scratch:
        built = Path(scratch) / "hello"
        subprocess.run(["gcc", "-static", "-Os", "-x", "c", "-o", built, "-"], input=source.encode(), check=True)
        return Image([tarball(program("hello", built.read_bytes()))])


LAYERS = 120


@functools.cache
def many_layers() -> tuple[Image, dict[str, str]]:
    """An image of many layers that remove, hide and replace what is below them, and its files below `/data` with their content."""
    layers, expected = [tarball(*tree("debian", "sh", "bash"))], {}
    for n in range(1, LAYERS):
        entries = [directory("data"), directory("data/all"), file(f"data/all/{n}", f"{n}"), file("data/last", f"{n}")]
        expected |= {f"all/{n}": f"{n}", "last": f"{n}"}
        if n % 3 == 0:
            entries.append(whiteout(f"data/all/{n - 1}"))
            del expected[f"all/{n - 1}"]
        if n % 10 == 0:
            # The mark may come after what the same layer puts there.
            marked = [directory("data/opaque"), opaque("data/opaque"), file(f"data/opaque/{n}", "shown")]
            entries += marked if n % 20 else [marked[0], marked[2], marked[1]]
            expected = {path: content for path, content in expected.items() if not path.startswith("opaque/")}
            expected[f"opaque/{n}"] = "shown"
        if n % 4 == 0:
            # By turns a directory and a file, without a mark.
            kind = n // 4 % 2
            entries += [directory("data/turn"), file("data/turn/in", f"{n}")] if kind else [file("data/turn", f"{n}")]
            expected.pop("turn/in" if not kind else "turn", None)
            expected["turn/in" if kind else "turn"] = f"{n}"
        if n == 50:
            entries += [hardlink("data/hard", "data/last"), symlink("data/soft", "last")]
            expected["hard"] = "50"
        layers.append(tarball(*entries))
    expected["soft"] = expected["last"]
    return Image(layers), expected
