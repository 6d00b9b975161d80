"""A registry that others wrote (Debian's `docker-registry`), and images that others made: what a template is made of in practice.

    with RealRegistry(port, directory) as registry:
        reference = registry.push("debian", debian(cache))

Images are OCI layout directories. `skopeo` uploads them.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.request
from pathlib import Path

from harness import images
from harness.images import INDEX_TYPE, Image, describe, directory, file, program, symlink, tarball

# Programs, and the packages that have them.
NEEDS = {"docker-registry": "docker-registry", "skopeo": "skopeo", "mmdebstrap": "mmdebstrap", "musl-gcc": "musl-tools", "busybox": "busybox-static"}


def tools() -> None:
    """Installs the packages that are missing, as `make tools` does."""
    missing = [package for name, package in NEEDS.items() if shutil.which(name) is None]
    if missing:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "DEBCONF_NOWARNINGS": "yes"}
        # A mirror may fail once, and another run of tests may be installing.
        patient = ["-o", "Acquire::Retries=5", "-o", "DPkg::Lock::Timeout=600"]
        run("apt-get", "-qq", *patient, "update", env=environment)
        run("apt-get", "-qq", *patient, "--yes", "--no-install-recommends", "install", *missing, env=environment)


class RealRegistry:
    """One on loopback, without TLS."""

    def __init__(self, port: int, storage: Path) -> None:
        self.host, self.storage = f"127.0.0.1:{port}", storage
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RealRegistry:
        self.storage.mkdir(parents=True, exist_ok=True)
        settings = {
            "version": 0.1,
            "log": {"level": "warn", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(self.storage / "data")}},
            "http": {"addr": self.host, "secret": "of-the-tests"},
        }
        config = self.storage / "config.yml"
        # JSON is YAML.
        config.write_text(json.dumps(settings))
        with (self.storage / "log").open("wb") as log:
            self.process = subprocess.Popen(["docker-registry", "serve", config], stdout=log, stderr=log)
        end = time.monotonic() + 300
        while not self.answers():
            assert self.process.poll() is None and time.monotonic() < end, (self.storage / "log").read_text()
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.host}/v2/", timeout=60) as answer:
                return answer.status == 200
        except OSError:
            return False

    def push(self, name: str, layout: Path) -> str:
        """Uploads the only image of a layout, and returns its reference."""
        reference = f"{self.host}/{name}:latest"
        run("skopeo", "--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false", f"oci:{layout}", f"docker://{reference}")
        return reference


def run(*command: object, **options) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


def layout(image: Image, to: Path, tag: str = "latest") -> Path:
    """Writes an image as an OCI layout directory."""
    blobs = to / "blobs/sha256"
    blobs.mkdir(parents=True)
    for data in [image.configuration, image.manifest, *image.blobs]:
        (blobs / images.digest_of(data).removeprefix("sha256:")).write_bytes(data)
    (to / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    named = describe(image.manifest_type, image.manifest, annotations={"org.opencontainers.image.ref.name": tag})
    (to / "index.json").write_text(json.dumps({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [named]}))
    return to


def bootstrapped(cache: Path) -> bytes:
    """Debian's smallest variant, made once: an archive."""
    archive = cache / "debian-minbase.tar"
    if not archive.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            unfinished = Path(scratch) / "root.tar"
            run("mmdebstrap", "--quiet", "--variant=minbase", '--aptopt=Acquire::Retries "5"', "bookworm", unfinished, env={**os.environ, "SOURCE_DATE_EPOCH": "0"})
            unfinished.rename(archive)
    return archive.read_bytes()


