"""Deletion of what is not used, by hand and by schedule, beside builds, imports, exports and sandboxes: a random walk by several clients at once.
Whatever is there in the end works. SANDCOVE_WALK_SEED repeats a walk as far as threads allow, SANDCOVE_GC_STEPS makes it longer.
"""

import hashlib
import os
import random
import tarfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest
import requests
from e2b import Sandbox
from e2b.exceptions import SandboxException

from builds import mark, step
from harness import images, real_images, volatile
from harness.hold import Hold
from harness.raw_builds import RawBuilds
from harness.registry import Registry
from harness.server import wait_until
from harness.teams import Team

STEPS = int(os.environ.get("SANDCOVE_GC_STEPS", "80"))
# Beyond this many seconds no further step begins, unless something has not happened yet that the walk is about.
MAX_SECONDS = 120 if STEPS <= 80 else 6000
# Beyond this many seconds not even then.
LAST_SECONDS = MAX_SECONDS + 900
WANTED = ("gc", "build", "create")
CLIENTS = 4
MAX_DEPTH = 6
MAX_TEMPLATES = 10
MAX_SANDBOXES = 6


@dataclass(eq=False)
class Built:
    """A template, and what its sandboxes have."""

    template: str
    mark: str
    depth: int


@dataclass
class Walk:
    """Clients of one team."""

    server: object
    team: Team
    image: str
    directory: object
    templates: list = field(default_factory=list)
    sandboxes: list = field(default_factory=list)
    archives: list = field(default_factory=list)
    outcomes: Counter = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    failures: list = field(default_factory=list)
    left: int = STEPS

    def __post_init__(self) -> None:
        self.builds = RawBuilds(self.team)
        self.end = time.monotonic() + MAX_SECONDS

    def client(self, seed: int) -> None:
        """One client, until all steps are done or something is broken."""
        chance = random.Random(seed)
        kinds = [self.build] * 5 + [self.use] * 5 + [self.keep] * 2 + [self.delete] * 2 + [self.collect] * 2 + [self.export, self.bring_back]
        while self.begins():
            kind = chance.choice(kinds)
            try:
                kind(chance)
            except Exception as error:  # noqa: BLE001 -- reported by the test
                self.failures.append(f"{kind.__name__}, seed {seed}: {error!r}")

    def begins(self) -> bool:
        with self.lock:
            self.left -= 1
            now = time.monotonic()
            # A deletion by hand waits for the end of builds, and there may always be one on a slow machine.
            is_enough = (self.left < 0 or now > self.end) and all(self.outcomes[what] for what in WANTED)
            return not is_enough and not self.failures and now < self.end + LAST_SECONDS - MAX_SECONDS

    def any(self, chance, what: list):
        with self.lock:
            return chance.choice(what) if what else None

    def is_there(self, built: Built) -> bool:
        with self.lock:
            return built in self.templates

    def note(self, what: str) -> None:
        with self.lock:
            self.outcomes[what] += 1

    # The steps.

    def build(self, chance) -> None:
        """On the image, or on a template. Many have steps in common."""
        with self.lock:
            parents = [built for built in self.templates if built.depth < MAX_DEPTH]
            is_full = len(self.templates) >= MAX_TEMPLATES
        if is_full:
            return self.delete(chance)
        parent = chance.choice([None, *parents])
        note, part = mark(), chance.randrange(3)
        base = {"fromImage": self.image} if parent is None else {"fromTemplate": parent.template}
        steps = [
            step("RUN", f"head -c 300000 /dev/urandom > /opt/part{part}; sync", "root"),
            step("RUN", f"echo {note} > /opt/mark; cd /opt; sha256sum part* mark > sums", "root"),
        ]
        status = self.builds.run(*steps, deadline_s=900, **base)
        if status["status"] == "ready":
            self.note("build")
            with self.lock:
                self.templates.append(Built(status["templateID"], note, parent.depth + 1 if parent else 0))
        else:
            assert parent and not self.is_there(parent), status["reason"]
            self.note("build on what was deleted")

    def create(self, built: Built) -> Sandbox | None:
        try:
            box = Sandbox.create(built.template, timeout=1800, api_key=self.team.key)
        except SandboxException as error:
            assert not self.is_there(built), f"{built}: {error}"
            self.note("create from what was deleted")
            return None
        try:
            self.check(box, built)
        except BaseException:
            box.kill()
            raise
        return box

    def check(self, box: Sandbox, built: Built) -> None:
        seen = box.commands.run("cat /opt/mark; cd /opt && sha256sum -c -s sums && echo whole", timeout=600).stdout
        assert seen == f"{built.mark}\nwhole\n", f"{built}: {seen!r}"

    def use(self, chance) -> None:
        built = self.any(chance, self.templates)
        if built and (box := self.create(built)):
            self.note("create")
            box.kill()

    def keep(self, chance) -> None:
        """Looks at a sandbox that is kept, or keeps another one."""
        with self.lock:
            is_full = len(self.sandboxes) >= MAX_SANDBOXES
            kept = self.sandboxes.pop(chance.randrange(len(self.sandboxes))) if is_full else None
        if kept:
            self.check(*kept)
            kept[0].kill()
            return self.note("kept sandbox")
        built = self.any(chance, self.templates)
        if built and (box := self.create(built)):
            with self.lock:
                self.sandboxes.append((box, built))

    def delete(self, chance) -> None:
        with self.lock:
            if len(self.templates) < 3:
                return
            built = self.templates.pop(chance.randrange(len(self.templates)))
        answer = self.team.call("DELETE", f"/templates/{built.template}")
        if answer.status_code == 204:
            return self.note("delete")
        assert answer.status_code == 400 and "sandboxes using it" in answer.text, answer.text
        self.note("delete of what is used")
        with self.lock:
            self.templates.append(built)

    def collect(self, chance) -> None:
        answer = self.team.call("POST", "/templates/gc", {"dryRun": chance.random() < 0.2})
        assert answer.status_code in (200, 409), answer.text
        self.note("gc" if answer.status_code == 200 and not answer.json()["dryRun"] else "gc that deletes nothing")

    def export(self, chance) -> None:
        built = self.any(chance, self.templates)
        if not built:
            return
        path = self.directory / f"{mark()}.tar"
        url = f"{self.server.url}/templates/{built.template}/export"
        with requests.get(url, headers={"X-API-Key": self.team.key}, stream=True, timeout=600) as answer:
            if answer.status_code == 404:
                assert not self.is_there(built), answer.text
                return self.note("export of what was deleted")
            assert answer.status_code == 200, answer.text
            with path.open("wb") as out:
                for piece in answer.iter_content(1 << 20):
                    out.write(piece)
        with tarfile.open(path) as archive:
            blobs = [member for member in archive if member.name.startswith("blobs/sha256/")]
            assert len(blobs) == 3
            for member in blobs:
                found = hashlib.file_digest(archive.extractfile(member), "sha256").hexdigest()
                assert member.name.endswith(found), "the archive is whole"
        self.note("export")
        with self.lock:
            self.archives.append((path, built))

    def bring_back(self, chance) -> None:
        found = self.any(chance, self.archives)
        if not found:
            return self.export(chance)
        path, built = found
        digest, status = self.builds.upload(path.read_bytes())
        assert status < 300
        status = self.builds.run(fromArchive={"filesHash": digest}, deadline_s=900)
        assert status["status"] == "ready", status["reason"]
        self.note("import")
        with self.lock:
            self.templates.append(Built(status["templateID"], built.mark, 0))


