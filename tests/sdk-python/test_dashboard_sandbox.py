"""The pages of one sandbox on the dashboard, with a real sandbox and texts that mean harm."""

import hashlib
import os
import re
import struct
import zlib
from pathlib import Path

import requests
from dashboard import HARM, axe, box, chromium, needs_chromium, serious, visit  # noqa: F401
from e2b_code_interpreter import Sandbox
from playwright.sync_api import expect

from harness.server import wait_until

pytestmark = needs_chromium
# Bytes of the large file.
SIZE = 100 << 20


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


def test_dropped_files_are_uploaded_where_they_are_dropped(visit, box):
    box.files.make_dir("/home/user/dropped")
    page = visit(f"/dashboard/sandboxes/{box.sandbox_id}/files")
    page.get_by_role("button", name="dropped/").click()
    expect(page.get_by_text("The directory is empty.")).to_be_visible()
    name = HARM.replace("/", "_")
    files = page.evaluate_handle(
        """name => {
          const transfer = new DataTransfer();
          transfer.items.add(new File(["first"], name, { type: "text/html" }));
          transfer.items.add(new File([new Uint8Array(300_000).fill(7)], "large.bin"));
          return transfer;
        }""",
        name,
    )
    place = page.get_by_text("The directory is empty.")
    place.dispatch_event("dragover", {"dataTransfer": files})
    place.dispatch_event("drop", {"dataTransfer": files})
    table = page.get_by_role("table")
    expect(table).to_contain_text(name)
    expect(table).to_contain_text("large.bin")
    assert box.files.read(f"dropped/{name}") == "first"
    assert box.files.read("dropped/large.bin", format="bytes") == b"\7" * 300_000
    # The page is still there: the browser has not opened what was dropped.
    expect(page).to_have_url(re.compile("/files$"))


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
    button = frame.get_by_role("button")
    expect(button).to_be_visible()
    # A busy browser gives a click on a frame that it has not painted yet to the page around it.
    for _ in range(20):
        button.click()
        if button.text_content() == "clicked":
            break
        page.wait_for_timeout(500)
    expect(button).to_have_text("clicked")

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


def test_a_chart_of_plotly_is_shown_and_answers_the_mouse(visit, box):
    page = visit(f"/dashboard/sandboxes/{box.sandbox_id}/code")
    code = page.get_by_label("Code", exact=True)
    # A figure at the end of a cell, and one that is shown by a later cell.
    program = "import plotly.graph_objects as go\nfigure = go.Figure(go.Bar(x=['Bern', 'Oslo'], y=[20, 22]))\nfigure"
    for text in (program, "figure.show()"):
        code.fill(text)
        code.press("Shift+Enter")
        cell = page.locator("section.cell").last
        expect(cell.locator("pre.code")).to_have_text(text)
        expect(page.get_by_role("button", name="Interrupt")).to_have_count(0)
        chart = cell.locator("iframe").last.content_frame.locator(".js-plotly-plot")
        expect(chart.locator(".bars .point")).to_have_count(2)
        # The mouse on a bar shows its values. A busy browser may not have painted the frame yet.
        for _ in range(20):
            chart.locator(".bars .point").last.hover(force=True)
            if chart.locator(".hoverlayer").get_by_text("22").count():
                break
            page.wait_for_timeout(500)
        expect(chart.locator(".hoverlayer")).to_contain_text("22")
        # Its own button zooms: the axis has other numbers.
        before = chart.locator(".yaxislayer-above").text_content()
        chart.locator("[data-title='Zoom out']").dispatch_event("click")
        expect(chart.locator(".yaxislayer-above")).not_to_have_text(before)
    # Its library asks for another, for formulas, and the frame may load nothing.
    assert all("mathjax" in trouble.lower() for trouble in visit.troubles), visit.troubles
    visit.troubles.clear()


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


def test_connections_through_the_egress_proxy_are_listed(visit, axe):
    """Names of hosts and reasons are the sandbox's."""
    box = Sandbox.create(timeout=600, network={"allow_out": ["allowed.example"], "deny_out": ["0.0.0.0/0"]})
    try:
        page = visit(f"/dashboard/sandboxes/{box.sandbox_id}/network")
        expect(page.get_by_text("None yet.")).to_be_visible()
        box.commands.run("curl -s -m 20 --resolve refused.example:80:192.0.2.7 http://refused.example/ || true", timeout=60)
        row = page.get_by_role("region", name="Connections").get_by_role("row").filter(has_text="refused.example")
        expect(row).to_contain_text("192.0.2.7:80")
        expect(row).to_contain_text("denied")
        assert serious(page, axe) == []
        box.pause()
        page.reload()
        expect(page.get_by_text("The sandbox is paused.").first).to_be_visible()
        expect(page.get_by_role("region", name="Connections")).to_have_count(0)
    finally:
        box.kill()


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


def png() -> bytes:
    """A picture of one pixel."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")
