def make():
    return [{'vars': {'a': 'p1'}, 'assert': [{'type': 'equals', 'value': 'p1'}]}]
def configured(config):
    return [{'vars': {'a': f"{config['label']}{i}"}, 'description': f'gen {i}'} for i in range(config['count'])]
