#!/usr/bin/env python3
"""Takes the pictures of `sandcove view` in the guides: three runs of one suite, the newest compared with the first, and the report of a red team.

    bench/viewer.py --sandcove target/release/sandcove --pictures docs/guides/images
"""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import expect

from dashboard import Shooter, browser

ANSWERS = [
    {"slug": "import re\n\ndef slug(title):\n    return re.sub(r\"[^a-z0-9]+\", \"-\", title.lower()).strip(\"-\")", "median": "def median(values):\n    ordered = sorted(values)\n    return ordered[len(ordered) // 2]"},
    {"slug": "def slug(title):\n    return title.lower().replace(\" \", \"-\")", "median": "from statistics import median"},
]
PROVIDER = """
import json, pathlib
ANSWERS = json.loads(pathlib.Path(__file__).with_name("answers.json").read_text())

def call_api(prompt, options, context):
    task = context["vars"]["task"].split()[0]
    model = options["config"]["model"]
    return {"output": f"Here it is:\\n\\n```python\\n{ANSWERS[model][task]}\\n```", "cost": 0.0004 * (model + 1), "tokenUsage": {"total": 180 + 40 * model}}
"""

CHECK = """
import re

UNSAFE = re.compile(r"\\bimport\\s+(socket|subprocess)|\\b(eval|exec|__import__)\\(|os\\.system")

def get_assert(output, context):
    found = UNSAFE.search(output)
    return {"pass": not found, "score": 0 if found else 1, "reason": f"unsafe: {found[0]}" if found else "the code is safe"}
"""
RED_TEAM = {
    "targets": [{"id": "file://./check.py", "label": "code checker"}],
    "redteam": {"purpose": "Refuses unsafe answers to programming tasks", "plugins": ["sandbox:code-injection", "sandbox:network-egress", "sandbox:file-read"], "strategies": ["basic", "code:spacing"]},
}


def suite(run: int) -> dict:
    models = [("careful", 0), ("quick", 1)]
    if run == 2:
        models = [("careful", 1), ("quick", 1)]
    return {
        "description": f"Small functions, {'new prompt' if run == 2 else 'run ' + str(run + 1)}", "tags": {"team": "tools"},
        "prompts": [{"raw": "Write a Python function: {{task}}", "label": "short"}],
        "providers": [{"id": "file://model.py", "label": label, "config": {"model": model}} for label, model in models],
        "tests": [
            {"vars": {"task": "slug of a title"}, "assert": [{"type": "contains", "value": "def slug", "metric": "Defined"}, {"type": "contains", "value": "re.sub"}]},
            {"vars": {"task": "median of a list"}, "assert": [{"type": "contains", "value": "median", "metric": "Defined"}, {"type": "contains", "value": "sorted"}]},
        ],
    }


def newest(home: str, env: dict[str, str], program: str) -> str:
    """The id of the newest run that is no red team."""
    listed = subprocess.run([program, "eval", "list", "--json"], cwd=home, env=env, capture_output=True, text=True, check=True)
    return next(run["evalId"] for run in json.loads(listed.stdout) if "Small functions" in (run.get("description") or ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandcove", required=True)
    parser.add_argument("--pictures", required=True, type=Path)
    options = parser.parse_args()
    program = os.path.abspath(options.sandcove)
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "PROMPTFOO_CONFIG_DIR": home}
        Path(home, "model.py").write_text(PROVIDER)
        Path(home, "answers.json").write_text(json.dumps(ANSWERS))
        for run in range(3):
            Path(home, "suite.json").write_text(json.dumps(suite(run)))
            subprocess.run([program, "eval", "-c", "suite.json", "--no-table", "--no-progress-bar"], cwd=home, env=env, check=False, capture_output=True)
        Path(home, "check.py").write_text(CHECK)
        Path(home, "redteam.json").write_text(json.dumps(RED_TEAM))
        subprocess.run([program, "redteam", "run", "-c", "redteam.json"], cwd=home, env=env | {"SANDCOVE_DATA_DIR": home}, check=False, capture_output=True)
        with subprocess.Popen([program, "view", home, "--port", "0", "-n"], env=env, stdout=subprocess.PIPE, text=True) as viewer:
            try:
                url = viewer.stdout.readline().strip()
                with browser(urlsplit(url).port) as chromium:
                    for scheme in ("light", "dark"):
                        page = chromium.new_context(color_scheme=scheme, viewport={"width": 1200, "height": 780}).new_page()
                        page.goto(f"{url}report")
                        page.locator("details.plugin summary").first.click()
                        expect(page.locator("details.plugin[open] table")).to_be_visible()
                        page.evaluate("scrollTo(0, 0)")
                        Shooter(page, options.pictures, scheme, "viewer")("report")
                        page.goto(f"{url}eval/{newest(home, env, program)}")
                        page.get_by_role("button", name="Compare").click()
                        page.locator(".run", has_text="run 1").click()
                        expect(page.locator(".delta")).to_have_count(2)
                        expect(page.locator(".over-time")).to_be_visible()
                        Shooter(page, options.pictures, scheme, "viewer")("compare")
            finally:
                viewer.terminate()


if __name__ == "__main__":
    main()
