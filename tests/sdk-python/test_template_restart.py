"""The server dies during a build: afterwards the build is ready or has failed, and goes on where it was."""

import threading

import pytest
import requests

from builds import Builds, mark, step, until_runs
from durability import crash_file  # noqa: F401
from harness import volatile
from harness.hold import Hold
from harness.server import host_resources, wait_until


@pytest.fixture
def builds(server, crash_file):
    builds = Builds(server)
    yield builds
    builds.clear()


def log_of(builds, ids) -> str:
    messages, path = [], f"/templates/{ids[0]}/builds/{ids[1]}/status"
    while page := builds.call("GET", f"{path}?logsOffset={len(messages)}").json()["logEntries"]:
        messages += [entry["message"] for entry in page]
    return "\n".join(messages)


def is_over(builds, ids) -> bool:
    return builds.call("GET", f"/templates/{ids[0]}/builds/{ids[1]}/status").json()["status"] in ("ready", "error")


def begun(builds, *steps, **members):
    ids = builds.begin()
    assert builds.go(*ids, *steps, **members).status_code == 202
    return ids


def test_a_build_goes_on_after_the_server_was_killed(builds, server):
    note = mark()
    # The second step does not end before the server has died. Then it begins again: the file system of a step that did not end is not kept.
    hold = Hold()
    ids = begun(builds, step("RUN", f"echo {note} > first"), step("RUN", f"echo half > half; echo waiting-{note}; {hold.command}; cat half > second"), step("RUN", "cat first second > third"))
    wait_until(lambda: log_of(builds, ids).count(f"[stdout]: waiting-{note}") == 1, what="the second step runs")
    server.kill9()
    server.start()
    hold.let_go_until(lambda: is_over(builds, ids), "the end of the build")
    assert builds.told(*ids)["status"] == "ready"
    assert builds.run(ids[0], "cat third") == f"{note}\nhalf\n"
    log = log_of(builds, ids)
    assert "CACHED [builder 1/3]" in log, "what had ended is not done again"
    assert log.count(f"[stdout]: waiting-{note}") >= 1


def test_a_build_goes_on_after_a_normal_stop(builds, server):
    note = mark()
    hold = Hold()
    ids = begun(builds, step("RUN", f"echo {note} > first"), step("RUN", f"echo waiting-{note}; {hold.command}; echo done > second"))
    wait_until(lambda: f"[stdout]: waiting-{note}" in log_of(builds, ids), what="the second step runs")
    server.stop()
    server.start()
    hold.let_go_until(lambda: is_over(builds, ids), "the end of the build")
    assert builds.told(*ids)["status"] == "ready"
    assert builds.run(ids[0], "cat first second") == f"{note}\ndone\n"


def test_a_step_that_hangs_does_not_hold_up_a_stop(builds, server):
    """Neither does one that ignores signals, or forks, nor a ready command; a harness that waits no longer than that kills the server."""
    hang = "trap '' TERM INT HUP; (trap '' TERM; while true; do sleep 1000; done) & echo hanging; while true; do sleep 1000; done"
    first, second = begun(builds, step("RUN", f": {mark()}; {hang}")), begun(builds, startCmd="sleep 1000", readyCmd=f": {mark()}; false")
    wait_until(lambda: "[stdout]: hanging" in log_of(builds, first) and "Waiting for template" in log_of(builds, second), what="both hang")
    process = server.process
    server.stop()
    assert process.returncode == 0, "it ended by itself"
    server.start()
    wait_until(lambda: log_of(builds, first).count("[stdout]: hanging") == 2, what="the build begins again")
    for template, build in (first, second):
        assert builds.delete(template).status_code == 204


def test_what_was_ready_and_reserved_is_kept(builds, server):
    name, note = builds.name(), mark()
    built = builds.build(builds.base().run_cmd(f"echo {note} > note").set_start_cmd("sleep 1000", "true"), f"{name}:v1", tags=["x"])
    waiting = builds.begin()
    log = log_of(builds, (built.template_id, built.build_id))
    server.kill9()
    server.start()
    assert builds.run(f"{name}:x", f"cat note; {until_runs('^sleep')}; pgrep -x sleep | wc -l") == f"{note}\n1\n"
    assert log_of(builds, (built.template_id, built.build_id)) == log
    assert builds.build(builds.base().run_cmd(f"echo {note} > note"), name).cached == [1]
    assert builds.call("GET", f"/templates/{waiting[0]}/builds/{waiting[1]}/status").json()["status"] == "waiting"
    assert builds.go(*waiting, step("RUN", "true")).status_code == 202
    assert builds.told(*waiting)["status"] == "ready"


