"""Builds that fail: with which text, at which step, and that nothing of them stays."""

import hashlib
import inspect
import uuid

import pytest
import requests
from e2b import BuildException, FileUploadException, RateLimitException, TemplateException

from builds import Builds, both, builds, end_of, mark, step  # noqa: F401
from durability import fill
from harness import volatile
from harness.server import host_counts, settled_counts, wait_until
from harness.teams import Team


def reason_of(builds, *steps: dict, **members) -> tuple[str, str | None]:  # noqa: F811
    """The text and the step with which a build fails that is started by hand."""
    ids = builds.begin()
    answer = builds.go(*ids, *steps, **members)
    assert answer.status_code == 202 and answer.content == b"", answer.text
    status = builds.told(*ids)
    assert status["status"] == "error", status
    return status["reason"]["message"], status["reason"].get("step")


def test_a_failed_command_names_its_line(both):  # noqa: F811
    template = both.base().run_cmd("echo fine").set_workdir("/srv")
    template.run_cmd("echo before; echo 'to err' >&2; exit 3"); line = inspect.currentframe().f_lineno  # noqa: E702
    template.run_cmd("echo never")
    with pytest.raises(BuildException) as failed:
        both.build(template)
    assert str(failed.value) == "failed to run command 'echo before; echo 'to err' >&2; exit 3': exit status 3"
    where = end_of(failed.tb)
    assert (where.tb_frame.f_code.co_filename, where.tb_lineno) == (__file__, line)


def test_what_is_known_of_a_failure(both):  # noqa: F811
    info = both.start(both.base().run_cmd(f"echo {mark()}").run_cmd("echo out; echo err >&2; false").run_cmd("echo never"))
    status = both.ended(info)
    assert (status.status.value, status.reason.step) == ("error", "2")
    assert status.reason.message == "failed to run command 'echo out; echo err >&2; false': exit status 1"
    messages = [entry.message for entry in status.log_entries]
    assert "[builder 2/3] [stdout]: out" in messages and "[builder 2/3] [stderr]: err" in messages
    assert not any("never" in message and "[stdout]" in message for message in messages)
    (last,) = [entry for entry in status.log_entries if entry.level == "error"]
    assert last.message == f"Build failed: {status.reason.message}" and messages[-1] == last.message
    assert all(entry.level in ("warn", "error") for entry in status.reason.log_entries)


def test_steps_before_the_failed_one_come_from_the_cache(both):  # noqa: F811
    note = mark()
    with pytest.raises(BuildException):
        both.build(both.base().run_cmd(f"echo {note} > note").run_cmd("exit 1"))
    mended = both.build(both.base().run_cmd(f"echo {note} > note").run_cmd("cat note > copy"))
    assert (mended.cached, mended.ran) == ([1], [2]) and both.run(mended, "cat copy") == f"{note}\n"


@pytest.mark.parametrize(
    "command, text",
    [("kill -9 $$", "failed to run command 'kill -9 $$'"), ("no-such-program", "exit status 127"), ("cd /nowhere", "exit status 1"), ("if", "exit status 2")],
)
def test_ways_for_a_command_to_fail(builds, command, text):  # noqa: F811
    message, at = reason_of(builds, step("RUN", command))
    assert text in message and at == "1"


MALFORMED = [
    (step("RUN"), "RUN requires command argument"),
    (step("ENV"), "ENV does not support passing no arguments"),
    (step("ENV", "KEY"), "ENV requires both a key and value arguments"),
    (step("ARG", "A", "1", "B"), " requires both a key and value arguments"),
    (step("WORKDIR"), "WORKDIR requires a path argument"),
    (step("USER"), "USER requires a username argument"),
    (step("COPY", "a", filesHash="0" * 64), "COPY requires a local path and a container path argument"),
    (step("COPY", "a", "b", "", ""), "COPY requires files hash to be set"),
    (step("ADD", "a"), "requires a local path and a container path argument"),
    (step("VOLUME", "/data"), "command type VOLUME is not implemented"),
    (step("", "x"), "is not implemented"),
]


