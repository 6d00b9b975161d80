"""Attacks through builds of templates: archives and images that lead out of their directory, links of others, and the caches of teams."""

import base64
import contextlib
import gzip
import io
import os
import socket
import tarfile
import uuid
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import pytest
import requests
from e2b import Sandbox

from harness import images
from harness.census import resident_mib
from harness.images import Image, device, digest_of, directory, entry, file, hardlink, opaque, symlink, tarball, whiteout
from harness.raw_builds import RawBuilds, step
from harness.registry import Registry, endless, redirected
from harness.server import wait_until
from harness.teams import Team

from witness import is_up

# Entries of the archive with the most of them.
ENTRIES = int(os.environ.get("SANDCOVE_TEST_ENTRIES", "200000"))
MARK = f"hostile-{uuid.uuid4().hex[:8]}"


def a_team(server):
    team = Team(server.url)
    builds = RawBuilds(team)
    yield builds
    team.admin("POST", f"/admin/teams/{team.id}/sandboxes/kill")
    builds.clear()


@pytest.fixture(scope="module")
def builds(server):
    yield from a_team(server)


@pytest.fixture(scope="module")
def victim(server):
    yield from a_team(server)


@pytest.fixture(scope="module")
def registry(server):
    with Registry(server.registry_port) as registry:
        yield registry


@pytest.fixture(scope="module")
def canary(tmp_path_factory):
    """A directory of the host that must stay as it is."""
    directory = tmp_path_factory.mktemp("canary")
    directory.chmod(0o777)
    (directory / "file").write_text("canary")
    return directory


def is_untouched(canary: Path) -> bool:
    return [path.name for path in canary.iterdir()] == ["file"] and (canary / "file").read_text() == "canary"


def names_in(place: Path) -> list[str]:
    """What is in a directory, which may vanish meanwhile, or be none."""
    try:
        return os.listdir(place)
    except (FileNotFoundError, NotADirectoryError):
        return []


def is_clean(server) -> bool:
    """Whether nothing with our mark is on the host, outside of what sandboxes have as their own files."""
    places = [Path(place) for place in ("/", "/etc", "/tmp", "/root", "/run", "/var/lib", "/usr/local/bin")]
    places += [server.data_dir, server.data_dir / "pool", server.data_dir / "pool/layers", server.data_dir / "run"]
    own = server.data_dir / "server"
    places += [own, *(own / name for name in names_in(own) if name.startswith("file-sets"))]
    for parent in (own / "file-sets", server.data_dir / "pool/layers"):
        places += [parent / name for name in names_in(parent)]
    return not any(MARK in name for place in places for name in names_in(place))


UP = "../" * 12


