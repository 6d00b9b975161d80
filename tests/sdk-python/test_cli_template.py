"""`sandcove template`: Dockerfiles, build contexts and what becomes of them. The base is a template of the server: no registry is needed."""

import base64
import functools
import hashlib
import http.server
import json
import os
import signal
import subprocess
import threading
import uuid
from pathlib import Path

import pytest
from e2b import Sandbox

from harness import images, volatile
from harness.hold import Hold
from harness.registry import Registry
from test_command_line import command_line, sandcove


@pytest.fixture
def project(server, tmp_path):
    made = Project(server, tmp_path / "context")
    yield made
    made.close()


class Project:
    """A directory with a Dockerfile, and the templates that were built from it."""

    def __init__(self, server, directory: Path) -> None:
        self.server, self.directory = server, directory
        self.names: list[str] = []
        directory.mkdir()

    def write(self, **files: str) -> None:
        for name, text in files.items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def dockerfile(self, text: str) -> None:
        (self.directory / "Dockerfile").write_text(text)

    def name(self) -> str:
        self.names.append(f"cli-{uuid.uuid4().hex[:10]}")
        return self.names[-1]

    def build(self, *arguments: str, name: str | None = None):
        name = name or self.name()
        done = sandcove(self.server, "template", "build", str(self.directory), "--name", name, *arguments)
        return name, done

    def sandbox(self, *arguments: str) -> Sandbox:
        name, done = self.build(*arguments)
        assert done.returncode == 0, done.stderr
        return Sandbox.create(name, timeout=1800)

    def close(self) -> None:
        for name in self.names:
            sandcove(self.server, "template", "delete", "--yes", name)


def run(sandbox: Sandbox, command: str) -> str:
    return sandbox.commands.run(command).stdout.strip()


def test_a_dockerfile_becomes_a_template(project):
    project.dockerfile(
        "ARG BASE=base\nFROM template://$BASE\nARG WHO=nobody\nENV GREETING='hello  you'\nWORKDIR /srv/app\n"
        "COPY --chmod=755 tools/*.sh ./bin/\nCOPY <<EOF message.txt\n$GREETING $WHO\nEOF\n"
        "RUN <<EOF\nset -e\necho \"$GREETING $WHO\" > run.txt\nid -un > who.txt\nEOF\n"
        'RUN ["sh", "-c", "echo \'$HOME\' > json.txt"]\nUSER user\n'
    )
    project.write(**{"tools/a.sh": "echo a\n", "tools/b.txt": "b\n", ".dockerignore": "*.txt\n"})
    with project.sandbox("--build-arg", "WHO=me") as sandbox:
        assert run(sandbox, "pwd; id -un") == "/srv/app\nuser"
        assert run(sandbox, "cat message.txt run.txt who.txt json.txt") == "hello  you me\nhello  you me\nroot\n$HOME"
        assert run(sandbox, "stat -c '%U %a' bin/a.sh; ls bin") == "root 755\na.sh"


def test_defaults_are_those_of_sandboxes(project):
    project.dockerfile("FROM template://base\nRUN id -un > /who && pwd >> /who\n")
    with project.sandbox() as sandbox:
        assert run(sandbox, "cat /who; id -un; pwd") == "root\n/\nuser\n/home/user"


def test_the_second_build_uploads_nothing_and_runs_nothing(project):
    project.dockerfile("FROM template://base\nCOPY a.txt /a.txt\nRUN date +%N > /when\n")
    project.write(**{"a.txt": uuid.uuid4().hex})
    name, first = project.build()
    assert first.returncode == 0 and "uploading a.txt" in first.stderr, first.stderr
    _, second = project.build(name=name)
    assert "uploading" not in second.stderr and "CACHED" in second.stderr, second.stderr
    assert second.stdout == first.stdout, "the id of the template"
    _, forced = project.build("--no-cache", name=name)
    assert forced.returncode == 0 and "CACHED [builder" not in forced.stderr, forced.stderr


