"""Converts Python values to what JSON can hold. JavaScript clients fail on NaN and Infinity, so those become null, and would round
integers of more than 64 bits, so those have no form.
"""

import base64
import dataclasses
import datetime
import decimal
import enum
import math
import numbers
import sys
import uuid
from collections.abc import Callable, Iterable, Sized

#: Limit on nesting; deeper structures are taken for endless ones, and the server would not read them.
DEPTH = 120
#: Limit on collections that are made lists of, such as `range(10 ** 9)`.
LENGTH = 1_000_000


def refuse(value):
    """Raises TypeError: the value has no JSON form."""
    kind = "integer of more than 64 bits" if isinstance(value, int) else type(value).__name__
    raise TypeError(f"{kind} has no JSON form")


def convert(value, *, other: Callable = refuse, depth: int = 0):
    """``value`` made of dicts with text keys, lists, text, numbers, booleans and None. ``other`` is called for what has no JSON form, and returns a
    value that has one.
    """
    if depth > DEPTH:
        raise TypeError("value is nested too deeply for JSON")
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return int(value) if -(1 << 63) <= value < 1 << 64 else other(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {_key(key, other): convert(item, other=other, depth=depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [convert(item, other=other, depth=depth + 1) for item in value]
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(value, numpy.datetime64):
            return None if numpy.isnat(value) else str(value.astype("datetime64[us]"))
        if isinstance(value, (numpy.generic, numpy.ndarray)) and not isinstance(value, numpy.timedelta64):
            return convert(value.tolist(), other=other, depth=depth + 1)
    if isinstance(value, (decimal.Decimal, uuid.UUID)):
        return str(value)
    if isinstance(value, enum.Enum):
        return convert(value.value, other=other, depth=depth + 1)
    # They may be endless, and text stands for them as well.
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and other is not text_of:
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return convert(fields, other=other, depth=depth + 1)
    return convert(other(value), other=other, depth=depth + 1)


def text_of(value) -> str:
    """The text that stands for any value: the digits of an integer, base64 of bytes."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, int):
        try:
            return str(int(value))
        except ValueError:
            # Python refuses to compute so many digits.
            return hex(value)
    return str(value)


def packed(value):
    """What the messages of notebooks hold for a value without a JSON form. Raises TypeError for what these refuse."""
    if isinstance(value, (bytes, int)):
        return text_of(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    # No iterators: to look at a value must not use it up.
    if isinstance(value, Iterable) and isinstance(value, Sized) and len(value) <= LENGTH:
        return list(value)
    return refuse(value)


def _key(key, other: Callable) -> str:
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, str):
        return key
    if key is None:
        return "null"
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, (datetime.datetime, datetime.date, datetime.time)):
        return key.isoformat()
    if not isinstance(key, (numbers.Number, uuid.UUID)) and other is refuse:
        refuse(key)
    return str(key)
