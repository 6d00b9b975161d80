"""The dashboard in a real browser: logging in, the list of sandboxes, links, rights, and that everybody can use it."""

import os
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from dashboard import HARM, axe, box, chromium, needs_chromium, serious, visit  # noqa: F401
from e2b_code_interpreter import Sandbox
from playwright.sync_api import expect

from harness.server import ADMIN_TOKEN, API_KEY

pytestmark = needs_chromium


def test_a_key_stays_on_the_server(visit):
    page = visit(credential=None)
    page.get_by_label("API key").fill("e2b_wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("API key")
    # The browser reports the refusal, as it should.
    assert all("401" in trouble for trouble in visit.troubles)
    visit.troubles.clear()
    page.get_by_label("API key").fill(API_KEY)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible()
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/dashboard")
    kept = page.evaluate("JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}, document.documentElement.outerHTML])")
    assert API_KEY not in kept and cookie["value"] not in kept
    page.reload()
    expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    assert page.context.cookies() == []


def test_the_list_shows_finds_and_kills_sandboxes(visit, box):
    other = Sandbox.create("base", timeout=3600)
    page = visit()
    table = page.get_by_role("region", name="Sandboxes")
    row = table.get_by_role("row").filter(has_text=box.sandbox_id)
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("owner=tests")
    expect(row).to_contain_text(f"harm={HARM}")
    expect(row.locator("meter").first).to_be_visible()
    expect(row).to_contain_text("MiB")
    search = page.get_by_label("Search by id, template or metadata")
    search.fill("owner=tests")
    expect(table.get_by_role("row").filter(has_text=other.sandbox_id)).to_have_count(0)
    expect(row).to_be_visible()
    search.fill(other.sandbox_id)
    expect(row).to_have_count(0)
    search.fill("")
    page.get_by_label("Template", exact=True).select_option("base")
    expect(row).to_have_count(0)
    page.get_by_role("button", name=f"Kill {other.sandbox_id}").click()
    page.get_by_role("dialog").get_by_role("button", name="Kill").click()
    expect(table.get_by_role("row").filter(has_text=other.sandbox_id)).to_have_count(0)
    assert not other.is_running()


def test_thousands_of_rows_are_listed_and_filtered(visit):
    total = 3000
    now = time.time()

    def made(number):
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - number))
        return {
            "sandboxID": f"i{number:019}", "templateID": "t" * 20, "alias": f"kind{number % 7}", "clientID": "c", "startedAt": started,
            "endAt": "2099-01-01T00:00:00Z", "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 1024, "state": "running", "envdVersion": "0.6.0",
            "metadata": {"number": str(number)},
        }  # fmt: skip

    def answer(route):
        begin = int(route.request.url.split("nextToken=")[1].split("&")[0]) if "nextToken=" in route.request.url else 0
        end = begin + 100
        headers = {"x-next-token": str(end)} if end < total else {}
        route.fulfill(json=[made(number) for number in range(begin, min(end, total))], headers=headers)

    page = visit(credential=None)
    page.route("**/dashboard/api/v2/sandboxes?*", answer)
    page.route("**/dashboard/api/sandboxes/metrics?*", lambda route: route.fulfill(json={"sandboxes": {}}))
    page.get_by_label("API key").fill(API_KEY)
    page.get_by_role("button", name="Log in").click()
    table = page.get_by_role("region", name="Sandboxes")
    expect(page.get_by_text(f"{total} of {total}")).to_be_visible()
    assert table.locator("tbody tr").count() < 100
    table.evaluate("table => table.scrollTo(0, table.scrollHeight)")
    expect(table.get_by_text(f"i{total - 1:019}")).to_be_visible()
    assert table.locator("tbody tr").count() < 100
    page.get_by_label("Search by id, template or metadata").fill("number=1234")
    expect(page.get_by_text(f"1 of {total}")).to_be_visible()
    expect(table.get_by_text("i0000000000000001234")).to_be_visible()
    page.get_by_label("Search by id, template or metadata").fill("kind3")
    expect(page.get_by_text(f"{len(range(3, total, 7))} of {total}")).to_be_visible()
    table.get_by_role("button", name="ID").click()
    expect(table.locator("tbody tr").nth(1)).to_contain_text("kind3")


