import sys


def call_api(prompt, options, context):
    if prompt == "raise":
        raise RuntimeError("it broke")
    if prompt == "error":
        return {"error": "said so", "tokenUsage": {"total": 3}}
    if prompt == "exit":
        sys.exit(3)
    if prompt == "wrong":
        return "only text"
    return {"output": prompt}
