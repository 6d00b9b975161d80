"""Titles, labels and units of axes."""

from __future__ import annotations

import re

#: A unit stands in round brackets after white space, or in square brackets.
UNIT = re.compile(r"\s\((.*?)\)|\[(.*?)\]")


def title_of(axes) -> str | None:
    return axes.get_title() or None


def labels_of(axes, *, swapped: bool = False) -> dict:
    """The labels of both axes and the units in them; ``swapped`` exchanges the axes."""
    x, y = axes.get_xlabel() or None, axes.get_ylabel() or None
    if swapped:
        x, y = y, x
    return {"x_label": x, "y_label": y, "x_unit": _unit(x), "y_unit": _unit(y)}


def tick_labels(ticks) -> list[str]:
    return [label.get_text() for label in ticks]


def without_prefix(label: str, prefix: str, name: str) -> str:
    """Names what matplotlib numbered by itself: ``_child0`` becomes ``Line 0``."""
    if label.startswith(prefix):
        return f"{name} {int(label[len(prefix) :])}"
    return label


def _unit(label: str | None) -> str | None:
    found = UNIT.search(label or "")
    return (found.group(1) or found.group(2)) if found else None