def test_a_thousand_sandboxes_are_listed_and_filtered(visit):
    total, paused = 1000, 100
    mark = f"crowd-{os.getpid()}"
    with ThreadPoolExecutor(8) as pool:
        boxes = []

        def start(number):
            box = Sandbox.create("base", timeout=3600, metadata={mark: f"n{number}"})
            boxes.append(box)
            return box

        try:
            # At most 1,000 run at once, and another test's does: those that are paused make room.
            list(pool.map(lambda number: start(number).pause(), range(paused)))
            list(pool.map(start, range(paused, total - 1)))
            last = start(total - 1)
            page = visit()
            table = page.get_by_role("region", name="Sandboxes")
            search, count = page.get_by_label("Search by id, template or metadata"), page.get_by_role("search").get_by_role("status")
            search.fill(mark)
            expect(count).to_have_text(re.compile(rf"^{total} of \d+$"))
            assert table.locator("tbody tr").count() < 100, "only rows in sight are made"
            # Usage is there for those in sight, wherever that is.
            table.get_by_role("button", name="Age").click()
            expect(table.locator("meter").first).to_be_visible()
            table.evaluate("table => table.scrollTo(0, table.scrollHeight / 2)")
            expect(table.locator("meter").first).to_be_visible()
            page.get_by_label("State").select_option("paused")
            expect(count).to_have_text(re.compile(rf"^{paused} of \d+$"))
            expect(table.get_by_role("row").filter(has_text="paused").first).to_be_visible()
            page.get_by_label("State").select_option("running")
            expect(count).to_have_text(re.compile(rf"^{total - paused} of \d+$"))
            search.fill(f"{mark}=n{total - 1}")
            expect(count).to_have_text(re.compile(r"^1 of \d+$"))
            row = table.get_by_role("row").filter(has_text=last.sandbox_id)
            expect(row).to_be_visible()
            # What ends is gone from the list without loading the page again.
            last.kill()
            expect(row).to_have_count(0)
        finally:
            list(pool.map(lambda box: box.kill(), boxes))


def test_monitoring_shows_the_sandboxes_of_the_team_over_time(visit, box):
    page = visit("/dashboard/monitoring")
    # A sample is taken every 10 seconds.
    for hours in ("Last hour", "Last 7 days"):
        page.get_by_label("Range").select_option(hours)
        expect(page.get_by_role("img", name=re.compile(r"^Concurrent sandboxes: now [1-9]"))).to_be_visible()
        expect(page.get_by_role("img", name=re.compile(r"^Starts per minute: now \d"))).to_be_visible()
        assert page.locator(".chart path").first.get_attribute("d").startswith("M")
    assert box.is_running()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_list_fits_the_screen_of_a_laptop(visit, scheme):
    names = ["base", "code-interpreter-v1", "a-team-with-a-long-name/a-template-with-a-long-name"]
    now = time.time()

    def made(number):
        stamp = lambda later: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + later))  # noqa: E731
        return {
            "sandboxID": f"i{number:020}", "templateID": "t" * 20, "alias": names[number % 3], "clientID": "c", "startedAt": stamp(-7000 * number**3),
            "endAt": stamp(80_000), "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 1024, "state": "running", "envdVersion": "0.6.0",
            "metadata": {"owner": "somebody@example.com", "purpose": "words " * number},
        }  # fmt: skip

    rows = [made(number) for number in range(30)]
    sample = {"cpuCount": 2, "cpuUsedPct": 100.0, "memUsed": 1020 << 20, "memTotal": 2 << 30, "diskUsed": 1010 << 20, "diskTotal": 10 << 30}
    # The browser of the tests has no scroll bars, which take 15 pixels.
    page = visit(credential=None, color_scheme=scheme, viewport={"width": 1280 - 15, "height": 860})
    page.route("**/dashboard/api/v2/sandboxes?*", lambda route: route.fulfill(json=rows))
    samples = {row["sandboxID"]: {**sample, "timestamp": row["startedAt"], "timestampUnix": 1} for row in rows}
    page.route("**/dashboard/api/sandboxes/metrics?*", lambda route: route.fulfill(json={"sandboxes": samples}))
    page.get_by_label("API key").fill(API_KEY)
    page.get_by_role("button", name="Log in").click()
    table = page.get_by_role("region", name="Sandboxes")
    expect(table.get_by_text("100 %").first).to_be_visible()
    assert table.evaluate("table => table.scrollWidth <= table.clientWidth"), "nothing is cut off"
    edge = table.evaluate("table => table.getBoundingClientRect().right")
    for cell in table.get_by_role("row").nth(5).get_by_role("cell").all():
        box = cell.bounding_box()
        assert box["width"] > 40 and box["x"] + box["width"] <= edge


