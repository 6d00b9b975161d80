def call_api(prompt, options, context):
    kinds = {"number": 3, "list": [1, 2], "bool": True, "zero": 0, "empty": "", "none": None, "unicode": "é 😀 \u2028"}
    if prompt in kinds:
        return {"output": kinds[prompt]}
    return {"output": "text", "error": "and an error"} if prompt == "both" else {}
