"""What a build takes from the cache, what it logs, and builds in the background."""

import re
import threading

import pytest
import requests
from e2b import default_build_logger

from builds import both, builds, mark, step  # noqa: F401
from harness.hold import Hold
from harness.server import wait_until


def steps(template, note: str):
    return template.run_cmd(f"echo {note} >> ran").run_cmd("date +%s%N > when").set_envs({"A": "1"}).run_cmd("echo $A > value")


def test_the_same_steps_do_not_run_again(both):  # noqa: F811
    name, note = both.name(), mark()
    first = both.build(steps(both.base(), note), name)
    assert (first.ran, first.cached) == ([1, 2, 3, 4], [])
    again = both.build(steps(both.base(), note), name)
    assert (again.ran, again.cached) == ([], [1, 2, 3, 4])
    assert again.template_id == first.template_id and again.build_id != first.build_id
    other = both.build(steps(both.base(), note))
    assert other.cached == [1, 2, 3, 4], "the cache is the team's, not the template's"
    seen = {both.run(f"{one.template_id}:{one.build_id}", "cat ran when value") for one in (first, again, other)}
    assert len(seen) == 1 and seen.pop().endswith("\n1\n")


def test_what_follows_a_change_runs_again(both):  # noqa: F811
    note = mark()
    both.build(steps(both.base(), note).run_cmd("true"))
    changed = both.build(both.base().run_cmd(f"echo {note} >> ran").run_cmd("date +%s%N > when").set_envs({"A": "2"}).run_cmd("echo $A > value").run_cmd("true"))
    assert (changed.cached, changed.ran) == ([1, 2], [3, 4, 5])
    assert both.run(changed, "cat value") == "2\n"
    longer = both.build(steps(both.base(), note).run_cmd("true").run_cmd("echo more > more"))
    assert (longer.cached, longer.ran) == ([1, 2, 3, 4, 5], [6])
    assert both.run(longer, "cat more value") == "more\n1\n"


def test_the_user_and_the_directory_come_from_the_cache_too(builds):  # noqa: F811
    start = builds.base().set_user("app").set_workdir("/srv/app").set_envs({"A": mark()})
    builds.build(start)
    again = builds.build(start.run_cmd("id -un > seen; pwd >> seen; echo ${#A} >> seen"))
    assert (again.cached, again.ran) == ([1, 2, 3], [4])
    assert builds.run(again, "cat seen") == "app\n/srv/app\n32\n"


def test_skipping_the_cache_from_a_step_on(both):  # noqa: F811
    note = mark()
    first = both.build(steps(both.base(), note))
    forced = both.build(both.base().run_cmd(f"echo {note} >> ran").skip_cache().run_cmd("date +%s%N > when").set_envs({"A": "1"}).run_cmd("echo $A > value"))
    assert (forced.cached, forced.ran) == ([1], [2, 3, 4])
    assert both.run(first, "cat when") != both.run(forced, "cat when")
    assert both.run(forced, "cat ran") == f"{note}\n"


def test_skipping_the_cache_entirely(both):  # noqa: F811
    note = mark()
    one = both.build(steps(both.base(), note))
    two = both.build(steps(both.base(), note), skip_cache=True)
    three = both.build(steps(both.template().skip_cache().from_template("base"), note))
    assert two.ran == three.ran == [1, 2, 3, 4] and two.cached == three.cached == []
    assert len({both.run(built, "cat when") for built in (one, two, three)}) == 3
    # What was forced is what is used from then on.
    four = both.build(steps(both.base(), note))
    assert four.cached == [1, 2, 3, 4] and both.run(four, "cat when") == both.run(three, "cat when")


def test_files_are_uploaded_once(both, tmp_path):  # noqa: F811
    (tmp_path / "data").write_text(mark())

    def build(**options):
        return both.build(both.base(tmp_path).copy("data", "/srv/data", **options).run_cmd("cat /srv/data > seen"))

    first, again = build(), build()
    assert "Uploaded 'data'" in first.lines() and "Skipping upload of 'data', already cached" in again.lines()
    assert again.cached == [1, 2]
    assert "Uploaded 'data'" in build(force_upload=True).lines()
    (tmp_path / "data").write_text(changed_to := f"changed {mark()}")
    changed = build()
    assert "Uploaded 'data'" in changed.lines() and changed.ran == [1, 2]
    assert both.run(changed, "cat seen") == changed_to


def test_two_builds_of_the_same_steps_at_once(builds):  # noqa: F811
    """Both end well, whichever is first."""
    note = mark()
    infos = [builds.start(builds.base().run_cmd(f"echo {note} > note; sleep 0.5").run_cmd("cp note copied")) for _ in range(3)]
    assert {builds.ended(info).status.value for info in infos} == {"ready"}
    assert {builds.run(info.template_id, "cat note copied") for info in infos} == {f"{note}\n{note}\n"}