def archives(canary: Path) -> dict[str, bytes]:
    """Archives that lead out of where they are unpacked."""
    outside = f"{UP}{str(canary).lstrip('/')}"
    return {
        "up": tarball(file(f"{UP}etc/{MARK}", "x"), file(f"{outside}/{MARK}", "x")),
        "up in the middle": tarball(directory("src"), file(f"src/{UP}etc/{MARK}", "x")),
        "absolute": tarball(file(f"/etc/{MARK}", "x"), file(f"{canary}/{MARK}", "x")),
        "through a link": tarball(symlink("src", "/etc"), file(f"src/{MARK}", "x")),
        "through a link to the canary": tarball(symlink("src", str(canary)), file("src/file", "gone"), file(f"src/{MARK}", "x")),
        "through a relative link": tarball(directory("src"), symlink("src/d", f"{UP}etc"), file(f"src/d/{MARK}", "x")),
        "through links of links": tarball(directory("src"), symlink("src/a", "."), symlink("src/b", "a/../.."), symlink("src/c", f"b/{UP}"), file(f"src/c/etc/{MARK}", "x")),
        "a link that becomes a directory": tarball(symlink("src", "/etc"), directory("src", 0o777), file(f"src/{MARK}", "x")),
        "a hard link": tarball(directory("src"), hardlink("src/h", "/etc/passwd"), file("src/h", MARK)),
        "a hard link up": tarball(directory("src"), hardlink("src/h", f"{UP}etc/passwd"), file("src/h", MARK)),
        "a hard link to the canary": tarball(directory("src"), hardlink("src/h", f"{canary}/file"), file("src/h", MARK)),
        "a hard link to a link": tarball(directory("src"), symlink("src/l", "/etc/passwd"), hardlink("src/h", "src/l"), file("src/h", MARK)),
        "a dot": tarball(directory("."), directory(".."), file("..", "x"), file("", "x")),
        "devices": tarball(directory("src"), device("src/disk", tarfile.BLKTYPE, 8, 0), device("src/mem", tarfile.CHRTYPE, 1, 1), entry("src/pipe", tarfile.FIFOTYPE)),
        "a long name": tarball(directory("src"), file("src/" + "/".join(["d" * 200] * 200), "x"), file("src/" + "n" * 5000, "x")),
        "a zero in a name": tarball(entry("src", tarfile.DIRTYPE, mode=0o755), file("src/a\0b", "x")),
        "kinds by turns": tarball(file("src", "x"), directory("src"), file("src/a", "x"), symlink("src/a", "/etc"), file(f"src/a/{MARK}", "x"), file("src", "x")),
        "an unknown kind": tarball(directory("src"), entry("src/x", b"Z", "data"), entry("src/y", b"S", "data")),
        "a huge number of owners": tarball(directory("src"), file("src/x", "x", uid=(1 << 31) - 1, gid=(1 << 31) - 1)),
    }


NAMES = list(archives(Path("/nowhere")))


@pytest.mark.parametrize("name", NAMES)
def test_no_file_set_leads_out(server, builds, canary, name):
    status = builds.copy(gzip.compress(archives(canary)[name], 1))
    assert is_untouched(canary) and is_clean(server), status
    if status["status"] == "ready":
        box = Sandbox.create(status["templateID"], api_key=builds.team.key, timeout=600)
        try:
            found = box.commands.run(f"ls -d /etc/{MARK} {canary} 2>/dev/null; grep -c {MARK} /etc/passwd; find /opt/target -type b -o -type c", user="root").stdout
        except Exception as error:
            found = getattr(error, "stdout", str(error))
        finally:
            box.kill()
        assert found == "0\n", found


@pytest.mark.parametrize("name", NAMES)
def test_no_layer_leads_out(server, builds, registry, canary, name):
    """Layers are unpacked by the server itself."""
    image = Image([images.debian_like().layers[0], archives(canary)[name]])
    status = builds.run(fromImage=registry.push(f"attacks/{uuid.uuid4().hex}", image))
    assert is_untouched(canary) and is_clean(server), status
    assert status["status"] in ("ready", "error", "refused")


def layer_of(server, image: Image) -> Path:
    """The files of an image on the host."""
    return server.data_dir / f"pool/layers/oci-{digest_of(image.configuration).removeprefix('sha256:')[:32]}"


@pytest.mark.parametrize("hidden", ["file", "..", ".", "", "../file", "/etc"])
def test_no_whiteout_leads_out(server, builds, registry, canary, hidden):
    """Neither by its own name nor through a link of a layer below."""
    base = images.debian_like().layers[0]
    below = tarball(symlink("out", str(canary)), symlink("up", f"{UP}{str(canary).lstrip('/')}"), directory("d"), file("d/kept", "kept"))
    above = tarball(whiteout(f"out/{hidden}"), whiteout(f"up/{hidden}"), file(f"d/.wh.{hidden}"), opaque("out"), opaque("up"), file(f".wh.{hidden}"), file(".wh."), opaque("/.."))
    builds.run(fromImage=registry.push(f"attacks/{uuid.uuid4().hex}", Image([base, below, above])))
    assert is_untouched(canary) and is_clean(server)
    assert (server.data_dir / "pool/layers").is_dir() and (server.data_dir / "server/sandcove.db").exists()


