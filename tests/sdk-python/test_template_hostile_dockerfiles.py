"""Dockerfiles and contexts of others, built by somebody who has files that they are after: by COPY, links, mounts and triggers of images."""

import io
import tarfile
import uuid

import pytest
from e2b import Sandbox
from test_cli_template import Project, run
from test_template_images import registry  # noqa: F401: the fixture

from harness import images

SECRET = f"secret-{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def trap(server, tmp_path_factory):
    """A context with links to a directory beside it, which has a secret."""
    directory = tmp_path_factory.mktemp("trap")
    outside = directory / "outside"
    outside.mkdir()
    (outside / "secret").write_text(SECRET)
    with tarfile.open(outside / "secret.tar", "w") as archive:
        info = tarfile.TarInfo("packed")
        info.size = len(SECRET)
        archive.addfile(info, io.BytesIO(SECRET.encode()))
    project = Project(server, directory / "context")
    context = project.directory
    project.write(**{"real/file": "harmless", "other": "harmless"})
    (context / "absolute").symlink_to(outside / "secret")
    (context / "relative").symlink_to("../outside/secret")
    (context / "up").symlink_to("..")
    (context / "directory").symlink_to(outside)
    (context / "archive.tar").symlink_to(outside / "secret.tar")
    (context / "real/deep").symlink_to("../../outside")
    (context / "chain").symlink_to("real/deep/secret")
    yield project
    project.close()


ESCAPES = [
    "COPY ../outside/secret /srv/",
    "COPY ../../../../../../../../{outside}/secret /srv/",
    "COPY {outside}/secret /srv/",
    "COPY real/../../outside/secret /srv/",
    "COPY absolute /srv/",
    "COPY relative /srv/",
    "COPY chain /srv/",
    "COPY up/outside/secret /srv/",
    "COPY directory /srv/",
    "COPY directory/secret /srv/",
    "COPY dir*/sec* /srv/",
    "COPY **/secret /srv/",
    "COPY --parents ./directory/secret /srv/",
    "COPY real/deep/ /srv/",
    "COPY . /srv/",
    "ADD absolute /srv/",
    "ADD archive.tar /srv/",
    "ADD up/outside/secret.tar /srv/",
    "RUN --mount=source=../outside,target=/m cp -rL /m/. /srv/",
    "RUN --mount=source=directory,target=/m cp -rL /m/. /srv/",
    "RUN --mount=source=absolute,target=/m/x cp -L /m/x /srv/",
]


@pytest.mark.parametrize("line", ESCAPES)
def test_nothing_beside_the_context_is_copied(trap, line):
    """What leads out of the context is not found there, or a link that leads nowhere in the template."""
    outside = trap.directory.parent / "outside"
    trap.dockerfile(f"FROM template://base\n{line.format(outside=outside)}\n")
    name, done = trap.build()
    assert SECRET not in done.stderr and done.returncode in (0, 1)
    if done.returncode:
        assert "Dockerfile:2: " in done.stderr and "internal error" not in done.stderr, done.stderr
        return
    with Sandbox.create(name, timeout=1800) as sandbox:
        found = sandbox.commands.run(f"grep -rs {SECRET} /srv /m; find /srv -name packed; cat /srv/* 2>/dev/null | grep -c {SECRET} || true", user="root")
        assert found.stdout.strip() == "0"


def test_an_image_triggers_nothing(trap, registry):  # noqa: F811
    """ONBUILD of a base would run with the context of whoever builds on it."""
    layer = images.tarball(images.file("note", uuid.uuid4().hex))
    base = images.debian_like()
    image = images.Image([*base.layers, layer], env=base.env, config={"OnBuild": ["COPY . /stolen", "RUN touch /triggered", "ADD other /stolen/"]})
    trap.dockerfile(f"FROM {registry.push(f'hostile/{uuid.uuid4().hex}', image)}\nRUN cat /note > /tmp/seen\n")
    name, done = trap.build()
    assert done.returncode == 0 and "uploading" not in done.stderr, done.stderr
    with Sandbox.create(name, timeout=1800) as sandbox:
        assert run(sandbox, "ls -d /stolen /triggered 2>/dev/null || echo none") == "none"
    # As an instruction it has no effect either, now or in templates on this one.
    trap.dockerfile("FROM template://base\nONBUILD RUN touch /triggered\nONBUILD COPY . /stolen\nRUN true\n")
    name, done = trap.build()
    assert done.returncode == 0 and "Dockerfile:2: " in done.stderr and "Dockerfile:3: " in done.stderr, done.stderr
    trap.dockerfile(f"FROM template://{name}\nRUN ! ls -d /stolen /triggered\n")
    assert trap.build()[1].returncode == 0


