def labelled(config):
    return [
        {"vars": {"text": config["label"].strip()}, "assert": [{"type": "equals", "value": "abc"}]},
        {"vars": {"text": str(len(config["words"]))}, "assert": [{"type": "javascript", "value": "Number(output) < 10"}]},
    ]