def test_layers_bring_no_attributes_of_the_overlay(server, builds, registry):
    """With them a layer could have the kernel look for files elsewhere."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, kind in (("d", tarfile.DIRTYPE), ("f", tarfile.REGTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0o755
            info.pax_headers = {f"SCHILY.xattr.{space}.overlay.{key}": "/etc" for space in ("trusted", "user") for key in ("redirect", "metacopy", "origin")}
            info.pax_headers["SCHILY.xattr.trusted.overlay.opaque"] = "y"
            info.pax_headers["SCHILY.xattr.security.selinux"] = "x"
            archive.addfile(info)
    image = Image([images.debian_like().layers[0], out.getvalue()])
    status = builds.run(fromImage=registry.push(f"attacks/{uuid.uuid4().hex}", image))
    found = {name for path in layer_of(server, image).rglob("*") for name in os.listxattr(path, follow_symlinks=False)}
    assert not any("overlay" in name for name in found), found
    assert status["status"] in ("ready", "error")


def test_devices_of_layers_open_nothing(server, builds, registry):
    layer = tarball(directory("dev2"), device("dev2/disk", tarfile.BLKTYPE, 8, 0), device("dev2/mem", tarfile.CHRTYPE, 1, 1), device("dev2/kmsg", tarfile.CHRTYPE, 1, 11), device("dev2/loop", tarfile.BLKTYPE, 7, 0))
    status = builds.run(fromImage=registry.push(f"attacks/{uuid.uuid4().hex}", Image([images.debian_like().layers[0], layer])))
    if status["status"] == "ready":
        box = Sandbox.create(status["templateID"], api_key=builds.team.key, timeout=600)
        opened = box.commands.run("for d in disk mem kmsg loop; do (head -c 1 /dev2/$d > /dev/null) 2>/dev/null && echo $d; done; true", user="root").stdout
        box.kill()
        assert opened == ""


def hollow(size: int) -> bytes:
    """An archive that says that it has more than there is."""
    info = tarfile.TarInfo("src/x")
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(1024)


def bomb(mebibytes: int) -> bytes:
    """A compressed archive of a file of zeros."""
    info = tarfile.TarInfo("src/zeros")
    info.size = mebibytes << 20
    member = gzip.compress(bytes(64 << 20), 9)
    return gzip.compress(info.tobuf(tarfile.GNU_FORMAT)) + member * (mebibytes // 64) + gzip.compress(bytes(1024))


BROKEN = {
    "nothing": b"",
    "no archive": b"this is no archive" * 100,
    "a broken stream": gzip.compress(tarball(file("src", "x" * 100_000)))[:-20],
    "a wrong sum": gzip.compress(tarball(file("src", "x")))[:-6] + b"\0\0\0\0\0\0",
    "zstd that is none": b"\x28\xb5\x2f\xfd" + b"\xff" * 1000,
    "an end at once": gzip.compress(bytes(1024)),
    "more than there is": hollow(1 << 62),
    "a negative size": hollow(8).replace(b"00000000010\0", b"-0000000010\0", 1),
    "compressed twice": gzip.compress(gzip.compress(tarball(file("src", "x")))),
    "many entries": gzip.compress(b"".join(tarfile.TarInfo(f"src/{n}").tobuf(tarfile.GNU_FORMAT) for n in range(50_000)) + bytes(1024), 1),
    "headers of headers": gzip.compress(tarball(*[entry("././@LongLink", b"L", "x" * 1000) for _ in range(2000)]), 1),
    "a bomb": bomb(512),
}


@pytest.mark.parametrize("name", BROKEN)
def test_no_archive_breaks_the_server(server, builds, name):
    memory = resident_mib(server.pid)
    status = builds.copy(BROKEN[name])
    assert status["status"] in ("ready", "error", "refused")
    if name not in ("many entries", "a bomb"):
        assert status["status"] != "ready" or name in ("headers of headers",), status
    assert is_up(server) and resident_mib(server.pid) - memory < 128


def tree_of(count: int) -> bytes:
    """A compressed archive of empty files, a thousand to a directory."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1) as packed:
        for number in range(count):
            packed.write(tarfile.TarInfo(f"src/{number // 1000}/{number}").tobuf(tarfile.GNU_FORMAT))
        packed.write(bytes(1024))
    return out.getvalue()


