def call_api(prompt, options, context):
    if "category" in prompt or "(A)" in prompt:
        return {"output": '{"category": "C", "reason": "the same"}'}
    return {"output": "It is.\nY"}
