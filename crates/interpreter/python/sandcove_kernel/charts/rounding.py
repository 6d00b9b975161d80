"""Removes the noise that drawing adds to numbers."""

import math


def rounded(number) -> float:
    """Rounds ``number`` to eight decimal places, but to no less than one digit."""
    number = float(number)
    if number == 0 or not math.isfinite(number):
        return number
    magnitude = math.floor(math.log10(abs(number)))
    digits = max(1, 8 - magnitude)
    return float(f"{number:.{digits - 1}e}")
