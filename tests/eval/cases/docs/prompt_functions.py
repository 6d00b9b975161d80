import json


def chat(context):
    return [{"role": "user", "content": f"Tell me about {context['vars']['topic']} from {context['provider']['id']}"}]


def text(context: dict) -> str:
    return json.dumps(context["vars"]) + " cats"