def test_what_is_logged(both):  # noqa: F811
    name, note = both.name(), mark()
    template = both.base().run_cmd(f"printf 'to out {note}\\nno end'; printf '\\033[31mto err\\033[0m\\n' >&2").set_workdir("/srv").set_start_cmd("sleep 1000", "true")
    built = both.build(template, name, tags=["one", "two"])
    lines = built.lines()
    assert lines[:2] == ["Build started", f"Requesting build for template: {name} with tags: one, two"]
    server = lines[lines.index("Waiting for logs...") + 1 : -1]
    assert server[0] == f"Building template {built.template_id}/{built.build_id}"
    assert re.fullmatch(r"Build finished, took \S+s", server[-1])
    assert any(re.match(r"(CACHED )?\[base\] FROM TEMPLATE base\b", line) for line in server)
    assert any(line.startswith("[builder 1/2] RUN printf") for line in server)
    assert any(line.startswith("[builder 2/2] WORKDIR /srv") for line in server)
    assert any(line.startswith("[finalize]") for line in server)
    info = built.lines("info")
    assert f"[builder 1/2] [stdout]: to out {note}" in info and "[builder 1/2] [stdout]: no end" in info
    assert "[builder 1/2] [stderr]: to err" in info, "colours are removed by the client"
    times = [entry.timestamp for entry in built.logs[lines.index("Waiting for logs...") + 1 : -1]]
    assert times == sorted(times)


def test_a_long_log_is_read_in_pages(builds):  # noqa: F811
    ids = builds.begin()
    assert builds.go(*ids, step("RUN", f": {mark()}; seq -f 'line %g' 350")).status_code == 202
    builds.told(*ids)
    path = f"/templates/{ids[0]}/builds/{ids[1]}"
    entries, pages = [], []
    while page := builds.call("GET", f"{path}/status?logsOffset={len(entries)}").json()["logEntries"]:
        entries, pages = entries + page, pages + [len(page)]
    assert pages[:3] == [100, 100, 100] and len(pages) == 4
    numbers = [entry["message"].rpartition("line ")[2] for entry in entries if "[stdout]: line " in entry["message"]]
    assert numbers == [f"{n}" for n in range(1, 351)]
    assert {entry.get("step") for entry in entries if "[stdout]" in entry["message"]} == {"1"}
    assert len(builds.call("GET", f"{path}/status?logsOffset=10&limit=7").json()["logEntries"]) == 7
    assert builds.call("GET", f"{path}/status?logsOffset=100000").json()["logEntries"] == []
    assert builds.call("GET", f"{path}/status?level=error").json()["logEntries"] == []
    assert builds.call("GET", f"{path}/status").json()["logs"] == []
    for query in ("limit=101", "limit=0", "limit=x", "logsOffset=-1", "level=loud"):
        assert builds.call("GET", f"{path}/status?{query}").status_code == 400, query

    forward = builds.call("GET", f"{path}/logs?limit=50&direction=forward").json()["logs"]
    assert [entry["message"] for entry in forward] == [entry["message"] for entry in entries[:50]]
    backward = builds.call("GET", f"{path}/logs?limit=50&direction=backward").json()["logs"]
    assert backward[0]["message"] == entries[-1]["message"] and len(backward) == 50
    assert builds.call("GET", f"{path}/logs?level=error").json()["logs"] == []


def test_a_flood_of_output_is_bounded(builds):  # noqa: F811
    """A build whose command prints twenty megabytes ends well, and its log has an end."""
    ids = builds.begin()
    builds.go(*ids, step("RUN", f": {mark()}; head -c 20000000 /dev/zero | tr '\\0' x; yes | head -n 30000; echo the end"))
    assert builds.told(*ids)["status"] == "ready"
    log = builds.server.data_dir / f"server/builds/{ids[1]}.jsonl"
    if log.exists():
        assert log.stat().st_size < 64 << 20


def test_a_build_in_the_background(both):  # noqa: F811
    hold = Hold()
    info = both.start(both.base().run_cmd(f": {mark()}; echo working; {hold.command}; true"))
    status = both.status(info)
    assert status.status.value in ("waiting", "building")
    assert (status.template_id, status.build_id, status.logs) == (info.template_id, info.build_id, [])
    wait_until(lambda: any("working" in entry.message for entry in both.status(info).log_entries), what="output while the command runs")
    assert both.status(info).status.value == "building"
    hold.let_go()
    ended = both.ended(info)
    assert ended.status.value == "ready" and ended.reason is None
    assert both.status(info, offset=len(ended.log_entries)).log_entries == []
    # The logger that the SDK brings.
    log = default_build_logger(min_level="debug")
    for entry in ended.log_entries:
        log(entry)


def test_a_reserved_build_waits(builds):  # noqa: F811
    ids = builds.begin()
    status = builds.call("GET", f"/templates/{ids[0]}/builds/{ids[1]}/status").json()
    assert status["status"] == "waiting" and status["logEntries"] == []
    (listed,) = [one for one in builds.listed() if one["templateID"] == ids[0]]
    assert (listed["buildStatus"], listed["cpuCount"], listed["buildID"]) == ("waiting", 0, "00000000-0000-0000-0000-000000000000")
    assert builds.call("POST", "/sandboxes", {"templateID": ids[0]}).status_code in (400, 404)


def test_bodies_may_come_in_chunks(builds):  # noqa: F811
    """As the JavaScript package sends them."""
    answer = requests.post(
        f"{builds.server.url}/v3/templates", data=iter([b'{"na', f'me": "{builds.name()}"}}'.encode()]),
        headers={"X-API-KEY": builds.key, "Content-Type": "application/json"}, timeout=120,
    )  # fmt: skip
    assert answer.status_code == 202 and answer.json()["tags"] == ["default"]


@pytest.mark.parametrize("count", [6])
def test_many_builds_at_once(builds, count):  # noqa: F811
    """Those that do not fit wait for their turn."""
    results = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(builds.build(builds.base().run_cmd(f"echo {n} {mark()} > note"))))
        for n in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(1800)
    assert len(results) == count and len({one.build_id for one in results}) == count
