"""The dashboard in a real browser, with real sandboxes and texts that mean harm."""

import hashlib
import os
import re
import shlex
import struct
import subprocess
import time
import zlib
from pathlib import Path

import pytest
import requests
from e2b_code_interpreter import Sandbox
from playwright.sync_api import expect

from harness.browser import CHROMIUM, PATIENCE, browser
from harness.server import ADMIN_TOKEN, API_KEY, ROOT, wait_until

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium")

HARM = "<script>window.harmed=1</script><img src=x onerror='window.harmed=2'>\"'`${harm}"
PROJECT = ROOT / "crates/server/dashboard"
SIZE = 100 << 20


@pytest.fixture(scope="module")
def chromium(server):
    with browser(server.port) as chromium:
        yield chromium


@pytest.fixture(scope="module")
def axe():
    """The source of axe-core, which finds what keeps people from using a page."""
    source = PROJECT / "node_modules/axe-core/axe.min.js"
    if not source.exists():
        subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=PROJECT, check=True, capture_output=True)
    return source.read_text()


@pytest.fixture
def visit(chromium, server):
    """Opens pages, logged in with a credential. No page may complain, ask other hosts, or run what it shows."""
    troubles, contexts = [], []

    def visit(path="/dashboard", credential=API_KEY, **options):
        context = chromium.new_context(accept_downloads=True, **{"viewport": {"width": 1280, "height": 860}, **options})
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: message.type in ("error", "warning") and troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on("request", lambda request: request.url.startswith((server.url, "blob:", "data:")) or troubles.append(request.url))
        page.goto(server.url + path)
        if credential:
            page.get_by_label("API key, access token or admin token").fill(credential)
            page.get_by_role("button", name="Log in").click()
            expect(page.get_by_role("button", name="Log out")).to_be_visible()
        return page

    visit.troubles = troubles
    yield visit
    for context in contexts:
        for page in context.pages:
            assert page.evaluate("window.harmed") is None
        context.close()
    assert troubles == []


@pytest.fixture(scope="module")
def box(server):
    """A sandbox with harmful metadata, for the tests that leave it running."""
    box = Sandbox.create(timeout=3600, metadata={"owner": "tests", "harm": HARM, HARM: "name"})
    yield box
    box.kill()


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


def test_a_sandbox_is_changed_by_its_buttons(visit):
    box = Sandbox.create("base", timeout=3600)
    page = visit(f"/dashboard/sandboxes/{box.sandbox_id}")
    facts = page.locator(".facts")
    expect(facts).to_contain_text("running")
    for name in ("CPU", "Memory", "Disk"):
        expect(page.get_by_role("img", name=re.compile(f"^{name}: now"))).to_be_visible()
    expect(page.locator(".chart").first).to_contain_text("created")

    page.get_by_role("button", name="Set timeout").click()
    page.get_by_label("Minutes from now").fill("600")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(facts).to_contain_text("9 h 59 min")

    page.get_by_role("button", name="Snapshot").click()
    page.get_by_role("button", name="Take snapshot").click()
    expect(page.get_by_role("dialog")).to_contain_text("The snapshot is")
    snapshot = page.get_by_role("dialog").locator("code").inner_text()
    page.get_by_role("button", name="Done").click()

    page.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(facts).to_contain_text("paused")
    page.get_by_role("link", name="Terminal").click()
    expect(page.get_by_text("The sandbox is paused.")).to_be_visible()
    page.get_by_role("button", name="Resume").first.click()
    expect(facts).to_contain_text("running")

    page.get_by_role("link", name="Overview").click()
    page.get_by_role("button", name="Fork").click()
    expect(page).not_to_have_url(re.compile(box.sandbox_id))
    expect(page.locator("h1")).to_contain_text(re.compile("i[a-z0-9]{19,}"))
    fork = page.url.split("/sandboxes/")[1].split("/")[0]
    assert fork in [one.sandbox_id for one in Sandbox.list().next_items()]
    page.get_by_role("button", name="Kill").click()
    page.get_by_role("dialog").get_by_role("button", name="Kill").click()
    expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible()
    assert fork not in [one.sandbox_id for one in Sandbox.list().next_items()]

    page.get_by_role("link", name="Snapshots").click()
    page.get_by_role("button", name=f"Start {snapshot}").click()
    expect(page.locator(".facts")).to_contain_text("running")
    started = page.url.split("/sandboxes/")[1].split("/")[0]
    Sandbox.connect(started).kill()
    page.get_by_role("link", name="Snapshots").click()
    page.get_by_role("button", name=f"Delete {snapshot}").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text(snapshot)).to_have_count(0)

    box.kill()
    page.goto(page.url.split("/dashboard")[0] + f"/dashboard/inspect/sandbox/{box.sandbox_id}")
    expect(page.get_by_text("This sandbox has ended")).to_be_visible()
    expect(page.get_by_role("table")).to_contain_text("killed")
    # The answer of the API that there is no such sandbox is reported by the browser.
    assert all("404" in trouble for trouble in visit.troubles)
    visit.troubles.clear()


