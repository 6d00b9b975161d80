"""Names, tags and namespaces of templates; who may use one; lists, publishing and deletion."""

import uuid
from urllib.parse import quote

import pytest
from e2b import NotFoundException, Sandbox, SandboxException, TemplateException

from builds import Builds, both, builds, mark  # noqa: F401
from harness.server import wait_until
from harness.teams import Team


def small(builds, note: str):  # noqa: F811
    """A template that says which build it is of."""
    return builds.base().run_cmd(f"echo {note} > note")


@pytest.fixture
def team(server):
    """Another team."""
    team = Team(server.url)
    yield team
    team.clear()


@pytest.fixture
def theirs(server, team):
    """Builds of another team."""
    theirs = Builds(server, key=team.key)
    yield theirs
    theirs.clear()


def slug_of(builds) -> str:  # noqa: F811
    answer = builds.call("POST", "/v3/templates", {"name": builds.name()}).json()
    return answer["names"][0].partition("/")[0]


def note_of(builds, reference: str) -> str:  # noqa: F811
    return builds.run(reference, "cat note").strip()


def test_tags_come_from_the_name_and_the_list(both):  # noqa: F811
    name = both.name()
    first = both.build(small(both, "first"), f" {name.upper()}:V1 ", tags=["stable", "v1", "latest"])
    assert first.tags == ["v1", "stable", "latest"]
    assert {tag.tag: tag.build_id for tag in both.ask("get_tags", name)} == dict.fromkeys(["v1", "stable", "latest"], first.build_id)
    for reference in (f"{name}:v1", f"{name}:latest", f"{first.template_id}:stable", f"{name}:{first.build_id}"):
        assert note_of(both, reference) == "first"
    with pytest.raises(SandboxException, match=f"tag 'default' does not exist for template '{name}'"):
        Sandbox.create(name)
    second = both.build(small(both, "second"), name, tags=["latest"])
    assert (second.template_id, second.tags) == (first.template_id, ["latest"])
    third = both.build(small(both, "third"), f"{name}:default", tags=["x"])
    assert third.tags == ["x"], "the tag `default` in a name is none"
    assert both.build(small(both, "fourth"), name).tags == ["default"]
    assert [note_of(both, f"{name}{tag}") for tag in ("", ":v1", ":stable", ":latest", ":x")] == ["fourth", "first", "first", "second", "third"]


def test_tags_are_assigned_and_removed(both):  # noqa: F811
    name = both.name()
    first, second = both.build(small(both, "first"), f"{name}:v1"), both.build(small(both, "second"), f"{name}:v2")
    info = both.ask("assign_tags", f"{name}:v1", ["production", "stable"])
    assert (info.build_id, sorted(info.tags)) == (first.build_id, ["production", "stable"])
    old = both.box(f"{name}:production")
    assert both.ask("assign_tags", f"{name}:{second.build_id}", "production").build_id == second.build_id
    assert note_of(both, f"{name}:production") == "second"
    assert old.commands.run("cat note").stdout == "first\n", "a sandbox keeps its build when a tag moves"
    both.ask("remove_tags", name, ["stable", "v1"])
    assert {tag.tag for tag in both.ask("get_tags", name)} == {"v2", "production"}
    with pytest.raises(SandboxException, match=f"tag 'stable' does not exist for template '{name}'"):
        Sandbox.create(f"{name}:stable")
    assert note_of(both, f"{name}:{first.build_id}") == "first", "a build without tags can be named"


def test_wrong_calls_for_tags(builds):  # noqa: F811
    name = builds.name()
    builds.build(small(builds, "first"), f"{name}:v1")

    def refused(status: int, text: str, method: str, body: dict) -> None:
        answer = builds.call(method, "/templates/tags", body)
        assert (answer.status_code, answer.json()["code"]) == (status, status), answer.text
        assert text in answer.json()["message"]

    refused(400, "At least one tag is required", "POST", {"target": f"{name}:v1", "tags": []})
    refused(404, f"Template '{name}' with tag 'no' not found", "POST", {"target": f"{name}:no", "tags": ["x"]})
    refused(404, "no-such-template", "POST", {"target": "no-such-template:v1", "tags": ["x"]})
    refused(400, "tag", "POST", {"target": f"{name}:v1", "tags": ["not a tag"]})
    refused(400, "tag", "POST", {"target": f"{name}:v1", "tags": [str(uuid.uuid4())]})
    refused(400, "Cannot delete the 'default' tag", "DELETE", {"name": name, "tags": ["default"]})
    refused(400, "", "DELETE", {"name": f"{name}:v1", "tags": ["v1"]})
    refused(404, "no-such-template", "DELETE", {"name": "no-such-template", "tags": ["v1"]})
    with pytest.raises(TemplateException):
        builds.ask("assign_tags", f"{name}:no", "x")
    assert {tag.tag for tag in builds.ask("get_tags", name)} == {"v1"}


