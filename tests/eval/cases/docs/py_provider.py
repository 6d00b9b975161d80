from typing import Any


def call_api(prompt: str, options: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
    config = options.get("config", {})
    if prompt == "raise":
        raise ValueError("raised")
    if prompt == "none":
        return None
    if prompt == "error":
        return {"error": "an error"}
    if prompt == "dict":
        return {"output": {"k": "v"}}
    return {"output": f"{prompt} {config.get('temperature')} {context['vars'].get('n')}", "tokenUsage": {"total": 9, "prompt": 4, "completion": 5}, "cost": 0.1}


def other(prompt, options, context):
    return {"output": f"other {prompt}" if prompt != "dict" else {"k": "v"}}