@pytest.mark.parametrize("malformed, text", MALFORMED, ids=[f"{one['type'] or 'nothing'}-{len(one['args'])}" for one, _ in MALFORMED])
def test_malformed_steps(builds, malformed, text):  # noqa: F811
    message, at = reason_of(builds, step("ENV", "A", "1"), malformed)
    assert text in message and at == "2"


@pytest.mark.parametrize("user", ["-x", "a b", "root;id", "../x", "x" * 300, "\n"])
def test_impossible_users(builds, user):  # noqa: F811
    message, at = reason_of(builds, step("USER", user))
    assert at == "1" and message


def test_files_that_were_never_uploaded(builds):  # noqa: F811
    message, at = reason_of(builds, step("COPY", "a", "/b", "", "", filesHash="ab" * 32))
    assert at == "1" and "not uploaded" in message
    for bad in ("", "AB" * 32, "ab" * 31, "../" + "a" * 61, "zz" * 32):
        ids = builds.begin()
        answer = builds.go(*ids, step("COPY", "a", "/b", "", "", filesHash=bad))
        assert answer.status_code == 400 or builds.told(*ids)["status"] == "error"
        if bad and "/" not in bad:
            link = builds.call("GET", f"/templates/{ids[0]}/files/{bad}")
            assert (link.status_code, link.json()["message"]) == (400, "Invalid files hash")


def test_an_archive_that_is_none_is_uploaded_again(builds):  # noqa: F811
    """What was broken on its way is not kept for the next build."""
    name = mark()
    files = hashlib.sha256(name.encode()).hexdigest()
    ids = builds.begin()
    link = builds.call("GET", f"/templates/{ids[0]}/files/{files}").json()
    assert not link["present"] and requests.put(link["url"], data=b"no archive").status_code == 200
    assert builds.call("GET", f"/templates/{ids[0]}/files/{files}").json()["present"]
    builds.go(*ids, step("COPY", name, "/b", "", "", filesHash=files))
    told = builds.told(*ids)
    assert told["status"] == "error" and told["reason"]["step"] == "1", told
    assert not builds.call("GET", f"/templates/{ids[0]}/files/{files}").json()["present"]


def test_links_for_uploads_are_for_ones_own_templates(builds, server):  # noqa: F811
    template = builds.begin()[0]
    theirs = Builds(server, key=Team(server.url).key)
    path = "/templates/{}/files/" + "ab" * 32
    foreign, missing = theirs.call("GET", path.format(template)), theirs.call("GET", path.format("nothing-of-this-name"))
    assert foreign.status_code == missing.status_code == 404
    assert foreign.json()["message"].replace(template, "") == missing.json()["message"].replace("nothing-of-this-name", "")


def test_owners_and_modes_that_do_not_exist(builds, tmp_path):  # noqa: F811
    (tmp_path / "a").write_text("a")
    with pytest.raises(BuildException, match="nobody-here"):
        builds.build(builds.base(tmp_path).copy("a", "/b", user="nobody-here"))
    with pytest.raises(BuildException):
        builds.build(builds.base(tmp_path).copy("a", "/b", mode=0o77777))


def test_what_the_package_refuses_itself(both, tmp_path):  # noqa: F811
    with pytest.raises(ValueError, match="No files found"):
        both.build(both.base(tmp_path).copy("missing", "/x"))
    with pytest.raises(TemplateException, match="escapes the context"):
        both.base(tmp_path).copy("../x", "/x")
    with pytest.raises(BuildException, match="mcp-gateway"):
        both.base().add_mcp_server("exa")


def test_unknown_bases(builds):  # noqa: F811
    assert reason_of(builds, fromTemplate="no-such-template") == ("template 'no-such-template' not found", "base")
    name = builds.name()
    builds.build(builds.base().run_cmd("true"), f"{name}:v1")
    assert reason_of(builds, fromTemplate=f"{name}:v2") == (f"tag 'v2' does not exist for template '{name}'", "base")
    message, at = reason_of(builds, fromTemplate=f"{name}:{uuid.uuid4()}")
    assert at == "base" and "not" in message
    template = builds.begin()[0]
    assert reason_of(builds, fromTemplate=template)[1] == "base"


