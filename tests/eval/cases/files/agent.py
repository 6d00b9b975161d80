"""A provider that tells more than an answer: the variable `tell` is merged into it."""

import json


def call_api(prompt, options, context):
    tell = context["vars"].get("tell", {})
    return {"output": prompt, **(json.loads(tell) if isinstance(tell, str) else tell)}
