"""Line and scatter charts."""

import datetime

import numpy
from matplotlib import dates

from .labels import labels_of, tick_labels, title_of, without_prefix


def line_chart(axes) -> dict:
    lines = [line for line in axes.get_lines() if not is_grid_line(line)]
    elements = [
        _element(without_prefix(line.get_label(), "_child", "Line"), zip(line.get_xdata(), line.get_ydata()))
        for line in lines
    ]
    return _chart("line", axes, elements)


def scatter_chart(axes) -> dict:
    elements = [_element(collection.get_label(), collection.get_offsets()) for collection in axes.collections]
    return _chart("scatter", axes, elements)


def is_grid_line(line) -> bool:
    """Whether a line is straight up or across, as drawn to mark a level."""
    x, y = line.get_xdata(), line.get_ydata()
    return len(x) == 2 and len(y) == 2 and (x[0] == x[1] or y[0] == y[1])


def _chart(kind: str, axes, elements: list) -> dict:
    return {
        "type": kind,
        "title": title_of(axes),
        "elements": elements,
        **labels_of(axes),
        **_scale("x", axes.xaxis, axes.get_xticks(), axes.get_xticklabels(), axes.get_xscale()),
        **_scale("y", axes.yaxis, axes.get_yticks(), axes.get_yticklabels(), axes.get_yscale()),
    }


def _element(label: str, points) -> dict:
    return {"label": label, "points": [[_coordinate(x), _coordinate(y)] for x, y in points]}


def _coordinate(value):
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, numpy.datetime64):
        return str(value.astype("datetime64[s]"))
    if isinstance(value, str):
        return value
    return None if value is numpy.ma.masked else float(value)


def _scale(name: str, axis, positions, labels, scale: str) -> dict:
    labels = tick_labels(labels)
    if _shows_dates(axis):
        ticks, scale = [dates.num2date(position).isoformat() for position in positions], "datetime"
    else:
        ticks = [float(position) for position in positions]
        if scale == "linear" and _counts(positions, labels):
            scale = "categorical"
    return {f"{name}_ticks": ticks, f"{name}_tick_labels": labels, f"{name}_scale": scale}


def _shows_dates(axis) -> bool:
    converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
    return isinstance(converter, dates._SwitchableDateConverter)


def _counts(positions, labels: list[str]) -> bool:
    """Whether ticks only count their labels, as for categories."""
    return len(positions) > 0 and all(
        isinstance(position, (int, float)) and position == index and str(index) != label
        for index, (position, label) in enumerate(zip(positions, labels))
    )