def debian(cache: Path) -> Image:
    """Debian as its own tools install it: with apt and bash, and without sudo, curl, ss and certificates."""
    return Image([bootstrapped(cache)], env=["LANG=C.UTF-8", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"], config={"Cmd": ["bash"]})


SOURCE = '#include <stdio.h>\nint main(int n, char **words) { for (int i = 1; i < n; i++) printf("%s|", words[i]); puts("hello"); return n == 3 ? 3 : 0; }\n'


def compiled(compiler: str, *options: str) -> bytes:
    """A program that prints its arguments, and ends with 3 if there are two of them."""
    with tempfile.TemporaryDirectory() as scratch:
        built = Path(scratch) / "hello"
        run(compiler, "-Os", *options, "-x", "c", "-o", built, "-", input=SOURCE)
        return built.read_bytes()


def musl() -> Image:
    """As Alpine is built: musl as the only C library, every program a link to BusyBox, `ash` as the shell."""
    busybox = Path(shutil.which("busybox")).resolve()
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    loader = Path("/lib/ld-musl-x86_64.so.1") if images.ARCHITECTURE == "amd64" else Path("/lib/ld-musl-aarch64.so.1")
    system = [
        *[directory(path) for path in ("bin", "dev", "etc", "home", "lib", "proc", "run", "sbin", "sys", "usr", "usr/bin", "usr/lib", "var")],
        directory("tmp", 0o1777),
        directory("root", 0o700),
        file("etc/os-release", 'NAME="Alpine Linux"\nID=alpine\nVERSION_ID=3.24.0\nPRETTY_NAME="Alpine Linux v3.24"\n'),
        file("etc/passwd", "root:x:0:0:root:/root:/bin/ash\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"),
        file("etc/group", "root:x:0:root\nnogroup:x:65533:\nnobody:x:65534:\n"),
        file("etc/shadow", "root:*::0:::::\n", 0o640),
        file("etc/profile", "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"),
        program("bin/busybox", busybox.read_bytes()),
        *[symlink(f"bin/{name}", "busybox") for name in applets if name != "busybox"],
        program(f"lib/{loader.name}", loader.resolve().read_bytes()),
    ]
    return Image([tarball(*system), tarball(program("usr/bin/hello", compiled("musl-gcc")))], env=["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"], config={"Cmd": ["/bin/sh"]})


def distroless() -> Image:
    """As images without a distribution are: accounts, certificates, one static program, and no shell."""
    accounts = [
        file("etc/passwd", "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"),
        file("etc/group", "root:x:0:\nnonroot:x:65532:\n"),
        file("etc/os-release", 'PRETTY_NAME="Distroless"\nNAME="Debian GNU/Linux"\nID="debian"\n'),
        directory("home/nonroot", 0o700, uid=65532, gid=65532),
        directory("tmp", 0o1777),
    ]
    return Image([tarball(*accounts), tarball(program("app/hello", compiled("gcc", "-static")))], env=["PATH=/app"], config={"User": "65532", "Entrypoint": ["/app/hello"]})


def layered(count: int = 110) -> tuple[Image, str]:
    """BusyBox under many layers, each of which appends to what those below wrote and removes a part; and what is left, sorted."""
    base = musl().layers
    layers, left = [], set()
    for number in range(count):
        entries = [directory("srv"), file(f"srv/{number:03}", f"{number}\n")]
        left.add(f"{number:03}")
        if number % 7 == 6:
            entries.append(images.whiteout(f"srv/{number - 3:03}"))
            left.remove(f"{number - 3:03}")
        layers.append(tarball(*entries))
    return Image([*base, *layers]), "\n".join(sorted(left))


# Size of the files of a large image, and of their blocks, which are half random: a registry has about half of the whole.
LARGE_FILE, LARGE_BLOCK = 8 << 20, 32 << 10
SUMS = "data/SHA256SUMS"


class Hashed:
    """A file that is written, and the digest of what was."""

    def __init__(self, out) -> None:
        self.out, self.sum, self.size = out, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.sum.update(data)
        self.size += len(data)
        return self.out.write(data)

    def flush(self) -> None:
        self.out.flush()

    @property
    def digest(self) -> str:
        return f"sha256:{self.sum.hexdigest()}"


def large(to: Path, size: int, layers: int = 4) -> Path:
    """Writes BusyBox under layers of `size` bytes of files as an OCI layout directory, piece by piece. No part of a file is a hole, and the sums of
    all files are in the image.
    """
    base = musl()
    configuration, manifest = json.loads(base.configuration), json.loads(base.manifest)
    layout(base, to)
    sums = io.StringIO()
    for number in range(layers):
        found = large_layer(to / "blobs/sha256", number, size // layers, sums)
        configuration["rootfs"]["diff_ids"].append(found.pop("diff"))
        manifest["layers"].append({"mediaType": manifest["layers"][0]["mediaType"], **found})
    named = Image([tarball(file(SUMS, sums.getvalue()))])
    manifest["layers"] += json.loads(named.manifest)["layers"]
    configuration["rootfs"]["diff_ids"] += json.loads(named.configuration)["rootfs"]["diff_ids"]
    configuration["history"] = [{"created_by": "a test"} for _ in manifest["layers"]]
    documents = [*named.blobs]
    for kind, document in (("config", configuration), ("manifest", manifest)):
        data = json.dumps(document).encode()
        if kind == "config":
            manifest["config"] = describe(manifest["config"]["mediaType"], data)
        else:
            index = describe(base.manifest_type, data, annotations={"org.opencontainers.image.ref.name": "latest"})
        documents.append(data)
    for data in documents:
        (to / "blobs/sha256" / images.digest_of(data).removeprefix("sha256:")).write_bytes(data)
    (to / "index.json").write_text(json.dumps({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [index]}))
    return to


def large_layer(blobs: Path, number: int, size: int, sums: io.StringIO) -> dict:
    """Writes one layer, and adds the sums of its files; its digest and size, and the digest of its data before compression."""
    with tempfile.NamedTemporaryFile(dir=blobs, delete=False) as blob:
        packed = Hashed(blob)
        with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1, mtime=0) as compressed:
            plain = Hashed(compressed)
            with tarfile.open(fileobj=plain, mode="w|", format=tarfile.PAX_FORMAT) as archive:
                for count in range(max(1, size // LARGE_FILE)):
                    # Half of each block is random, and half repeats it: neither zeros nor the same in two files.
                    content = b"".join(part * 2 for part in (os.urandom(LARGE_BLOCK // 2) for _ in range(LARGE_FILE // LARGE_BLOCK)))
                    info, data = file(f"data/{number}/{count}", content)
                    archive.addfile(info, io.BytesIO(data))
                    sums.write(f"{hashlib.sha256(content).hexdigest()}  /{info.name}\n")
    Path(blob.name).rename(blobs / packed.digest.removeprefix("sha256:"))
    return {"digest": packed.digest, "size": packed.size, "diff": plain.digest}