def test_wrong_starts(builds):  # noqa: F811
    ids = builds.begin()
    path = f"/v2/templates/{ids[0]}/builds/{ids[1]}"
    for body, text in [
        ({"fromTemplate": "base", "fromImage": "x"}, "cannot specify both fromImage and fromTemplate"),
        ({}, "must specify either"),
        ({"fromTemplate": "", "fromImage": ""}, "must specify either"),
        ({"fromTemplate": "base", "steps": "RUN"}, ""),
        ({"fromTemplate": "base", "steps": [{"args": []}]}, ""),
        ({"fromTemplate": "base", "force": "yes"}, ""),
        ([], ""),
    ]:
        answer = builds.call("POST", path, body)
        assert (answer.status_code, answer.json()["code"]) == (400, 400), answer.text
        assert text in answer.json()["message"]
    assert builds.go(*ids, step("RUN", "true")).status_code == 202
    for _ in range(2):
        again = builds.go(*ids, step("RUN", "true"))
        assert (again.status_code, again.json()["message"]) == (400, "build is not in waiting state")
        builds.told(*ids)


TOO_MANY_VARIABLES = "the variables of the build take more than 128 KiB, the maximum: set fewer or shorter ones"


def test_variables_do_not_grow_without_end(builds):  # noqa: F811
    doubled = [step("ENV", "A", "x"), *[step("ENV", "A", "$A$A")] * 40]
    assert reason_of(builds, *doubled) == (TOO_MANY_VARIABLES, "18")
    assert reason_of(builds, step("ENV", "A", "x" * 1000), step("ENV", "B", "$A" * 1_000_000)) == (TOO_MANY_VARIABLES, "2")
    names = [text for number in range(20_000) for text in (f"NAME_{number}", "")]
    assert reason_of(builds, step("ENV", *names)) == (TOO_MANY_VARIABLES, "1")


def test_a_login_shell_that_never_ends_what_it_says_fails_the_build(builds):  # noqa: F811
    # The profile comes before the command that shows the variables.
    steps = [step("RUN", "echo yes >> /etc/profile", "root"), step("ENV", "X", "$NONE")]
    message, at = reason_of(builds, *steps)
    assert message.startswith("the login shell of root writes more than 1024 KiB") and at == "2"


def test_unknown_builds(builds, server):  # noqa: F811
    template, build = builds.begin()
    other = str(uuid.uuid4())
    for call in ("status", "logs"):
        answer = builds.call("GET", f"/templates/{template}/builds/{other}/{call}")
        assert (answer.status_code, answer.json()["message"]) == (400, f"Build '{other}' not found")
        assert builds.call("GET", f"/templates/{template}/builds/x/{call}").json()["message"].startswith("Invalid build id")
        assert builds.call("GET", f"/templates/no-such-template/builds/{build}/{call}").status_code in (400, 404)
    assert builds.go(template, other).status_code in (400, 404)
    assert builds.go(template, "x").status_code == 400
    assert builds.go("aaaaaaaaaaaaaaaaaaaa", build).status_code == 404
    team = Team(server.url)
    theirs = Builds(server, key=team.key)
    answer = theirs.go(template, build)
    assert (answer.status_code, answer.json()["message"]) == (403, "User does not have access to the template")
    assert builds.call("GET", f"/templates/{template}/builds/{build}/status").json()["status"] == "waiting"


NAMES = ["", " ", "a b", "a/b/c", "/a", "a/", "a:b:c", "a:", ":a", "ä", "a" * 129, "a.b", "a%2fb", "../a", "a\0b"]


@pytest.mark.parametrize("name", NAMES, ids=[repr(name)[:12] for name in NAMES])
def test_names_that_are_none(builds, name):  # noqa: F811
    answer = builds.call("POST", "/v3/templates", {"name": name})
    assert (answer.status_code, answer.json()["code"]) == (400, 400), answer.text
    assert answer.json()["message"].startswith(("Invalid name: ", "Invalid tag: ", "Name is required"))


