"""Templates of OCI images, pulled from a registry on loopback that answers, refuses and fails in every way."""

import json
import os
import tarfile

import pytest
from e2b import BuildException, CommandExitException

from builds import Builds, builds, mark  # noqa: F401
from harness import images, volatile
from harness.images import Image, digest_of, directory, file, program, symlink, tarball
from harness.registry import Registry, altered, at_first, redirected, silent, status, truncated


@pytest.fixture(scope="module")
def registry(server):
    """The registry that the server may pull from without TLS."""
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    with Registry(server.registry_port) as registry:
        yield registry


@pytest.fixture
def repository() -> str:
    return f"tests/{mark()}"


def fails(builds: Builds, template) -> str:  # noqa: F811
    """The text with which a build fails at its base."""
    info = builds.start(template)
    reason = builds.ended(info).reason
    assert reason is not None and reason.step == "base", reason
    return reason.message


def small(*more, **members) -> Image:
    """An image whose layers nobody has seen."""
    return Image([images.debian_like().layers[0], tarball(file("note", mark()), *more)], **members)


def test_an_image_with_its_variables(builds, registry, repository):  # noqa: F811
    reference = registry.push(repository, images.debian_like())
    note = mark()
    steps = 'printf "%s|" "$FROM_IMAGE" "${EMPTY-unset}"; id -un; pwd'
    built = builds.build(builds.template().from_image(reference).run_cmd(f"({steps}; echo {note}) > seen").set_workdir("/srv/app"))
    assert any(line.startswith(f"[base] FROM {reference}") for line in built.lines())
    box = builds.box(built)
    assert box.files.read("/home/user/seen") == f"1|unset|user\n/home/user\n{note}\n", "user, directory and command of the image are not used"
    assert box.commands.run("id -un; pwd; echo [$FROM_IMAGE]").stdout == "user\n/srv/app\n[]\n"
    assert box.commands.run("id -u", user="root").stdout == "0\n"
    assert box.commands.run("id -un", user="daemon").stdout == "daemon\n"
    assert box.commands.run("cat /etc/os-release").stdout.startswith("ID=debian\n")
    assert box.commands.run("sh -c 'echo $$ > /dev/null; ls / | head -n 3; touch /tmp/x && ls -ld /tmp'").exit_code == 0
    assert "drwxrwxrwt" in box.commands.run("ls -ld /tmp").stdout


def test_an_image_is_pulled_once(builds, registry, repository):  # noqa: F811
    reference = registry.push(repository, image := small())
    first = builds.build(builds.template().from_image(reference).run_cmd("cat /note > seen"))
    fetched = registry.fetched(repository)
    assert [fetched.count(digest_of(blob)) for blob in image.blobs] == [1, 1], "each layer once"
    again = builds.build(builds.template().from_image(reference).run_cmd("cat /note > seen"))
    assert [registry.fetched(repository).count(digest_of(blob)) for blob in image.blobs] == [1, 1] and again.cached == [1]
    assert builds.run(first, "cat seen") == builds.run(again, "cat seen")
    # A tag that has moved is another image.
    registry.push(repository, other := small())
    forced = builds.build(builds.template().from_image(reference).run_cmd("cat /note > seen"), skip_cache=True)
    assert builds.run(forced, "cat seen") != builds.run(first, "cat seen")
    # Layers that are there need not be fetched again.
    assert digest_of(other.blobs[1]) in registry.fetched(repository)


def test_a_reference_by_digest_and_an_index(builds, registry, repository):  # noqa: F811
    ours, foreign = small(), small(architecture=images.OTHER_ARCHITECTURE)
    registry.push(repository, foreign, ours, tag="both")
    built = builds.build(builds.template().from_image(f"{registry.host}/{repository}:both").run_cmd("cat /note > seen"))
    assert builds.run(built, "cat seen").encode() in ours.layers[1]
    by_digest = builds.build(builds.template().from_image(f"{registry.host}/{repository}@{digest_of(ours.manifest)}").run_cmd("cat /note > seen"))
    assert builds.run(by_digest, "cat seen") == builds.run(built, "cat seen")
    message = fails(builds, builds.template().from_image(registry.push(repository, foreign, tag="foreign")))
    assert images.ARCHITECTURE in message and images.OTHER_ARCHITECTURE in message


@pytest.mark.parametrize("members", [{"is_docker": True}, {"is_compressed": False}], ids=["docker", "plain"])
def test_kinds_of_documents_and_layers(builds, registry, repository, members):  # noqa: F811
    built = builds.build(builds.template().from_image(registry.push(repository, small(**members))).run_cmd("cat /note > seen"))
    assert len(builds.run(built, "cat seen")) == 32


