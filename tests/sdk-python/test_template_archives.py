"""`sandcove template export`, `import` and `gc`: templates that leave the server and come back, archives of others, and what nothing needs."""

import json
import os
import subprocess
import tarfile

import pytest
import requests
from e2b import Sandbox
from test_command_line import command_line, sandcove

from builds import builds, mark  # noqa: F401
from harness import images, real_images
from harness.images import Image, digest_of, file, symlink, tarball
from harness.real_images import layout
from harness.server import wait_until


@pytest.fixture
def import_(builds, server):  # noqa: F811
    """Imports an archive as a template that is deleted in the end."""

    def run(archive, *arguments):
        name = builds.name("imported")
        return name, sandcove(server, "template", "import", str(archive), "--name", name, *arguments)

    return run


def packed(directory, to, mode="w"):
    """An archive of a directory."""
    with tarfile.open(to, mode) as archive:
        archive.add(directory, arcname=".")
    return to


def saved(image: Image, to, tags=("app:1",)):
    """An archive as `docker save` writes it."""
    config = digest_of(image.configuration).removeprefix("sha256:") + ".json"
    names = [f"{number}/layer.tar" for number in range(len(image.layers))]
    manifest = [{"Config": config, "RepoTags": [tag], "Layers": names} for tag in tags]
    entries = [file(config, image.configuration), file("manifest.json", json.dumps(manifest))]
    to.write_bytes(tarball(*entries, *(file(name, layer) for name, layer in zip(names, image.layers))))
    return to


def test_exports_of_a_team_at_once_have_a_limit(server):
    headers = {"X-API-Key": os.environ["E2B_API_KEY"]}

    def get(path):
        return requests.get(f"{server.url}{path}", headers=headers, stream=True, timeout=60)

    # Their bodies are larger than what is on the way to a client that does not read.
    exports = [get("/templates/base/export") for _ in range(8)]
    assert [export.status_code for export in exports] == [200] * 8
    refused = get("/templates/base/export")
    assert refused.status_code == 429 and "8 exports" in refused.json()["message"], refused.text
    # They hold up nothing else that the team reads.
    assert get("/sandboxes").status_code == 200
    exports.pop().close()
    again = []
    wait_until(lambda: again.append(get("/templates/base/export")) or again[-1].status_code == 200)
    for export in [*exports, *again]:
        export.close()


def test_a_template_comes_back(builds, server, import_, tmp_path):  # noqa: F811
    """Files, owners, links, user, directory, variables and commands; what was deleted stays away."""
    name, done = import_(packed(layout(images.debian_like(), tmp_path / "layout"), tmp_path / "image.tar"))
    assert done.returncode == 0, done.stderr
    script = (
        "mkdir -p /srv/data/deep; cd /srv/data; echo kept > deep/kept; ln deep/kept hard; ln -s deep/kept soft; touch gone; "
        f"echo x > {'l' * 180}; echo y > 'a name with ä'; touch set-id; chown daemon set-id; chmod 4750 set-id; "
        "ln -s ../../../../etc/passwd up; rm /usr/bin/touch; mv /home /home-moved; mkdir /home; mv /home-moved/user /home/user"
    )
    template = (
        builds.template().from_template(name).run_cmd(script, user="root").run_cmd("rm /srv/data/gone", user="root").set_envs({"MODE": "exported"})
        .set_user("app").set_workdir("/srv/work").set_start_cmd("echo $MODE > /tmp/started; sleep 1000", "[ -s /tmp/started ]")
    )  # fmt: skip
    built = builds.build(template)
    target = tmp_path / "archives"
    target.mkdir()
    archive = target / "template.tar"
    done = sandcove(server, "template", "export", built.template_id, str(archive))
    assert done.returncode == 0 and list(target.iterdir()) == [archive], done.stderr
    name, done = import_(archive)
    assert done.returncode == 0, done.stderr
    look = (
        "id -un; pwd; cat /tmp/started; cd /srv/data; ls; stat -c '%n %a %U %s %h %F' * deep/*; readlink soft up; cat hard; "
        "ls -d /home-moved /home/user /usr/bin/touch 2>&1"
    )
    before, after = (builds.box(reference).commands.run(f"{look}; true").stdout for reference in (built.template_id, name))
    assert after == before and after.startswith("app\n/srv/work\nexported\n") and "gone" not in after and "4750 daemon" in after
    # The same template is the same archive, which standard output takes too. Others read it.
    twice = target / "twice.tar"
    with twice.open("wb") as out:
        subprocess.run(command_line(server, "template", "export", built.template_id, "-"), stdout=out, check=True, timeout=1200)
    assert twice.read_bytes() == archive.read_bytes()
    real_images.tools()
    seen = subprocess.run(["skopeo", "inspect", "--config", f"oci-archive:{archive}"], capture_output=True, text=True)
    assert seen.returncode == 0 and json.loads(seen.stdout)["config"]["User"] == "app", seen.stderr
    assert sandcove(server, "template", "export", "no-such-template", str(target / "none")).returncode == 1
    assert not (target / "none").exists() and len(list(target.iterdir())) == 2


