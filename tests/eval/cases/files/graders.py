"""A judge without a model, told by the label of a request what is asked; it keeps to the words that are there."""

import json
import re

STEPS = json.dumps({"steps": ["read it", "count what is wrong"]})


def said_by(label, prompt, variables):
    good = "a good answer" in prompt
    if label == "g-eval-steps":
        return STEPS if "unstepped" not in prompt else '{"steps": []}'
    if label == "g-eval":
        return json.dumps({"score": 9 if good else 2, "reason": "scored"})
    if label == "context-recall":
        return "1. One. It is there. [Attributed]\n2. Two. It is not. [Not Attributed]\n3. Three. [Attributed]\n"
    if label == "context-relevance":
        text = variables.get("context", "")
        found = [line for line in re.split(r"\n|(?<=[.])\s+", text) if "Paris" in line]
        return "\n".join(found) or "Insufficient Information"
    if label == "context-faithfulness-longform":
        return "It is in France.\nIt has a tower.\nIt is large.\nIt is old.\n"
    if label == "context-faithfulness-nli":
        if "each apart" in prompt:
            return "1. Yes it is. Verdict: Yes.\n2. Verdict: No.\n3. Verdict: Yes."
        return "… Final verdict for each statement in order: Yes. No. Yes. Yes."
    if label == "answer-relevance":
        return "what is the capital"
    if label == "conversation-relevance":
        relevant = "purple" not in prompt
        return json.dumps({"verdict": "yes"} if relevant else {"verdict": "no", "reason": "it is about purple"})
    return json.dumps({"reason": "of its conversation windows, not all were relevant"})


def call_api(prompt, options, context):
    label = context["prompt"]["label"]
    return {"output": said_by(label, prompt, context["vars"]), "tokenUsage": {"total": 3, "prompt": 2, "completion": 1}}


def call_embedding_api(text, options):
    vector = [float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"]
    return {"embedding": vector, "tokenUsage": {"total": 1}}


def call_classification_api(text, options):
    kind = 0.9 if "kind" in text else 0.2
    return {"classification": {"kind": kind, "rude": 1 - kind}}
