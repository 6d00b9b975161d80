"""Pie charts."""

from .labels import title_of
from .rounding import rounded


def pie_chart(axes) -> dict:
    elements = [
        {"label": wedge.get_label(), "angle": abs(rounded(wedge.theta2 - wedge.theta1)), "radius": float(wedge.r)}
        for wedge in axes.patches
    ]
    return {"type": "pie", "title": title_of(axes), "elements": elements}