def test_the_terminal_types_and_resizes(visit, box):
    page = visit(f"/dashboard/sandboxes/{box.sandbox_id}/terminal")
    screen = page.locator(".xterm-rows")
    expect(page.locator("[data-state=connected]")).to_be_visible()
    expect(screen).to_contain_text("user@")
    page.keyboard.type("echo sum-$((40 + 2)) $TERM\n")
    expect(screen).to_contain_text("sum-42 xterm-256color")

    def size():
        page.keyboard.type("clear; echo size $(stty size) end\n")
        expect(screen).to_contain_text(re.compile(r"size \d+ \d+ end"))
        return tuple(map(int, re.search(r"size (\d+) (\d+) end", screen.inner_text()).groups()))

    before = size()
    page.set_viewport_size({"width": 900, "height": 700})
    # The screen is smaller at once; the shell hears of it from the kernel.
    page.keyboard.type("clear; until [ $(stty size | cut -d' ' -f2) -lt %d ]; do read -t 0.2; done; echo smaller\n" % before[1])
    expect(screen).to_contain_text(re.compile(r"smaller\s*user@"))
    after = size()
    assert after[0] < before[0] and after[1] < before[1], (before, after)
    page.keyboard.type("printf '\\033[38;2;1;200;3mgreen\\033[0m %s\\n' '" + HARM.replace("'", "") + "'\n")
    expect(screen).to_contain_text("green <script>")
    page.get_by_label("User").select_option("root")
    expect(page.locator("[data-state=connected]")).to_be_visible()
    page.keyboard.type("echo I am $(id -un)\n")
    expect(screen).to_contain_text("I am root")
    page.keyboard.type("exit\n")
    expect(page.get_by_text("the shell has ended")).to_be_visible()
    page.get_by_role("button", name="New shell").click()
    expect(page.locator("[data-state=connected]")).to_be_visible()
    assert "-l" in [argument for process in box.commands.list() for argument in process.args]
    page.goto("about:blank")
    wait_until(lambda: not any("-l" in process.args for process in box.commands.list()), what="the shell of a page that was left ends")


