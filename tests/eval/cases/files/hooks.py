def everything(hook, context):
    if hook == "beforeAll":
        context["suite"]["tests"].append(
            {"vars": {"x": "added"}, "assert": [{"type": "equals", "value": "added before each"}]}
        )
        return context
    if hook == "beforeEach" and context["test"]["vars"]["x"] == "added":
        context["test"]["vars"]["x"] = "added before each"
        return context
    return None