def test_a_failed_step_names_its_line(project):
    project.dockerfile("FROM template://base\n\nRUN true\nRUN echo before; exit 7\n")
    _, done = project.build()
    assert done.returncode == 1 and done.stdout == ""
    assert f"{project.directory}/Dockerfile:4: RUN echo before; exit 7" in done.stderr
    assert "exit status 7" in done.stderr and "before" in done.stderr


def test_what_cannot_be_built_is_refused_before_anything_is_sent(project):
    for text, message in [
        ("FROM template://base\nRUN --mount=type=ssh true\n", "Dockerfile:2: `RUN --mount=type=ssh`"),
        ("FROM template://base\nCOPY missing /x\n", "Dockerfile:2: no files match `missing`"),
        ("FROM scratch\n", "Dockerfile:1: a template cannot begin with `FROM scratch`"),
        ("FROM template://base\nWORKDIR $NOWHERE\n", "Dockerfile:2: unknown variable `NOWHERE`"),
        ("RUN x\n", "Dockerfile:1: RUN comes before the first FROM"),
    ]:
        project.dockerfile(text)
        _, done = project.build()
        assert done.returncode == 1 and message in done.stderr and "hint: " in done.stderr, done.stderr
    listed = json.loads(sandcove(project.server, "template", "list", "--json").stdout)
    assert not {name for one in listed for name in one["aliases"]} & set(project.names)


def test_stages_are_built_and_removed(project):
    mark = uuid.uuid4().hex
    project.dockerfile(
        f"FROM template://base AS build\nRUN mkdir -p /out/sub && echo {mark} > /out/sub/file && ln -s sub/file /out/link && echo x > /one\n"
        "FROM template://base\nCOPY --from=build /out /srv/out\nCOPY --from=0 --chmod=700 /one /srv/\nCOPY --from=build /o*e /srv/many/\n"
    )
    name, done = project.build()
    assert done.returncode == 0, done.stderr
    assert "building stage 0" in done.stderr
    with Sandbox.create(name, timeout=1800) as sandbox:
        assert run(sandbox, "cat /srv/out/sub/file; readlink /srv/out/link") == f"{mark}\nsub/file"
        assert sandbox.commands.run("stat -c '%a %U' /srv/one; ls /srv/many", user="root").stdout == "700 root\none\n"
    listed = sandcove(project.server, "template", "list").stdout
    assert name in listed and f"{name}-stage" not in listed
    _, again = project.build(name=name)
    assert "building stage" not in again.stderr, "its files are on the server"


def test_an_archive_is_extracted_by_add_only(project):
    project.write(**{"tree/a/b.txt": "b"})
    subprocess.run(["tar", "-czf", "tree.tgz", "tree"], cwd=project.directory, check=True)
    project.dockerfile("FROM template://base\nADD tree.tgz /added/\nCOPY tree.tgz /copied/\n")
    with project.sandbox() as sandbox:
        assert run(sandbox, "cat /added/tree/a/b.txt; ls /copied") == "btree.tgz"


def test_a_start_command_runs_in_every_sandbox(project):
    project.dockerfile('FROM template://base\nWORKDIR /srv\nRUN echo up > index.html\nCMD ["python3", "-m", "http.server", "8123"]\n')
    with project.sandbox("--ready", "curl -sf http://localhost:8123/index.html") as sandbox:
        assert run(sandbox, "curl -s http://localhost:8123/index.html") == "up"


def test_json_has_an_object_for_each_event(project):
    project.dockerfile("FROM template://base\nEXPOSE 80\nRUN echo visible\n")
    _, done = project.build("--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0] == {**events[0], "event": "warning", "line": 2}
    assert any(one["event"] == "log" and "visible" in one["message"] for one in events)
    assert (events[-1]["event"], events[-1]["status"]) == ("end", "ready")
    project.dockerfile("FROM template://base\nRUN exit 3\n")
    _, done = project.build("--json")
    end = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 1 and (end["status"], end["line"], end["instruction"]) == ("error", 2, "RUN exit 3")


def test_an_interrupt_ends_the_command_and_not_the_build(project):
    hold = Hold()
    project.dockerfile(f"FROM template://base\nRUN {hold.command}; echo done > /done\n")
    name = project.name()
    command = command_line(project.server, "template", "build", str(project.directory), "--name", name)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "RUN sleep" in line:
            break
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=300)
    assert process.returncode == 130 and "continues on the server" in rest
    hold.let_go()
    followed = sandcove(project.server, "template", "logs", "--follow", name)
    assert followed.returncode == 0 and "Build finished" in followed.stdout, followed.stderr


