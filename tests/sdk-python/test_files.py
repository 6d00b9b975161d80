"""`files`: reading, writing, listing and changing, with every error that is documented."""

import gzip
import hashlib
import io
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import pytest
from e2b import (
    AuthenticationException,
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    NotEnoughSpaceException,
    SandboxException,
    SandboxNotRunningException,
)

from flavours import create, is_async, stream_of


@pytest.fixture
def directory(box, request):
    path = f"/home/user/files-{abs(hash(request.node.name)) % 10**8}"
    box.files.make_dir(path)
    yield path
    box.commands.run(f"chmod -R u+rwX {path}; rm -rf {path}", user="root")


def test_text(box, directory):
    info = box.files.write(f"{directory}/text", "zażółć 🦀\r\n")
    assert (info.name, info.path, info.type, info.metadata) == ("text", f"{directory}/text", FileType.FILE, None)
    assert box.files.read(f"{directory}/text") == "zażółć 🦀\r\n"


def test_bytes(box, directory):
    data = bytes(range(256)) * 1000
    box.files.write(f"{directory}/bytes", data)
    assert box.files.read(f"{directory}/bytes", format="bytes") == data


@pytest.mark.parametrize("octets", [True, False])
def test_empty_files(box, directory, octets):
    box.files.write(f"{directory}/empty", "", use_octet_stream=octets)
    assert box.files.read(f"{directory}/empty") == ""
    assert box.files.read(f"{directory}/empty", format="bytes") == b""
    assert b"".join(box.files.read(f"{directory}/empty", format="stream")) == b""


@pytest.mark.parametrize("compress", [False, True])
def test_streams(box, directory, compress):
    data = os.urandom(8 << 20)
    chunks = [data[i : i + 100_000] for i in range(0, len(data), 100_000)]
    box.files.write(f"{directory}/stream", stream_of(box, chunks), gzip=compress)
    assert b"".join(box.files.read(f"{directory}/stream", format="stream", gzip=compress)) == data
    box.files.write(f"{directory}/file", io.BytesIO(data), gzip=compress)
    out = box.commands.run("sha256sum < file", cwd=directory).stdout
    assert out.split()[0] == hashlib.sha256(data).hexdigest()


def test_gzip_on_the_way_only(box, directory):
    text = "squeeze me " * 100_000
    box.files.write(f"{directory}/plain", text, gzip=True)
    assert box.files.read(f"{directory}/plain", gzip=True) == text == box.files.read(f"{directory}/plain")
    packed = gzip.compress(b"stays packed")
    box.files.write(f"{directory}/packed.gz", packed)
    assert box.files.read(f"{directory}/packed.gz", format="bytes", gzip=True) == packed


@pytest.mark.parametrize("octets", [True, False])
def test_octets_and_forms_do_the_same(box, directory, octets):
    path = f"{directory}/new/deep/file name ü.txt"
    info = box.files.write(path, b"x" * 100, use_octet_stream=octets)
    assert (info.path, info.name) == (path, "file name ü.txt")
    box.files.write(path, "shorter", use_octet_stream=octets)
    assert box.files.read(path) == "shorter"
    entry = box.files.get_info(path)
    assert (entry.mode, entry.owner, entry.group, entry.size) == (0o644, "user", "user", 7)
    assert box.files.get_info(f"{directory}/new/deep").mode == 0o755


@pytest.mark.parametrize("octets", [True, False])
def test_several_files_in_one_write(box, directory, octets):
    files = [{"path": f"{directory}/many/{i} ü.txt", "data": f"content {i}"} for i in range(20)]
    infos = box.files.write_files(files, use_octet_stream=octets)
    assert [info.path for info in infos] == [file["path"] for file in files]
    for file in files:
        assert box.files.read(file["path"]) == file["data"]
    assert box.files.write_files([]) == []


def test_relative_paths_and_users(box, directory):
    name = os.path.basename(directory)
    assert box.files.write(f"{name}/rel", "x").path == f"{directory}/rel"
    assert box.files.read(f"~/{name}/rel") == "x"
    assert box.files.write("root-file", "x", user="root").path in ("/root/root-file", "/home/user/root-file")
    assert box.files.get_info("root-file", user="root").owner == "root"
    box.files.remove("root-file", user="root")
    for call in [
        lambda: box.files.read("x", user="nobody-here"),
        lambda: box.files.write("x", "x", user="nobody-here"),
        lambda: box.files.list("/", user="nobody-here"),
    ]:
        with pytest.raises(AuthenticationException):
            call()