@pytest.mark.parametrize("tag", ["", "a b", "a/b", "a:b", "ä", "b" * 129, str(uuid.uuid4())], ids=["nothing", "space", "slash", "colon", "letter", "long", "uuid"])
def test_tags_that_are_none(builds, tag):  # noqa: F811
    answer = builds.call("POST", "/v3/templates", {"name": builds.name(), "tags": ["good", tag]})
    assert answer.status_code == 400 and answer.json()["message"].startswith("Invalid tag: "), answer.text


@pytest.mark.parametrize(
    "members, text",
    [({"cpuCount": 0}, "validation error: CPU count must be at least 1"), ({"cpuCount": 34}, "CPU count must be at most 32"), ({"cpuCount": 3}, "CPU count must be 1 or an even number"),
     ({"memoryMB": 32}, "validation error: Memory must be at least 128 MiB"), ({"memoryMB": 1025}, "Memory must be divisible by 2"), ({"memoryMB": 1 << 40}, "Memory can't be higher than"),
     ({"cpuCount": -2}, "CPU count must be at least 1"), ({"minFreeDiskMb": -1}, ""), ({"cpuCount": "2"}, ""), ({"tags": "x"}, "")],
    ids=lambda value: "-".join(f"{k}{v}" for k, v in value.items()) if isinstance(value, dict) else "",
)  # fmt: skip
def test_resources_that_are_none(builds, members, text):  # noqa: F811
    answer = builds.call("POST", "/v3/templates", {"name": builds.name(), **members})
    assert answer.status_code == 400 and text in answer.json()["message"], answer.text


@pytest.mark.parametrize("call", [("POST", "/sandboxes"), ("POST", "/v3/templates"), ("POST", "/volumes")])
def test_a_list_is_no_body(builds, call):  # noqa: F811
    """Its elements were taken for members, in the order in which the server has them."""
    answer = builds.call(*call, ["base"])
    assert (answer.status_code, answer.json()["message"]) == (400, "validation error: invalid type: array, expected an object")


def test_no_name_is_an_error(builds):  # noqa: F811
    answer = builds.call("POST", "/v3/templates", {})
    assert (answer.status_code, answer.json()["message"]) == (400, "Name is required")
    assert builds.call("POST", "/v3/templates", {"alias": builds.name()}).status_code == 202
    with pytest.raises(BuildException, match="400: Invalid name: "):
        builds.build(builds.base(), "not a name")


def test_a_newer_build_ends_an_older_one(both):  # noqa: F811
    name = both.name()
    old = both.start(both.base().run_cmd(f": {mark()}; echo working; sleep 100"), f"{name}:v1")
    other = both.start(both.base().run_cmd(f": {mark()}; sleep 2"), f"{name}:v2")
    wait_until(lambda: any("working" in entry.message for entry in both.status(old).log_entries), what="the command runs")
    new = both.build(both.base().run_cmd("true"), f"{name}:v1")
    ended = both.ended(old)
    assert (ended.status.value, ended.reason.message) == ("error", "build was cancelled")
    assert {tag.tag: tag.build_id for tag in both.ask("get_tags", name)}["v1"] == new.build_id
    assert both.ended(other).status.value == "ready", "one with another tag goes on"


def test_a_newer_request_ends_one_that_waits(builds):  # noqa: F811
    name = builds.name()
    old, new = builds.begin(name), builds.begin(name)
    assert old[0] == new[0]
    status = builds.told(*old)
    assert status["status"] == "error" and "superseded" in status["reason"]["message"]
    assert builds.go(*old).json()["message"] == "build is not in waiting state"
    assert builds.go(*new, step("RUN", "true")).status_code == 202 and builds.told(*new)["status"] == "ready"


