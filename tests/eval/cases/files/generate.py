def generate_tests():
    return [{"vars": {"text": "made"}, "assert": [{"type": "equals", "value": "made"}]}]


def some(config):
    return [
        {"vars": {"text": str(n)}, "assert": [{"type": "javascript", "value": "Number(output) < 2"}]}
        for n in range(config["count"])
    ]