def test_what_the_dashboard_reads_of_tags(builds):  # noqa: F811
    name = builds.name()
    first = builds.build(small(builds, "first"), f"{name}:v1")
    second = builds.build(small(builds, "second"), f"{name}:v2", tags=["v1", "latest"])
    path = f"/templates/{first.template_id}/tags"
    assert builds.call("GET", f"{path}/count").json() == {"total": 3}
    assert builds.call("GET", f"{path}/exists?tag=V1").json() == {"exists": True, "normalizedTag": "v1"}
    assert builds.call("GET", f"{path}/exists?tag=v3").json() == {"exists": False, "normalizedTag": "v3"}
    groups = builds.call("GET", f"{path}/groups?sort=name_asc").json()
    assert [group["tag"] for group in groups["tags"]] == ["latest", "v1", "v2"] and not groups.get("nextCursor")
    assert [one["buildId"] for one in groups["tags"][1]["assignments"]] == [second.build_id, first.build_id]
    page = builds.call("GET", f"{path}/groups?sort=name_desc&tagsLimit=2").json()
    assert [group["tag"] for group in page["tags"]] == ["v2", "v1"] and page["nextCursor"]
    rest = builds.call("GET", f"{path}/groups?sort=name_desc&tagsLimit=2&tagsCursor={quote(page['nextCursor'], safe='')}").json()
    assert [group["tag"] for group in rest["tags"]] == ["latest"]
    assert {group["tag"] for group in builds.call("GET", f"{path}/groups?search=v").json()["tags"]} == {"v1", "v2"}
    history = builds.call("GET", f"{path}/v1/assignments?limit=1").json()
    assert [one["buildId"] for one in history["data"]] == [second.build_id] and history["nextCursor"]
    more = builds.call("GET", f"{path}/v1/assignments?cursor={quote(history['nextCursor'], safe='')}").json()
    assert [one["buildId"] for one in more["data"]] == [first.build_id]


def test_whether_a_name_exists(both):  # noqa: F811
    name = both.name()
    assert both.ask("exists", name) is False and both.ask("alias_exists", name) is False
    both.build(small(both, "first"), f"{name}:v1")
    assert both.ask("exists", name) is True and both.ask("exists", name.upper()) is True
    assert both.ask("exists", f"{slug_of(both)}/{name}") is True
    assert both.ask("exists", "base") is True, "it is not the team's, and it exists"


def test_a_namespace_is_the_teams_own(builds, team):  # noqa: F811
    name, slug = builds.name(), slug_of(builds)
    built = builds.build(small(builds, "first"), f"{slug}/{name}:v1")
    assert note_of(builds, f"{slug}/{name}:v1") == note_of(builds, f"{name}:v1") == "first"
    (listed,) = [one for one in builds.listed() if one["templateID"] == built.template_id]
    assert (listed["names"], listed["aliases"], listed["public"]) == ([f"{slug}/{name}"], [name], False)
    answer = builds.call("POST", "/v3/templates", {"name": f"somebody-else/{name}"})
    assert (answer.status_code, answer.json()["message"]) == (400, f"namespace 'somebody-else' must match your team '{slug}'")


def test_the_same_name_in_two_teams(builds, theirs):  # noqa: F811
    name = builds.name()
    theirs._names.append(name)
    ours, other = builds.build(small(builds, "ours"), name), theirs.build(small(theirs, "theirs"), name)
    assert ours.template_id != other.template_id
    assert (note_of(builds, name), note_of(theirs, name)) == ("ours", "theirs")