def test_many_entries_are_copied_or_refused(server, builds):
    """Within the limits of the build's sandbox, and without memory of the server."""
    memory = resident_mib(server.pid)
    status = builds.copy(tree_of(ENTRIES), deadline_s=900)
    grown = resident_mib(server.pid) - memory
    print(f"{ENTRIES} entries: {status['status']}, {status.get('reason')}, the server has {grown:.0f} MiB more")
    assert is_up(server) and grown < 128
    if status["status"] == "ready":
        box = Sandbox.create(status["templateID"], api_key=builds.team.key, timeout=1800)
        found = box.commands.run("find /opt/target -type f | wc -l", user="root", timeout=900).stdout
        box.kill()
        assert int(found) == ENTRIES
    else:
        assert "uploaded files are more than" in status["reason"]["message"] or "full" in status["reason"]["message"] or "No space" in status["reason"]["message"], status["reason"]
    # Nothing of it is in the way of what comes next.
    assert builds.copy(gzip.compress(tarball(file("src", "x"))))["status"] == "ready"


DOCUMENTS = {
    "an index of itself": lambda r: (images.INDEX_TYPE, images.json.dumps({"schemaVersion": 2, "mediaType": images.INDEX_TYPE, "manifests": [
        {"mediaType": images.INDEX_TYPE, "digest": "sha256:" + "0" * 64, "size": 100, "platform": {"architecture": images.ARCHITECTURE, "os": "linux"}}]}).encode()),
    "too large": lambda r: (f"{images.OCI}.manifest.v1+json", b'{"x":"' + b"x" * (40 << 20) + b'"}'),
    "too deep": lambda r: (f"{images.OCI}.manifest.v1+json", b"[" * 200_000),
    "too many layers": lambda r: (f"{images.OCI}.manifest.v1+json", images.json.dumps({**images.json.loads(images.debian_like().manifest), "layers": [
        images.describe(f"{images.OCI}.layer.v1.tar+gzip", images.debian_like().blobs[0])] * 20_000}).encode()),
    "a layer of ten terabytes": lambda r: (f"{images.OCI}.manifest.v1+json", images.json.dumps({**images.json.loads(images.debian_like().manifest), "layers": [
        {**images.describe(f"{images.OCI}.layer.v1.tar+gzip", images.debian_like().blobs[0]), "size": 10 << 40}]}).encode()),
    "a negative size": lambda r: (f"{images.OCI}.manifest.v1+json", images.json.dumps({**images.json.loads(images.debian_like().manifest), "layers": [
        {**images.describe(f"{images.OCI}.layer.v1.tar+gzip", images.debian_like().blobs[0]), "size": -1}]}).encode()),
    "a digest that is a path": lambda r: (f"{images.OCI}.manifest.v1+json", images.json.dumps({**images.json.loads(images.debian_like().manifest), "layers": [
        {**images.describe(f"{images.OCI}.layer.v1.tar+gzip", images.debian_like().blobs[0]), "digest": f"sha256:../../../../tmp/{MARK}"}]}).encode()),
    "no image": lambda r: ("application/json", b'{"schemaVersion":1}'),
    "a page": lambda r: ("text/html", b"<html>"),
}  # fmt: skip


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_document_breaks_the_server(server, builds, registry, name):
    repository = f"attacks/{uuid.uuid4().hex}"
    reference = registry.push(repository, images.debian_like())
    registry.repositories[repository].manifests["latest"] = DOCUMENTS[name](registry)
    memory = resident_mib(server.pid)
    status = builds.run(fromImage=reference)
    assert status["status"] in ("error", "refused"), status
    assert is_up(server) and is_clean(server) and resident_mib(server.pid) - memory < 128


