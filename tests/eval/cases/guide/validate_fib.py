import re


def get_assert(output, context):
    found = re.search(r"```(?:python)?\n(.*?)```", output, re.S)
    if not found:
        return {"pass": False, "score": 0.0, "reason": "no code block"}
    scope = {}
    exec(found[1], scope)
    wanted = context["vars"]["expected"]
    got = scope[context["vars"]["function_name"]](int(context["vars"]["n"]))
    return {
        "pass": got == wanted,
        "score": 1.0 if got == wanted else 0.25,
        "reason": f"got {got}, wanted {wanted}",
        "named_scores": {"correct": 1.0 if got == wanted else 0.0, "length": len(found[1]) / 100},
        "component_results": [
            {"pass": True, "score": 1, "reason": "code was found"},
            {"pass": got == wanted, "score": 1 if got == wanted else 0, "reason": "values agree"},
        ],
    }


def is_short(output, context):
    return len(output.splitlines()) < context.get("config", {}).get("lines", 5)