@pytest.mark.parametrize(
    "mount",
    [
        "source=other,target=/proc/self/root/srv/x",
        "source=other,target=/../../srv/x",
        "source=other,target=/run/sandcove/sandcove-agent",
        "source=real,target=/proc",
        "source=real,target=/sys/kernel",
        "type=tmpfs,target=/etc",
        "type=cache,target=/etc,source=../../..",
    ],
)
def test_mounts_reach_nothing_of_the_host(trap, mount):
    """Each is refused with its line, is ignored with a warning, or is a path of the build's own sandbox."""
    trap.dockerfile(f"FROM template://base\nRUN --mount={mount} cat /etc/hostname /proc/version > /srv/seen; true\n")
    name, done = trap.build()
    assert done.returncode in (0, 1) and "internal error" not in done.stderr, done.stderr
    if done.returncode:
        assert "Dockerfile:2: " in done.stderr, done.stderr
    assert trap.server.healthy()


@pytest.fixture(scope="module")
def source(trap):
    """A template whose files have the names of this machine's, and links to the trap."""
    mark, outside = f"of-the-template-{uuid.uuid4().hex}", trap.directory.parent / "outside"
    trap.dockerfile(
        f"FROM template://base\nRUN echo {mark} > /etc/shadow && echo {mark} > /etc/debian_version\n"
        f"RUN mkdir -p /srv/links && ln -s /etc/shadow /srv/links/inside && ln -s {outside}/secret /srv/links/outside && ln -s / /srv/links/root\n"
    )
    name, done = trap.build()
    assert done.returncode == 0, done.stderr
    return name, mark


@pytest.mark.parametrize("path", ["/etc/shadow", "etc/shadow", "/etc/debian_version", "/srv/links/inside", "/srv/links/root/etc/shadow", "/../../../etc/shadow"])
@pytest.mark.parametrize(
    "line",
    [
        "RUN --mount=type=bind,from=template://{name},source={path},target=/m/file cp /m/file /srv/seen",
        "COPY --from=template://{name} {path} /srv/seen",
    ],
    ids=["mount", "copy"],
)
def test_paths_of_a_template_are_those_of_its_files(trap, source, line, path):
    """Whatever this machine has at the same path."""
    name, mark = source
    trap.dockerfile(f"FROM template://base\n{line.format(name=name, path=path)}\n")
    built, done = trap.build()
    assert done.returncode == 0, done.stderr
    with Sandbox.create(built, timeout=1800) as sandbox:
        assert sandbox.commands.run("cat /srv/seen", user="root").stdout == f"{mark}\n"


def test_paths_of_this_machine_are_not_in_a_template(trap, source):
    """A mount and a copy of what only this machine has fail with their line, and so does what a link names."""
    name, _ = source
    outside = trap.directory.parent / "outside"
    for path in (f"{outside}/secret", "/srv/links/outside", "/etc/no-such-file"):
        for line in (f"RUN --mount=from=template://{name},source={path},target=/m/file cat /m/file", f"COPY --from=template://{name} {path} /srv/"):
            trap.dockerfile(f"FROM template://base\n{line}\n")
            _, done = trap.build()
            assert done.returncode == 1 and f"Dockerfile:2: no files match `{path}`" in done.stderr and SECRET not in done.stderr, done.stderr


def test_a_template_to_copy_from_is_looked_up_at_each_build(trap, source):
    """Its files are those of its newest build, a template that does not exist is named, and nothing is left of it."""
    name, _ = source
    trap.dockerfile(f"FROM template://{name}\nRUN echo first > /srv/word\n")
    copied, done = trap.build()
    assert done.returncode == 0, done.stderr
    seen = []
    for word in ("first", "second"):
        trap.dockerfile(f"FROM template://{name}\nRUN echo {word} > /srv/word\n")
        assert trap.build(name=copied)[1].returncode == 0
        trap.dockerfile(f"FROM template://base\nCOPY --from=template://{copied} /srv/word /srv/seen\n")
        built, done = trap.build()
        assert done.returncode == 0, done.stderr
        with Sandbox.create(built, timeout=1800) as sandbox:
            seen.append(run(sandbox, "cat /srv/seen"))
    assert seen == ["first", "second"]
    trap.dockerfile("FROM template://base\nCOPY --from=template://no-such-template /a /b\n")
    _, done = trap.build()
    assert done.returncode == 1 and "Dockerfile:2: " in done.stderr and "no-such-template" in done.stderr and "internal error" not in done.stderr, done.stderr
