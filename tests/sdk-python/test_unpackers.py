"""The processes that unpack images: what one of them may do if a layer takes it over, and what is left when it ends too early."""

import os
import re
import signal
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from builds import Builds, builds, mark  # noqa: F401
from harness import images, volatile
from harness.images import Image, digest_of, directory, file, hardlink, symlink, tarball
from harness.registry import Registry
from harness.server import wait_until

# The capabilities that it has over the files of its tree.
KEPT = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "SETFCAP": 31}
NAMESPACES = ("user", "mnt", "net", "ipc", "uts")
# After those of sandboxes and warm processes.
FIRST_ID = 1_000_000_000 + (1 << 31)


@pytest.fixture(scope="module")
def registry(server):
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    with Registry(server.registry_port) as registry:
        yield registry


@pytest.fixture(params=["two processes", "one process"])
def either(server, request):
    """The server as it is, and as one process with root's rights."""
    if request.param == "two processes":
        yield server
        return
    server.stop()
    server.variables["SANDCOVE_SERVER_ACCOUNT"] = "0"
    server.start()
    yield server
    server.stop()
    del server.variables["SANDCOVE_SERVER_ACCOUNT"]
    server.start()


def unpackers(server) -> list[int]:
    return [child for child in volatile.children(server.pid) if "\0__unpack\0" in (volatile.text(f"/proc/{child}/cmdline") or "")]


def trees(server) -> list[Path]:
    return volatile.matching(server.data_dir, "pool/layers/.importing-*/tree")


@contextmanager
def held(builds, registry):  # noqa: F811
    """An import whose first layer is unpacked and whose second one does not come: its build, and the process that unpacks."""
    image = Image([images.debian_like().layers[0], tarball(file("note", mark()))])
    repository = f"tests/{mark()}"
    reference = registry.push(repository, image)
    going_on = threading.Event()
    # An import that an earlier test interrupted may go on for a while.
    wait_until(lambda: unpackers(builds.server) == [] and trees(builds.server) == [], what="the end of earlier imports")

    def late(answer, data):
        going_on.wait(600)
        answer.say(200, data, "application/octet-stream")

    registry.repositories[repository].faults[digest_of(image.blobs[1])] = late
    info = builds.start(builds.template().from_image(reference).run_cmd("cat /note"))
    try:
        wait_until(lambda: any((tree / "etc/os-release").exists() for tree in trees(builds.server)), what="the first layer")
        [process] = unpackers(builds.server)
        yield info, process, going_on
    finally:
        going_on.set()


def status(pid: int) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


def namespaces(pid: int | str) -> dict[str, str]:
    return {name: os.readlink(f"/proc/{pid}/ns/{name}") for name in NAMESPACES}


def test_it_has_the_tree_and_nothing_else(either, registry):
    own = Builds(either)
    with held(own, registry) as (info, process, going_on):
        found, host = status(process), status(either.pid)
        # Rights over files in a user namespace of its own, and no way to get more. The host process shows that the file says so.
        assert int(found["CapEff"], 16) == int(found["CapPrm"], 16) == sum(1 << bit for bit in KEPT.values())
        assert int(found["CapBnd"], 16) == int(found["CapInh"], 16) == int(found["CapAmb"], 16) == 0 < int(host["CapEff"], 16)
        assert (found["NoNewPrivs"], found["Seccomp"], host["Seccomp"]) == ("1", "2", "0")
        assert found["Uid"].split() == found["Gid"].split() == [str(FIRST_ID)] * 4 and found["Groups"].split() == []
        for name in ("uid_map", "gid_map"):
            assert Path(f"/proc/{process}/{name}").read_text().split() == ["0", str(FIRST_ID), "65536"]
        shared = set(namespaces(process).items()) & set(namespaces(either.pid).items())
        assert not shared
        # One mount, which is the tree: no program is executed there, and no device is opened.
        [mount] = Path(f"/proc/{process}/mountinfo").read_text().splitlines()
        [tree] = trees(either)
        _, _, device, root, point, options, *_ = mount.split()
        assert point == "/" and f"{tree}".endswith(root.removeprefix("/pool")) and {"nosuid", "nodev", "noexec", "rw"} <= set(options.split(","))
        assert os.path.samestat(os.stat(f"/proc/{process}/root/etc/os-release"), (tree / "etc/os-release").stat())
        assert not os.path.exists(f"/proc/{process}/root/proc/self") and os.path.exists(f"/proc/{either.pid}/root/proc/self")
        # A network with nothing in it.
        interfaces = [line.split(":")[0].strip() for line in Path(f"/proc/{process}/net/dev").read_text().splitlines()[2:]]
        assert interfaces == ["lo"] and len(Path("/proc/net/dev").read_text().splitlines()) > 3
        # Two pipes, and files of the tree.
        links = {entry.name: volatile.link(entry) for entry in volatile.matching(f"/proc/{process}/fd", "*")}
        assert re.match("pipe:", links.pop("0")) and re.match("pipe:", links.pop("1")) and links.pop("2") == "/dev/null"
        own_files = {link for link in links.values() if link and not link.startswith("pipe:")}
        assert all(os.path.lexists(tree / file.lstrip("/")) for file in own_files), own_files
        # Whoever runs out of memory ends it before the server, and sandboxes do not wait for it.
        assert int(volatile.text(f"/proc/{process}/oom_score_adj")) == 0 and os.getpriority(os.PRIO_PROCESS, process) == 0
        going_on.set()
        assert own.ended(info).reason is None
    wait_until(lambda: unpackers(either) == [] and trees(either) == [], what="the end of the import")