def test_a_foreign_template_is_not_used_before_it_is_public(builds, theirs):  # noqa: F811
    name, slug = builds.name(), slug_of(builds)
    built = builds.build(small(builds, "ours"), name)
    for reference in (built.template_id, f"{slug}/{name}", f"{built.template_id}:{built.build_id}"):
        answer = theirs.call("POST", "/sandboxes", {"templateID": reference})
        assert answer.status_code in (403, 404), answer.text
    assert theirs.ask("exists", name) is False
    ids = theirs.begin()
    theirs.go(*ids, fromTemplate=f"{slug}/{name}")
    assert theirs.told(*ids)["reason"]["step"] == "base"
    for method, path, body in [
        ("GET", f"/templates/{built.template_id}", None),
        ("PATCH", f"/v2/templates/{built.template_id}", {"public": True}),
        ("DELETE", f"/templates/{built.template_id}", None),
        ("GET", f"/templates/{built.template_id}/tags", None),
        ("POST", "/templates/tags", {"target": built.template_id, "tags": ["theirs"]}),
        ("GET", f"/templates/{built.template_id}/builds/{built.build_id}/status", None),
        ("GET", f"/templates/{built.template_id}/builds/{built.build_id}/logs", None),
        ("GET", f"/templates/{built.template_id}/files/{'0' * 64}", None),
        ("POST", f"/v2/templates/{built.template_id}/builds/{built.build_id}", {"fromTemplate": "base", "steps": []}),
    ]:
        answer = theirs.call(method, path, body)
        assert answer.status_code in (400, 403, 404), f"{method} {path}: {answer.status_code} {answer.text}"
        assert "ours" not in answer.text and built.build_id not in answer.text.replace(f"'{built.build_id}'", "")

    published = builds.call("PATCH", f"/v2/templates/{built.template_id}", {"public": True})
    assert (published.status_code, published.json()) == (200, {"names": [f"{slug}/{name}"]})
    assert note_of(theirs, f"{slug}/{name}") == "ours"
    child = theirs.build(theirs.template().from_template(f"{slug}/{name}").run_cmd("cat note note > twice"))
    assert theirs.run(child, "cat twice") == "ours\nours\n"
    assert theirs.call("DELETE", f"/templates/{built.template_id}").status_code == 404
    assert builds.call("PATCH", f"/v2/templates/{built.template_id}", {"public": False}).status_code == 200
    assert theirs.call("POST", "/sandboxes", {"templateID": f"{slug}/{name}"}).status_code in (403, 404)
    assert theirs.run(child, "cat twice") == "ours\nours\n", "what was built from it stays"


def test_lists_and_pages(theirs, team):
    names = [theirs.name() for _ in range(3)]
    made = [theirs.build(small(theirs, "one"), name).template_id for name in names]
    own = [one["templateID"] for one in theirs.listed() if one["templateID"] in made]
    assert own == made, "the oldest first"
    pages, token = [], ""
    while token is not None:
        answer = theirs.call("GET", f"/v2/templates?limit=2&nextToken={quote(token, safe='')}")
        pages += [one["templateID"] for one in answer.json()]
        assert len(answer.json()) <= 2
        token = answer.headers.get("X-Next-Token")
    assert [one for one in pages if one in made] == made[::-1] and len(pages) == len(set(pages))
    again = theirs.build(small(theirs, "again"), names[0])
    detail = theirs.call("GET", f"/templates/{made[0]}?limit=1")
    assert [one["buildID"] for one in detail.json()["builds"]] == [again.build_id] and detail.headers["X-Next-Token"]
    rest = theirs.call("GET", f"/templates/{made[0]}?nextToken={quote(detail.headers['X-Next-Token'], safe='')}").json()["builds"]
    assert len(rest) == 1 and rest[0]["status"] == "ready" and rest[0]["finishedAt"] >= rest[0]["createdAt"]


def test_a_template_in_use_is_not_deleted(builds):  # noqa: F811
    name = builds.name()
    built = builds.build(small(builds, "first"), name)
    box = builds.box(name)
    refused = builds.delete(built.template_id)
    assert (refused.status_code, refused.json()["code"]) == (400, 400)
    assert refused.json()["message"] == f"cannot delete template '{built.template_id}' because there are running sandboxes using it"
    box.pause()
    assert builds.delete(name).json()["message"].endswith("because there are paused sandboxes using it")
    box.connect(timeout=1800)
    assert box.commands.run("cat note").stdout == "first\n"
    box.kill()
    assert builds.delete(built.template_id).status_code == 204
    assert builds.delete(built.template_id).status_code == 404
    assert builds.ask("exists", name) is False
    assert not [one for one in builds.listed() if one["templateID"] == built.template_id]
    with pytest.raises((NotFoundException, SandboxException), match="not found"):
        Sandbox.create(name)


def test_a_name_is_free_after_its_template_is_deleted(builds):  # noqa: F811
    name = builds.name()
    first = builds.build(small(builds, "first"), name)
    assert builds.delete(name).status_code == 204
    second = builds.build(small(builds, "first"), name)
    assert second.template_id != first.template_id and note_of(builds, name) == "first"
    taken = builds.call("POST", "/v3/templates", {"name": first.template_id})
    assert taken.status_code == 409 and f"Alias '{first.template_id}' is already used" in taken.json()["message"]


def test_deleting_a_template_ends_its_build(builds):  # noqa: F811
    name = builds.name()
    info = builds.start(builds.base().run_cmd(f": {mark()}; echo working; sleep 60"), name)
    wait_until(lambda: any("working" in entry.message for entry in builds.status(info).log_entries), what="the command runs")
    assert builds.delete(name).status_code == 204
    assert builds.call("GET", f"/templates/{info.template_id}/builds/{info.build_id}/status").status_code in (200, 400, 404)
    assert builds.ask("exists", name) is False