def test_archives_of_others(builds, server, import_, tmp_path):  # noqa: F811
    """OCI layouts, compressed or not, and `docker save`: they are images, whose user and command are not used."""
    image = Image([images.debian_like().layers[0], tarball(file("note", mark()))], env=["A=1"], config={"User": "daemon", "Cmd": ["false"]})
    directory = layout(image, tmp_path / "layout")
    for archive in (packed(directory, tmp_path / "plain.tar"), packed(directory, tmp_path / "packed.tar.gz", "w:gz"), saved(image, tmp_path / "saved.tar")):
        name, done = import_(archive)
        assert done.returncode == 0, done.stderr
        assert builds.run(name, "id -un; cat /note").encode() == b"user\n" + image.layers[1][512:544]
    several = saved(image, tmp_path / "several.tar", ("app:1", "app:2"))
    _, done = import_(several)
    assert done.returncode == 1 and "choose one of app:1, app:2" in done.stderr
    _, done = import_(several, "--image", "app:2", "--cmd", "echo up > /tmp/up", "--ready", "[ -s /tmp/up ]", "--tag", "v1")
    assert done.returncode == 0, done.stderr
    _, done = import_(directory)
    assert done.returncode == 1 and "is not a file" in done.stderr


def test_archives_that_are_refused(builds, server, import_, tmp_path):  # noqa: F811
    wrong = layout(Image([tarball(file("a", "x"))]), tmp_path / "wrong")
    blob = max((wrong / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    for changed in sorted((wrong / "blobs/sha256").iterdir()):
        if changed.read_bytes()[:2] == b"\x1f\x8b":
            blob = changed
    blob.write_bytes(blob.read_bytes()[:-1] + b"?")
    escape = layout(Image([tarball(symlink("out", "/"), file("out/../../../escaped", "x"))]), tmp_path / "escape")
    linked = tmp_path / "linked.tar"
    linked.write_bytes(tarball(symlink("index.json", "/etc/passwd")))
    garbage = tmp_path / "garbage.tar"
    garbage.write_bytes(b"no archive" * 1000)
    truncated = tmp_path / "truncated.tar"
    truncated.write_bytes(packed(layout(images.debian_like(), tmp_path / "whole"), tmp_path / "whole.tar").read_bytes()[:200_000])
    for archive, why in [
        (packed(wrong, tmp_path / "wrong.tar"), "has the digest"),
        (packed(escape, tmp_path / "escape.tar"), ".."),
        (linked, "neither index.json nor manifest.json"),
        (garbage, ""),
        (truncated, ""),
    ]:
        name, done = import_(archive)
        assert done.returncode == 1 and "the import failed" in done.stderr and why in done.stderr, done.stderr
        assert "file-sets" not in done.stderr and "internal error" not in done.stderr, "no path of the server"
        assert builds.call("GET", f"/templates/aliases/{name}").status_code in (200, 404)
    assert not (tmp_path / "escaped").exists()


def test_labels_give_no_rights(builds, server, import_, tmp_path):  # noqa: F811
    """An archive that says it is a template with the user `root` is a template that anybody could have built."""
    config = {"User": "no/such", "WorkingDir": "../..", "Labels": {"sandcove.template": "1", "sandcove.start-command": "exit 3"}}
    odd = Image([images.debian_like().layers[0], tarball(file("note", mark()))], config=config)
    name, done = import_(packed(layout(odd, tmp_path / "odd"), tmp_path / "odd.tar"))
    assert done.returncode == 0, done.stderr
    assert builds.run(name, "id -un") == "user\n", "it is an image like any other"
    config["User"] = "root"
    failing = Image(odd.layers, config=config)
    _, done = import_(packed(layout(failing, tmp_path / "failing"), tmp_path / "failing.tar"))
    assert done.returncode == 1 and "start command failed" in done.stderr


def test_another_team_exports_nothing(builds, server, tmp_path):  # noqa: F811
    from harness.teams import Team

    built = builds.build(builds.base().run_cmd(f"echo {mark()} > note"))
    team = Team(server.url)
    import requests

    answer = requests.get(f"{server.url}/templates/{built.template_id}/export", headers={"X-API-Key": team.key}, timeout=120)
    assert answer.status_code in (403, 404)
    assert builds.call("GET", "/templates/no-such-template/export").status_code == 404
    template, build = builds.begin()
    both = builds.go(template, build, fromArchive={"filesHash": "0" * 64}, fromTemplate="base")
    assert both.status_code == 400
    assert builds.go(template, build, fromArchive={"filesHash": "../x"}).status_code == 400
    assert builds.go(template, build, fromArchive={"filesHash": "0" * 64}).status_code == 202
    assert builds.told(template, build)["reason"]["message"] == "the archive was not uploaded: upload it again"


def test_garbage(builds, server):  # noqa: F811
    """What a template, a sandbox or a running build needs is kept, and a dry run changes nothing."""
    note = mark()
    write = f"head -c 20M /dev/urandom > big; echo {note} > note"
    kept = builds.build(builds.base().run_cmd(write))
    gone = builds.build(builds.base().run_cmd(f"head -c 30M /dev/urandom > other; echo {mark()} > note"), doomed := builds.name())
    box = builds.box(kept)
    assert builds.delete(doomed).status_code == 204

    def gc(*arguments):
        done = sandcove(server, "template", "gc", "--json", *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def there(garbage):
        pool = server.data_dir / "pool"
        return [(pool / kind / item["name"]).exists() for kind, items in (("snapshots", garbage["steps"]), ("layers", garbage["layers"])) for item in items]

    # Builds of earlier tests may still be ending.
    wait_until(lambda: sandcove(server, "template", "gc", "--dry-run").returncode == 0, what="the end of all builds")
    planned = gc("--dry-run")
    assert planned["dryRun"] and len(planned["steps"]) >= 2 and planned["layers"] and all(there(planned))
    assert planned["bytes"] >= 30 << 20, "the deleted template's file is on the disk once, and nothing else has it"
    assert builds.build(builds.base().run_cmd(write)).cached == [1], "a dry run deletes nothing"
    collected = gc()
    assert not collected["dryRun"] and not any(there(collected))
    again = gc("--dry-run")
    assert (again["steps"], again["layers"]) == ([], [])
    assert box.commands.run("cat note; wc -c < big").stdout == f"{note}\n{20 << 20}\n"
    assert builds.run(kept, "cat note") == f"{note}\n"
    assert Sandbox.create("base", timeout=1800).kill()
    assert builds.build(builds.base().run_cmd(write)).ran == [1], "steps run again"
    assert gone.template_id
    busy = builds.start(builds.base().run_cmd(f"echo {mark()}; sleep 6000"))
    status = lambda: builds.status(busy).status.value  # noqa: E731
    wait_until(lambda: builds.status(busy).log_entries, what="the begin of a build")
    done = sandcove(server, "template", "gc")
    assert done.returncode == 1 and "builds or exports are in progress" in done.stderr or status() != "building"
