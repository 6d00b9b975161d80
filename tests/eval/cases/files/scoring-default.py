def func(scores, context):
    return {"pass": False, "score": 0.25, "reason": "own"}
