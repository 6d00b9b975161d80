"""`files.watch_dir`: which events a change makes, in which order, and when a watch ends."""

import pytest
from e2b import FileNotFoundException, InvalidArgumentException, SandboxException

from flavours import Watch, create, is_async
from harness.server import wait_until


@pytest.fixture
def directory(box, request):
    path = f"/home/user/watched-{abs(hash(request.node.name)) % 10**8}"
    box.files.make_dir(path)
    yield path
    box.files.remove(path)


@pytest.fixture
def watch(box, directory):
    watch = Watch(box, directory)
    yield watch
    watch.stop()


def test_an_upload_makes_three_events(box, directory, watch):
    box.files.write(f"{directory}/new", "text")
    assert watch.sees(3) == [("create", "new"), ("chmod", "new"), ("write", "new")]


def test_an_overwrite(box, directory):
    box.files.write(f"{directory}/old", "text")
    watch = Watch(box, directory)
    box.files.write(f"{directory}/old", "other")
    events = watch.sees(2)
    assert events[0] == ("chmod", "old") and set(events[1:]) == {("write", "old")} and len(events) <= 3
    watch.stop()


def test_what_programs_do(box, directory, watch):
    seen = 0

    def events_of(command, count):
        nonlocal seen
        box.commands.run(command, cwd=directory)
        events = watch.sees(seen + count)[seen:]
        seen += len(events)
        return events

    assert events_of("touch a", 1)[0] == ("create", "a")
    assert ("write", "a") in events_of("echo x >> a", 1)
    assert events_of("chmod 600 a", 1) == [("chmod", "a")]
    assert events_of("mv a b", 2) == [("rename", "a"), ("create", "b")]
    assert events_of("mkdir d", 1) == [("create", "d")]
    assert events_of("mv b /tmp/moved-out", 1) == [("rename", "b")]
    assert events_of("mv /tmp/moved-out c", 1) == [("create", "c")]
    assert ("remove", "c") in events_of("rm c", 1)
    assert ("remove", "d") in events_of("rmdir d", 1)
    box.commands.run("cat /etc/hostname; ls", cwd=directory)
    assert watch.sees(seen)[seen:] == []


def test_below_is_seen_only_when_recursive(box, directory):
    box.files.make_dir(f"{directory}/sub/deep")
    flat, deep = Watch(box, directory), Watch(box, directory, recursive=True)
    box.files.write(f"{directory}/sub/deep/file", "x")
    assert deep.sees(3)[0] == ("create", "sub/deep/file")
    assert [name for _, name in flat.sees(0) if "/" in name] == []
    flat.stop()
    deep.stop()


def test_new_directories_are_watched_too(box, directory):
    watch = Watch(box, directory, recursive=True)
    box.commands.run("mkdir -p a/b/c && touch a/b/c/file", cwd=directory)
    wait_until(lambda: ("create", "a/b/c/file") in [(e.type.value, e.name) for e in watch.events], what="the deep file")
    creates = [e.name for e in watch.events if e.type.value == "create"]
    assert {"a", "a/b", "a/b/c", "a/b/c/file"} <= set(creates)
    box.commands.run("mv a z && touch z/b/later", cwd=directory)
    wait_until(lambda: any(e.name == "z/b/later" for e in watch.events), what="the file below the new name")
    watch.stop()


def test_entries(box, directory):
    watch = Watch(box, directory, include_entry=True)
    box.files.write(f"{directory}/file", "12345")
    watch.sees(3)
    entry = watch.events[-1].entry
    assert (entry.name, entry.path, entry.size, entry.owner) == ("file", f"{directory}/file", 5, "user")
    before = len(watch.events)
    box.files.remove(f"{directory}/file")
    watch.sees(before + 1)
    assert watch.events[-1].type.value == "remove" and watch.events[-1].entry is None
    watch.stop()


def test_without_entries_none_are_sent(box, directory, watch):
    box.files.write(f"{directory}/file", "12345")
    watch.sees(3)
    assert [event.entry for event in watch.events] == [None] * len(watch.events)


def test_the_directory_itself_goes(box, directory):
    box.files.make_dir(f"{directory}/gone")
    watch = Watch(box, f"{directory}/gone")
    box.files.remove(f"{directory}/gone")
    # Nothing can be made in it any more.
    wait_until(lambda: ("remove", ".") in [(event.type.value, event.name) for event in watch.events], what="the end of the directory")
    watch.stop()


def test_names_of_every_kind(box, directory, watch):
    names = ["with space", "ünïcode-漢字", "-dash", "'quote\"", "a" * 255]
    for name in names:
        box.files.write(f"{directory}/{name}", "")
    wait_until(lambda: set(names) <= {event.name for event in watch.events}, what="every name")


def test_a_thousand_files_are_all_seen(box, directory, watch):
    box.commands.run("for i in $(seq 1000); do : > f$i; done", cwd=directory)
    expected = {f"f{i}" for i in range(1, 1001)}
    wait_until(lambda: {e.name for e in watch.events if e.type.value == "create"} == expected, what="1000 creates")


def test_errors(box):
    with pytest.raises(FileNotFoundException):
        Watch(box, "/no/such/directory")
    with pytest.raises(InvalidArgumentException):
        Watch(box, "/etc/passwd")


def test_a_stopped_watch_says_nothing_more(box, directory):
    watch = Watch(box, directory)
    watch.stop()
    box.files.write(f"{directory}/later", "x")
    if is_async(box):
        wait_until(lambda: watch.exits, what="the exit callback")
        assert watch.events == [] and watch.exits == [None]
    else:
        with pytest.raises(SandboxException, match="already stopped"):
            watch.handle.get_new_events()


def test_fifty_watches_at_once(box, directory):
    watches = [Watch(box, directory) for _ in range(50)]
    box.files.write(f"{directory}/file", "x")
    for watch in watches:
        wait_until(lambda watch=watch: len(watch.events) == 3, what="three events on every watch")
        assert [event.type.value for event in watch.events] == ["create", "chmod", "write"]
        watch.stop()


def test_a_killed_sandbox_ends_its_watches(flavour):
    box = create(flavour, timeout=1800)
    watch = Watch(box, "/home/user")
    box.kill()
    if is_async(box):
        wait_until(lambda: len(watch.exits) == 1, what="the exit callback")
        assert "killed or reached its" in str(watch.exits[0])
    else:
        with pytest.raises(SandboxException, match="killed or reached its"):
            watch.handle.get_new_events()