def test_an_image_without_bash(builds, registry, repository, tmp_path):  # noqa: F811
    """Commands, terminals and steps fall back to `sh`; accounts and files need no program of the image."""
    (tmp_path / "copied").write_text("copied")
    reference = registry.push(repository, images.without_bash())
    template = (
        builds.template(tmp_path).from_image(reference)
        .set_user("app")
        .set_user("user")
        .copy("copied", "/srv/copied", user="app", mode=0o640)
        .run_cmd("echo $0 > shell; cat /srv/copied 2>/dev/null || echo closed > tried")
        .set_user("app")
        .set_workdir("/home/app")
        .run_cmd("cat /srv/copied > copy")
        .set_start_cmd("echo started > /tmp/started; sleep 1000", "[ -s /tmp/started ]")
    )  # fmt: skip
    box = builds.box(builds.build(template))
    assert box.commands.run("id -un; cat /srv/copied /tmp/started").stdout == "app\ncopiedstarted\n"
    assert "sh" in box.commands.run("cat /home/user/shell /home/user/tried", user="root").stdout
    assert box.commands.run("cat; exit 0", background=False).exit_code == 0
    with pytest.raises(CommandExitException) as failed:
        box.commands.run("exit 3")
    assert failed.value.exit_code == 3
    assert [entry.name for entry in box.files.list("/srv")] == ["copied"]


def test_an_image_without_shell(builds, registry, repository, tmp_path):  # noqa: F811
    (tmp_path / "copied").write_text("copied")
    reference = registry.push(repository, images.without_shell())
    box = builds.box(builds.build(builds.template(tmp_path).from_image(reference).copy("copied", "/srv/app/").set_workdir("/srv/app").set_user("app")))
    assert box.files.read("/srv/app/copied") == "copied"
    box.files.write("/home/app/own", "written")
    assert {"hello", "srv", "home", "tmp", "etc"} <= {entry.name for entry in box.files.list("/")}
    assert box.commands.run("/hello").stdout == "hello from a static program\n"
    with pytest.raises(CommandExitException, match="/bin/bash: not found"):
        box.commands.run("/hello && /hello")
    assert "hello from a static program" in builds.build(builds.template().from_image(reference).run_cmd("/hello")).text
    info = builds.start(builds.template().from_image(reference).run_cmd("/hello | /hello"))
    reason = builds.ended(info).reason
    assert reason.step == "1" and reason.message.startswith("failed to run command '/hello | /hello': ")


def test_an_image_of_many_layers(builds, registry, repository):  # noqa: F811
    """Whiteouts, opaque directories, and files that replace directories and the other way round."""
    image, expected = images.many_layers()
    built = builds.build(builds.template().from_image(registry.push(repository, image)).run_cmd("true"))
    box = builds.box(built)
    script = "cd /data; for path in all/* opaque/* turn turn/* last hard soft; do [ -f $path ] && echo \"$path $(cat $path)\"; done; true"
    found = dict(line.split() for line in box.commands.run(script).stdout.splitlines())
    assert found == expected
    assert box.commands.run("ls -A /data /data/opaque /data/all | head -n 500").stdout.count(".wh.") == 0
    assert box.commands.run("readlink /data/soft; stat -c %h /data/hard").stdout == "last\n1\n"


def test_special_entries_of_layers(builds, registry, repository):  # noqa: F811
    """Links that lead out of the image lead nowhere else; owners, modes and odd names are kept."""
    layer = tarball(
        directory("odd", 0o1770, uid=1234, gid=4321),
        file("odd/set-id", "x", 0o6755, uid=1234, gid=4321),
        file("odd/name with space \u00e9 and 'quotes'", "x"),
        file("odd/" + "long" * 50, "long"),
        symlink("odd/up", "../../../../../../etc/passwd"),
        symlink("odd/absolute", "/etc/os-release"),
        program("odd/sparse", b"\0" * (3 << 20)),
        images.entry("odd/pipe", tarfile.FIFOTYPE),
        images.hardlink("odd/hard", "odd/set-id"),
        file("odd/empty", mode=0),
    )
    reference = registry.push(repository, Image([images.debian_like().layers[0], layer]))
    box = builds.box(builds.build(builds.template().from_image(reference).run_cmd("true")))
    seen = box.commands.run("cd /odd; stat -c '%a %u %g %F' . set-id empty pipe; ls | sort; head -n 1 up absolute; stat -c '%h %s' hard sparse", user="root").stdout
    assert seen.startswith("1770 1234 4321 directory\n6755 1234 4321 regular file\n0 0 0 regular empty file\n644 0 0 fifo\n")
    assert "root:x:0:0" in seen and "ID=debian" in seen and seen.endswith(f"2 1\n1 {3 << 20}\n")
    assert "name with space \u00e9 and 'quotes'" in seen and "long" * 50 in seen


