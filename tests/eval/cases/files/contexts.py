import json


def call_api(prompt, options, context):
    keys = {"vars", "prompt", "test", "repeatIndex", "evaluationId"}
    return {
        "output": json.dumps([
            ["keys", keys <= set(context) and not {"getCache", "filters", "originalProvider", "logger"} & set(context)],
            ["vars", sorted(context["vars"]) == ["__evalId", "__evalStepId", "__repeatIndex", "x"]],
            ["template", context["prompt"]["raw"] == "ask {{x}}" and context["prompt"]["label"] == "asking"],
        ])
    }
