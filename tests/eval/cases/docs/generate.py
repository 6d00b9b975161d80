def create_tests():
    return [{"vars": {"q": f"q{i}"}, "assert": [{"type": "contains", "value": "q"}]} for i in range(2)]


def configured(config):
    return [{"vars": {"q": f"{config['word']} {i}"}, "assert": [{"type": "equals", "value": "many 0"}]} for i in range(config["count"])]
