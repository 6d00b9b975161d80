"""Sandboxes that are made ahead: of a template in demand there are as many as a burst needs."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from e2b import Sandbox

from harness.server import ADMIN_TOKEN, wait_until

BURST = 10


@pytest.fixture
def growing(server):
    """The server with a pool that follows demand."""
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    server.stop()
    server.variables = {"SANDCOVE_POOL_MEMORY": "5", "SANDCOVE_SPARES": "2"}
    server.start()
    yield server
    server.stop()
    server.variables = {}
    server.start()


def pool(server) -> dict[str, dict[str, int]]:
    """The metrics of the pool, by name and label."""
    answer = requests.get(f"{server.url}/metrics", headers={"X-Admin-Token": ADMIN_TOKEN}, timeout=60)
    found: dict[str, dict[str, int]] = {}
    for name, labels, value in re.findall(r"^sandcove_pool_(\w+)\{(.*)\} (\d+)$", answer.text, re.MULTILINE):
        found.setdefault(name, {})[labels] = int(value)
    return found


def burst(count: int) -> None:
    with ThreadPoolExecutor(count) as pool:
        sandboxes = list(pool.map(lambda _: Sandbox.create("base", timeout=600), range(count)))
        list(pool.map(lambda sandbox: sandbox.kill(), sandboxes))


def test_a_burst_that_comes_again_finds_its_sandboxes_ready(growing):
    wait_until(lambda: sum(pool(growing).get("sandboxes", {}).values()) >= 4, what="the pool is full")
    before = pool(growing)
    burst(BURST)
    counted = pool(growing)["starts_total"]
    base = next(labels for labels in counted if counted[labels] >= 1 and 'result="miss"' in labels)
    template = re.search(r'template="([^"]+)"', base)[1]

    def value(name, result=None):
        values = pool(growing)[name]
        return sum(n for labels, n in values.items() if template in labels and (result is None or result in labels))

    assert value("starts_total") == BURST
    # All of them, unless the machine was too busy to begin with them at about the same time.
    wanted = value("wanted")
    assert 2 < wanted <= BURST
    wait_until(lambda: value("sandboxes") == wanted, what="there is a sandbox for each start of the burst")
    others = {labels: n for labels, n in pool(growing)["sandboxes"].items() if template not in labels}
    assert others == {labels: n for labels, n in before["sandboxes"].items() if template not in labels}
    assert 0 < value("memory_bytes") < BURST * (64 << 20)
    hits = value("starts_total", "hit")
    burst(wanted)
    assert value("starts_total", "hit") == hits + wanted
