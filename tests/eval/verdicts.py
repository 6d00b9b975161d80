"""Runs a suite with either evaluator and reduces its JSON to what both must agree on: the verdicts.

The first lines of a suite may be comments that say how it is run: `# args:` with options, `# env:` with variables, and
`# requests` where the requests to models are compared too. A service plays all models.

A row is identified by its column and test; its answer is not compared, for that is the provider's. Reasons are compared by what kind of
reason they are, because the words are each program's own.
"""

import json
import math
import os
import re
import socket
import subprocess
import tempfile
from pathlib import Path

from models import environment as addresses, models
from neutral import ENVIRONMENT

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CASES = sorted(path for path in (HERE / "cases").iterdir() if path.suffix in (".yaml", ".cjs", ".mjs", ".ts"))

# The first that fits. Texts of the suite's own functions fit none and are compared as they are.
KINDS = [
    ("safety", r"safety checks|guardrail|moderation flags"),
    ("skill", r"\bskill"),
    ("windows", r"conversation windows"),
    ("call", r"^Call to "),
    ("sql", r"^SQL "),
    ("schema", r"conform to the provided schema|no function `"),
    ("all passed", r"^(All assertions|Assertion) passed$|^Custom function returned true"),
    ("no assertions", r"^No assertions"),
    ("returned false", r"^(Custom function|Python code|Ruby code) returned false"),
    ("threshold", r"threshold|(>=|<) [\d.]+$"),
    ("error", r"error|threw|exception|invalid|unexpected|could not|cannot|must be|failed to|must return|should return"),
    ("expected", r"^expected|expected "),
]


# Types whose reasons tell what was found, in each program's words, whether they pass or fail.
TELLING = re.compile(r"(not-)?(trace-|trajectory:|search-rubric)")


def kind(reason, of_type=None):
    """What kind of reason a text is."""
    if TELLING.match(of_type or ""):
        return "found"
    text = (reason or "").strip()
    for name, pattern in KINDS:
        if re.search(pattern, text, re.IGNORECASE):
            return name
    return text.splitlines()[0] if text else ""


def number(value):
    return round(value, 4) if isinstance(value, (int, float)) and math.isfinite(value) else value


def row(raw):
    grading = raw.get("gradingResult") or {}
    return {
        "test": raw["testIdx"],
        "column": raw["promptIdx"],
        "success": raw["success"],
        "score": number(raw["score"]),
        "failureReason": raw["failureReason"],
        "namedScores": {name: number(score) for name, score in sorted((raw.get("namedScores") or {}).items())},
        "components": [
            {
                "type": (part.get("assertion") or {}).get("type"),
                "pass": part["pass"],
                "score": number(part["score"]),
                "reason": kind(part.get("reason"), (part.get("assertion") or {}).get("type")),
            }
            for part in grading.get("componentResults") or []
        ],
    }


def verdicts(document):
    """What is compared of a result document."""
    results = document["results"]
    rows = sorted((row(raw) for raw in results["results"]), key=lambda r: (r["test"], r["column"]))
    return {
        "stats": {name: results["stats"][name] for name in ("successes", "failures", "errors")},
        "columns": [
            {
                "score": number(column["metrics"]["score"]),
                "namedScores": {
                    name: number(score) for name, score in sorted(column["metrics"]["namedScores"].items())
                },
            }
            for column in results["prompts"]
        ],
        "rows": rows,
    }


def directives(case):
    """How the first lines of a suite say that it is run."""
    says = {}
    for line in case.read_text().splitlines():
        if not (found := re.match(r"# (args|env|requests)\b:? ?(.*)", line)):
            break
        says[found[1]] = found[2]
    return says


def free_port():
    """A port that nothing listens on, for suites that receive traces."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


def run(command, case):
    """The verdicts of `command` (an argument list) on a suite, or how it failed to give any."""
    says = directives(case)
    with tempfile.TemporaryDirectory() as home, models() as service:
        out = Path(home) / "out.json"
        arguments = [*command, "eval", "-c", case.name, "-o", str(out), "--no-cache", "--no-table", "--no-progress-bar"]
        arguments += says.get("args", "").split()
        environment = {**os.environ, **ENVIRONMENT, "PROMPTFOO_CONFIG_DIR": home, **addresses(service), "OTLP_PORT": free_port()}
        environment |= dict(pair.split("=", 1) for pair in says.get("env", "").split())
        done = subprocess.run(
            arguments, cwd=case.parent, env=environment, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
        )
        if not out.exists():
            return {"refused": True, "said": (done.stdout + done.stderr)[-2000:]}
        found = {"code": done.returncode, **verdicts(json.loads(out.read_text()))}
        if "requests" in says:
            asked = {json.dumps(request, sort_keys=True) for request in service.asked}
            found["requests"] = [json.loads(request) for request in sorted(asked)]
        return found