def test_links_of_the_official_command_line_open_the_right_page(visit, box, server):
    page = visit(f"/dashboard/inspect/sandbox/{box.sandbox_id}")
    expect(page.locator("h1")).to_contain_text(box.sandbox_id)
    for link, heading in [
        ("/dashboard?tab=templates", "Templates"),
        ("/dashboard?tab=sandboxes", "Sandboxes"),
        ("/dashboard/my-team/sandboxes/list", "Sandboxes"),
        ("/dashboard/my-team/sandboxes/monitoring", "Monitoring"),
        ("/dashboard?tab=usage", "Monitoring"),
        ("/dashboard?tab=budget", "Monitoring"),
        ("/dashboard?tab=nothing-like-it", "Sandboxes"),
        ("/dashboard?tab=toString", "Sandboxes"),
        ("/dashboard/my-team/billing/plan", "Monitoring"),
        ("/dashboard/my-team/agents", "New sandbox"),
        ("/dashboard/my-team/templates/base/tags/default", "Tags"),
        ("/dashboard/my-team/templates/list", "Templates"),
        ("/dashboard/my-team/webhooks", "Webhooks"),
        ("/dashboard/terminal", "New sandbox"),
        ("/", "Sandboxes"),
    ]:
        page.goto(server.url + link)
        expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    # These are for an account of the operator, and a key finds none.
    for link in ("?tab=account", "?tab=byoc", "/my-team/members"):
        page.goto(f"{server.url}/dashboard{link}")
        expect(page.get_by_role("heading", name="Page not found")).to_be_visible()
    page.goto(f"{server.url}/dashboard/my-team/sandboxes/{box.sandbox_id}/filesystem")
    expect(page.get_by_label("Directory")).to_be_visible()
    # A link may fill in a command; a user has to start it.
    page.goto(f"{server.url}/sbx/new?template=base&command=echo+from-$((40%2B2))-link")
    expect(page.get_by_label("Template")).to_have_value("base")
    expect(page.get_by_text("A link has filled in this command.")).to_be_visible()
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".xterm-rows")).to_contain_text("from-42-link")
    started = page.url.split("/sandboxes/")[1].split("/")[0]
    page.goto(f"{server.url}/dashboard/volumes")
    Sandbox.connect(started).kill()


def test_a_key_is_offered_only_what_it_may_use(visit):
    page = visit("/dashboard/node")
    expect(page.get_by_role("heading", name="Page not found")).to_be_visible()
    menu = page.get_by_role("navigation", name="Pages")
    expect(menu.get_by_role("link", name="Sandboxes")).to_be_visible()
    for name in ("Keys", "Teams", "Node"):
        expect(menu.get_by_role("link", name=name)).to_have_count(0)


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_pages_are_accessible(visit, box, axe, look):
    options = {
        "light": {"color_scheme": "light"},
        "dark": {"color_scheme": "dark"},
        "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
    }[look]
    page = visit(credential=None, **options)
    expect(page.get_by_label("API key")).to_be_visible()
    found = {"login": serious(page, axe)}
    page.get_by_label("API key").fill(ADMIN_TOKEN)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("row").filter(has_text=box.sandbox_id)).to_be_visible()
    found["sandboxes"] = serious(page, axe)
    places = ["new", "monitoring", "templates", "snapshots", "volumes", "events", "webhooks", "evaluations", "keys", "teams", "node"]
    places += [f"sandboxes/{box.sandbox_id}/{tab}" for tab in ("overview", "terminal", "files", "code", "logs", "network", "events")]
    for place in places:
        page.goto(f"{page.url.split('/dashboard')[0]}/dashboard/{place}")
        expect(page.locator("h1")).to_be_visible()
        expect(page.get_by_text("Loading…")).to_have_count(0)
        if place.endswith("terminal"):
            expect(page.locator("[data-state=connected]")).to_be_visible()
        found[place] = serious(page, axe)
        # Nothing is cut off to the right.
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{place} is wider than the screen"
    assert {place: problems for place, problems in found.items() if problems} == {}


def test_a_keyboard_is_enough(visit, box):
    page = visit()
    expect(page.get_by_role("row").filter(has_text=box.sandbox_id)).to_be_visible()
    page.reload()
    expect(page.get_by_role("row").filter(has_text=box.sandbox_id)).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    link = page.get_by_role("link", name=box.sandbox_id)
    for _ in range(30):
        page.keyboard.press("Tab")
        if link.evaluate("link => link === document.activeElement"):
            break
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text(box.sandbox_id)
    page.get_by_role("button", name="Kill").press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert box.is_running()
