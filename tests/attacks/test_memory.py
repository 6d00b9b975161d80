"""Attacks on the memory of the host, by what the kernel keeps for a process. Each must be paid for by the sandbox: its control group
is read from the host."""

import pytest

from harness.server import wait_until
from programs import names

# The least part of what was taken that the control group must show. Statistics of the kernel are batched.
PART = 0.4
SLACK = 2 << 20


def settled(witness) -> int:
    """The memory that is charged, once what earlier attacks took has been freed."""
    last = [witness.memory()]

    def rests() -> bool:
        last.append(witness.memory())
        return len(last) > 5 and max(last[-5:]) - min(last[-5:]) < SLACK // 4

    wait_until(rests, 120, "that memory is freed")
    return last[-1]


@pytest.mark.parametrize("name", names("memory"))
def test_the_sandbox_pays_for(attacker, witness, name):
    before = settled(witness)
    process, verdict = attacker.run("memory", name)
    try:
        number = verdict.removeprefix("held: ")
        taken = int(number) if number.isdigit() else 0
        paid = lambda: witness.memory() - before >= taken * PART - SLACK  # noqa: E731
        wait_until(paid, 60, f"{taken} bytes are charged, not {witness.memory() - before}")
        assert len(witness.processes()) < 4096
    finally:
        attacker.end(process)
        attacker.box.commands.run("rm -rf /dev/shm/* /run/fill /dev/mqueue/* /tmp/mapped; ipcrm --all=shm", user="root")


def test_zombies_are_reaped_when_their_parent_ends(attacker, witness, box):
    process, _ = attacker.run("memory", "zombies")
    assert len(witness.processes()) > 400
    attacker.end(process)
    wait_until(lambda: len(witness.processes()) < 40, 120, "the end of the zombies")
    assert box.commands.run("echo here").stdout == "here\n"