def test_the_files_have_their_owners_links_and_attributes(either, registry):
    capability = bytes([1, 0, 0, 2, 0, 0x20, *[0] * 14])
    name = mark()
    program = file(f"srv/{name}", "x", 0o755)
    program[0].pax_headers = {"SCHILY.xattr.security.capability": capability.decode("latin-1")}
    many = [
        directory("srv/closed", 0o000, uid=1234, gid=65535),
        file("srv/closed/in", mark(), 0o000, uid=65535, gid=1),
        file("srv/tool", "x", 0o6755, uid=7, gid=9),
        hardlink("srv/same", "srv/tool"),
        symlink("srv/link", "/etc/passwd"),
        program,
    ]
    repository = f"tests/{mark()}"
    reference = registry.push(repository, Image([images.debian_like().layers[0], tarball(*many)]))
    own = Builds(either)
    seen = 'cd /srv; stat -c "%a %u %g %h %F" closed closed/in tool same link'
    built = own.build(own.template().from_image(reference).set_user("root").run_cmd(f"({seen}) > /seen"))
    box = own.box(built)
    assert box.files.read("/seen", user="root").splitlines()[:5] == [
        "0 1234 65535 1 directory",
        "0 65535 1 1 regular file",
        "6755 7 9 2 regular file",
        "6755 7 9 2 regular file",
        "777 0 0 1 symbolic link",
    ]
    [path] = volatile.matching(either.data_dir, f"pool/layers/oci-*/srv/{name}")
    assert os.getxattr(path, "security.capability") == capability, "as the host's root reads it"
    own.clear()


def test_an_import_whose_process_is_killed_fails_and_leaves_nothing(either, registry):
    own = Builds(either)
    with held(own, registry) as (info, process, going_on):
        os.kill(process, signal.SIGKILL)
        going_on.set()
        assert own.ended(info).reason is not None
    assert "the process that unpacks the image failed: it has ended (signal: 9 (SIGKILL))" in either.tail()
    wait_until(lambda: unpackers(either) == [] and trees(either) == [], what="the end of the import")


def test_a_server_that_is_killed_takes_it_along(either, registry):
    own = Builds(either)
    with held(own, registry) as (_, process, _):
        # It would not notice by itself: it does nothing.
        os.kill(process, signal.SIGSTOP)
        either.kill9()
        wait_until(lambda: not os.path.exists(f"/proc/{process}/root"), what="the end of the process")
        assert trees(either), "the tree is there until the next start"
    either.start()
    wait_until(lambda: trees(either) == [] or unpackers(either), what="the tree is removed")


def test_a_server_that_stops_ends_it(server, registry):
    own = Builds(server)
    with held(own, registry) as (_, process, _):
        server.stop()
        # The kernel kills it, which is a moment later than the end of the host process at times.
        wait_until(lambda: not os.path.exists(f"/proc/{process}"), what="the end of the process that unpacks")
    server.start()