def test_templates_are_managed_by_name(project):
    project.dockerfile("FROM template://base\nRUN true\n")
    name, done = project.build("--tag", "v1", "--memory", "512", "--cpu", "1")
    template = done.stdout.strip()
    whole = json.loads(sandcove(project.server, "template", "inspect", name).stdout)
    assert whole["templateID"] == template and [tag["tag"] for tag in whole["tags"]] == ["v1"]
    assert (whole["builds"][0]["memoryMB"], whole["builds"][0]["cpuCount"]) == (512, 1)
    assert sandcove(project.server, "template", "tag", f"{name}:v1", "stable").returncode == 0
    assert "stable" in sandcove(project.server, "template", "tag", name).stdout
    assert sandcove(project.server, "template", "tag", name, "stable", "--remove").returncode == 0
    assert "stable" not in sandcove(project.server, "template", "tag", name).stdout
    assert name in sandcove(project.server, "template", "publish", name).stdout
    assert "public" in next(line for line in sandcove(project.server, "template", "list").stdout.splitlines() if name in line)
    assert sandcove(project.server, "template", "unpublish", name).returncode == 0
    assert "Build finished" in sandcove(project.server, "template", "logs", name).stdout
    assert sandcove(project.server, "template", "delete", "--yes", name).stdout == f"{template}\n"
    gone = sandcove(project.server, "template", "delete", "--yes", name)
    assert gone.returncode == 1 and "error: " in gone.stderr


def test_old_projects_are_recognised(project):
    name = project.name()
    project.write(**{
        "e2b.toml": f'template_id = "x"\ntemplate_name = "{name}"\ndockerfile = "e2b.Dockerfile"\nmemory_mb = 512\n',
        "e2b.Dockerfile": "FROM template://base\nRUN echo old > /old\n",
    })
    done = sandcove(project.server, "template", "build", str(project.directory))
    assert done.returncode == 0, done.stderr
    created = project.name()
    arguments = ["template", "create", created, "-p", str(project.directory), "-d", "e2b.Dockerfile", "--memory-mb", "512"]
    assert sandcove(project.server, *arguments).returncode == 0


def test_init_writes_files_that_build_finds(project):
    directory = project.directory / "new"
    done = sandcove(project.server, "template", "init", str(directory), "--name", project.name())
    assert done.returncode == 0 and sorted(os.listdir(directory)) == [".dockerignore", "Dockerfile", "e2b.toml"]
    assert sandcove(project.server, "template", "init", str(directory)).returncode == 1


def test_big_contexts_are_streamed(project):
    with open(project.directory / "big", "wb") as file:
        for _ in range(16):
            file.write(os.urandom(1024 * 1024))
    project.dockerfile("FROM template://base\nCOPY big /big\nRUN sha256sum /big > /sum\n")
    with project.sandbox() as sandbox:
        assert int(run(sandbox, "stat -c %s /big")) == 16 * 1024 * 1024


