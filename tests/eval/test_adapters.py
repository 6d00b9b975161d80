"""The example `adapters`: a page in a real browser as a target, by the settings of promptfoo's provider `browser`."""

import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import playwright
import pytest

from test_view_page import CHROMIUM
from viewing import BINARY, environment

PAGE = """<!doctype html><title>Shop</title><input id="question"><button id="cookies">Yes</button><div id="log"></div><p id="answer"></p><script>
question.onkeydown = (event) => {
  if (event.key !== "Enter") return;
  setTimeout(() => {
    log.append(document.createElement("span"));
    answer.textContent = `We are open on ${question.value.includes("Sundays") ? "Sunday" : "Monday"}.` + document.cookie;
  }, 300);
};
cookies.onclick = () => cookies.remove();
</script>"""


class Shop(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def shop():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium")
def test_a_page_is_asked_in_a_browser(shop, tmp_path):
    place = tmp_path / "adapters"
    subprocess.run([BINARY, "eval", "init", str(place), "--example", "adapters"], check=True, capture_output=True)
    # The package of npm is part of the one of Python.
    (place / "node_modules").mkdir()
    (place / "node_modules/playwright-core").symlink_to(Path(playwright.__file__).parent / "driver/package")
    # Chromium's own sandbox does not work for root.
    browser = {"executablePath": CHROMIUM, "args": ["--no-sandbox"], "timeoutMs": 60_000}
    ask = [{"action": "navigate", "args": {"url": shop}}, {"action": "type", "args": {"selector": "#question", "text": "{{prompt}}<enter>"}}]
    more = [
        {"action": "click", "args": {"selector": "#cookies"}},
        {"action": "click", "args": {"selector": "#none", "optional": True}},
        {"action": "extract", "name": "answer", "args": {"selector": "#answer"}},
        {"action": "extract", "name": "buttons", "args": {"script": "return document.querySelectorAll('button').length"}},
        {"action": "screenshot", "args": {"path": "shop.png"}},
    ]
    wait = {"action": "waitForNewChildren", "args": {"parentSelector": "#log", "delay": 0}}
    cookies = [{"name": "seen", "value": "1", "url": shop}]
    targets = [
        {"label": "shop", "config": {**browser, "cookies": cookies, "steps": [*ask, wait, *more], "transformResponse": "extracted.answer + extracted.buttons"}},
        {"label": "whole", "config": {**browser, "steps": ask[:1]}},
        {"label": "wrong", "config": {**browser, "timeoutMs": 1000, "steps": [{"action": "click", "args": {"selector": "#none"}}]}},
    ]
    suite = {
        "prompts": ["{{question}}"], "providers": [{"id": "file://browser.mjs", **target} for target in targets],
        "tests": [{"vars": {"question": "Are you open on Sundays?"}}],
    }  # fmt: skip
    (place / "promptfooconfig.yaml").write_text(json.dumps(suite))
    command = [BINARY, "eval", "--no-cache", "--no-table", "-o", "out.json"]
    done = subprocess.run(command, cwd=place, env=environment(tmp_path / "home"), capture_output=True, text=True, timeout=600)
    rows = {row["provider"]["label"]: row for row in json.loads((place / "out.json").read_text())["results"]["results"]}
    assert done.returncode == 100, done.stderr
    assert rows["shop"]["response"]["output"] == "We are open on Sunday.seen=10", rows["shop"]
    assert "<title>Shop</title>" in rows["whole"]["response"]["output"]
    assert "the page did not answer" in rows["wrong"]["error"]
    assert (place / "shop.png").stat().st_size > 1000