def test_files_are_browsed_edited_and_previewed(visit, box):
    directory = "/home/user/work"
    name = HARM.replace("/", "_")
    box.files.write(f"{directory}/{name}", "harmless")
    box.files.write(f"{directory}/picture.png", png())
    box.files.write(f"{directory}/page.svg", f"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'>{HARM.split('<img')[0]}</svg>")
    box.files.write(f"{directory}/data.bin", bytes(range(256)))
    page = visit(f"/dashboard/sandboxes/{box.sandbox_id}/files")
    page.get_by_role("button", name="work/").click()
    table = page.get_by_role("table")
    expect(table).to_contain_text(name)
    table.get_by_role("button", name=name, exact=True).click()
    editor = page.get_by_role("dialog").locator("textarea")
    expect(editor).to_have_value("harmless")
    editor.fill("changed é")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert box.files.read(f"{directory}/{name}") == "changed é"

    for picture in ("picture.png", "page.svg"):
        table.get_by_role("button", name=picture, exact=True).click()
        expect(page.get_by_role("dialog").get_by_role("img")).to_be_visible()
        assert page.get_by_role("dialog").get_by_role("img").evaluate("async image => { await image.decode(); return image.naturalWidth; }") > 0
        page.get_by_role("button", name="Close").click()
    table.get_by_role("button", name="data.bin", exact=True).click()
    expect(page.get_by_text("The file is not text.")).to_be_visible()
    page.get_by_role("button", name="Close").click()

    page.get_by_role("button", name="Rename data.bin").click()
    page.get_by_label("Name", exact=True).fill("renamed.bin")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="Delete renamed.bin").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(table.get_by_text("renamed.bin")).to_have_count(0)
    page.get_by_role("button", name="New directory").click()
    page.get_by_label("Name", exact=True).fill("deeper")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="deeper/").click()
    expect(page.get_by_text("The directory is empty.")).to_be_visible()
    page.get_by_role("button", name="Up", exact=True).click()
    expect(table).to_contain_text("picture.png")
    page.get_by_label("Directory").fill("/nowhere")
    page.get_by_label("Directory").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("/nowhere")
    page.get_by_label("As user").select_option("root")
    page.get_by_label("Directory").fill("/root")
    page.get_by_label("Directory").press("Enter")
    expect(table).to_contain_text(".bashrc")
    # The browser reports the refusal.
    visit.troubles[:] = [trouble for trouble in visit.troubles if not re.search("40[0-9]", trouble)]


def test_a_large_file_goes_up_and_down(visit, box, tmp_path):
    large = tmp_path / "large.bin"
    digest = hashlib.sha256()
    with large.open("wb") as file:
        for _ in range(SIZE >> 20):
            digest.update(piece := os.urandom(1 << 20))
            file.write(piece)
    page = visit(f"/dashboard/sandboxes/{box.sandbox_id}/files")
    page.get_by_label("Files to upload").set_input_files(large)
    expect(page.get_by_role("table")).to_contain_text("large.bin")
    assert box.commands.run("sha256sum large.bin", timeout=300).stdout.split()[0] == digest.hexdigest()
    with page.expect_download() as downloading:
        page.get_by_role("link", name="Download large.bin").click()
    assert downloading.value.suggested_filename == "large.bin"
    assert hashlib.sha256(Path(downloading.value.path()).read_bytes()).hexdigest() == digest.hexdigest()
    box.commands.run("rm large.bin")