def test_mounts_are_there_for_one_step(project):
    """Of the context and of a stage; a directory that did not exist does not exist afterwards."""
    mark = uuid.uuid4().hex
    project.write(**{"lib/a.txt": mark, "one.txt": "one"})
    project.dockerfile(
        f"FROM template://base AS tools\nRUN mkdir -p /out && echo {mark} > /out/tool\n"
        "FROM template://base\nWORKDIR /work\n"
        "RUN --mount=target=. --mount=source=one.txt,target=/deep/er/name --mount=from=tools,source=/out,target=/tools "
        "cat lib/a.txt one.txt /deep/er/name /tools/tool > /srv/seen; touch new lib/new\n"
        "RUN --mount=type=bind,source=lib,target=/work cat a.txt >> /srv/seen\nRUN ls -A /work > /srv/after; ls -d /deep /tools >> /srv/after 2>/dev/null; true\n"
    )
    name, done = project.build()
    assert done.returncode == 0, done.stderr
    with Sandbox.create(name, timeout=1800) as sandbox:
        assert run(sandbox, "cat /srv/seen") == f"{mark}oneone{mark}\n{mark}"
        assert run(sandbox, "cat /srv/after; ls -A /work; ls -d /deep /tools 2>/dev/null; true") == ""
    _, again = project.build(name=name)
    assert again.returncode == 0 and "uploading" not in again.stderr and "building stage" not in again.stderr, again.stderr
    project.dockerfile("FROM template://base\nRUN --mount=source=one.txt,target=/proc true\n")
    _, done = project.build()
    assert done.returncode == 1 and "Dockerfile:2: RUN" in done.stderr and "the target `/proc` of a mount exists, and cannot be set aside" in done.stderr


def test_what_is_under_a_mount_comes_back(project):
    """Files of the base and of the template, and directories that the template has created, as the context is usually mounted."""
    mark = uuid.uuid4().hex
    project.write(**{"lib/a.txt": mark, "one.txt": f"{mark}\n"})
    project.dockerfile(
        "FROM template://base\nWORKDIR /app\nRUN mkdir deep && echo own > a.txt && echo below > deep/file && chmod 640 a.txt && sha256sum /etc/debian_version > /srv/sum\n"
        "RUN --mount=source=lib,target=/app --mount=source=one.txt,target=/etc/debian_version --mount=source=one.txt,target=/app/a.txt "
        "cat a.txt /etc/debian_version > /srv/seen; ls >> /srv/seen; echo lost > new\n"
        "RUN cat a.txt deep/file > /srv/after; stat -c '%a %U' a.txt >> /srv/after; ls -A / /app >> /srv/after; sha256sum -c /srv/sum\n"
    )
    name, done = project.build()
    assert done.returncode == 0, done.stderr
    with Sandbox.create(name, timeout=1800) as sandbox:
        assert run(sandbox, "cat /srv/seen") == f"{mark}\n{mark}\na.txt"
        after = run(sandbox, "cat /srv/after; ls -A /app")
        assert after.startswith("own\nbelow\n640 root\n") and ".sandcove" not in after and after.endswith("a.txt\ndeep")


def test_secrets_stay_outside(project, monkeypatch):
    """Not in files, the log, the cache's keys or the database; a step from the cache does without."""
    secret, other = f"s3cret-{uuid.uuid4().hex}", f"t0ken-{uuid.uuid4().hex}"
    project.write(**{"context": uuid.uuid4().hex})
    (project.directory.parent / "secret").write_text(secret + "\n")
    project.dockerfile(
        "FROM template://base\nCOPY context /\n"
        "RUN --mount=type=secret,id=a --mount=type=secret,id=b,env=TOKEN --mount=type=secret,id=none --mount=type=secret,id=a,target=/home/user/.netrc,mode=444 "
        "cat /run/secrets/a; echo $TOKEN >&2; echo $TOKEN | sha256sum > /srv/sum; stat -c %a /run/secrets/a /home/user/.netrc; ! ls /run/secrets/none\n"
        "RUN ! ls -d /run/secrets /home/user/.netrc && test -z \"$TOKEN\"\n"
    )
    monkeypatch.setenv("OTHER", other)
    name, done = project.build("--secret", f"id=a,src={project.directory.parent}/secret", "--secret", "id=b,env=OTHER")
    assert done.returncode == 0, done.stderr
    assert "[stdout]: ***" in done.stderr and "[stderr]: ***" in done.stderr and "[stdout]: 400" in done.stderr and "[stdout]: 444" in done.stderr
    assert secret not in done.stderr and other not in done.stderr
    _, again = project.build(name=name)
    assert again.returncode == 0 and "CACHED [builder" in again.stderr, again.stderr
    with Sandbox.create(name, timeout=1800) as sandbox:
        assert run(sandbox, "cat /srv/sum").split()[0] == hashlib.sha256(f"{other}\n".encode()).hexdigest()
        assert secret not in run(sandbox, "cat /run/secrets/a ~/.netrc 2>/dev/null; env")
    if hasattr(type(project.server), "kill9"):
        needles = [text.encode() for text in (secret, other, base64.b64encode(other.encode()).decode())]
        kept = [path for pattern in ("server/sandcove.db*", "server/builds/*", "*.log") for path in volatile.matching(project.server.data_dir, pattern)]
        contents = {path: volatile.content(path) or b"" for path in kept}
        assert any(contents.values()) and not [path for path, content in contents.items() if any(needle in content for needle in needles)]
    project.write(**{"context": uuid.uuid4().hex})
    project.dockerfile("FROM template://base\nCOPY context /\nRUN --mount=type=secret,id=a,required=true true\n")
    _, done = project.build()
    assert done.returncode == 1 and "the build has no secret 'a'" in done.stderr


