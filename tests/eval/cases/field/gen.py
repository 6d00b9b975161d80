def make(config=None):
    return [{"vars": {"x": f"g{i}"}} for i in range((config or {}).get("n", 1))]
