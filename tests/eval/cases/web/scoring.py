import json


def get_assert(output, context):
    found = json.loads(output)
    parts = [
        {"pass": found["tone"] == "kind", "score": 1.0 if found["tone"] == "kind" else 0.0, "reason": "tone"},
        {"pass": len(found["text"]) < 20, "score": min(1.0, 20 / max(1, len(found["text"]))), "reason": "length"},
    ]
    return {
        "pass": all(part["pass"] for part in parts),
        "score": sum(part["score"] for part in parts) / len(parts),
        "reason": "graded in parts",
        "component_results": parts,
        "named_scores": {"tone": parts[0]["score"], "length": parts[1]["score"]},
    }


def with_config(output, context):
    config = context.get("config", {})
    return len(output) >= config.get("least", 0) and context["vars"]["text"] in output


def number(output, context):
    return len(output) / 100


def text(output, context):
    return "true"


def nothing(output, context):
    return None