def test_a_failed_build_changes_no_tag(builds):  # noqa: F811
    name = builds.name()
    good = builds.build(builds.base().run_cmd("echo good > note"), name)
    with pytest.raises(BuildException):
        builds.build(builds.base().run_cmd("exit 1"), name)
    assert builds.run(name, "cat note") == "good\n"
    detail = builds.call("GET", f"/templates/{good.template_id}").json()
    assert [one["status"] for one in detail["builds"]] == ["error", "ready"]
    assert builds.call("GET", f"/templates/{good.template_id}/tags").json()[0]["buildID"] == good.build_id


def test_start_commands_that_fail(builds):  # noqa: F811
    message, at = reason_of(builds, startCmd="echo why >&2; exit 4", readyCmd="false")
    assert at == "finalize" and message.startswith("start command failed: ")
    message, at = reason_of(builds, startCmd="no-such-program", readyCmd="false")
    assert at == "finalize" and message.startswith("start command failed: ")


def test_a_process_that_a_step_leaves_does_not_hold_the_build(builds):  # noqa: F811
    built = builds.build(builds.base().run_cmd("sleep 1000 > /dev/null 2>&1 & echo left"))
    assert builds.run(built, "pgrep -x sleep | wc -l") == "0\n"


def test_a_step_ends_with_its_shell(builds):  # noqa: F811
    """All that was written until then is in the log, and what goes on in the background ends, also with the output open."""
    many = "for n in $(seq 2000); do echo line $n; done; echo last >&2"
    template = builds.base().run_cmd(f": {mark()}; sleep 1000 & echo left")
    template.run_cmd(f"(until [ -e /dev/shm/go ]; do sleep 0.1; done; echo late; touch ~/late) & (setsid yes > /dev/null &); {many}")
    template.run_cmd("pgrep -x 'sleep|yes' && exit 1; touch /dev/shm/go; sleep 1; ls ~/late; true")
    built = builds.build(template)
    lines = [line.partition("]: ")[2] for line in built.lines() if line.startswith("[builder 2/3] [std")]
    assert "last" in lines and [line for line in lines if line != "last"] == [f"line {n}" for n in range(1, 2001)]
    assert "[builder 1/3] [stdout]: left" in built.lines() and "late" not in [line.partition("]: ")[2] for line in built.lines()]


def test_a_step_whose_shell_fails_ends_with_it(builds):  # noqa: F811
    message, at = reason_of(builds, step("RUN", f": {mark()}; sleep 1000 & exit 3"))
    assert at == "1" and message.endswith("exit status 3")


def test_a_start_command_leaves_its_daemon_to_the_sandbox(builds):  # noqa: F811
    """Its shell has exited, and its output is still open."""
    built = builds.build(builds.base().set_start_cmd("python3 -m http.server 8123 & echo started", "curl -s -o /dev/null localhost:8123"))
    assert builds.run(built, "curl -s -o /dev/null -w '%{http_code}' localhost:8123") == "200"


def test_a_start_command_that_fails_and_leaves_a_daemon_fails(builds):  # noqa: F811
    message, at = reason_of(builds, startCmd="sleep 1000 & exit 5", readyCmd="false")
    assert (message, at) == ("start command failed: exit status 5", "finalize")


def test_a_disk_of_one_build_is_full(builds):  # noqa: F811
    message, at = reason_of(builds, step("RUN", "fallocate -l 100T large"))
    assert at == "1" and "exit status" in message


def test_the_pool_is_full(builds, server):  # noqa: F811
    """The build says so; with room, the same build works."""
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    write = step("RUN", f": {mark()}; head -c 20000000 /dev/urandom > large && sync")
    filler = server.data_dir / "pool/filler"
    try:
        fill(filler)
        message, at = reason_of(builds, write)
        assert at in ("1", "base", "finalize", None) and message
    finally:
        filler.unlink()
    ids = builds.begin()
    builds.go(*ids, write)
    assert builds.told(*ids)["status"] == "ready"


