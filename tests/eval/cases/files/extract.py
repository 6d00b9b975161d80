import re


def get_assert(output, context):
    found = re.search(r"```(?:python)?\s*(.*?)```", output, re.S | re.I)
    if not found:
        return {"pass": False, "score": 0, "reason": "no code"}
    space = {}
    exec(found.group(1), space)
    right = space[context["vars"]["function_name"]](5) == 120
    return {"pass": right, "score": int(right), "reason": "right" if right else "wrong"}