def test_overwriting_keeps_mode_and_inode(box, directory):
    path = f"{directory}/kept"
    box.files.write(path, "long content")
    box.commands.run(f"chmod 750 {path}; ln {path} {path}2; ln -s {path} {path}3")
    inode = box.commands.run(f"stat -c %i {path}").stdout
    box.files.write(f"{path}3", "new")
    assert box.commands.run(f"stat -c %i {path}; cat {path}2").stdout == inode + "new"
    assert box.files.get_info(path).mode == 0o750
    box.commands.run(f"chown root {path}", user="root")
    box.files.write(path, "mine")
    assert box.files.get_info(path).owner == "user"


def test_metadata(box, directory):
    path = f"{directory}/meta"
    info = box.files.write(path, "x", metadata={"Author": "me", "note": "a b"})
    assert info.metadata == {"author": "me", "note": "a b"}
    assert box.files.get_info(path).metadata == {"author": "me", "note": "a b"}
    assert box.files.list(directory)[0].metadata == {"author": "me", "note": "a b"}
    assert box.files.rename(path, f"{path}2").metadata == {"author": "me", "note": "a b"}
    box.files.write(f"{path}2", "y", metadata={"other": "1"}, use_octet_stream=True)
    assert box.files.get_info(f"{path}2").metadata == {"other": "1"}
    box.files.write(f"{path}2", "z")
    assert box.files.get_info(f"{path}2").metadata is None
    many = {f"k{number}": "v" for number in range(300)}
    assert box.files.write(path, "x", metadata=many).metadata == many
    assert box.files.get_info(path).metadata == many
    for bad in [{"k y": "v"}, {"": "v"}, {"k": "ü"}, {"k": "a\nb"}]:
        with pytest.raises(InvalidArgumentException):
            box.files.write(path, "x", metadata=bad)
    for too_much in [{"k" * 300: "v"}, {"k": "v" * 5000}]:
        with pytest.raises(InvalidArgumentException):
            box.files.write(path, "x", metadata=too_much)


def tree(box, directory):
    box.commands.run("mkdir -p b/c/d a; touch b/c/d/f b/c/g z .hidden", cwd=directory)


def test_list_depth(box, directory):
    tree(box, directory)

    def names(**options):
        return [e.path.removeprefix(f"{directory}/") for e in box.files.list(directory, **options)]

    assert names() == names(depth=1) == [".hidden", "a", "b", "z"]
    assert names(depth=2) == [".hidden", "a", "b", "b/c", "z"]
    assert names(depth=3) == [".hidden", "a", "b", "b/c", "b/c/d", "b/c/g", "z"]
    assert names(depth=100) == [".hidden", "a", "b", "b/c", "b/c/d", "b/c/d/f", "b/c/g", "z"]
    with pytest.raises(InvalidArgumentException):
        names(depth=0)


def test_list_of_many(box, directory):
    box.commands.run("seq -f 'f%05g' 5000 | xargs touch", cwd=directory)
    assert [e.name for e in box.files.list(directory)] == [f"f{i:05}" for i in range(1, 5001)]


def test_list_errors(box, directory):
    with pytest.raises(FileNotFoundException):
        box.files.list(f"{directory}/nothing")
    box.files.write(f"{directory}/file", "")
    with pytest.raises(InvalidArgumentException):
        box.files.list(f"{directory}/file")
    box.commands.run("ln -s loop2 loop1; ln -s loop1 loop2", cwd=directory)
    with pytest.raises(SandboxException):
        box.files.list(f"{directory}/loop1")


def test_info(box, directory):
    before = datetime.now(timezone.utc) - timedelta(seconds=2)
    box.files.write(f"{directory}/file", "12345")
    box.commands.run("chmod 640 file; chgrp sudo file", cwd=directory, user="root")
    entry = box.files.get_info(f"{directory}/file")
    assert (entry.name, entry.path, entry.type, entry.size) == ("file", f"{directory}/file", FileType.FILE, 5)
    assert (entry.mode, entry.permissions, entry.owner, entry.group) == (0o640, "-rw-r-----", "user", "sudo")
    modified = entry.modified_time
    modified = modified if modified.tzinfo else modified.replace(tzinfo=timezone.utc)
    assert before < modified < datetime.now(timezone.utc) + timedelta(seconds=2)
    assert entry.symlink_target is None
    top = box.files.get_info(directory)
    assert (top.type, top.mode, top.permissions) == (FileType.DIR, 0o755, "drwxr-xr-x")
    made = f"{directory}/empty"
    box.files.make_dir(made)
    assert [entry.size for entry in box.files.list(directory) if entry.name == "empty"] == [4096]
    assert box.files.get_info(made).size == box.files.get_info("/proc").size == 4096
    assert box.files.get_info("/tmp").permissions == "dtrwxrwxrwx"