def test_the_pool_fills_up_while_a_step_writes(builds, server):  # noqa: F811
    """The step gets the error of a full disk, nothing of the build stays, and the same step works with room."""
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    before = settled_counts(server.data_dir)
    command = f": {mark()}; for n in $(seq 4000); do head -c 500000 /dev/urandom >> large || exit 77; sync large || exit 77; echo wrote $n; sleep 0.05; done"
    filler = server.data_dir / "pool/filler"
    ids = builds.begin()
    builds.go(*ids, step("RUN", command))
    status = f"/templates/{ids[0]}/builds/{ids[1]}/status"
    wait_until(lambda: "wrote" in builds.call("GET", status).text, what="the step writes")
    try:
        fill(filler)
        ended = builds.told(*ids)
    finally:
        filler.unlink()
    assert ended["status"] == "error", "it writes 2 GB"
    assert "exit status 77" in ended["reason"]["message"] or "too full" in ended["reason"]["message"], ended["reason"]
    wait_until(lambda: host_counts(server.data_dir) == before, what="everything of the build is cleaned up")
    ids = builds.begin()
    builds.go(*ids, step("RUN", command.replace("seq 4000", "seq 2")))
    assert builds.told(*ids)["status"] == "ready"


def test_a_teams_disk_for_templates_is_used_up_by_a_build(server):
    """The step beyond the limit fails, and the steps before it are kept for the next build only as long as there is room."""
    team = Team(server.url, snapshotsMb=60)
    theirs = Builds(server, key=team.key)
    try:
        # What a step has written may count twice for a moment. The first is small enough for that.
        sizes = {"a": "20M", "b": "60M", "c": "20M"}
        write = [step("RUN", f": {mark()}; head -c {size} /dev/urandom > {name}; sync {name}") for name, size in sizes.items()]
        message, at = reason_of(theirs, *write)
        # What the second writes counts when the file system commits: before its own snapshot is taken, or after it.
        assert at in ("2", "3") and "may take 60 MiB of disk" in message, (at, message)
        team.limit(snapshotsMb=1000)
        ids = theirs.begin()
        theirs.go(*ids, *write)
        log = theirs.told(*ids)
        assert log["status"] == "ready" and f"CACHED [builder {int(at) - 1}/3]" in str(log["logEntries"])
    finally:
        theirs.clear()
        team.clear()


def test_a_team_has_so_many_builds_at_once(server):
    """Those of the same template and tag are one."""
    team = Team(server.url)
    theirs = Builds(server, key=team.key)
    try:
        name = theirs.name()
        for _ in range(20):
            theirs.begin(name)
        for _ in range(19):
            theirs.begin()
        refused = theirs.call("POST", "/v3/templates", {"name": theirs.name()})
        assert refused.status_code == 429 and "20" in refused.json()["message"]
        with pytest.raises(RateLimitException):
            theirs.build(theirs.base(), theirs.name(), retries=0)
        theirs.begin(name)
    finally:
        theirs.clear()
        team.clear()


def test_an_upload_that_fails(both, tmp_path, monkeypatch):  # noqa: F811
    """The package's error, and the build that was reserved does not stay in the way."""
    import tarfile

    (tmp_path / "a").write_text("a")
    name = both.name()
    monkeypatch.setattr(tarfile.TarFile, "add", lambda *_, **__: (_ for _ in ()).throw(OSError("no archive")))
    with pytest.raises(FileUploadException, match="Failed to upload file"):
        both.build(both.base(tmp_path).copy("a", f"/{mark()}"), name)
    monkeypatch.undo()
    both.build(both.base(tmp_path).copy("a", f"/{mark()}"), name)


def test_nothing_of_failed_builds_stays(builds, server):  # noqa: F811
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    before = settled_counts(server.data_dir)
    snapshots = set(volatile.names(server.data_dir / "pool/snapshots"))
    infos = [builds.start(builds.base().run_cmd(f": {mark()}; exit {n}")) for n in (1, 2)]
    infos.append(builds.start(builds.base().set_start_cmd("exit 1", "false")))
    assert {builds.ended(info).status.value for info in infos} == {"error"}
    wait_until(lambda: host_counts(server.data_dir) == before, what="everything of the builds is cleaned up")
    wait_until(lambda: set(volatile.names(server.data_dir / "pool/snapshots")) <= snapshots, what="snapshots of the builds are deleted")
