def make():
    return [{"vars": {"q": f"made {n}"}, "assert": [{"type": "contains", "value": str(n)}], "metadata": {"n": n}} for n in range(2)]
