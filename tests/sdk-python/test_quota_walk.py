"""A team at its limits cannot make the server keep more than they say, by any sequence of public calls: a random walk over the API,
with an accountant outside of the server. SANDCOVE_WALK_SEED repeats a walk, SANDCOVE_WALK_STEPS makes it longer."""

import os
import random
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from e2b import Sandbox

from harness.accountant import Accountant
from harness.pool import Pool
from harness.server import wait_until
from harness.teams import Team

MIB = 1 << 20
LIMITS = {
    "concurrentSandboxes": 3,
    "maxVcpu": 1,
    "maxRamMb": 512,
    "diskMb": 64,
    "pausedSandboxes": 4,
    "pausedInMemory": 2,
    "pausedRamMb": 250,
    "pausedDiskMb": 100,
    "snapshots": 4,
    "snapshotsMb": 160,
    "volumes": 2,
}
STEPS = int(os.environ.get("SANDCOVE_WALK_STEPS", "150"))
# Beyond this many seconds no further step begins, unless the walk has not shown anything yet.
MAX_SECONDS = 60 if STEPS <= 150 else 6000
# A row of a sandbox has its labels and variables, and so has each of its events.
ROW_BYTES = (64 + 256 + 64) << 10
# Answers that a call may have: it succeeds, or is refused by a limit or by the state of what it is for.
EXPECTED = {200, 201, 202, 204, 400, 404, 409, 429, 503, 507}


# Attempts that are kept of an event for each webhook.
EVENT_ATTEMPTS = 10


@pytest.fixture(scope="module", autouse=True)
def private(server):
    """The server, started again with webhooks to private addresses."""
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    before = server.variables
    server.stop()
    server.variables = {**before, "SANDCOVE_PRIVATE_WEBHOOKS": "1"}
    server.start()
    yield
    server.stop()
    server.variables = before
    server.start()


@pytest.fixture
def receiver():
    """A receiver of webhooks that answers with as much as it may, and with more."""

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(random.choice([200, 500]))
            for number in range(random.choice([1, 12, 60])):
                self.send_header(f"X-Long-{number}", '"' * 1000)
            self.end_headers()
            self.wfile.write(b"\x01" * 10_000)

        def log_message(self, *_):
            pass

    service = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{service.server_port}/"
    service.shutdown()
    service.server_close()


