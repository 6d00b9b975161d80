"""Snapshots, forks and pauses that keep only files, through the official SDK."""

import uuid

import pytest
from e2b import AsyncSandbox, NotFoundException, SandboxException, Sandbox, SandboxNotFoundException
from e2b_code_interpreter import Sandbox as Interpreter

from harness.server import wait_until


@pytest.fixture
def made():
    """Ids of sandboxes and snapshots that are removed when the test ends."""
    sandboxes, snapshots = [], []

    class Made:
        def sandbox(self, sandbox):
            sandboxes.append(sandbox.sandbox_id)
            return sandbox

        def snapshot(self, snapshot):
            snapshots.append(snapshot.snapshot_id)
            return snapshot

    yield Made()
    for sandbox_id in sandboxes:
        Sandbox.kill(sandbox_id)
    for snapshot_id in snapshots:
        Sandbox.delete_snapshot(snapshot_id)


def everything(sandbox) -> str:
    """What a tree looks like, down to modes, owners, times and attributes."""
    script = "cd /home/user/tree && find . -printf '%p %y %m %u %g %s %l %TY-%Tm-%Td %n\\n' | sort && cat a/file && python3 -c 'import os; print(os.getxattr(\"a/file\", \"user.note\"))'"
    return sandbox.commands.run(script, user="root").stdout


def test_a_snapshot_has_every_kind_of_file_as_it_was(sandbox, made):
    sandbox.commands.run(
        "set -e; mkdir -p tree/a tree/empty && cd tree && printf content > a/file && ln a/file hard && ln -s a/file soft"
        " && mkfifo pipe && touch -d 2001-02-03 old && chmod 4751 old && sudo chown 33:44 old && truncate -s 1G sparse"
        " && python3 -c \"import os; os.setxattr('a/file', 'user.note', b'kept')\""
    )
    # Changes to what the template has: removed, replaced by another kind, renamed, emptied, changed in place.
    sandbox.commands.run(
        "set -e; rm /etc/motd /etc/issue; rm -rf /usr/share/doc && mkdir -p /usr/share/doc/own;"
        " mv /usr/share/man /usr/share/men; echo '# more' >> /etc/hosts.allow; chmod 700 /srv",
        user="root",
    )
    before = everything(sandbox)
    snapshot = made.snapshot(sandbox.create_snapshot())
    sandbox.commands.run("rm -rf tree; touch /etc/motd", user="root", cwd="/home/user")

    other = made.sandbox(Sandbox.create(snapshot.snapshot_id, timeout=1800))
    assert everything(other) == before
    gone = other.commands.run("ls -d /etc/motd /etc/issue /usr/share/man 2>/dev/null; ls /usr/share/doc; stat -c %a /srv; tail -n1 /etc/hosts.allow; ls -d /usr/share/men")
    assert gone.stdout == "own\n700\n# more\n/usr/share/men\n"
    # It is its own: writing, removing and renaming work on all of it, and the snapshot stays as it is.
    other.commands.run("echo changed > tree/a/file; rm tree/hard; mv tree/a tree/b")
    third = made.sandbox(Sandbox.create(snapshot.snapshot_id, timeout=1800))
    assert everything(third) == before
    assert third.get_info().template_id == snapshot.snapshot_id.split(":")[0]


def test_new_files_are_told_apart_from_those_of_the_snapshot(sandbox, made):
    """Two files of one device must not have one number: cp and mv refuse to work on what looks like one file."""
    sandbox.commands.run("for i in $(seq 50); do echo $i > old$i; done")
    other = made.sandbox(Sandbox.create(made.snapshot(sandbox.create_snapshot()).snapshot_id, timeout=1800))
    other.commands.run("for i in $(seq 50); do echo $i > new$i; done")
    assert other.commands.run("stat -c %i old* new* | sort | uniq -d").stdout == ""


def test_processes_go_on_while_a_snapshot_is_taken(sandbox, made):
    ticker = sandbox.commands.run("i=0; while true; do i=$((i+1)); echo $i; sleep 0.02; done", background=True, timeout=0)
    seen = []
    stream = sandbox.commands.connect(ticker.pid, timeout=0)
    for _ in range(3):
        made.snapshot(sandbox.create_snapshot())
    for stdout, _, _ in stream:
        seen.extend(int(line) for line in (stdout or "").split())
        if len(seen) >= 60:
            break
    assert seen == list(range(seen[0], seen[0] + len(seen))), "one after the other, in one stream"
    assert ticker.pid in [process.pid for process in sandbox.commands.list()]