def test_credentials(builds, registry, repository):  # noqa: F811
    for asks in ("basic", "token"):
        name = f"{repository}-{asks}"
        reference = registry.push(name, small())
        registry.repositories[name].asks, registry.repositories[name].account = asks, ("user", "pass:word é")
        denied = f"access denied to '{reference}': authentication required or insufficient permissions"
        assert denied in fails(builds, builds.template().from_image(reference))
        assert denied in fails(builds, builds.template().from_image(reference, username="user", password="wrong-password"))
        built = builds.build(builds.template().from_image(reference, username="user", password="pass:word é").run_cmd("cat /note > seen"))
        assert len(builds.run(built, "cat seen")) == 32
        assert "pass:word" not in built.text
    kept = [volatile.matching(builds.server.data_dir, pattern) for pattern in ("server/sandcove.db*", "server/builds/*")]
    contents = {path: volatile.content(path) or b"" for path in [builds.server.log, *sum(kept, [])]}
    assert any(contents.values())
    for path, content in contents.items():
        assert b"pass:word" not in content and b"wrong-password" not in content, f"no password is in {path}"


def test_another_team_needs_its_own_credentials(builds, registry, repository, server):  # noqa: F811
    """Although the layer of the image is there already."""
    from harness.teams import Team

    reference = registry.push(repository, small())
    registry.repositories[repository].asks, registry.repositories[repository].account = "token", ("user", "password")
    builds.build(builds.template().from_image(reference, username="user", password="password"))
    team = Team(server.url)
    theirs = Builds(server, key=team.key)
    try:
        assert "access denied" in fails(theirs, theirs.template().from_image(reference))
        digest = digest_of(json.dumps({}).encode())
        assert "access denied" in fails(theirs, theirs.template().from_image(f"{registry.host}/{repository}@{digest}"))
    finally:
        theirs.clear()


def test_images_count_for_each_team_that_keeps_them(builds, registry, repository, server):  # noqa: F811
    """The layer of an image is nobody's snapshot: a team without room for one pulled as many as it liked."""
    from harness.teams import Team

    mib = 1 << 20
    base = images.debian_like().layers[0]
    reference = registry.push(repository, Image([base, tarball(file("data", os.urandom(60 * mib)))]))
    other = registry.push(f"{repository}-2", Image([base, tarball(file("data", os.urandom(60 * mib)))]))
    team = Team(server.url, snapshotsMb=100)
    theirs = Builds(server, key=team.key)
    try:
        theirs.build(theirs.template().from_image(reference).run_cmd("test -s /data"), kept := theirs.name())
        told = fails(theirs, theirs.template().from_image(other))
        assert "is too large: its compressed layers have" in told and "may take" in told, told
        builds.build(builds.template().from_image(other).run_cmd("test -s /data"))
        told = fails(theirs, theirs.template().from_image(other))
        assert told.startswith("the snapshots and templates of a team may take"), f"it is there already: {told}"
        again = theirs.build(theirs.template().from_image(reference).run_cmd("test -s /data"), twice := theirs.name())
        assert again.cached == [1], "it counts once"
        # It counts for templates, also when no cache has it.
        assert team.call("POST", "/templates/gc", {}).status_code == 200
        assert "may take" in fails(theirs, theirs.template().from_image(other))
        assert [theirs.delete(name).status_code for name in (kept, twice)] == [204, 204]
        assert team.call("POST", "/templates/gc", {}).status_code == 200
        theirs.build(theirs.template().from_image(other).run_cmd("test -s /data"))
    finally:
        theirs.clear()


def test_anonymous_tokens(builds, registry, repository):  # noqa: F811
    reference = registry.push(repository, small())
    registry.repositories[repository].asks = "token"
    built = builds.build(builds.template().from_image(reference).run_cmd("cat /note > seen"))
    assert len(builds.run(built, "cat seen")) == 32