def test_symlinks(box, directory):
    box.files.write(f"{directory}/file", "12345")
    box.commands.run("mkdir d; touch d/x; ln -s file link; ln -s d dlink; ln -s nowhere broken", cwd=directory)
    link = box.files.get_info(f"{directory}/link")
    assert (link.type, link.symlink_target, link.mode) == (FileType.SYMLINK, f"{directory}/file", 0o644)
    assert link.permissions == "Lrwxrwxrwx"
    assert box.files.read(f"{directory}/link") == "12345"
    assert [e.path for e in box.files.list(f"{directory}/dlink")] == [f"{directory}/dlink/x"]
    assert box.files.exists(f"{directory}/broken")
    assert box.files.get_info(f"{directory}/broken").symlink_target == f"{directory}/broken"
    box.files.remove(f"{directory}/dlink")
    assert box.files.exists(f"{directory}/d/x")
    assert {e.name for e in box.files.list(directory, depth=5)} >= {"d", "x", "file", "link"}


def test_odd_things_in_a_directory_do_not_disturb(box, directory):
    box.commands.run("mkfifo pipe; ln -s nowhere broken; touch $'bad-\\xff-name' fine", cwd=directory)
    names = [entry.name for entry in box.files.list(directory)]
    assert "fine" in names and "pipe" not in names
    with pytest.raises(SandboxException):
        box.files.read(f"{directory}/pipe", request_timeout=300)


def test_exists(box, directory):
    assert box.files.exists(directory) is True
    assert box.files.exists(f"{directory}/nothing") is False
    assert box.files.exists("/root") is True


def test_make_dir(box, directory):
    path = f"{directory}/x/y/z"
    assert box.files.make_dir(path) is True
    assert box.files.make_dir(path) is False
    for made in [path, f"{directory}/x"]:
        assert (box.files.get_info(made).owner, box.files.get_info(made).mode) == ("user", 0o755)
    box.files.write(f"{directory}/file", "")
    with pytest.raises(InvalidArgumentException):
        box.files.make_dir(f"{directory}/file")
    with pytest.raises(SandboxException):
        box.files.make_dir(f"{directory}/file/below")


def test_rename(box, directory):
    box.files.write(f"{directory}/a", "a")
    info = box.files.rename(f"{directory}/a", f"{directory}/new/dir/b")
    assert (info.path, info.name, info.size) == (f"{directory}/new/dir/b", "b", 1)
    assert not box.files.exists(f"{directory}/a")
    box.files.write(f"{directory}/c", "c")
    box.files.rename(f"{directory}/c", f"{directory}/new/dir/b")  # overwrites
    assert box.files.read(f"{directory}/new/dir/b") == "c"
    box.files.rename(f"{directory}/new", f"{directory}/moved")
    assert box.files.read(f"{directory}/moved/dir/b") == "c"
    with pytest.raises(FileNotFoundException):
        box.files.rename(f"{directory}/nothing", f"{directory}/x")
    box.files.make_dir(f"{directory}/other")
    with pytest.raises(SandboxException):
        box.files.rename(f"{directory}/other", f"{directory}/moved")


def test_remove(box, directory):
    tree(box, directory)
    box.files.remove(f"{directory}/z")
    box.files.remove(f"{directory}/b")
    assert [e.name for e in box.files.list(directory, depth=9)] == [".hidden", "a"]
    box.files.remove(f"{directory}/nothing")  # nothing to do is no error


def test_read_errors(box, directory):
    for format in ["text", "bytes", "stream"]:
        with pytest.raises(FileNotFoundException, match="does not exist"):
            box.files.read(f"{directory}/nothing", format=format)
        with pytest.raises(InvalidArgumentException):
            box.files.read(directory, format=format)


@pytest.mark.parametrize("octets", [True, False])
def test_write_errors(box, directory, octets):
    with pytest.raises(InvalidArgumentException):
        box.files.write(directory, "a directory", use_octet_stream=octets)
    box.files.write(f"{directory}/file", "")
    with pytest.raises(SandboxException):
        box.files.write(f"{directory}/file/below", "x", use_octet_stream=octets)
    with pytest.raises(SandboxException):
        box.files.write(f"{directory}/{'n' * 300}", "x", use_octet_stream=octets)


@pytest.mark.parametrize("octets", [True, False])
def test_no_space_left(box, octets):
    """/dev/shm is small, so it is soon full; what was there before stays."""
    box.files.write("/dev/shm/kept", "before")
    with pytest.raises(NotEnoughSpaceException):
        box.files.write("/dev/shm/big", b"x" * (300 << 20), use_octet_stream=octets, request_timeout=600)
    assert box.files.read("/dev/shm/kept") == "before"
    box.commands.run("rm -f /dev/shm/*")
    box.files.write("/dev/shm/after", "x")
    box.files.remove("/dev/shm/after")