def test_a_snapshot_is_of_one_moment_however_much_is_written(sandbox, made):
    """A program writes a number to one file, then to another, and much to a third: no snapshot has the second ahead."""
    writer = (
        "import os\n"
        "piece, n = os.urandom(1 << 20), 0\n"
        "def put(name):\n"
        "    with open(name + '.new', 'w') as file: file.write(str(n))\n"
        "    os.rename(name + '.new', name)\n"
        "big = open('/home/user/big', 'wb')\n"
        "while True:\n"
        "    n += 1\n"
        "    put('/home/user/first'); put('/home/user/second')\n"
        "    if big.write(piece) and big.tell() > 100 << 20: big.seek(0)\n"
    )
    sandbox.files.write("/home/user/writer.py", writer)
    sandbox.commands.run("python3 /home/user/writer.py", background=True, timeout=0)
    sandbox.commands.run("while [ ! -e second ]; do sleep 0.01; done")
    for _ in range(3):
        other = made.sandbox(Sandbox.create(made.snapshot(sandbox.create_snapshot()).snapshot_id, timeout=1800))
        first, second = (int(other.files.read(f"/home/user/{name}")) for name in ("first", "second"))
        assert first - second in (0, 1)


def test_names_lists_and_deletion(sandbox, made):
    name = f"snap-{uuid.uuid4().hex[:8]}"
    first = made.snapshot(sandbox.create_snapshot(name=name))
    assert name in first.snapshot_id and first.snapshot_id.endswith(":default")
    assert [one.rsplit("/")[-1] for one in first.names] == [name]
    sandbox.files.write("later", "written between")
    again = sandbox.create_snapshot(name=name)
    assert (again.snapshot_id, again.names) == (first.snapshot_id, first.names)
    assert made.sandbox(Sandbox.create(name, timeout=1800)).files.read("later") == "written between"
    unnamed = made.snapshot(sandbox.create_snapshot())
    assert unnamed.names == []

    listed = [one.snapshot_id for one in sandbox.list_snapshots().next_items()]
    assert listed == [unnamed.snapshot_id, first.snapshot_id]
    paginator = Sandbox.list_snapshots(sandbox_id=sandbox.sandbox_id, limit=1)
    pages = []
    while paginator.has_next:
        pages.append([one.snapshot_id for one in paginator.next_items()])
    assert pages == [[unnamed.snapshot_id], [first.snapshot_id]]

    assert Sandbox.delete_snapshot(first.snapshot_id) is True
    assert Sandbox.delete_snapshot(first.snapshot_id) is False
    assert [one.snapshot_id for one in sandbox.list_snapshots().next_items()] == [unnamed.snapshot_id]
    with pytest.raises((NotFoundException, SandboxException)):
        Sandbox.create(first.snapshot_id)
    with pytest.raises(SandboxException, match="400"):
        sandbox.create_snapshot(name="not a name")
    with pytest.raises(SandboxNotFoundException):
        Sandbox.create_snapshot("inotthere")


def test_an_interpreter_comes_from_a_snapshot(interpreter, made):
    interpreter.run_code("x = 1; open('/home/user/data.txt', 'w').write('kept')")
    snapshot = made.snapshot(interpreter.create_snapshot())
    other = made.sandbox(Interpreter.create(snapshot.snapshot_id, timeout=1800))
    assert other.run_code("open('/home/user/data.txt').read()").text == "kept"
    assert other.run_code("x").error.name == "NameError", "memory is not in it"
    assert interpreter.run_code("x").text == "1"


def test_an_interpreter_sees_the_packages_of_its_snapshot(interpreter, made):
    """And not those that its template's warm interpreter has loaded already."""
    interpreter.commands.run(
        "file=$(python3 -c 'import numpy; print(numpy.__file__)'); echo '__version__ = \"replaced\"' >> $file", user="root"
    )
    snapshot = made.snapshot(interpreter.create_snapshot())
    other = made.sandbox(Interpreter.create(snapshot.snapshot_id, timeout=1800))
    assert other.run_code("import numpy; numpy.__version__").text == "replaced"