class Walk:
    def __init__(self, team: Team, seed: int, receiver: str) -> None:
        self.team, self.random, self.receiver = team, random.Random(seed), receiver
        self.answers: Counter[tuple[str, int]] = Counter()
        self.refusals: Counter[str] = Counter()
        self.names = self.steps = 0

    # What there is, as the API lists it.

    def sandboxes(self, state=None) -> list[str]:
        states = f"?state={state}" if state else ""
        return [one["sandboxID"] for one in self.team.call("GET", f"/v2/sandboxes{states}").json()]

    def any_sandbox(self, state=None) -> str | None:
        found = self.sandboxes(state)
        return self.random.choice(found) if found else None

    def note(self, what: str, answer) -> None:
        self.answers[what, answer.status_code] += 1
        assert answer.status_code in EXPECTED, (what, answer.status_code, answer.text)
        if answer.status_code in (400, 429, 503):
            self.refusals[answer.json()["message"].split(":")[0]] += 1

    # The steps.

    def create(self) -> None:
        body = {"templateID": "base", "timeout": 600, "autoPause": self.random.random() < 0.4}
        if self.random.random() < 0.5:
            body["metadata"] = {"label": "m" * self.random.choice([10, (64 << 10) - 5, (64 << 10) - 4])}
        if self.random.random() < 0.3:
            body["envVars"] = {"VARIABLE": "v" * self.random.choice([10, (256 << 10) - 8, (256 << 10) - 7])}
        if self.random.random() < 0.2:
            body["mcp"] = {"settings": "s" * self.random.choice([10, 64 << 10])}
        if self.random.random() < 0.2:
            body["network"] = {"denyOut": ["10.1.2.3"] * self.random.choice([1, 1000, 1001])}
        self.names += 1
        headers = {"Idempotency-Key": f"walk-{self.names}"} if self.random.random() < 0.3 else {}
        self.note("create", self.team.call("POST", self.random.choice(["/sandboxes", "/v2/sandboxes"]), body, headers=headers))

    def create_from_snapshot(self) -> None:
        if snapshots := self.team.call("GET", "/snapshots").json():
            body = {"templateID": self.random.choice(snapshots)["snapshotID"], "timeout": 600}
            self.note("create from snapshot", self.team.call("POST", "/sandboxes", body))

    def pause(self) -> None:
        if sandbox := self.any_sandbox("running"):
            body = self.random.choice([None, {"memory": True}, {"memory": False}])
            self.note("pause", self.team.call("POST", f"/sandboxes/{sandbox}/pause", body))

    def expire(self) -> None:
        if sandbox := self.any_sandbox("running"):
            self.note("expire", self.team.call("POST", f"/sandboxes/{sandbox}/timeout", {"timeout": 0}))

    def resume(self) -> None:
        if sandbox := self.any_sandbox("paused"):
            body = {"timeout": 600, "autoPause": self.random.random() < 0.5}
            self.note("resume", self.team.call("POST", f"/sandboxes/{sandbox}/resume", body))

    def connect(self) -> None:
        if sandbox := self.any_sandbox():
            self.note("connect", self.team.call("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 600}))

    def kill(self) -> None:
        if sandbox := self.any_sandbox():
            self.note("kill", self.team.call("DELETE", f"/sandboxes/{sandbox}"))

    def network(self) -> None:
        if sandbox := self.any_sandbox("running"):
            body = {"denyOut": ["10.1.2.3"] * self.random.choice([1, 1001])}
            self.note("network", self.team.call("PUT", f"/sandboxes/{sandbox}/network", body))

    def snapshot(self) -> None:
        if sandbox := self.any_sandbox("running"):
            body = self.random.choice([{}, {"name": "mine"}, {"name": f"mine:v{self.random.randrange(3)}"}])
            self.note("snapshot", self.team.call("POST", f"/sandboxes/{sandbox}/snapshots", body))

    def delete_snapshot(self) -> None:
        if snapshots := self.team.call("GET", "/snapshots").json():
            name = self.random.choice(snapshots)["snapshotID"].replace("/", "%2F").replace(":", "%3A")
            self.note("delete snapshot", self.team.call("DELETE", f"/templates/{name}"))

    def fork(self) -> None:
        if sandbox := self.any_sandbox("running"):
            body = {"count": self.random.randrange(1, 3), "timeout": 600}
            self.note("fork", self.team.call("POST", f"/sandboxes/{sandbox}/fork", body))

    def volume(self) -> None:
        name = f"v{self.random.randrange(5)}"
        self.note("volume", self.team.call("POST", "/volumes", {"name": name}))

    def delete_volume(self) -> None:
        if volumes := self.team.call("GET", "/volumes").json():
            volume = self.random.choice(volumes)["volumeID"]
            self.note("delete volume", self.team.call("DELETE", f"/volumes/{volume}"))

    def write_to_volume(self) -> None:
        if volumes := self.team.call("GET", "/volumes").json():
            volume = self.team.call("GET", f"/volumes/{self.random.choice(volumes)['volumeID']}").json()
            url = f"{self.team.url}/volumecontent/{volume['volumeID']}/file?path=/f{self.random.randrange(4)}"
            headers = {"Authorization": f"Bearer {volume['token']}"}
            data = os.urandom(30 * MIB)
            self.note("write to volume", self.team.session.put(url, data=data, headers=headers, timeout=120))

    def fill_disk(self) -> None:
        self.run("head -c 40M /dev/urandom > /home/user/f$((RANDOM % 3)); true")

    def empty_disk(self) -> None:
        self.run("rm -f /home/user/f*")

    def fill_memory(self) -> None:
        self.run("head -c 100M /dev/zero > /dev/shm/f$((RANDOM % 2)); true")

    def run(self, command: str) -> None:
        if sandbox := self.any_sandbox("running"):
            try:
                Sandbox.connect(sandbox, api_key=self.team.key, timeout=600).commands.run(f"bash -c '{command}'", timeout=20)
                self.answers["run", 200] += 1
            except Exception as error:  # What runs there may run out of anything.
                self.answers[f"run: {type(error).__name__}", 0] += 1

    def webhook(self) -> None:
        body = {
            "name": "n", "url": self.random.choice(["https://192.0.2.1/", self.receiver]), "enabled": True, "signatureSecret": "s",
            "events": ["sandbox.lifecycle.created"] * self.random.choice([1, 500]),
        }  # fmt: skip
        self.note("webhook", self.team.call("POST", "/events/webhooks", body))

    def redeliver(self) -> None:
        for webhook in self.team.call("GET", "/events/webhooks").json():
            path = f"/events/webhooks/{webhook['id']}/deliveries"
            answer = self.team.call("GET", f"{path}?limit=100")
            assert answer.status_code == 200 and len(answer.content) <= 100 * EVENT_ATTEMPTS * (48 << 10), answer.text[:1000]
            for delivery in answer.json()["data"][:3]:
                for _ in range(4):
                    self.note("redeliver", self.team.call("POST", f"{path}/{delivery['eventId']}/redeliver"))

    def secret(self) -> None:
        body = {"name": f"s{self.random.randrange(1000)}", "value": "v" * self.random.choice([10, 8 << 10, (8 << 10) + 1])}
        self.note("secret", self.team.call("POST", "/secrets", body))

    WEIGHTS = {
        "create": 12, "create_from_snapshot": 5, "pause": 14, "expire": 4, "resume": 5, "connect": 4, "kill": 5, "network": 2,
        "snapshot": 9, "delete_snapshot": 3, "fork": 5, "volume": 4, "delete_volume": 2, "write_to_volume": 4, "fill_disk": 8,
        "empty_disk": 2, "fill_memory": 9, "webhook": 2, "redeliver": 4, "secret": 2,
    }  # fmt: skip

    # A walk takes for a while before it also gives back, so that it meets limits whatever its seed.
    GIVING_BACK = {"kill", "delete_snapshot", "delete_volume", "empty_disk"}
    STRETCH = 25

    def step(self) -> str:
        self.steps += 1
        taking = self.steps // self.STRETCH % 2 == 0
        weights = {name: weight for name, weight in self.WEIGHTS.items() if not (taking and name in self.GIVING_BACK)}
        name = self.random.choices(list(weights), list(weights.values()))[0]
        calls = self.answers.total()
        getattr(self, name)()
        if self.answers.total() == calls:
            # There was nothing to do it with.
            name = "create"
            self.create()
        return name


def check(accountant: Accountant, step: str) -> None:
    """Holds the books against the limits."""
    books, first, limits = accountant.books(), accountant.first, LIMITS
    running, paused = limits["concurrentSandboxes"], limits["pausedSandboxes"]
    states = Counter(books.states)
    assert states["running"] <= running, (step, books)
    # A session that ends is a pause that nobody could refuse.
    assert states["paused"] + states["stored"] <= paused + running, (step, books)
    assert books.rows["sandboxes"] <= paused + running, (step, books)
    assert books.snapshots <= limits["snapshots"], (step, books)
    assert books.rows["volumes"] <= limits["volumes"], (step, books)
    assert books.rows["webhooks"] <= 50, (step, books)
    assert books.rows["secrets"] <= 500, (step, books)
    assert max(books.attempts, default=0) <= EVENT_ATTEMPTS, (step, books)
    # Memory and slots: what is frozen counts as running until there is room for it.
    assert len(books.frozen) + len(books.running) <= running + limits["pausedInMemory"], (step, books)
    assert sum(books.running) <= running * limits["maxRamMb"] * MIB, (step, books)
    assert sum(books.frozen) + sum(books.running) <= (limits["pausedRamMb"] + running * limits["maxRamMb"]) * MIB, (step, books)
    assert books.parked <= limits["pausedDiskMb"] * MIB, (step, books)
    # Disk: a volume never has more than its size, and snapshots no more than theirs and what their sandboxes wrote since.
    for volume, used in books.volumes.items():
        assert used <= limits["diskMb"] * MIB, (step, volume, books)
    own = (running + paused + running) * limits["diskMb"]
    assert books.account <= (limits["snapshotsMb"] + own) * MIB, (step, books)
    most = limits["snapshotsMb"] + limits["pausedDiskMb"] + own + limits["volumes"] * limits["diskMb"]
    # Metadata of the file system, and files of the server itself.
    assert books.disk - first.disk <= (most * 1.1 + 64) * MIB, (step, books)
    # The server: a few descriptors for each sandbox, and memory and rows in proportion to what it keeps.
    assert books.descriptors - first.descriptors <= 12 * (running + paused + running) + 64, (step, books)
    rows = books.rows["sandboxes"] + books.rows["events"] + books.rows["secrets"] + sum(books.attempts)
    assert books.database - first.database <= (rows + 20) * ROW_BYTES, (step, books)
    assert books.memory - first.memory <= 192 * MIB, (step, books)


def settled(accountant: Accountant) -> bool:
    """Whether memory of paused sandboxes is within its limits, to which it comes right after a pause."""
    books = accountant.books()
    return sum(books.frozen) <= LIMITS["pausedRamMb"] * MIB and len(books.frozen) <= LIMITS["pausedInMemory"]


def shows_something(number: int, walk: Walk) -> bool:
    """Whether a walk of so many steps has met limits."""
    return number > 40 and sum(walk.refusals.values()) > 5


def test_no_sequence_of_calls_goes_beyond_the_limits(server, receiver):
    if not Pool(server.data_dir).is_grouped():
        pytest.skip("the kernel has no simple quotas, or the pool is older than them")
    seed = int(os.environ.get("SANDCOVE_WALK_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"SANDCOVE_WALK_SEED={seed}")
    team = Team(server.url, **LIMITS)
    accountant, walk = Accountant(server, team), Walk(team, seed, receiver)
    end = time.monotonic() + MAX_SECONDS
    try:
        for number in range(STEPS):
            if time.monotonic() > end and shows_something(number - 1, walk):
                break
            step = f"seed {seed}, step {number}: {walk.step()}"
            check(accountant, step)
            if not settled(accountant):
                wait_until(lambda: settled(accountant), what=f"{step}: memory of paused sandboxes within its limits")
        print(number + 1, "steps", dict(walk.answers), dict(walk.refusals), accountant.books(), sep="\n")
        # A walk that met no limit has shown nothing.
        if seed_is_random := "SANDCOVE_WALK_SEED" not in os.environ:
            assert shows_something(number, walk), (seed_is_random, walk.refusals)
    finally:
        team.clear()
    wait_until(lambda: Pool(server.data_dir).groups().get(team.account, 0) < MIB, what="all that the team had is gone")
    count = "SELECT COUNT(*) FROM sandboxes WHERE team_id = :team"
    wait_until(lambda: accountant.query(count) == [(0,)], what="no row of a sandbox is left")
