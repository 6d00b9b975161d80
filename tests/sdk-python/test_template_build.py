"""Templates through the official SDK: what each step does, what sandboxes of a template have, and start commands."""

import json
import time
import zipfile

import pytest
from e2b import Sandbox, wait_for_file, wait_for_port, wait_for_process, wait_for_timeout, wait_for_url

from harness.server import wait_until
from builds import both, builds, mark, until_runs  # noqa: F401


@pytest.fixture
def context(tmp_path):
    """Files of a project."""
    app = tmp_path / "app"
    (app / "empty").mkdir(parents=True)
    (app / "lib").mkdir()
    (app / "lib/data.txt").write_text("data")
    (app / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (app / "run.sh").chmod(0o755)
    (app / "link").symlink_to("run.sh")
    (app / "same").hardlink_to(app / "lib/data.txt")
    for name in ("a.txt", "b.txt", "secret.txt", "build.log", "keep.log", "dir.with [odd] name é"):
        (tmp_path / name).write_text(f"content of {name}")
    (tmp_path / "a.txt").chmod(0o644)
    (tmp_path / ".dockerignore").write_text("# not for templates\nsecret.txt\n*.log\n!keep.log\n")
    return tmp_path


def shown(box, *paths: str) -> list[str]:
    """Type, mode, owner and path."""
    return box.commands.run(f"stat -c '%A %a %U:%G %n' {' '.join(paths)}", user="root").stdout.splitlines()


def test_files_are_copied(both, context):  # noqa: F811
    template = (
        both.base(context)
        .copy("a.txt", "/opt/one/renamed.txt", user="root", mode=0o600)
        .copy(["a.txt", "b.txt"], "/opt/two/")
        .copy("app", "/opt/app", user="daemon")
        .copy("*.txt", "/opt/matched", user="root:daemon")
        .copy_items([{"src": "keep.log", "dest": "relative/"}, {"src": "a.txt", "dest": "named", "mode": 0o400}])
        .copy("app/run.sh", "/opt/app/lib/", gzip=False)
        .copy("app/link", "/opt/followed", resolve_symlinks=True)
        .copy(".", "/opt/all", mode=0o755)
    )
    box = both.box(both.build(template))
    assert shown(box, "/opt/one/renamed.txt", "/opt/two/a.txt") == [
        "-rw------- 600 root:root /opt/one/renamed.txt",
        "-rw-r--r-- 644 user:user /opt/two/a.txt",
    ]
    assert shown(box, "/opt/app/run.sh", "/opt/app/link", "/opt/app/empty", "/opt/app/lib/run.sh", "/opt/app/lib/data.txt") == [
        "-rwxr-xr-x 755 daemon:daemon /opt/app/run.sh",
        "lrwxrwxrwx 777 daemon:daemon /opt/app/link",
        "drwxr-xr-x 755 daemon:daemon /opt/app/empty",
        "-rwxr-xr-x 755 user:user /opt/app/lib/run.sh",
        "-rw-r--r-- 644 daemon:daemon /opt/app/lib/data.txt",
    ]
    assert box.commands.run("readlink /opt/app/link; cat /opt/app/same; /opt/followed").stdout == "run.sh\ndataran\n"
    assert box.commands.run("ls /opt/matched").stdout.split() == ["a.txt", "b.txt"], "ignored files are not in it"
    assert shown(box, "/opt/matched/a.txt")[0].split()[2] == "root:daemon"
    assert shown(box, "/home/user/relative/keep.log", "/home/user/named")[1].startswith("-r-------- 400 user:user")
    everything = box.commands.run("ls -A /opt/all; stat -c %a /opt/all/b.txt /opt/all/app/lib").stdout
    assert "secret.txt" not in everything and "build.log" not in everything
    assert "keep.log" in everything and "dir.with [odd] name é" in everything
    assert everything.endswith("755\n755\n"), "the mode is that of everything below"


def test_a_directory_is_merged_into_one_that_exists(both, context):  # noqa: F811
    template = (
        both.base(context)
        .run_cmd("mkdir -p /opt/there/lib /opt/real && chmod 711 /opt/there/lib && touch /opt/there/lib/own && ln -s own /opt/there/lib/data.txt", user="root")
        .run_cmd("ln -s /opt/real /opt/linked", user="root")
        .copy("app", "/opt/there")
        .copy("app", "/opt/linked")
    )
    box = both.box(both.build(template))
    assert shown(box, "/opt/there/lib")[0] == "drwx--x--x 711 root:root /opt/there/lib", "directories that exist stay as they are"
    assert box.commands.run("cat /opt/there/lib/data.txt; test ! -L /opt/there/lib/data.txt; ls -A /opt/there/lib", user="root").stdout == "datadata.txt\nown\n"
    assert box.commands.run("test -L /opt/linked && cat /opt/real/lib/data.txt", user="root").stdout == "data", "a link to a directory is followed"


def test_commands_have_a_user_a_directory_and_variables(both):  # noqa: F811
    variables = {
        "ONE": "1", "WORDS": "two words", "HOME_OF_ROOT": "$HOME/x", "LITERAL": 'a `b` "c" \\d $(id)', "SAME_STEP": "[$ONE]", "PATH": "/custom",
    }  # fmt: skip
    template = (
        both.base()
        .run_cmd(["id -un > first", "pwd >> first"])
        .set_envs(variables)
        .set_envs({})
        .set_workdir("/srv/new/app")
        .set_workdir("sub")
        .run_cmd('printf "%s\\n" "$ONE" "$WORDS" "$HOME_OF_ROOT" "$LITERAL" "$SAME_STEP" "$PATH" > variables')
        .run_cmd("id -un > one; pwd >> one; echo $HOME >> one", user="root")
        .run_cmd("shopt -q login_shell && echo yes > login")
        .set_user("builder")
        .run_cmd("id -un > /tmp/second; pwd >> /tmp/second; echo ~ >> /tmp/second; sudo -n true 2>/dev/null || echo no sudo >> /tmp/second")
        .set_workdir("/srv/new/of-builder")
        .run_cmd("touch own")
    )
    box = both.box(both.build(template))
    assert box.files.read("/home/user/first", user="root") == "user\n/home/user\n"
    seen = box.files.read("/srv/new/app/sub/variables", user="root").split("\n")
    assert seen[:4] == ["1", "two words", "/root/x", 'a `b` "c" \\d $(id)']
    assert seen[4] in ("[]", "[$ONE]"), "variables of the same step are not seen"
    assert "/usr/bin" in seen[5].split(":"), "the usual directories are searched as well, or the profile says which"
    assert box.files.read("/srv/new/app/sub/one", user="root") == "root\n/srv/new/app/sub\n/root\n"
    assert box.files.read("/srv/new/app/sub/login", user="root") == "yes\n"
    assert box.files.read("/tmp/second", user="root") == "builder\n/srv/new/app/sub\n/home/builder\nno sudo\n", "a working directory stays; no right is given away"
    assert [line.split()[2] for line in shown(box, "/srv/new", "/srv/new/app", "/srv/new/app/sub", "/srv/new/of-builder", "/srv/new/of-builder/own")] == [
        "user:user", "user:user", "user:user", "builder:builder", "builder:builder",
    ]  # fmt: skip


def test_the_helpers_for_files_and_packages(both, tmp_path):  # noqa: F811
    """Programs that download are given local packages, or are stood in for."""
    wheel = tmp_path / "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "answer = 42\n")
        archive.writestr("tiny-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
        archive.writestr("tiny-1.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.dist-info/RECORD", "tiny.py,,\n")
    (tmp_path / "stand-in").write_text('#!/bin/sh\necho "$(id -un) $(basename $0) $*" >> /opt/asked\n')
    (tmp_path / "stand-in").chmod(0o755)
    stand_ins = " ".join(f"cp /opt/stand-in /usr/local/bin/{name};" for name in ("apt-get", "npm", "bun"))
    template = (
        both.base(tmp_path)
        .copy([wheel.name, "stand-in"], "/opt/")
        .run_cmd(f"{stand_ins} touch /opt/asked; chmod 666 /opt/asked; git init -q -b main /tmp/repo; cd /tmp/repo; "
                 "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first; git branch other", user="root")
        .make_dir("made/deep", mode=0o750)
        .make_dir(["/home/user/one", "two words"])
        .make_symlink("made/deep", "link")
        .make_symlink("one", "link2")
        .run_cmd("touch file 'file two' here; ln -s nowhere replaced")
        .make_symlink("file", "replaced", force=True)
        .rename("file", "file three")
        .rename("here", "file two", force=True)
        .remove(["link2"])
        .remove("one", recursive=True, force=True)
        .remove("/nothing-there", force=True, user="root")
        .pip_install(["--no-index", "--root-user-action=ignore", "/opt/tiny-1-py3-none-any.whl"])
        .apt_install(["one", "two"], no_install_recommends=True)
        .npm_install("pad", g=True)
        .npm_install(["x"], dev=True)
        .bun_install()
        .run_cmd("git config --global --add safe.directory '*'")
        .git_clone("file:///tmp/repo", "cloned", branch="other", depth=1)
    )  # fmt: skip
    box = both.box(both.build(template))
    listed = box.commands.run("stat -c '%A %n' made/deep; ls -1d *; readlink link replaced; git -C cloned branch; python3 -c 'import tiny; print(tiny.answer)'").stdout
    assert listed.splitlines() == [
        "drwxr-x--- made/deep", "cloned", "file three", "file two", "link", "made", "replaced", "two words", "made/deep", "file", "* other", "42",
    ]  # fmt: skip
    assert box.files.read("/opt/asked").splitlines() == [
        "root apt-get update", "root apt-get install -y --no-install-recommends one two", "root npm install -g pad", "user npm install --save-dev x", "user bun install",
    ]  # fmt: skip


def test_bun_installs_packages(builds):  # noqa: F811
    """The real program, which npm has too."""
    template = (
        builds.base()
        .set_envs({"npm_config_fetch_retries": "5"})
        .npm_install(["bun@1"], g=True)
        .set_workdir("/home/user/app")
        .run_cmd("echo '{}' > package.json")
        .bun_install(["is-number@7.0.0"])
        .bun_install(["semver@7.7.2"], dev=True)
        .bun_install(["cowsay@1.6.0"], g=True)
    )
    box = builds.box(builds.build(template))
    assert box.commands.run("bun -e 'console.log(require(\"is-number\")(7), Bun.version.split(\".\")[0])'").stdout == "true 1\n"
    listed = box.commands.run("cat package.json; ls node_modules").stdout
    assert '"is-number": "7.0.0"' in listed and '"semver": "7.7.2"' in listed and '"devDependencies"' in listed
    assert "cowsay" in box.commands.run("ls /root/.bun/install/global/node_modules", user="root").stdout.split()


def test_sandboxes_have_the_user_and_directory_and_not_the_variables(both):  # noqa: F811
    built = both.build(both.base().set_envs({"IN_THE_BUILD": "1"}).set_workdir("/srv/app").set_user("runner"))
    box = both.box(built, envs={"OWN": "2"})
    assert box.commands.run("id -un; pwd; echo $IN_THE_BUILD$OWN").stdout == "runner\n/srv/app\n2\n"
    assert box.commands.run("id -un", user="user").stdout == "user\n"
    assert box.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    assert box.files.write("relative", "x").path == "/home/runner/relative", "relative to the home directory, as everywhere"
    identity = box.commands.run("cat /.e2b; stat -c %a /code /usr/local").stdout
    assert f"TEMPLATE_ID={built.template_id}" in identity and f"BUILD_ID={built.build_id}" in identity
    assert identity.endswith("777\n777\n")
    assert Sandbox.connect(box.sandbox_id, timeout=1800).commands.run("id -un; pwd").stdout == "runner\n/srv/app\n"


def test_resources_are_those_of_the_build(both):  # noqa: F811
    name, template = both.name(), both.base().run_cmd("true")
    first = both.build(template, name)
    info = both.box(first).get_info()
    assert (info.cpu_count, info.memory_mb, info.template_id, info.name) == (2, 1024, first.template_id, name)
    second = both.build(template, name, cpu_count=1, memory_mb=512, min_free_disk_mb=0)
    assert second.template_id == first.template_id and second.cached == [1], "resources are in no cache key"
    info = both.box(first).get_info()
    assert (info.cpu_count, info.memory_mb) == (1, 512)
    def told():
        (listed,) = [one for one in both.listed() if one["templateID"] == first.template_id]
        return listed

    # Sandboxes are counted behind the back of those who create them.
    wait_until(lambda: told()["spawnCount"] == 2, what="both sandboxes are counted")
    listed = told()
    assert (listed["cpuCount"], listed["memoryMB"], listed["buildID"], listed["buildCount"]) == (1, 512, second.build_id, 2)
    assert listed["buildStatus"] == "ready"


def test_a_template_of_a_template(both):  # noqa: F811
    note = mark()
    parent_name = both.name()
    parent = both.build(both.base().set_user("app").set_workdir("/srv/app").run_cmd(f"echo {note} > from-parent; rm /etc/motd 2>/dev/null || true; mkdir gone"), parent_name)
    child = both.build(both.template().from_template(parent_name).run_cmd("cat from-parent > seen; id -un >> seen; pwd >> seen; rmdir gone; rm from-parent"))
    box = both.box(child)
    assert box.commands.run("id -un; pwd; cat seen; ls").stdout == f"app\n/srv/app\n{note}\napp\n/srv/app\nseen\n"
    # The parent is as it was, and may go.
    assert both.run(parent, "ls") == "from-parent\ngone\n"
    grandchild = both.build(both.template().from_template(f"{child.template_id}:{child.build_id}").run_cmd("touch more"))
    assert both.run(grandchild, "ls") == "more\nseen\n"


@pytest.mark.parametrize("user", ["app", "1500"])
def test_a_template_of_a_template_has_the_home_of_its_user(builds, tmp_path, user):  # noqa: F811
    """Wherever that is: no base says so but its own files."""
    home = "/srv/people/app"
    (tmp_path / "a.txt").write_text("copied")
    parent = builds.name()
    builds.build(builds.base().run_cmd(f"useradd --uid 1500 --create-home --home-dir {home} app", user="root").set_user(user), parent)
    child = builds.template(tmp_path).from_template(parent).run_cmd("pwd > ran").copy("a.txt", "a.txt")
    built = builds.build(child.set_start_cmd("pwd > started; sleep 1000", "grep . started"))
    assert builds.run(built, "pwd; cat ran started a.txt") == f"{home}\n{home}\n{home}\ncopied"


def test_a_template_of_a_snapshot(builds):  # noqa: F811
    box = builds.box("base")
    box.files.write("kept", "by the snapshot")
    snapshot = box.create_snapshot()
    try:
        built = builds.build(builds.template().from_template(snapshot.snapshot_id).run_cmd("cp kept copied"))
        assert builds.run(built, "cat kept copied") == "by the snapshotby the snapshot"
    finally:
        Sandbox.delete_snapshot(snapshot.snapshot_id)
    assert builds.run(built, "cat kept") == "by the snapshot"


def test_the_default_base_is_the_built_in_one(builds):  # noqa: F811
    """`e2bdev/base`, which no registry is asked for."""
    note = mark()
    built = builds.build(builds.template().from_base_image().run_cmd(f"echo {note} > note"))
    assert builds.run(built, "cat note; python3 -c 'print(1)'") == f"{note}\n1\n"
    built = builds.build(builds.template().from_dockerfile(f"FROM e2bdev/base\nARG X=1\nENV Y=2\nRUN echo {note} $Y > /note"))
    assert builds.run(built, "cat /note; id -un; pwd") == f"{note} 2\nuser\n/home/user\n"


def test_another_user_works_in_the_directory_of_the_usual_one(builds):  # noqa: F811
    """Where a Dockerfile names none, clients make it the working directory of the template."""
    built = builds.build(builds.template().from_dockerfile(f"FROM e2bdev/base\nRUN useradd -m app\nUSER app\nRUN echo {mark()} > ~/note"))
    assert builds.run(built, "id -un; pwd; cd; pwd") == "app\n/home/user\n/home/app\n"


SERVE = "python3 -m http.server 8123"


@pytest.mark.parametrize(
    "ready",
    [wait_for_port(8123), wait_for_url("http://localhost:8123/"), wait_for_process("python3"), wait_for_file("/tmp/started"), wait_for_timeout(1000)],
    ids=["port", "url", "process", "file", "timeout"],
)
def test_a_start_command_is_ready_when_the_sandbox_is(builds, ready):  # noqa: F811
    template = builds.base().set_workdir("/srv/www").run_cmd("echo served > index.html").set_start_cmd(f"touch /tmp/started; {SERVE}", ready)
    box = builds.box(builds.build(template))
    if "http" in ready.get_cmd() or "sport" in ready.get_cmd():
        assert box.commands.run("curl -s http://localhost:8123/").stdout == "served\n"
    box.commands.run(until_runs("[h]ttp.server"))


def test_a_start_command_has_the_context_of_the_build(both):  # noqa: F811
    start = "(id -un; pwd; echo $OF_THE_BUILD) > /tmp/started; sleep 1000"
    built = both.build(both.base().set_envs({"OF_THE_BUILD": "yes"}).set_workdir("/srv/app").set_user("app").set_start_cmd(start, "[ -s /tmp/started ]"))
    boxes = [both.box(built) for _ in range(3)]
    for box in boxes:
        assert box.files.read("/tmp/started") == "app\n/srv/app\nyes\n"
        assert box.commands.run(f"{until_runs('^sleep')}; pgrep -x sleep | wc -l").stdout == "1\n"
    assert f"{start}" in built.text and "Template is ready" in built.text


def test_a_start_command_is_inherited_unless_there_is_another(builds):  # noqa: F811
    parent = builds.name()
    start = "(id -un; pwd; echo $OF_THE_BUILD) > /tmp/started; sleep 1001"
    context = builds.base().set_envs({"OF_THE_BUILD": "parent"}).set_workdir("/srv/parent").set_user("app")
    builds.build(context.set_start_cmd(start, '[ -s /tmp/started ] && [ "$OF_THE_BUILD" = parent ]'), parent)
    changed = builds.template().from_template(parent).set_envs({"OF_THE_BUILD": "child"}).set_workdir("/srv/child").set_user("user")
    same = builds.build(changed.run_cmd("true"))
    # Its context is that of the template that defined it, also in a template of the derived one.
    for one in (same, builds.build(builds.template().from_template(f"{same.template_id}:{same.build_id}").set_workdir("/srv/third").run_cmd("true"))):
        assert builds.run(one, f"{until_runs('^sleep')}; pgrep -af '^sleep'").split()[1:] == ["sleep", "1001"]
        assert builds.run(one, "id -un; cat /tmp/started") == "user\napp\n/srv/parent\nparent\n"
    other = builds.build(builds.template().from_template(parent).set_start_cmd("sleep 1002", "true"))
    assert builds.run(other, f"{until_runs('^sleep')}; pgrep -af '^sleep'").split()[1:] == ["sleep", "1002"]


@pytest.mark.parametrize("base", ["base", "code-interpreter-v1"])
def test_the_output_of_a_start_command_is_in_the_log(builds, base):  # noqa: F811
    """With the state after it kept, and without."""
    start = "echo out; echo err >&2; sleep 1; touch /tmp/up; sleep 1000"
    built = builds.build(builds.template().from_template(base).set_start_cmd(start, "echo asked; [ -e /tmp/up ]"))
    levels = {entry.message: entry.level for entry in built.logs}
    for line, level in {
        "[start] [stdout]: out": "info",
        "[start] [stderr]: err": "info",
        "[ready] [stdout]: asked": "debug",
        "[ready] the ready command has not succeeded yet: exit status 1": "debug",
    }.items():
        assert levels[line] == level
        assert built.lines().index("[finalize] Template is ready") > built.lines().index(line)
    assert built.text.index("Waiting for template to be ready") < built.text.index("[start] [stdout]: out")


def test_a_log_is_deleted_with_its_template(builds):  # noqa: F811
    built = builds.build(builds.template().from_template("base").run_cmd("echo written"))
    log = builds.server.data_dir / "server/builds" / f"{built.build_id}.jsonl"
    assert "written" in log.read_text()
    assert builds.call("DELETE", f"/templates/{built.template_id}").status_code == 204
    assert not log.exists()


def test_the_output_of_a_start_command_that_fails_is_in_the_log(builds):  # noqa: F811
    status = builds.ended(builds.start(builds.base().set_start_cmd("echo trying; printf 'no config' >&2; exit 3", "false")))
    assert (status.status.value, status.reason.message) == ("error", "start command failed: exit status 3")
    messages = [entry.message for entry in status.log_entries]
    assert "[start] [stdout]: trying" in messages and "[start] [stderr]: no config" in messages


def test_a_start_command_may_end_well(builds):  # noqa: F811
    built = builds.build(builds.base().set_start_cmd("echo done > /tmp/once", "test -e /tmp/once"))
    assert builds.run(built, "cat /tmp/once") == "done\n"
    ready_only = builds.build(builds.base().set_ready_cmd("touch /tmp/checked"))
    assert builds.run(ready_only, "ls /tmp/checked") == "/tmp/checked\n"


def test_a_start_command_is_not_run_again_in_a_copy(builds):  # noqa: F811
    """A pause that keeps memory keeps its processes; a snapshot's sandboxes start anew."""
    built = builds.build(builds.base().set_start_cmd("echo run >> /home/user/runs; sleep 1000", "test -e /home/user/runs"))
    box = builds.box(built)
    before = box.commands.run(f"{until_runs('^sleep')}; pgrep -x sleep").stdout
    box.pause()
    box.connect(timeout=1800)
    assert box.commands.run("pgrep -x sleep; cat runs").stdout == f"{before}run\n"
    box.pause(mode="filesystem")
    box.connect(timeout=1800)
    assert box.commands.run(f"{until_runs('^sleep')}; pgrep -x sleep | wc -l; cat runs").stdout == "1\nrun\nrun\n"


def test_the_layer_is_shared_and_sandboxes_are_apart(builds):  # noqa: F811
    built = builds.build(builds.base().run_cmd("echo template > kept; dd if=/dev/zero of=large bs=1M count=20 2>/dev/null"))
    one, other = builds.box(built), builds.box(built)
    one.commands.run("echo own > kept; rm large")
    assert other.commands.run("cat kept; stat -c %s large").stdout == f"template\n{20 << 20}\n"
    one.pause(mode="filesystem")
    one.connect(timeout=1800)
    assert one.commands.run("cat kept; ls").stdout == "own\nkept\n"
    snapshot = one.create_snapshot()
    try:
        assert builds.box(snapshot.snapshot_id).commands.run("cat kept; ls").stdout == "own\nkept\n"
    finally:
        for box in builds._boxes:
            box.kill()
        Sandbox.delete_snapshot(snapshot.snapshot_id)


def test_what_is_sent_is_what_the_builder_says(both, context):  # noqa: F811
    """A body as it is sent by hand, with members that servers do not know."""
    template = both.base(context).run_cmd("echo by hand > note").set_ready_cmd("true")
    body = json.loads(both.kind.to_json(template))
    ids = both.begin()
    members = {key: value for key, value in body.items() if key != "steps"} | {"fromImageRegistry": {"type": "registry", "username": "left", "password": "over"}}
    steps = [{**one, "gzip": True, "resolveSymlinks": None, "unknown": {}, "type": one["type"].lower()} for one in body["steps"]]
    assert both.go(*ids, *steps, **members).status_code == 202
    assert both.told(*ids)["status"] == "ready"
    assert both.run(ids[0], "cat note") == "by hand\n"


def test_the_sandbox_that_was_waited_for_is_the_first_one(builds):  # noqa: F811
    """A template without a ready command waits for 20 s, and nobody waits for that again: not the first sandbox, nor a build of the same."""
    name, template = builds.name(), builds.base().set_start_cmd("date +%s.%N > /tmp/began; sleep 1000", "sleep 3")
    first = builds.build(template, name)
    ended = time.time()
    assert float(builds.run(first, "cat /tmp/began")) < ended, "its start command ran before the build ended"
    again = builds.build(template, name)
    assert "CACHED [finalize] Template is ready" in again.lines() and "CACHED [finalize] Template is ready" not in first.lines()
    changed = builds.build(builds.base().set_start_cmd("sleep 1001", "true"), name)
    assert "[finalize] Template is ready" in changed.lines()