@pytest.fixture(scope="module")
def often(server):
    """The server deletes what is not used each second."""
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    server.stop()
    server.variables = {"SANDCOVE_GC_INTERVAL": "1"}
    server.start()
    yield server
    server.stop()
    server.variables = {}
    server.start()


def layers_of(server) -> set[str]:
    return set(volatile.names(server.data_dir / "pool/layers"))


def collected(team) -> None:
    """Deletes by hand, which is refused while builds or exports are still ending."""
    wait_until(lambda: team.call("POST", "/templates/gc", {"dryRun": False}).status_code == 200, what="a deletion by hand")


def test_nothing_that_is_used_is_deleted(often, tmp_path):
    real_images.tools()
    seed = int(os.environ.get("SANDCOVE_WALK_SEED", "0")) or random.randrange(1, 1 << 31)
    print(f"SANDCOVE_WALK_SEED={seed}")
    team = Team(often.url)
    collected(team)
    before = layers_of(often)
    with Registry(often.registry_port) as registry:
        musl = real_images.musl()
        image = images.Image([*musl.layers, images.tarball(images.directory("opt"), images.file("note", mark()))], env=musl.env)
        walk = Walk(often, team, registry.push(f"walks/{mark()}", image), tmp_path)
        try:
            clients = [threading.Thread(target=walk.client, args=[seed + number]) for number in range(CLIENTS)]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            print(dict(walk.outcomes))
            assert not walk.failures, walk.failures
            assert all(walk.outcomes[what] for what in WANTED), walk.outcomes
            for box, built in walk.sandboxes:
                walk.check(box, built)
                box.kill()
            # What no one needs goes, and what is left works as before.
            collected(team)
            for built in walk.templates:
                box = walk.create(built)
                box.kill()
                again = walk.builds.run(step("RUN", "cd /opt && sha256sum -c -s sums", "root"), fromTemplate=built.template)
                assert again["status"] == "ready", again["reason"]
        finally:
            team.admin("POST", f"/admin/teams/{team.id}/sandboxes/kill")
            walk.builds.clear()
    # By hand the caches, and by schedule the layers of deleted templates.
    collected(team)
    wait_until(lambda: layers_of(often) <= before, what=f"all layers of the walk are deleted: {layers_of(often) - before}")