def test_forks_begin_with_the_files(sandbox, made):
    sandbox.files.write("kept", "by all")
    end = sandbox.get_info().end_at
    forks = [made.sandbox(fork) for fork in sandbox.fork(timeout=1800, count=3)]
    assert len({fork.sandbox_id for fork in forks} | {sandbox.sandbox_id}) == 4
    for number, fork in enumerate(forks):
        assert fork.files.read("kept") == "by all"
        fork.files.write("kept", f"by {number}")
    assert [fork.files.read("kept") for fork in forks] == ["by 0", "by 1", "by 2"]
    assert sandbox.files.read("kept") == "by all"
    assert sandbox.get_info().end_at == end
    sandbox.pause()
    with pytest.raises(SandboxException, match="409"):
        sandbox.fork()


def boot_id(sandbox) -> str:
    return sandbox.commands.run("cat /proc/sys/kernel/random/boot_id").stdout


def test_a_pause_that_keeps_only_files(made):
    sandbox = made.sandbox(
        Sandbox.create(timeout=1800, metadata={"a": "b"}, envs={"FROM_CREATE": "1"}, allow_internet_access=False)
    )
    sandbox.files.write("kept", "on disk")
    server = sandbox.commands.run("sleep 1000", background=True, timeout=0)
    before = boot_id(sandbox)
    assert sandbox.pause(mode="filesystem") is True
    assert sandbox.pause(mode="filesystem") is False
    info = sandbox.get_info()
    assert info.state == "paused" and info.metadata == {"a": "b"}
    assert not sandbox.is_running()

    again = Sandbox.connect(sandbox.sandbox_id, timeout=1800)
    assert again.files.read("kept") == "on disk"
    assert boot_id(again) != before
    assert server.pid not in [process.pid for process in again.commands.list()]
    assert again.commands.run("whoami; pwd; echo $FROM_CREATE").stdout == "user\n/home/user\n1\n"
    assert again.commands.run("curl -s -m 60 http://192.0.2.1/me").stdout.find(sandbox.sandbox_id) > 0
    # The token and the object of before still do.
    assert sandbox.files.read("kept") == "on disk"
    with pytest.raises(Exception):
        again.commands.run("curl -s -m 3 http://1.1.1.1/")


def test_time_up_may_keep_only_files(made):
    lifecycle = {"on_timeout": {"action": "pause", "mode": "filesystem"}}
    sandbox = made.sandbox(Sandbox.create(timeout=1800, lifecycle=lifecycle))
    boots = {boot_id(sandbox)}
    for content in ["first", "second"]:
        sandbox.files.write("kept", content)
        sandbox.set_timeout(0)
        wait_until(lambda: sandbox.get_info().state == "paused", what="the pause")
        sandbox.connect(timeout=1800)
        assert sandbox.files.read("kept") == content
        boots.add(boot_id(sandbox))
    assert len(boots) == 3


def test_a_reboot_gives_up_memory_and_keeps_files(interpreter):
    interpreter.run_code("x = 1; open('kept', 'w').write('on disk')")
    interpreter.pause()
    interpreter.connect(timeout=1800)
    assert interpreter.run_code("x").text == "1"
    interpreter.pause()
    interpreter.connect(timeout=1800, on_resume="reboot")
    assert interpreter.run_code("open('kept').read()").text == "on disk"
    assert interpreter.run_code("x").error.name == "NameError"


def test_clock_and_network_are_right_at_once_after_a_pause(sandbox):
    sandbox.commands.run("python3 -m http.server 8080 --bind 127.0.0.1", background=True, timeout=0)
    sandbox.commands.run("until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8080))'; do sleep 0.1; done 2>/dev/null")
    script = "python3 -c 'import time, urllib.request as u; u.urlopen(\"http://127.0.0.1:8080\").read(); print(time.time())'"
    import time

    for mode in ["full", "full"]:
        sandbox.pause(mode=mode)
        sandbox.connect(timeout=1800)
        before = time.time()
        inside = float(sandbox.commands.run(script).stdout)
        assert before <= inside <= time.time(), "the clock did not stand still"


async def test_the_async_flavour_does_the_same(made):
    sandbox = made.sandbox(await AsyncSandbox.create(timeout=1800))
    await sandbox.files.write("kept", "a")
    snapshot = made.snapshot(await sandbox.create_snapshot())
    other = made.sandbox(await AsyncSandbox.create(snapshot.snapshot_id, timeout=1800))
    assert await other.files.read("kept") == "a"
    (fork,) = await sandbox.fork(timeout=1800)
    assert await made.sandbox(fork).files.read("kept") == "a"
    assert [one.snapshot_id for one in await sandbox.list_snapshots().next_items()] == [snapshot.snapshot_id]
    assert await AsyncSandbox.delete_snapshot(snapshot.snapshot_id) is True
