"""Random process trees, and programs that people run, are parked; the server dies and all processes end; what comes back is what was there, or
was refused by name. Each tree has a seed. A few are always the same; with SANDCOVE_TEST_TREES there are so many, of the seed
SANDCOVE_TEST_TREE_SEED, or of another one each time. SANDCOVE_TEST_TREE_PARTS limits the kinds of their parts. The report of a failure has the
seeds of the trees that are wrong."""

import os
import random

import pytest
from e2b import Sandbox

from durability import clear
from harness.trees import plan
from harness.trees.cycle import Cycle
from test_park import CRIU, parking  # noqa: F401

pytestmark = pytest.mark.skipif(not (CRIU / "bin/criu").exists(), reason="CRIU is not there: packaging/criu/fetch fetches it")
IS_SHORT = "SANDCOVE_TEST_TREES" not in os.environ
SEED = os.environ.get("SANDCOVE_TEST_TREE_SEED") or ("7" if IS_SHORT else str(random.SystemRandom().randint(1, 10**9)))
TREES = int(os.environ.get("SANDCOVE_TEST_TREES", "20"))
PARTS = [part for part in os.environ.get("SANDCOVE_TEST_TREE_PARTS", "").split(",") if part]
# A tree in which a parent and its child have mapped different parts of one library at the same address.
KNOWN = ["202/50"] if IS_SHORT else []
# Trees to a sandbox, and sandboxes to a stop of the server.
PER_SANDBOX, SANDBOXES = 7, 4


@pytest.fixture(scope="module")
def by_hand(server, parking):
    """A server that parks when it is asked."""
    server.stop()
    server.variables["SANDCOVE_PARK_AFTER"] = "never"
    server.start()
    yield server
    clear(server)


def test_random_trees_come_back_as_they_were_or_are_refused_by_name(by_hand):
    cycle = Cycle(by_hand, lambda: Sandbox.create("base", timeout=3600))
    seeds = KNOWN + [f"{SEED}/{number}" for number in range(TREES)]
    while seeds:
        batch, seeds = seeds[: PER_SANDBOX * SANDBOXES], seeds[PER_SANDBOX * SANDBOXES :]
        plans = [plan.plan(seed, PARTS or None) for seed in batch]
        cycle.run([plans[start : start + PER_SANDBOX] for start in range(0, len(plans), PER_SANDBOX)])
        print(f"after the trees up to {batch[-1]}: {cycle.report}", flush=True)
    # A summary shows no more than the first line.
    assert not cycle.report.wrong, f"seed {SEED}: {' | '.join(cycle.report.brief())}\n{cycle.report}"
    # Most kinds can be made and stored here; a run that refuses everything shows nothing.
    assert cycle.report.equal >= TREES * 3 // 4, f"seed {SEED}: {cycle.report}"
