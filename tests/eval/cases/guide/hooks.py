def extension_hook(hook_name, context):
    if hook_name == "beforeAll":
        context["suite"]["tests"].append({"vars": {"x": "added"}, "assert": [{"type": "equals", "value": "added"}]})
        return context
    if hook_name == "beforeEach":
        context["test"]["vars"]["y"] = "from a hook"
        return context
    if hook_name == "afterEach":
        context["result"]["namedScores"] = {**(context["result"].get("namedScores") or {}), "hooked": 0.5}
        return context
