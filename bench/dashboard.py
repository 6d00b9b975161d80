"""How soon the pages of the dashboard show something, by the browser's own clock, and pictures of them for the guide.

    dashboard.py [--rounds N] [--sandboxes N] [--pictures DIRECTORY]
    as root on the server's host, with a server running, E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY set, and `e2b-code-interpreter`,
    `pillow`, `playwright` and Chromium installed

Each round loads a page in a browser context of its own, whose cache is empty, and reads the first contentful paint from the
performance API. Prints Markdown. With `--pictures`, the pages are drawn, light and dark, with sandboxes of names that say something.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from e2b_code_interpreter import Sandbox  # noqa: E402
from PIL import Image  # noqa: E402

from harness.browser import browser  # noqa: E402

PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
FIGURE = """import matplotlib.pyplot as plt
import numpy as np
x = np.linspace(0, 12, 300)
plt.figure(figsize=(6, 2.6))
for n in (1, 2, 3):
    plt.plot(x, np.sin(x * n / 2) / n)
plt.show()"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--sandboxes", type=int, default=200)
    parser.add_argument("--pictures", type=Path)
    args = parser.parse_args()
    url = os.environ["E2B_API_URL"]
    with browser(urlsplit(url).port or 80) as chromium:
        if args.pictures:
            pictures(chromium, url, args.pictures)
        else:
            measure(chromium, url, args.rounds, args.sandboxes)


@contextmanager
def crowd(count: int):
    with ThreadPoolExecutor(4) as pool:
        boxes = list(pool.map(lambda _: Sandbox.create("base", timeout=3600), range(count)))
        try:
            yield boxes
        finally:
            list(pool.map(lambda box: box.kill(), boxes))


def log_in(context, url: str):
    page = context.new_page()
    page.goto(f"{url}/dashboard")
    page.get_by_label("API key, access token or admin token").fill(os.environ["E2B_API_KEY"])
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="Log out").wait_for()
    return page


def measure(chromium, url: str, rounds: int, sandboxes: int) -> None:
    context = chromium.new_context()
    log_in(context, url)
    state = context.storage_state()
    print("| page | first contentful paint, median | slowest of", rounds, "| rows, median | requests | transferred |")
    print("| --- | --- | --- | --- | --- | --- |")
    row(chromium, url, "log in", None, "API key", rounds)
    row(chromium, url, "list, no sandboxes", state, "No sandboxes", rounds)
    with crowd(sandboxes):
        row(chromium, url, f"list, {sandboxes} sandboxes", state, f"{sandboxes} of {sandboxes}", rounds)


def row(chromium, url: str, name: str, state, text: str, rounds: int) -> None:
    paints, shown, requests, size = [], [], 0, 0
    for _ in range(rounds):
        context = chromium.new_context(storage_state=state) if state else chromium.new_context()
        page = context.new_page()
        page.goto(f"{url}/dashboard")
        page.get_by_text(text).first.wait_for()
        shown.append(page.evaluate("performance.now()"))
        paints.append(page.wait_for_function(PAINT).json_value())
        requests, size = page.evaluate(
            "[...performance.getEntriesByType('resource'), ...performance.getEntriesByType('navigation')].reduce(([n, b], one) => [n + 1, b + one.transferSize], [0, 0])"
        )
        context.close()
    print(
        f"| {name} | {statistics.median(paints):.0f} ms | {max(paints):.0f} ms | {statistics.median(shown):.0f} ms | {requests} | {size / 1024:.0f} KiB |",
        flush=True,
    )


def pictures(chromium, url: str, directory: Path) -> None:
    """Draws the pages of the guide."""
    purposes = ["data-analysis", "chat-42", "chat-43", "nightly-report", "unit-tests", "crawler"]
    boxes = [Sandbox.create("base" if n % 3 == 2 else None, timeout=3600, metadata={"purpose": purpose, "user": f"u{n}"}) for n, purpose in enumerate(purposes)]
    try:
        box = boxes[0]
        box.files.write("/home/user/data/cities.csv", "city,temperature\nBern,20\nOslo,22\n")
        box.files.write("/home/user/report.md", "# Report\n")
        box.commands.run("timeout 60 sh -c 'while :; do :; done' & sleep 45; head -c 300M /dev/zero > /home/user/data/big.bin", timeout=120)
        boxes[3].pause()
        for scheme in ("light", "dark"):
            context = chromium.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 720})
            page = log_in(context, url)
            shoot = Shooter(page, directory, scheme)
            page.locator("meter").first.wait_for()
            page.wait_for_timeout(6000)
            shoot("list")
            page.goto(f"{url}/dashboard/sandboxes/{box.sandbox_id}/overview")
            page.locator(".chart path").first.wait_for()
            shoot("overview")
            page.goto(f"{url}/dashboard/sandboxes/{box.sandbox_id}/terminal")
            page.locator("[data-state=connected]").wait_for()
            page.locator(".xterm-rows").get_by_text("user@").first.wait_for()
            page.keyboard.type("python3 --version; ls -l data; df -h . | tail -1\n")
            page.wait_for_timeout(2000)
            shoot("terminal")
            page.goto(f"{url}/dashboard/sandboxes/{box.sandbox_id}/files")
            page.get_by_text("report.md").wait_for()
            shoot("files")
            page.goto(f"{url}/dashboard/sandboxes/{box.sandbox_id}/code")
            page.get_by_label("Code", exact=True).fill(FIGURE)
            page.get_by_label("Code", exact=True).press("Shift+Enter")
            page.locator("img.figure").wait_for()
            shoot("code")
            page.goto(f"{url}/dashboard/templates/base")
            page.get_by_role("heading", name="Tags").wait_for()
            shoot("template")
            context.close()
    finally:
        for box in boxes:
            box.kill()


class Shooter:
    """Draws what a page shows."""

    def __init__(self, page, directory: Path, scheme: str, subject: str = "dashboard") -> None:
        self.page, self.directory, self.scheme, self.subject = page, directory, scheme, subject

    def __call__(self, name: str) -> None:
        picture = Image.open(io.BytesIO(self.page.screenshot()))
        # A palette is enough for what a page shows, and takes a third of the space.
        picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(self.directory / f"{self.subject}-{name}-{self.scheme}.png", optimize=True)


if __name__ == "__main__":
    main()
