"""Converts Python values to what JSON can hold. JavaScript clients fail on NaN and Infinity, so those become null, and would round
integers of more than 64 bits, so those have no form.
"""

import base64
import datetime
import decimal
import math
import sys

#: Limit on nesting; deeper structures are taken for endless ones, and the server would not read them.
DEPTH = 120


def convert(value, *, lenient: bool = False, depth: int = 0):
    """``value`` made of dicts with text keys, lists, text, numbers, booleans and None.

    Raises TypeError for what has no JSON form, or with ``lenient`` takes its ``str``.
    """
    if depth > DEPTH:
        raise TypeError("value is nested too deeply for JSON")
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        if -(1 << 63) <= value < 1 << 64:
            return int(value)
        if lenient:
            return text_of(value)
        raise TypeError("integer of more than 64 bits has no JSON form")
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {_key(key): convert(item, lenient=lenient, depth=depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [convert(item, lenient=lenient, depth=depth + 1) for item in value]
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(value, numpy.datetime64):
            return None if numpy.isnat(value) else str(value.astype("datetime64[us]"))
        if isinstance(value, (numpy.generic, numpy.ndarray)) and not isinstance(value, numpy.timedelta64):
            return convert(value.tolist(), lenient=lenient, depth=depth + 1)
    if isinstance(value, bytes) and lenient:
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, decimal.Decimal) or lenient:
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def text_of(value: int) -> str:
    """The digits of an integer: decimal, or hexadecimal where Python refuses to compute so many."""
    try:
        return str(int(value))
    except ValueError:
        return hex(value)


def _key(key) -> str:
    if isinstance(key, str):
        return key
    if key is None:
        return "null"
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, (datetime.datetime, datetime.date, datetime.time)):
        return key.isoformat()
    return str(key)