def test_sandboxes_of_a_template_outlive_the_server(builds, server):
    built = builds.build(builds.base().set_user("app").set_workdir("/srv/app").run_cmd("echo kept > kept"))
    box, paused = builds.box(built), builds.box(built)
    paused.pause()
    server.kill9()
    server.start()
    assert box.commands.run("cat kept; id -un").stdout == "kept\napp\n"
    paused.connect(timeout=1800)
    assert paused.commands.run("cat kept; id -un").stdout == "kept\napp\n"


# Where the server dies, and how often that point is passed before it.
POINTS = ["build.begun", "build.snapshot", "build.cached", "build.published", "build.built", "build.finished"]


@pytest.mark.parametrize("point", POINTS)
def test_the_server_dies_at(builds, server, crash_file, point):
    name, note = builds.name(), mark()
    old = builds.build(builds.base().run_cmd(f"echo {note} > old"), name)
    ids = builds.begin(name)
    crash_file.write_text(point)
    try:
        answer = builds.go(*ids, step("RUN", f"echo {note} >> new"), step("RUN", "cat new new > twice"), startCmd="sleep 1000", readyCmd="true")
        acknowledged = answer.status_code == 202
    except requests.ConnectionError:
        acknowledged = False
    wait_until(lambda: server.process.poll() is not None, what=f"death at {point}")
    crash_file.write_text("")
    server.start()
    status = builds.call("GET", f"/templates/{ids[0]}/builds/{ids[1]}/status").json()["status"]
    if acknowledged or status != "waiting":
        assert builds.told(*ids)["status"] == "ready"
        assert builds.run(name, "cat new twice") == f"{note}\n" * 3, "no step was done twice on the same files"
    assert builds.run(f"{name}:{old.build_id}", "cat old") == f"{note}\n"
    # The next build finds everything in order.
    assert builds.build(builds.base().run_cmd(f"echo {note} >> new").run_cmd("cat new new > twice"), name).text
    assert builds.run(name, "cat new twice") == f"{note}\n" * 3


def test_the_server_dies_at_any_moment(builds, server):
    """Whatever a build was doing, it ends, and what it says is true."""
    note = mark()
    for moment in (0.05, 0.2, 0.4, 0.7, 1.1):
        ids = begun(builds, step("RUN", f"echo {note}-{moment} > a"), step("COPY") if moment == 0.7 else step("ENV", "A", "1"), step("RUN", "cp a b"))
        # A moment, and not a condition: each is another one.
        threading.Event().wait(moment)
        server.kill9()
        server.start()
        status = builds.told(*ids)
        assert status["status"] == ("error" if moment == 0.7 else "ready")
        if status["status"] == "ready":
            assert builds.run(ids[0], "cat b") == f"{note}-{moment}\n"


def test_a_build_is_given_up_when_the_server_dies_for_the_third_time(builds, server):
    """It may be what the server dies of."""
    ids = begun(builds, step("RUN", f": {mark()}; echo working; sleep 600"))
    for times in (1, 2):
        wait_until(lambda: log_of(builds, ids).count("[stdout]: working") == times, what="the step runs")  # noqa: B023
        server.kill9()
        server.start()
    wait_until(lambda: log_of(builds, ids).count("[stdout]: working") == 3, what="the step runs for the third time")
    server.kill9()
    server.start()
    status = builds.told(*ids)
    assert (status["status"], status["reason"]["message"]) == ("error", "the server ended 3 times during the build: build again")
    assert log_of(builds, ids).rstrip().endswith("Build failed: the server ended 3 times during the build: build again")


def test_nothing_of_builds_stays_after_deaths(builds, server):
    """Sandboxes in which steps ran are gone with the server that started them, or are taken over."""
    ids = begun(builds, step("RUN", f": {mark()}; echo working; sleep 600"))
    wait_until(lambda: "[stdout]: working" in log_of(builds, ids), what="the step runs")
    server.kill9()
    server.start()
    assert builds.delete(ids[0]).status_code == 204
    wait_until(lambda: not host_resources(server.data_dir)["run directories"], what="the sandbox of the build is gone")
    unfinished = lambda: [path for path in volatile.matching(server.data_dir, "pool/layers/.*") if path.is_dir()]  # noqa: E731
    wait_until(lambda: not unfinished(), what="unfinished layers are gone")
