"""A Python assertion: takes the code out of the answer, runs it with `vars["call"]` in a sandbox, compares what comes out."""

import re

from e2b_code_interpreter import Sandbox


def get_assert(output, context):
    variables = context["vars"]
    block = re.search(r"```(?:python)?\s*\n(.*?)```", output, re.DOTALL | re.IGNORECASE)
    if not block:
        return {"pass": False, "score": 0, "reason": f"no code in the answer: {output[:200]}"}
    # Code that nobody has read gets no network and not much time.
    with Sandbox.create(allow_internet_access=False, timeout=60) as sandbox:
        execution = sandbox.run_code(f"{block[1]}\nprint({variables['call']})", timeout=10)
    return verdict(execution, variables)


def verdict(execution, variables):
    printed = "".join(execution.logs.stdout).strip()
    raised = execution.error.name if execution.error else None
    wanted_error = variables.get("expected_error")
    right = raised == wanted_error if wanted_error else raised is None and printed == variables["expected"]
    got = f"{raised}: {execution.error.value}" if raised else printed
    wanted = wanted_error or variables["expected"]
    return {"pass": right, "score": 1 if right else 0, "reason": f"wanted {wanted}, got {got}"}
