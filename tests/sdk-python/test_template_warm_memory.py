"""Warm interpreters of a team's templates share a limit: the least recently used one ends, and comes back when its template is used again."""

import pytest
from test_template_interpreter import PYTHON, box_of, interpreter_of, value

from builds import Builds, mark
from harness import volatile
from harness.server import wait_until

# Memory of sandboxes, and so of an interpreter that starts. Once it is ready it has a quarter more than it uses, plus 64 MiB: two that are ready
# and one that starts are too much for the team, one that is ready and one that starts are not.
SANDBOX_MIB, TEAM_MIB = 256, 420


@pytest.fixture(scope="module")
def tight(server):
    if not hasattr(type(server), "kill9"):
        pytest.skip("needs a server of its own: unset SANDCOVE_TEST_URL")
    server.stop()
    server.variables = {"SANDCOVE_TEAM_WARM_MEMORY": str(TEAM_MIB)}
    server.start()
    builds = Builds(server)
    yield builds
    builds.clear()
    server.stop()
    server.variables = {}
    server.start()


def state(builds, template) -> str:
    return interpreter_of(builds, template)["state"]


def until(builds, template, wanted: str) -> None:
    wait_until(lambda: state(builds, template) == wanted, what=f"the interpreter of {template.template_id} is {wanted}, not {state(builds, template)}")


def warm_processes(server) -> int:
    records = [volatile.record(path) for path in volatile.matching(server.data_dir, "run/warm*/jail.json")]
    return len([record for record in records if record and record["limits"]["memory_mib"] <= SANDBOX_MIB])


def test_the_least_recently_used_interpreter_gives_way(tight, server, ipython):
    common = tight.build(tight.base_with_wheels(ipython).set_envs({**PYTHON, "SANDCOVE_WARM_MODULES": "json"}), memory_mb=SANDBOX_MIB)

    def another():
        template = tight.template().from_template(common.template_id).run_cmd(f"echo {mark()} > own")
        return tight.build(template, memory_mb=SANDBOX_MIB)

    until(tight, common, "ready")
    first = another()
    until(tight, first, "ready")
    # Three would be too many: the base of the others was used before them.
    second = another()
    until(tight, second, "ready")
    assert (state(tight, common), state(tight, first)) == ("evicted", "ready")
    # The order is that of use, and not of age.
    assert value(box_of(tight, first), "6 * 7").text == "42"
    third = another()
    until(tight, third, "ready")
    assert (state(tight, first), state(tight, second)) == ("ready", "evicted")
    wait_until(lambda: warm_processes(server) == 2, what="the processes of the others have ended")
    # Without its interpreter a template works, and its use brings the interpreter back.
    assert value(box_of(tight, second), "6 * 7").text == "42"
    until(tight, second, "ready")
    assert (state(tight, first), state(tight, third)) == ("evicted", "ready")
    wait_until(lambda: warm_processes(server) == 2, what="the process of the first has ended")
    assert value(box_of(tight, first), "6 * 7").text == "42"
