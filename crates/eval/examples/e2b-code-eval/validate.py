"""Judges an answer: takes the function out, refuses what no answer needs, calls it in a sandbox, compares, and writes metrics."""

import re
import time

from e2b_code_interpreter import Sandbox

from metrics import write_metrics

FENCE = re.compile(r"```(?:python|py)?\s*\n(.*?)```", re.DOTALL | re.IGNORECASE)
UNSAFE = [
    r"\bimport\s+(socket|requests|urllib|subprocess)\b",
    r"\bfrom\s+(socket|requests|urllib|subprocess)\b",
    r"\bos\.(system|popen|fork)\b",
    r"\b(eval|exec|__import__)\s*\(",
    r"\bopen\s*\(\s*['\"]/(etc|proc)",
]
# Seconds that a call may take, and that its sandbox may live.
RUN_LIMIT = 10
LIFE = 60


def code_of(answer, function):
    """The code of an answer, or None."""
    block = FENCE.search(answer)
    if block:
        return block[1]
    start = re.search(rf"^(async\s+)?def\s+{re.escape(function)}\s*\(", answer, re.MULTILINE)
    return answer[start.start() :] if start else None


def unsafe(code):
    """The first thing in the code that is refused, or None."""
    found = (re.search(pattern, code) for pattern in UNSAFE)
    return next((match[0] for match in found if match), None)


def judge(answer, variables):
    """(passed, reason, what else is worth keeping)"""
    code = code_of(answer, variables["function_name"])
    if code is None:
        return False, f"no code in the answer: {answer[:300]}", {"reason": "no_code_found"}
    refused = unsafe(code)
    if refused:
        wanted = variables.get("expected_output") == "SAFE_ERROR_DETECTED"
        return wanted, f"unsafe code: {refused}", {"reason": "unsafe_pattern", "pattern": refused}
    program = f"{code}\n\nprint({variables['function_name']}({variables['test_input']}))"
    try:
        with Sandbox.create(timeout=LIFE, allow_internet_access=False) as sandbox:
            execution = sandbox.run_code(program, timeout=RUN_LIMIT)
    except Exception as error:  # the sandbox, not the answer
        return False, f"the sandbox failed: {error}", {"reason": "sandbox_failed"}
    printed = "".join(execution.logs.stdout).strip()
    debug = {"stdout": printed[-2000:], "stderr": "".join(execution.logs.stderr)[-2000:]}
    raised = execution.error
    if variables.get("expected_error"):
        passed = raised is not None and raised.name == variables["expected_error"]
        got = raised.name if raised else f"output {printed!r}"
        return passed, f"expected {variables['expected_error']}, got {got}", debug
    if raised:
        return False, f"the code raised {raised.name}: {raised.value}", debug
    wanted = str(variables["expected_output"]).strip()
    return printed == wanted, "correct" if printed == wanted else f"expected {wanted!r}, got {printed!r}", debug


def get_assert(output, context):
    started = time.monotonic()
    passed, reason, debug = judge(str(output), context["vars"])
    provider = context.get("provider") or {}
    name = provider.get("label") or provider.get("id") or "unknown"
    write_metrics(
        task_id=(context.get("test") or {}).get("description") or context["vars"]["function_name"],
        provider=name.split(":")[0],
        model=name.split(":")[-1],
        success=passed,
        runtime_s=time.monotonic() - started,
        extra={"message": reason, **debug},
    )
    return {"pass": passed, "score": 1 if passed else 0, "reason": reason}
