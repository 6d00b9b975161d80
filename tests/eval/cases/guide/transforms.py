import json


def get_transform(output, context):
    return {"text": output, "n": len(output)}


def fenced(output, context):
    return output.split("```")[1].strip() if "```" in output else output