def test_cells_show_figures_tables_and_charts(visit, box):
    page = visit(f"/dashboard/sandboxes/{box.sandbox_id}/code")
    code = page.get_by_label("Code", exact=True)

    def run(text):
        code.fill(text)
        code.press("Shift+Enter")
        cell = page.locator("section.cell").last
        expect(cell.locator("pre.code")).to_have_text(text)
        expect(page.get_by_role("button", name="Interrupt")).to_have_count(0)
        return cell

    cell = run("import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.show()\nx = 41")
    assert cell.get_by_role("img").evaluate("async image => { await image.decode(); return image.naturalWidth; }") > 100
    expect(run("x + 1")).to_contain_text("42")
    expect(run(f"print({HARM!r})")).to_contain_text(HARM)
    expect(run("1 / 0")).to_contain_text("ZeroDivisionError")
    frame = run("import pandas as pd\npd.DataFrame({'city': ['Bern', 'Oslo']})").frame_locator("iframe")
    expect(frame.get_by_text("Oslo")).to_be_visible()

    # An interactive chart: its script runs, in the frame.
    html = "<button onclick=\"this.textContent='clicked'\">click</button>"
    frame = run(f"from IPython.display import HTML\nHTML({html!r})").frame_locator("iframe")
    frame.get_by_role("button").click()
    expect(frame.get_by_role("button")).to_have_text("clicked")

    hostile = """
    <p id="said">nothing</p><img src="https://elsewhere.example/a.png"><script>
    const said = [];
    const tries = {
      parent: () => parent.document.title, top: () => top.document.cookie, storage: () => localStorage.length, cookie: () => document.cookie,
      harm: () => { parent.harmed = 3; }, leave: () => { top.location = "/dashboard/leave"; }, window: () => open("/dashboard").document.title,
    };
    for (const [name, go] of Object.entries(tries)) { try { said.push(name + " " + go()); } catch { said.push(name + " refused"); } }
    Promise.all(["/dashboard/session", "https://elsewhere.example/"].map((url) => fetch(url, {credentials: "include"}).then(() => "read", () => "refused")))
      .then((got) => { document.getElementById("said").textContent = [...said, ...got].join(", "); });
    </script>"""
    cell = run(f"HTML({hostile!r})")
    said = cell.frame_locator("iframe").locator("#said")
    expect(said).to_have_text(", ".join([f"{name} refused" for name in ("parent", "top", "storage", "cookie", "harm", "leave", "window")] + ["refused"] * 2))
    expect(page).to_have_url(re.compile("/code$"))
    # What the frame is refused is reported by the browser.
    visit.troubles.clear()
    slow = "import time\nprint('began')\ntime.sleep(3600)"
    code.fill(slow)
    code.press("Shift+Enter")
    expect(page.locator("section.cell").last).to_contain_text("began")
    page.get_by_role("button", name="Interrupt").click()
    expect(page.locator("section.cell").last).to_contain_text("interrupted")
    expect(run("x")).to_contain_text("41")


def test_logs_network_and_events(visit, box):
    box.commands.run("python3 -m http.server 8123 --bind 127.0.0.1", background=True)
    box.commands.run("mkdir -p /tmp/here && cd /tmp/here && until curl -sf localhost:8123; do sleep 0.1; done >/dev/null", timeout=120)
    page = visit(f"/dashboard/sandboxes/{box.sandbox_id}/network")
    link = page.get_by_role("link", name=f"8123-{box.sandbox_id}")
    expect(link).to_be_visible()
    address = link.get_attribute("href")
    assert address.startswith(f"http://8123-{box.sandbox_id}.localhost:")
    assert link.get_attribute("rel") == "noopener noreferrer"
    page.get_by_role("button", name="Change").click()
    page.get_by_label("Denied addresses and networks").fill("192.0.2.0/24\n198.51.100.7")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("192.0.2.0/24, 198.51.100.7")).to_be_visible()
    assert box.get_info().network["deny_out"] == ["192.0.2.0/24", "198.51.100.7"]
    page.get_by_role("link", name="Logs").click()
    expect(page.get_by_role("log")).to_be_visible()
    page.get_by_label("Level").select_option("error")
    page.get_by_label("Level").select_option("")
    expect(page.get_by_role("log")).to_be_visible()
    page.get_by_label("Parts of the sandbox").get_by_role("link", name="Events").click()
    expect(page.get_by_role("table")).to_contain_text("created")


