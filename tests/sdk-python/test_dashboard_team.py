"""The pages of the dashboard for what a team has beside sandboxes, and those of the operator."""

import os
import re
import shlex
from pathlib import Path

import requests
from dashboard import HARM, axe, chromium, needs_chromium, serious, visit  # noqa: F401
from e2b_code_interpreter import Sandbox
from playwright.sync_api import expect

from harness.server import ADMIN_TOKEN, API_KEY, wait_until

pytestmark = needs_chromium


def test_templates_and_their_builds(visit, axe):  # noqa: F811
    from e2b import Template

    name = f"dashboard-{os.getpid()}"
    template = Template().from_template("base").run_cmd(f"echo {name} {shlex.quote(HARM)}")
    Template.build(template, name, cpu_count=1, memory_mb=512)
    page = visit("/dashboard/templates")
    link = page.locator("td a").filter(has_text=name)
    link.first.click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    page.get_by_label("Tag", exact=True).fill("stable")
    page.get_by_role("button", name="Set tag").click()
    expect(page.get_by_role("button", name="Remove tag stable")).to_be_visible()
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("button", name="Make private")).to_be_visible()
    assert serious(page, axe) == []
    page.get_by_role("table").get_by_role("link").first.click()
    expect(page.locator(".facts")).to_contain_text("ready")
    expect(page.get_by_role("log")).to_contain_text(f"{name} <script>")
    assert serious(page, axe) == []
    page.get_by_role("link", name="Templates").click()
    page.get_by_role("button", name=re.compile(f"^Delete .*{name}$")).click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert serious(page, axe) == []
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(link).to_have_count(0)


def test_the_log_of_a_build_grows_while_it_is_looked_at(visit, server):
    from e2b import Template

    name = f"dashboard-log-{os.getpid()}"
    steps = "echo first-$((40 + 2)); sleep 30; echo last-$((40 + 2))"
    built = Template.build_in_background(Template().from_template("base").run_cmd(steps), name, cpu_count=1, memory_mb=512)
    page = visit(f"/dashboard/templates/{built.template_id}")
    # A table of builds has it while it is made.
    expect(page.get_by_role("table").get_by_role("row").filter(has_text=built.build_id)).to_contain_text(re.compile("waiting|building"))
    page.get_by_role("table").get_by_role("link").first.click()
    log, facts = page.get_by_role("log"), page.locator(".facts")
    expect(log).to_contain_text("first-42")
    lines = log.locator(".line").count()
    expect(facts).to_contain_text("building")
    # Nobody loads the page again.
    page.evaluate("window.same = true")
    expect(log).to_contain_text("last-42")
    expect(facts).to_contain_text("ready")
    assert page.evaluate("window.same") and log.locator(".line").count() > lines
    requests.delete(f"{server.url}/templates/{built.template_id}", headers={"x-api-key": API_KEY}).raise_for_status()


