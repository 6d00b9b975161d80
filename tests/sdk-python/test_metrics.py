"""Prometheus's own tool finds nothing to say about the metrics and the alert rules."""

import subprocess

import httpx
import pytest
from e2b_code_interpreter import Sandbox

from harness import debian
from harness.server import ADMIN_TOKEN, ROOT


@pytest.fixture(scope="module")
def promtool() -> str:
    return str(debian.unpacked("prometheus", "promtool"))


def test_metrics_are_as_prometheus_wants_them(server, promtool):
    sandbox = Sandbox.create(timeout=60)
    try:
        sandbox.run_code("1")
        sandbox.commands.run("true")
        answer = httpx.get(f"{server.url}/metrics", headers={"X-Admin-Token": ADMIN_TOKEN})
    finally:
        sandbox.kill()
    assert answer.status_code == 200 and "sandcove_" in answer.text
    done = subprocess.run([promtool, "check", "metrics"], input=answer.text, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), answer.text
    named = {line.split()[2] for line in answer.text.splitlines() if line.startswith("# TYPE")}
    reference = (ROOT / "docs/reference/metrics.md").read_text()
    assert not [name for name in named if f"`{name}`" not in reference], "the reference has every metric"


def test_metrics_without_a_type_are_refused_by_the_tool(promtool):
    done = subprocess.run([promtool, "check", "metrics"], input="a_total 1\n", capture_output=True, text=True, timeout=60)
    assert done.returncode != 0


def test_alert_rules_are_as_prometheus_wants_them(promtool):
    rules = ROOT / "packaging/monitoring/alerts.yml"
    done = subprocess.run([promtool, "check", "rules", "--lint=all", "--lint-fatal", str(rules)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
