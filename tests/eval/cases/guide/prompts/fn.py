import json


def create(context):
    return f"{context['vars']['role']}: {context['vars']['question']} by {context['provider']['label'] or context['provider']['id']}"


def chat(context):
    return [{"role": "system", "content": context["vars"]["role"]}, {"role": "user", "content": context["vars"]["question"]}]


def with_config(context):
    return {"prompt": f"C {context['vars']['question']}", "config": {"temperature": 0.9}}