def test_a_page_of_a_sandbox_is_a_stranger(visit, box, server):
    """A page in the origin of the dashboard, by a path, and one on a port, of the same machine."""
    steal = "fetch('{0}/dashboard/api/v2/sandboxes').then(a => a.text(), e => 'refused').then(t => document.title = 'got ' + t)"
    box.files.write("/home/user/own.html", f"<title>quiet</title><p>shown</p><script>window.name='ran';{steal.format('')}</script>")
    home = visit()
    context = home.context
    page = context.new_page()
    signed = box.download_url("own.html", user="user")
    with page.expect_download() if "attachment" in requests.head(signed).headers.get("content-disposition", "") else nothing():
        answer = page.goto(signed)
        assert "sandbox" in answer.headers["content-security-policy"]
        expect(page.get_by_text("shown")).to_be_visible()
        assert (page.title(), page.evaluate("window.name"), page.evaluate("self.origin")) == ("quiet", "", "null")
    page.close()

    # On a port, what a page sends to the dashboard has no session, and what a browser sends to the port has no cookie of it.
    serve = f"""
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        open('/tmp/seen', 'a').write(str(self.headers))
        self.send_response(200); self.send_header('content-type', 'text/html'); self.end_headers()
        self.wfile.write(b"<p>served</p><script>{steal.format(server.url)}</script>")
http.server.HTTPServer(('127.0.0.1', 8200), Handler).serve_forever()
"""
    box.files.write("/home/user/serve.py", serve)
    box.commands.run("python3 serve.py", background=True)
    page = context.new_page()
    for attempt in range(2):
        page.goto(f"http://8200-{box.sandbox_id}.localhost:{server.port}/")
    expect(page.get_by_text("served")).to_be_visible()
    page.wait_for_function("document.title.startsWith('got')")
    assert page.title() == "got refused"
    assert "sandcove_dashboard" not in box.files.read("/tmp/seen")
    page.close()
    home.reload()
    expect(home.get_by_role("heading", name="Sandboxes")).to_be_visible()


class nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def test_links_of_the_official_command_line_open_the_right_page(visit, box, server):
    page = visit(f"/dashboard/inspect/sandbox/{box.sandbox_id}")
    expect(page.locator("h1")).to_contain_text(box.sandbox_id)
    for link, heading in [
        ("/dashboard?tab=templates", "Templates"),
        ("/dashboard?tab=sandboxes", "Sandboxes"),
        ("/dashboard/my-team/sandboxes/list", "Sandboxes"),
        ("/dashboard/my-team/templates/list", "Templates"),
        ("/dashboard/my-team/webhooks", "Webhooks"),
        ("/dashboard/terminal", "New sandbox"),
        ("/", "Sandboxes"),
    ]:
        page.goto(server.url + link)
        expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
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


def test_templates_and_their_builds(visit):
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
    page.get_by_role("table").get_by_role("link").first.click()
    expect(page.locator(".facts")).to_contain_text("ready")
    expect(page.get_by_role("log")).to_contain_text(f"{name} <script>")
    page.get_by_role("link", name="Templates").click()
    page.get_by_role("button", name=re.compile(f"^Delete .*{name}$")).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(link).to_have_count(0)


def test_volumes_keys_webhooks_teams_and_the_node(visit, server):
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
    assert requests.get(f"{server.url}/v2/sandboxes", headers={"x-api-key": key}).status_code == 200
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_text(key)).to_have_count(0)
    page.get_by_role("button", name=f"Delete {HARM}").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text(HARM)).to_have_count(0)
    assert requests.get(f"{server.url}/v2/sandboxes", headers={"x-api-key": key}).status_code == 401

    page.get_by_role("link", name="Webhooks").click()
    page.get_by_role("button", name="New webhook").click()
    page.get_by_label("Name", exact=True).fill("dashboard-hook")
    # Nothing listens there, and the server may not even ask.
    page.get_by_label("URL").fill("http://127.0.0.1:9/hook")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog")).to_contain_text("It is not shown again.")
    page.get_by_role("button", name="Done").click()
    Sandbox.create("base", timeout=60).kill()
    page.get_by_role("link", name="dashboard-hook").click()
    expect(page.locator(".delivery").first).to_contain_text("failed")
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
    found = {"login": serious(page, axe)}
    page.get_by_label("API key").fill(ADMIN_TOKEN)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("row").filter(has_text=box.sandbox_id)).to_be_visible()
    found["sandboxes"] = serious(page, axe)
    places = ["new", "templates", "snapshots", "volumes", "events", "webhooks", "evaluations", "keys", "teams", "node"]
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


def serious(page, axe):
    """What axe finds on a page that keeps people from using it."""
    page.evaluate(axe)
    violations = page.evaluate("axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']}).then((all) => all.violations)")
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in violations if one["impact"] in ("serious", "critical", "moderate")]


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


def png() -> bytes:
    """A picture of one pixel."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")
