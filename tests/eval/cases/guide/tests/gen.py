def make(config):
    return [
        {"vars": {"a": n, "b": config["extra"]["number"], "sum": n + config["extra"]["number"]}, "assert": [{"type": "contains", "value": f"= {n + 3}"}]}
        for n in range(config["count"])
    ]


def generate_tests():
    return [{"vars": {"a": 1, "b": 1, "sum": 3}, "assert": [{"type": "contains", "value": "= 2"}], "description": "wrong"}]