def test_what_is_not_there(builds, registry, repository):  # noqa: F811
    registry.push(repository, small())
    missing = f"{registry.host}/{repository}:no-such-tag"
    assert f"image '{missing}' not found: the image or tag does not exist in the registry" in fails(builds, builds.template().from_image(missing))
    missing = f"{registry.host}/{repository}-not:latest"
    assert "not found: verify the image name is correct" in fails(builds, builds.template().from_image(missing))
    for reference in ("not a reference", "UPPER/case", "a:b:c", "", "http://x/y", f"{registry.host}/a@sha256:00"):
        answer = builds.call("POST", "/v2/templates/{}/builds/{}".format(*(ids := builds.begin())), {"fromImage": reference, "steps": []})
        if answer.status_code == 202:
            reason = builds.told(*ids)["reason"]
            assert reason["step"] == "base" and "invalid image reference" in reason["message"], reference
        else:
            assert answer.status_code == 400, answer.text


@pytest.mark.parametrize("what", ["manifest", "configuration", "layer"])
@pytest.mark.parametrize("fault", [altered, truncated], ids=["altered", "truncated"])
def test_content_that_is_not_what_its_digest_says(builds, registry, repository, what, fault):  # noqa: F811
    reference = registry.push(repository, image := small())
    found = {"manifest": digest_of(image.manifest), "configuration": digest_of(image.configuration), "layer": digest_of(image.blobs[1])}[what]
    registry.repositories[repository].faults[found] = fault
    reference = f"{registry.host}/{repository}@{found}" if what == "manifest" else reference
    message = fails(builds, builds.template().from_image(reference))
    assert "failed to pull image" in message or "is not usable" in message
    # Nothing of it is used afterwards.
    registry.repositories[repository].faults.clear()
    built = builds.build(builds.template().from_image(reference).run_cmd("cat /note > seen"))
    assert builds.run(built, "cat seen").encode() in image.layers[1]


@pytest.mark.parametrize("fault", [truncated, status(503), status(429)], ids=["truncated", "503", "429"])
def test_a_fault_that_passes_is_survived(builds, registry, repository, fault):  # noqa: F811
    reference = registry.push(repository, image := small())
    registry.repositories[repository].faults[digest_of(image.blobs[1])] = at_first(fault)
    builds.build(builds.template().from_image(reference).run_cmd("true"))


def test_the_status_of_a_failure_is_reported(builds, registry, repository):  # noqa: F811
    reference = registry.push(repository, image := small())
    registry.repositories[repository].faults[digest_of(image.blobs[1])] = status(500)
    message = fails(builds, builds.template().from_image(reference))
    assert f"failed to pull image '{reference}'" in message and "500" in message


def test_redirects(builds, registry, repository):  # noqa: F811
    """As registries that keep blobs elsewhere answer; credentials stay with the registry."""
    reference = registry.push(repository, image := small())
    one = registry.repositories[repository]
    one.asks, one.account = "basic", ("user", "password")
    for blob in image.blobs:
        registry.moved[digest_of(blob)] = blob
        one.faults[digest_of(blob)] = redirected(f"http://localhost:{registry.port}/moved/{{digest}}")
    try:
        builds.build(builds.template().from_image(reference, username="user", password="password").run_cmd("true"))
    except BuildException:
        # Another name of this host is another address, which need not be allowed.
        for blob in image.blobs:
            one.faults[digest_of(blob)] = redirected("/moved/{digest}")
        builds.build(builds.template().from_image(reference, username="user", password="password").run_cmd("true"))
    moved = [request for request in registry.requests if request.path.startswith("/moved/")]
    assert moved and all(request.authorization is None for request in moved if request.host != registry.host), "no credentials for another host"
    for blob in image.blobs:
        one.faults[digest_of(blob)] = redirected(f"/v2/{repository}/blobs/{{digest}}")
    reference = registry.push(repository, looping := small(), tag="loop")
    one.faults[digest_of(looping.blobs[1])] = redirected(f"/v2/{repository}/blobs/{{digest}}")
    assert "failed to pull image" in fails(builds, builds.template().from_image(reference, username="user", password="password"))


def test_a_pull_is_cancelled(builds, registry, repository):  # noqa: F811
    """A registry that says nothing does not hold a build that is superseded."""
    reference = registry.push(repository, image := small())
    registry.repositories[repository].faults[digest_of(image.blobs[1])] = silent
    name = builds.name()
    first = builds.start(builds.template().from_image(reference), name)
    builds.build(builds.base().run_cmd("true"), name)
    ended = builds.ended(first)
    assert (ended.status.value, ended.reason.message) == ("error", "build was cancelled")
