"""A check of your own: the first number of the answer is the expected one."""

import re


def get_assert(output, context):
    expected = float(context["vars"]["expected"])
    found = re.search(r"-?\d+(\.\d+)?", output)
    if not found:
        return {"pass": False, "score": 0, "reason": "the answer has no number"}
    actual = float(found.group())
    close = abs(actual - expected) < 0.01 * abs(expected)
    return {"pass": close, "score": float(close), "reason": f"expected {expected:g}, got {actual:g}"}
