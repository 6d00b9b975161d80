"""Two statistics."""


def mean(values):
    return sum(values) / max(len(values), 1)


def median(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
