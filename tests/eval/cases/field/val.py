def get_assert(o, c):
    return ["a", "c"]