@pytest.fixture
def pages(tmp_path):
    """A web server on this machine, where the command downloads; its directory and its address."""
    directory = tmp_path / "pages"
    directory.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(http.server.SimpleHTTPRequestHandler, directory=directory)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield directory, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_urls_are_downloaded_and_checked(project, pages):
    directory, url = pages
    (directory / "file.txt").write_text("downloaded")
    right = hashlib.sha256(b"downloaded").hexdigest()
    project.dockerfile(f"FROM template://base\nADD {url}/file.txt /srv/\nADD --checksum=sha256:{right} --chmod=644 {url}/file.txt /srv/other\n")
    name, done = project.build()
    assert done.returncode == 0, done.stderr
    with Sandbox.create(name, timeout=1800) as sandbox:
        assert sandbox.commands.run("cat /srv/file.txt /srv/other; stat -c '%a %U' /srv/file.txt /srv/other", user="root").stdout == "downloadeddownloaded600 root\n644 root\n"
    _, again = project.build(name=name)
    assert again.returncode == 0 and "uploading" not in again.stderr and "CACHED" in again.stderr
    (directory / "file.txt").write_text("changed")
    for line, message in [
        (f"ADD --checksum=sha256:{right} {url}/file.txt /srv/", f"Dockerfile:2: {url}/file.txt has the checksum"),
        (f"ADD {url}/missing /srv/", f"Dockerfile:2: failed to download {url}/missing: HTTP status 404"),
        (f"ADD --checksum=md5:1 {url}/file.txt /srv/", "Dockerfile:2: unknown checksum"),
        ("ADD ftp://127.0.0.1/x /srv/", "Dockerfile:2: unknown scheme `ftp`"),
    ]:
        project.dockerfile(f"FROM template://base\n{line}\n")
        _, done = project.build()
        assert done.returncode == 1 and message in done.stderr, done.stderr


def test_files_come_from_an_image(project):
    """Also of one without a shell."""
    if not hasattr(type(project.server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    mark = uuid.uuid4().hex
    with Registry(project.server.registry_port) as registry:
        reference = registry.push(f"tests/{mark}", images.Image([images.tarball(images.directory("data"), images.file("data/tool", mark, 0o755))]))
        project.dockerfile(
            f"FROM template://base\nCOPY --from={reference} /data/tool /usr/local/bin/\nRUN --mount=from={reference},source=/data,target=/mounted cat /mounted/tool > /srv/seen\n"
        )
        name, done = project.build()
    assert done.returncode == 0, done.stderr
    with Sandbox.create(name, timeout=1800) as sandbox:
        assert run(sandbox, "cat /usr/local/bin/tool; stat -c %a /usr/local/bin/tool; cat /srv/seen") == f"{mark}755\n{mark}"