def test_a_host_that_always_builds_is_collected(often):
    """Beside builds that never pause, what nothing uses goes, and a build keeps what only it knows: a base that was deleted."""
    team = Team(often.url)
    builds, ended, failures = RawBuilds(team), threading.Event(), []

    def always() -> None:
        while not ended.is_set():
            status = builds.run(step("RUN", f"sleep 2; echo {mark()}"), deadline_s=600)
            if status["status"] != "ready":
                failures.append(status)
                return

    note = mark()
    parent = builds.run(step("RUN", f"echo {note} > /opt/note", "root"))
    before = layers_of(often)
    other = builds.run(step("RUN", f"echo {mark()} > /opt/note", "root"))
    assert parent["status"] == other["status"] == "ready", (parent, other)
    unused = layers_of(often) - before
    assert len(unused) == 1
    clients = [threading.Thread(target=always) for _ in range(3)]
    try:
        for client in clients:
            client.start()
            time.sleep(0.7)
        ids = builds.begin()
        hold = Hold()
        steps = [step("RUN", f"echo begun; {hold.command}; true", "root"), step("RUN", "cp /opt/note /srv/copied", "root")]
        assert team.call("POST", f"/v2/templates/{ids[0]}/builds/{ids[1]}", {"steps": steps, "fromTemplate": parent["templateID"]}).status_code == 202
        log = lambda: team.call("GET", f"/templates/{ids[0]}/builds/{ids[1]}/status").text  # noqa: E731
        wait_until(lambda: "[stdout]: begun" in log(), what="the first step")
        for template in (parent, other):
            assert team.call("DELETE", f"/templates/{template['templateID']}").status_code == 204
        wait_until(lambda: not unused & layers_of(often), what="the layer of a deleted template is deleted")
        hold.let_go()
        child = builds.told(ids, deadline_s=600)
        assert child["status"] == "ready", child["reason"]
        box = Sandbox.create(ids[0], timeout=1800, api_key=team.key)
        assert box.commands.run("cat /opt/note /srv/copied").stdout == f"{note}\n{note}\n"
        box.kill()
    finally:
        ended.set()
        for client in clients:
            client.join()
        builds.clear()
    assert not failures, failures
