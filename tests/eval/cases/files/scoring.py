def score(scores, context):
    total = sum(scores.values())
    return {"pass": total > 0, "score": total, "reason": "python sum"}