def test_a_blob_without_end_is_not_read_to_its_end(server, builds, registry):
    repository = f"attacks/{uuid.uuid4().hex}"
    image = Image([images.debian_like().layers[0], tarball(file("x", uuid.uuid4().hex))])
    reference = registry.push(repository, image)
    registry.repositories[repository].faults[digest_of(image.blobs[1])] = endless
    registry.sent = 0
    assert builds.run(fromImage=reference)["status"] == "error"
    assert registry.sent < 64 << 20, "it is as long as the manifest says"


HOSTS = ["127.0.0.1", "localhost", "0.0.0.0", "127.1", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "127.0.0.2"]


@pytest.mark.parametrize("host", HOSTS)
def test_images_are_pulled_from_no_service_of_the_host(builds, listener, host):
    port, heard = listener
    status = builds.run(fromImage=f"{host}:{port}/some/image:latest")
    assert status["status"] in ("error", "refused") and not heard, status


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
@pytest.mark.parametrize("way", ["redirect", "realm"])
def test_a_registry_sends_the_server_to_no_service_of_the_host(builds, registry, listener, host, way):
    port, heard = listener
    repository = f"attacks/{uuid.uuid4().hex}"
    image = Image([images.debian_like().layers[0], tarball(file("x", uuid.uuid4().hex))])
    reference = registry.push(repository, image)
    target = f"http://{host}:{port}/v2/{repository}/blobs/{{digest}}"
    if way == "redirect":
        registry.repositories[repository].faults[digest_of(image.blobs[1])] = redirected(target)
    else:
        challenge = {"WWW-Authenticate": f'Bearer realm="http://{host}:{port}/token",service="x",scope="repository:{repository}:pull"'}
        registry.repositories[repository].faults["latest"] = lambda answer, _: answer.error(401, "UNAUTHORIZED", challenge)
    assert builds.run(fromImage=reference)["status"] == "error" and not heard


def test_the_texts_do_not_say_what_is_open(builds, listener):
    """A port of the host that is open, and one that is closed."""
    port, heard = listener
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        texts = {builds.run(fromImage=f"127.0.0.1:{number}/x/y")["reason"]["message"].replace(str(number), "PORT") for number in (port, closed.getsockname()[1])}
    assert len(texts) == 1 and not heard


def test_another_teams_file_sets_are_not_there(builds, victim):
    digest, status = victim.upload(gzip.compress(tarball(file("src", "secret of the victim"))))
    assert status < 300 and victim.link(digest)["present"] is True
    assert builds.link(digest)["present"] is False
    copied = builds.run(step("COPY", "src", "/opt/src", "", "", filesHash=digest))
    assert copied["status"] == "error" and "secret" not in str(copied)
    # Nor are they replaced by what another team uploads as the same.
    assert builds.upload(gzip.compress(tarball(file("src", "of the attacker"))), digest)[1] < 300
    built = victim.run(step("COPY", "src", "/opt/src", "", "", filesHash=digest))
    box = Sandbox.create(built["templateID"], api_key=victim.team.key, timeout=600)
    assert box.files.read("/opt/src") == "secret of the victim"
    box.kill()


def test_another_teams_steps_are_not_in_the_cache(builds, victim):
    """The same steps run again, and see what their own team's do."""
    command = f": {uuid.uuid4()}; head -c 16 /dev/urandom | od -An -tx1 > /opt/once"
    first, again, theirs = victim.run(step("RUN", command, "root")), victim.run(step("RUN", command, "root")), builds.run(step("RUN", command, "root"))
    seen = []
    for status, team in ((first, victim), (again, victim), (theirs, builds)):
        box = Sandbox.create(status["templateID"], api_key=team.team.key, timeout=600)
        seen.append(box.files.read("/opt/once"))
        box.kill()
    assert seen[0] == seen[1] != seen[2]
    assert not any(line["message"].startswith("CACHED [builder") for line in theirs["logEntries"])


TARGETS = ["", "/", f"{UP}etc/{MARK}", "/proc/1/root/x", "/sys/x", "/run/sandcove/sandcove-agent", "/etc/passwd", "a\0b", "/" + "x/" * 3000]


