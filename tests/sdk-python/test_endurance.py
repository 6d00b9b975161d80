"""Many sandboxes' lives at once, every answer of which is held to what was promised: the short form of `bench/soak.py`."""

import random
import sys

import pytest

from durability import clear
from harness.load import Broken, Life
from harness.server import ROOT, wait_until

sys.path.insert(0, str(ROOT / "bench"))

from soak import Soak  # noqa: E402


@pytest.fixture
def soak(server):
    clear(server)
    # Another order of things in every run; what fails says which.
    yield lambda lives: Soak(server, lives, seed=server.pid)
    clear(server)


def test_ten_seconds_of_everything(soak):
    lives = soak(lives=4)
    lives.run(seconds=10)

    def is_varied() -> bool:
        if not {"create", "pause", "write"} <= lives.steps.keys() and not lives.errors:
            # A machine that is busy does less in ten seconds.
            lives.run(seconds=5)
        return bool(lives.errors) or {"create", "pause", "write"} <= lives.steps.keys()

    wait_until(is_varied, 300, "a sandbox is created, paused and written to")
    assert_all_kept(lives)


def test_deaths_at_random_moments_lose_nothing(soak):
    """Two hundred of them: `bench/soak.py --kills 200`."""
    lives = soak(lives=4)
    assert lives.die(kills=4) == 4
    assert_all_kept(lives)


def test_what_is_not_kept_is_noticed(server):
    life = Life(random.Random(1))
    life.write()
    life.verify()
    life.sandbox.files.write(next(iter(life.files)), b"something else")
    with pytest.raises(Broken, match="should be"):
        life.verify()
    life.sandbox.kill()
    with pytest.raises(Broken, match="being there"):
        life.verify()


def assert_all_kept(lives):
    left = lives.end()
    assert not lives.errors, f"seed {lives.seed}: {lives.errors[0]}"
    assert not left, f"seed {lives.seed}"
