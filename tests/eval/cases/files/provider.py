"""A provider that says what it was given; `config.cost` and `config.finish` are reported, `config.fail` raises."""


def call_api(prompt, options, context):
    config = options.get("config", {})
    if config.get("fail"):
        raise RuntimeError(config["fail"])
    if config.get("error"):
        return {"error": config["error"]}
    answer = {
        "output": config.get("say", prompt),
        "tokenUsage": {"total": 7, "prompt": 4, "completion": 3},
    }
    if "cost" in config:
        answer["cost"] = config["cost"]
    if "finish" in config:
        answer["finishReason"] = config["finish"]
    if "extra" in config:
        answer["metadata"] = config["extra"]
    return answer


def shout(prompt, options, context):
    return {"output": prompt.upper() + " " + ",".join(sorted(context["vars"]))}


async def slowly(prompt, options, context):
    return {"output": {"prompt": prompt, "words": prompt.split()}}