@pytest.mark.parametrize("target", TARGETS, ids=[repr(target)[:20] for target in TARGETS])
def test_no_mount_leads_out(server, builds, target):
    digest, _ = builds.upload(gzip.compress(tarball(directory("src"), file("src/x", MARK))))
    secret = base64.b64encode(MARK.encode()).decode()
    for mount in ({"type": "bind", "source": "src", "filesHash": digest}, {"type": "secret", "id": "s"}):
        status = builds.run(step("RUN", "true", mounts=[{**mount, "target": target}]), secrets={"s": secret})
        assert status["status"] in ("ready", "error", "refused") and is_clean(server) and is_up(server), status
        if status["status"] == "ready":
            again = builds.run(step("RUN", f"! grep -rs {MARK} /etc /srv /run /dev/shm", "root"), fromTemplate=status["templateID"])
            assert again["status"] == "ready", again


def test_mounts_of_what_is_not_there(builds, victim):
    theirs, _ = victim.upload(gzip.compress(tarball(file("src", "secret of the victim"))))
    own, _ = builds.upload(gzip.compress(tarball(file("src", "x"))))
    for mount in (
        {"type": "bind", "source": "src", "filesHash": theirs, "target": "/x"},
        {"type": "bind", "source": f"{UP}etc", "filesHash": own, "target": "/x"},
        {"type": "bind", "source": "/etc/passwd", "filesHash": own, "target": "/x"},
        {"type": "bind", "source": "src", "filesHash": "../" * 21 + "a", "target": "/x"},
        {"type": "secret", "id": "none", "required": True, "target": "/x"},
        {"type": "volume", "target": "/x"},
    ):
        status = builds.run(step("RUN", "cat /x", mounts=[mount]))
        assert status["status"] in ("error", "refused") and "of the victim" not in str(status), mount


