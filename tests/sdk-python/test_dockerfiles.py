"""Dockerfiles as they are found in the world, of tests/dockerfiles: each becomes a template, and a second build takes every step from the cache."""

import io
import re
import shutil
import tarfile
import uuid

import pytest
from e2b import Sandbox
from test_command_line import sandcove
from test_template_images import registry  # noqa: F401: the fixture

from harness import images
from harness.server import ROOT

# By directory: arguments of the build, a command in a sandbox of the template, and what it prints.
CASES = {
    "python-slim": (["--ready", "curl -sf localhost:8000"], "curl -s localhost:8000; ls /app", "hello from sixapp.py\nrequirements.txt"),
    "node": (["--ready", "curl -sf localhost:3000"], "curl -s localhost:3000; ls", "hello nodenode_modules\npackage-lock.json\npackage.json\nsrc\nvendor"),
    "static-binary": ([], "server; ldd $(which server) 2>&1 || true; ls /etc/tested; ls /src 2>&1 || true", "static\n\tnot a dynamic executable\n/etc/tested\nls: cannot access '/src': No such file or directory"),
    "apt-and-pip": ([], "cat /answer; ls -A /var/lib/apt/lists", "42\n/opt/venv"),
    "non-root": (["--build-arg", "UID=10077"], "id -u; pwd; cat whoami; stat -c '%U:%G %a' config/app.toml data", "10077\n/home/app\napp\napp:app 750\napp:app 755"),
    "heredoc": (["--build-arg", "NAME=given"], "cat /etc/app/*; app now", "45/usr/local/bin/app says hello\nname = given\n1\n2\n/usr/local/bin/app says now"),
    "cache-mounts": ([], "main; cat /built-with", "cached\ncached"),
    "arg-matrix": (["--build-arg", "TARGET=fancy", "--build-arg", "FLAVOUR="], "cat /matrix", "1.0 none unset []\nfancy\nthe last stage sees 1.0"),
    "copy-from-image": ([], "cut -d= -f1 /first-line; ls /opt/tools", "PRETTY_NAME\nhead"),
    "add-tar": ([], "cat /opt/in/a ~/b; stat -c %U:%a ~/b /srv/notes.txt; cat /listing", "a\nb\nuser:644\nroot:600\nin/a"),
}  # fmt: skip


def archive(mode: str, path: str, text: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as made:
        info = tarfile.TarInfo(path)
        info.size, info.mode = len(text), 0o644
        made.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


@pytest.mark.parametrize("name", CASES)
def test_a_dockerfile_is_built_once(server, tmp_path, request, name):
    arguments, command, expected = CASES[name]
    directory = tmp_path / name
    shutil.copytree(ROOT / "tests/dockerfiles" / name, directory)
    dockerfile = directory / "Dockerfile"
    if name == "add-tar":
        (directory / "bundle.tar.gz").write_bytes(archive("w:gz", "in/a", "a\n"))
        (directory / "plain.tar").write_bytes(archive("w", "b", "b\n"))
    if name == "copy-from-image":
        image = request.getfixturevalue("registry").push("tests/tools", images.debian_like())
        dockerfile.write_text(dockerfile.read_text().replace("registry.test/tools:1", image))
    template = f"dockerfile-{name}-{uuid.uuid4().hex[:8]}"
    try:
        for build in ("first", "second"):
            built = sandcove(server, "template", "build", str(directory), "--name", template, *arguments)
            assert built.returncode == 0, built.stderr
            steps = re.findall(r"^ *[\d.]+s (CACHED )?\[builder \d+/\d+\] [A-Z]", built.stderr, re.M)
            assert steps, built.stderr
            assert build == "first" or all(steps), built.stderr
        with Sandbox.create(template, timeout=1800) as sandbox:
            printed = sandbox.commands.run(command).stdout.strip()
        assert printed == expected
    finally:
        sandcove(server, "template", "delete", "--yes", template)
