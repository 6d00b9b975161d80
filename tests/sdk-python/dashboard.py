"""Fixtures of the tests of the dashboard: a browser, pages that must not complain, and a sandbox with texts that mean harm."""

import subprocess

import pytest
from e2b_code_interpreter import Sandbox
from playwright.sync_api import expect

from harness.browser import CHROMIUM, TIMEOUT, browser
from harness.server import API_KEY, ROOT

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium")

HARM = "<script>window.harmed=1</script><img src=x onerror='window.harmed=2'>\"'`${harm}"
PROJECT = ROOT / "crates/server/dashboard"


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
        context.set_default_timeout(TIMEOUT)
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
            # Frames with HTML of cells may run scripts: they are strangers.
            for frame in [page, *(frame for frame in page.frames if "/assets/frame.html" not in frame.url)]:
                assert frame.evaluate("window.harmed") is None
        context.close()
    assert troubles == []


@pytest.fixture(scope="module")
def box(server):
    """A sandbox with harmful metadata, for the tests that leave it running."""
    box = Sandbox.create(timeout=3600, metadata={"owner": "tests", "harm": HARM, HARM: "name"})
    yield box
    box.kill()


def serious(page, axe):
    """What axe finds on a page that keeps people from using it."""
    page.evaluate(axe)
    violations = page.evaluate("axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']}).then((all) => all.violations)")
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in violations if one["impact"] in ("serious", "critical", "moderate")]
