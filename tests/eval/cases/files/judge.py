"""A judge without a model: it likes what says "good" and tells by the request which form of answer is wanted."""

import json


def call_api(prompt, options, context):
    good = "a good answer" in prompt
    # Judges are asked for JSON with a category, for JSON with a score, or for one letter at the end.
    if "category" in prompt or "(A)" in prompt:
        answer = json.dumps({"category": "C" if good else "D", "reason": "compared"})
    elif "pass" in prompt and "score" in prompt:
        answer = json.dumps({"pass": good, "score": 0.8 if good else 0.1, "reason": "judged"})
    else:
        answer = "it says so\n" + ("Y" if good else "N")
    return {"output": answer, "tokenUsage": {"total": 5, "prompt": 3, "completion": 2}}


def call_embedding_api(text, options, context=None):
    vector = [float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"]
    return {"embedding": vector, "tokenUsage": {"total": 1}}
