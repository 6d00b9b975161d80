def call_api(prompt, options, context):
    if prompt == "fail":
        return {"error": "it failed"}
    if prompt == "object":
        return {"output": {"a": [1, 2], "b": None}}
    return {
        "output": prompt + options["config"].get("suffix", ""),
        "tokenUsage": {"total": 10, "prompt": 4, "completion": 6},
        "cost": 0.01,
        "metadata": {"own": 1},
    }


async def other(prompt, options, context):
    if prompt == "fail":
        raise ValueError("thrown")
    return {"output": f"other {prompt} {sorted(context['vars'])}"}