def changed(url: str):
    """Every link that differs from this one in one place, with what it is."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    for index, (name, value) in enumerate(query):
        for what, other in [("flipped", value[:-1] + ("0" if value[-1:] != "0" else "1")), ("empty", ""), ("longer", f"{value}0"), ("above", f"../{value}"), ("a sign", f"-{value}")]:
            yield f"{name} {what}", urlunsplit(parts._replace(query=urlencode([*query[:index], (name, other), *query[index + 1 :]])))
        yield f"no {name}", urlunsplit(parts._replace(query=urlencode(query[:index] + query[index + 1 :])))
    yield "another path", urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/../x"))
    yield "another directory", urlunsplit(parts._replace(path=f"{parts.path}%2f..%2fx"))


def test_upload_links_are_for_one_file_set(server, builds, victim):
    digest, other = "12" * 32, "34" * 32
    url = builds.link(digest)["url"]
    assert url.startswith(server.url), "on the server's own address"
    data = gzip.compress(tarball(file("src", MARK)))
    for what, link in changed(url):
        answer = requests.put(link, data=data, timeout=120)
        assert 400 <= answer.status_code < 500, f"{what}: {answer.status_code} {link}"
    swapped = url.replace(digest, other)
    if swapped != url:
        assert requests.put(swapped, data=data, timeout=120).status_code in (400, 403, 404)
    for method in ("GET", "DELETE", "POST", "PATCH"):
        assert requests.request(method, url, data=data, timeout=120).status_code in (400, 403, 404, 405)
    assert not builds.link(digest)["present"] and not builds.link(other)["present"] and not victim.link(digest)["present"]
    assert requests.put(url, data=data, timeout=120).status_code < 300, "the control"
    assert builds.link(digest)["present"] and not victim.link(digest)["present"]
    assert is_clean(server)


def test_an_upload_that_ends_early_is_none(server, builds):
    digest = "56" * 32
    parts = urlsplit(builds.link(digest)["url"])
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as client:
        client.sendall(f"PUT {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: 1000000\r\n\r\n".encode() + b"x" * 5000)
    assert builds.link(digest)["present"] is False
    assert builds.run(step("COPY", "src", "/x", "", "", filesHash=digest))["status"] == "error"

    def halves():
        for directory, _, names in os.walk(server.data_dir / "server/file-sets"):
            for name in names:
                # What is there may be gone at once.
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(os.path.join(directory, name)).st_size == 5000:
                        yield name

    wait_until(lambda: not list(halves()), 120, "the half is removed")


@pytest.mark.parametrize("length", ["-1", "99999999999999999999", "10000000000000", "x"])
def test_lengths_that_are_none(server, builds, length):
    parts = urlsplit(builds.link("78" * 32)["url"])
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as client:
        client.sendall(f"PUT {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n".encode())
        client.settimeout(5)
        try:
            answer = client.recv(100)
        except OSError:
            answer = b""
    assert not answer or answer.split(b" ")[1].startswith(b"4"), answer


def test_a_step_is_in_a_sandbox_like_any_other(server, builds, canary, listener):
    """It sees neither the host nor other teams, and reaches no service of the host."""
    port, heard = listener
    script = f"""
        cat /proc/self/uid_map; ls -d {canary} {server.data_dir} 2>/dev/null
        for a in 127.0.0.1 10.213.0.1 $(ip route 2>/dev/null | sed -n 's/default via \\([^ ]*\\).*/\\1/p'); do
            for p in {port} {server.port}; do timeout 1 bash -c "echo > /dev/tcp/$a/$p" 2>/dev/null && echo reached $a $p; done
        done
        mount -t tmpfs none /mnt 2>/dev/null && touch /mnt/{MARK}
        for f in /proc/sys/kernel/core_pattern /sys/kernel/uevent_helper /proc/sysrq-trigger; do (echo x > $f) 2>/dev/null && echo wrote $f; done
        grep -i seccomp: /proc/self/status
    """
    status = builds.run(step("RUN", script, "root"))
    lines = [line["message"].partition("[stdout]: ")[2] for line in status["logEntries"] if "[stdout]" in line["message"]]
    assert status["status"] == "ready", status["reason"]
    assert not heard and not [line for line in lines if line.startswith(("reached", "wrote", "/"))], lines
    assert int(lines[0].split()[1]) >= 1_000_000_000, "root of the sandbox is nobody of the host"
    assert lines[-1].split()[1] == "2" and is_clean(server)


def test_a_step_leaves_nothing_to_the_next_build(server, builds):
    """Processes, memory and files of temporary file systems end with the sandbox in which a step ran."""
    note = uuid.uuid4().hex
    builds.run(step("RUN", f"echo {note} > /dev/shm/{note}; echo {note} > /run/{note}; (setsid sleep 600 >/dev/null 2>&1 &) ; true", "root"))
    status = builds.run(step("RUN", f"ls /dev/shm/{note} /run/{note} 2>/dev/null; pgrep -x sleep; true", "root"))
    assert not [line for line in status["logEntries"] if "[stdout]" in line["message"]]


@pytest.mark.parametrize("name", ["agent", "shell", "loader"])
def test_a_template_that_replaces_what_builds_use(builds, name):
    """A build on a hostile template fails or works; it does not hang, and is no way out."""
    hostile = {
        "agent": "rm -rf /run/sandcove/* 2>/dev/null; mkdir -p /run/sandcove; ln -sf /bin/true /run/sandcove/sandcove-agent; true",
        "shell": "rm -f /bin/bash /usr/bin/bash; ln -s /usr/bin/yes /usr/bin/bash",
        "loader": "echo /nowhere.so > /etc/ld.so.preload; rm -rf /etc/passwd /etc/group /home /tmp; ln -s /proc/1/root /tmp; ln -s / /home",
    }[name]
    parent = builds.run(step("RUN", hostile, "root"))
    assert parent["status"] in ("ready", "error")
    if parent["status"] == "ready":
        digest, _ = builds.upload(gzip.compress(tarball(file("src", "x"))))
        child = builds.run(step("RUN", "echo 1 | head -c 10"), step("COPY", "src", "/tmp/x", "root", "0644", filesHash=digest), fromTemplate=parent["templateID"], deadline_s=600)
        assert child["status"] in ("ready", "error")