def test_templates_of_the_server_are_offered_only_to_be_started(visit, server):
    page = visit("/dashboard/templates")
    # A table shows the rows in sight only, and other tests leave templates that failed.
    page.get_by_role("searchbox").fill("base")
    expect(page.get_by_role("link", name="Start base")).to_be_visible()
    expect(page.get_by_role("button", name="Delete base", exact=True)).to_have_count(0)
    page.goto(f"{server.url}/dashboard/templates/base")
    expect(page.get_by_role("heading", name="base", exact=True)).to_be_visible()
    for name in ("Publish", "Make private", "Set tag"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    expect(page.get_by_role("button", name=re.compile("^Remove tag"))).to_have_count(0)


def test_volumes_keys_webhooks_teams_and_the_node(visit, server, axe):  # noqa: F811
    page = visit("/dashboard/volumes", ADMIN_TOKEN)
    volume = f"dashboard-{os.getpid()}"
    page.get_by_label("Name of a new volume").fill(volume)
    page.get_by_role("button", name="Create").click()
    page.get_by_role("link", name=volume).click()
    expect(page.get_by_text("The directory is empty.")).to_be_visible()
    page.get_by_label("Name of a new directory").fill("deeper")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("button", name="deeper/").click()
    name = HARM.replace("/", "_")
    page.get_by_label("Files to upload").set_input_files({"name": name, "mimeType": "text/html", "buffer": b"kept"})
    expect(page.get_by_role("table")).to_contain_text(name)
    assert serious(page, axe) == []
    with page.expect_download() as downloading:
        page.get_by_role("link", name=f"Download {name}").click()
    assert Path(downloading.value.path()).read_bytes() == b"kept"
    page.get_by_role("button", name=f"Delete {name}").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("The directory is empty.")).to_be_visible()
    page.get_by_role("link", name="Volumes").click()
    page.get_by_role("button", name=f"Delete {volume}").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("button", name=f"Delete {volume}")).to_have_count(0)

    page.get_by_role("link", name="Keys").click()
    page.get_by_label("Name of a new key").fill(HARM)
    page.get_by_role("button", name="Create").click()
    key = page.get_by_role("dialog").locator("code").inner_text()
    assert serious(page, axe) == []
    assert requests.get(f"{server.url}/v2/sandboxes", headers={"x-api-key": key}).status_code == 200
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_text(key)).to_have_count(0)
    page.get_by_role("button", name=f"Delete {HARM}").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text(HARM)).to_have_count(0)
    assert requests.get(f"{server.url}/v2/sandboxes", headers={"x-api-key": key}).status_code == 401

    page.get_by_role("link", name="Webhooks").click()
    page.get_by_role("button", name="New webhook").click()
    assert serious(page, axe) == []
    page.get_by_label("Name", exact=True).fill("dashboard-hook")
    # Nothing listens there, and the server may not even ask.
    page.get_by_label("URL").fill("http://127.0.0.1:9/hook")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog")).to_contain_text("It is not shown again.")
    page.get_by_role("button", name="Done").click()
    Sandbox.create("base", timeout=60).kill()
    page.get_by_role("link", name="dashboard-hook").click()
    expect(page.locator(".delivery").first).to_contain_text("failed")
    assert serious(page, axe) == []
    page.get_by_role("button", name="Disable").click()
    expect(page.get_by_role("button", name="Enable")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("link", name="dashboard-hook")).to_have_count(0)

    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Events").click()
    expect(page.get_by_role("table")).to_contain_text("killed")
    team = f"dashboard-{os.getpid()}"
    page.get_by_role("link", name="Teams").click()
    page.get_by_label("Name of a new team").fill(team)
    page.get_by_role("button", name="Create").click()
    page.get_by_role("button", name=f"Limits of {team}").click()
    page.get_by_label("Sandboxes at once").fill("7")
    assert serious(page, axe) == []
    page.get_by_role("button", name="Save").click()
    row = page.get_by_role("row").filter(has_text=team)
    expect(row).to_contain_text("0 of 7")
    page.get_by_role("button", name=f"Block {team}", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Block").click()
    expect(row).to_contain_text("blocked")
    page.get_by_role("button", name=f"Unblock {team}").click()
    expect(row).to_contain_text("enabled")
    page.get_by_role("link", name="Node").click()
    expect(page.locator(".facts")).to_contain_text("ready")
    (node,) = requests.get(f"{server.url}/nodes", headers={"x-admin-token": ADMIN_TOKEN}).json()
    expect(page.get_by_text(re.compile(rf"\d+ of {node['capacity']}$"))).to_be_visible()
    cells = page.get_by_role("region", name="Pooled sandboxes").get_by_role("row").filter(has=page.get_by_role("cell", name="base", exact=True)).get_by_role("cell")
    expect(cells.nth(1)).to_have_text(re.compile(r"^\d+ of [1-9]\d*$"))
    expect(cells.nth(2)).to_have_text(re.compile("[KM]iB"))
    starts = lambda: sum(int(cells.nth(column).inner_text()) for column in (3, 4))  # noqa: E731
    before = starts()
    Sandbox.create("base", timeout=60).kill()
    wait_until(lambda: starts() == before + 1, what="the page counts the start")
    try:
        page.get_by_role("button", name="Drain").click()
        page.get_by_role("dialog").get_by_role("button", name="Drain").click()
        expect(page.locator(".facts")).to_contain_text("draining")
        page.get_by_role("button", name="Accept sandboxes").click()
        expect(page.locator(".facts")).to_contain_text("ready")
    finally:
        # Other tests start sandboxes on it.
        admin = {"x-admin-token": ADMIN_TOKEN}
        (node,) = requests.get(f"{server.url}/nodes", headers=admin).json()
        requests.post(f"{server.url}/nodes/{node['id']}", headers=admin, json={"status": "ready"}).raise_for_status()