@pytest.mark.parametrize("octets", [True, False])
def test_a_refused_upload_is_told_why(box, octets):
    """However large it is: the refusal is not lost while the client still sends."""
    data = b"x" * (32 << 20)
    for path, options, error in [
        ("/tmp", {}, InvalidArgumentException),
        ("/etc/passwd/x", {}, SandboxException),
        ("/tmp/x", {"user": "nobody-here"}, AuthenticationException),
    ]:
        with pytest.raises(error):
            box.files.write(path, data, use_octet_stream=octets, **options)


def test_paths_that_cannot_be(box):
    for call in [
        lambda: box.files.read("/tmp/\0"),
        lambda: box.files.list("/tmp/\0"),
        lambda: box.files.read(""),
        lambda: box.files.remove(""),
        lambda: box.files.list("~someone-else/x"),
        lambda: box.files.write("~someone-else/x", "x"),
    ]:
        with pytest.raises(InvalidArgumentException):
            call()


def test_special_files_are_read(box):
    assert "user:" in box.files.read("/etc/passwd")


def test_root_privileges_reach_everywhere(box, directory):
    box.commands.run(f"mkdir {directory}/closed; chmod 0 {directory}/closed")
    box.files.write(f"{directory}/closed/file", "x")
    assert box.files.read(f"{directory}/closed/file") == "x"


def test_many_uploads_into_a_directory_that_is_not_there_yet(box, directory):
    with ThreadPoolExecutor(30) as pool:
        list(pool.map(lambda i: box.files.write(f"{directory}/new/deep/{i}", str(i)), range(60)))
    assert sorted(int(e.name) for e in box.files.list(f"{directory}/new/deep")) == list(range(60))


def test_a_reader_sees_the_old_or_the_new_text(box, directory):
    """Twenty overwrites while others read: never an empty or a mixed file of this size."""
    path = f"{directory}/shared"
    texts = [letter * 3000 for letter in "ab"]
    box.files.write(path, texts[0])
    with ThreadPoolExecutor(4) as pool:
        writes = [pool.submit(box.files.write, path, texts[i % 2]) for i in range(20)]
        reads = [pool.submit(box.files.read, path) for _ in range(40)]
        seen = {read.result() for read in reads}
        [write.result() for write in writes]
    assert seen <= set(texts)


def test_sixty_megabytes_both_ways(box, directory):
    block = os.urandom(1 << 20)
    box.files.write(f"{directory}/big", stream_of(box, (block for _ in range(60))))
    count, digest = 0, hashlib.sha256()
    for chunk in box.files.read(f"{directory}/big", format="stream"):
        count += len(chunk)
        digest.update(chunk)
    expected = hashlib.sha256()
    for _ in range(60):
        expected.update(block)
    assert (count, digest.digest()) == (60 << 20, expected.digest())


def test_a_killed_sandbox(flavour):
    box = create(flavour, timeout=1800)
    box.kill()
    for call in [
        lambda: box.files.read("x"),
        lambda: box.files.write("x", "x"),
        lambda: box.files.list("/"),
        lambda: box.files.exists("/"),
        lambda: box.files.make_dir("x"),
    ]:
        with pytest.raises(SandboxNotRunningException):
            call()


def test_modes_are_those_of_the_kernel(box, directory):
    """What the agent tells of a file is what stat(1) tells."""
    box.commands.run("touch f; chmod 4755 f; mkdir d; chmod 2770 d", cwd=directory)
    for name in ["f", "d"]:
        entry = box.files.get_info(f"{directory}/{name}")
        said = int(box.commands.run(f"stat -c %f {name}", cwd=directory).stdout, 16)
        assert entry.mode == stat.S_IMODE(said) & 0o777
        assert entry.permissions[0] == {"f": "u", "d": "d"}[name]


def test_async_streams_are_async_only(box):
    with pytest.raises(InvalidArgumentException):
        other = iter([b"x"]) if is_async(box) else None
        if other is None:

            async def generate():
                yield b"x"

            other = generate()
        box.files.write("x", other)


NUMBERS = """
import os
def number(path):
    found = os.lstat(path)
    return found.st_dev, found.st_ino
own = set()
for name in range(3000):
    open(str(name), "w").close()
    own.add(number(str(name)))
assert len(own) == 3000
same = [path for top, _, names in os.walk("/usr") for name in names if number(path := os.path.join(top, name)) in own]
print(len(same), same[:3])
"""


def test_no_new_file_looks_like_one_of_the_template(box, directory):
    """`cp` refuses to copy a file over itself, and the loader takes a library for one that is loaded, by device and number alone."""
    box.files.write(f"{directory}/numbers.py", NUMBERS)
    assert box.commands.run("python3 numbers.py", cwd=directory, user="root").stdout == "0 []\n"
