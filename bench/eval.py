#!/usr/bin/env python3
"""Times `sandcove eval` and promptfoo on the same suites, in turns, and prints a table in Markdown.

    bench/eval.py --sandcove target/release/sandcove --promptfoo …/node_modules/promptfoo/dist/src/entrypoint.js

Wall time is from the start of the process to its end on the monotonic clock, memory the largest resident set of the process; each is the
median of the runs, and wall time has the fastest and the slowest run beside it. The programs take turns, so that what else the machine
does meets both. `--check` fails if a goal is missed. The suites that run code in sandboxes need `E2B_API_URL` and `E2B_API_KEY`, and
PROMPTFOO_PYTHON with `e2b-code-interpreter`; without a server they are left out.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

QUIET = {
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_SHARING": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
    "PROMPTFOO_DISABLE_DEBUG_LOG": "1",
}

PYTHON_CHECK = """\
def get_assert(output, context):
    right = context["vars"]["word"] in output
    return {"pass": right, "score": 1 if right else 0, "reason": "found" if right else "missing"}
"""

SANDBOX_CHECK = """\
from e2b_code_interpreter import Sandbox


def get_assert(output, context):
    with Sandbox.create(timeout=60) as sandbox:
        execution = sandbox.run_code(output + "\\nprint(double(" + str(context["vars"]["i"]) + "))")
    got = "".join(execution.logs.stdout).strip()
    right = got == str(2 * context["vars"]["i"])
    return {"pass": right, "score": 1 if right else 0, "reason": got}
"""


def suite(prompt, assertions):
    """A function from a number of tests to a configuration; JSON is YAML."""

    def make(count):
        words = ["river", "stone", "cloud", "ember"]
        tests = [{"vars": {"word": words[i % 4], "i": i}, "assert": assertions(words[i % 4], i)} for i in range(count)]
        return json.dumps({"prompts": [prompt], "providers": ["echo"], "tests": tests})

    return make


SAY = "Say {{word}} number {{i}}"
CODE = "def double(n):\n    return 2 * n  # {{i}}\n"
SUITES = {
    "contains": suite(SAY, lambda word, i: [{"type": "contains", "value": word}]),
    "javascript inline": suite(
        SAY, lambda word, i: [{"type": "javascript", "value": f"output.includes('{word}') && output.length > 5"}]
    ),
    "python file": suite(SAY, lambda word, i: [{"type": "python", "value": "file://check.py"}]),
    "code in sandboxes, python file and SDK": suite(CODE, lambda word, i: [{"type": "python", "value": "file://sandbox.py"}]),
    "code in sandboxes, code-run": suite(
        CODE,
        lambda word, i: [
            {"type": "code-run", "value": {"source": "whole", "function": "double", "cases": [{"input": i, "expected": 2 * i}]}}
        ],
    ),
}


# Most wall seconds and MiB of `sandcove`, by suite and tests.
GOALS = {("contains", 5000): (0.5, 60), ("code in sandboxes, code-run", 200): (6, 200)}


def once(command, directory):
    """(wall seconds, CPU seconds, MiB) of one run that must pass."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, **QUIET, "PROMPTFOO_CONFIG_DIR": home}
        null = os.open(os.devnull, os.O_RDWR)
        started = time.monotonic()
        pid = os.fork()
        if pid == 0:
            os.chdir(directory)
            for descriptor in range(3):
                os.dup2(null, descriptor)
            os.execvpe(command[0], command, environment)
        _, status, usage = os.wait4(pid, 0)
        wall = time.monotonic() - started
        os.close(null)
        if status:
            sys.exit(f"{' '.join(command)} in {directory} ended with {os.waitstatus_to_exitcode(status)}")
        return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def measure(programs, arguments, directory, runs):
    """For each program, its runs: (wall seconds, CPU seconds, MiB). Every other round begins with the other program."""
    measured = {program: [] for program in programs}
    for at in range(runs):
        for program in list(programs)[:: -1 if at % 2 else 1]:
            measured[program].append(once([*programs[program], *arguments], directory))
    return measured


def report(suite, count, measured):
    """Prints a line for each program, and returns the goals that were missed."""
    missed = []
    for program, runs in measured.items():
        walls = [wall for wall, _, _ in runs]
        wall, cpu, memory = (statistics.median(column) for column in zip(*runs, strict=True))
        spread = f"{min(walls):.3f} to {max(walls):.3f}"
        print(f"| {suite} | {count} | {program} | {wall:.3f} | {spread} | {cpu:.2f} | {memory:.0f} |", flush=True)
        goal = GOALS.get((suite, count)) if program == "sandcove" else None
        if goal and (wall > goal[0] or memory > goal[1]):
            missed.append(f"{suite}, {count} tests: {wall:.3f} s and {memory:.0f} MiB; the goal is {goal[0]} s and {goal[1]} MiB")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandcove", required=True)
    parser.add_argument("--promptfoo", help="its entrypoint.js; left out when not given")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--case", action="append", default=[], help="NAME=COUNT; all of them when not given")
    parser.add_argument("--check", action="store_true", help="fail if a goal is missed")
    options = parser.parse_args()
    programs = {"sandcove": [os.path.abspath(options.sandcove)]}
    if options.promptfoo:
        programs["promptfoo"] = ["node", os.path.abspath(options.promptfoo)]
    cases = [(name, int(count)) for name, count in (case.rsplit("=", 1) for case in options.case)] or [
        ("contains", 1000), ("contains", 5000), ("javascript inline", 1000), ("javascript inline", 5000), ("python file", 100),
        ("code in sandboxes, python file and SDK", 200), ("code in sandboxes, code-run", 200),
    ]
    print("| suite | tests | program | wall s | fastest to slowest | CPU s | MiB |\n| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    missed = []
    with tempfile.TemporaryDirectory() as directory:
        for name, text in (("check.py", PYTHON_CHECK), ("sandbox.py", SANDBOX_CHECK)):
            Path(directory, name).write_text(text)
        report("start (`--version`)", "", measure(programs, ["--version"], directory, options.runs))
        for name, count in cases:
            if "sandboxes" in name and "E2B_API_URL" not in os.environ:
                print(f"{name}: left out, E2B_API_URL names no server", file=sys.stderr)
                continue
            Path(directory, "suite.yaml").write_text(SUITES[name](count))
            # An assertion of its own.
            able = {program: command for program, command in programs.items() if program == "sandcove" or "code-run" not in name}
            arguments = ["eval", "-c", "suite.yaml", "-j", "4", "--no-cache", "--no-progress-bar", "--no-table"]
            missed += report(name, count, measure(able, arguments, directory, options.runs))
    for goal in missed:
        print(f"missed: {goal}", file=sys.stderr)
    if options.check and missed:
        sys.exit(1)


if __name__ == "__main__":
    main()
