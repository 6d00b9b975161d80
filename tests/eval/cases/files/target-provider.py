def call_api(prompt, options, context):
    greeting = options["config"]["greeting"]
    answers = {
        "text": {"output": f"{greeting} {prompt}"},
        "object": {"output": {"greeting": greeting}},
        "tokens": {"output": "x", "cost": 0.25, "tokenUsage": {"total": 7, "prompt": 3, "completion": 4}, "metadata": {"seen": context["vars"]["x"]}},
        "refusal": {"output": "no", "isRefusal": True},
        "error": {"error": "broken"},
        "empty": {"output": ""},
        "cached": {"output": "x", "cached": True},
    }
    return answers[prompt]
