"""Box-and-whisker charts, read back from the shapes that draw them."""

from __future__ import annotations

from dataclasses import dataclass, field

from .labels import labels_of, tick_labels, title_of
from .rounding import rounded


@dataclass
class Box:
    """A box as if it stood upright: ``left`` to ``right`` is its width, ``low`` to ``high`` its quartiles."""

    label: str
    left: float
    right: float
    low: float
    high: float
    median: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    outliers: list[float] = field(default_factory=list)

    def turned(self) -> "Box":
        return Box(self.label, self.low, self.high, self.left, self.right)


def box_chart(axes) -> dict:
    boxes = [_box(label, patch) for label, patch in zip(tick_labels(axes.get_xticklabels()), axes.patches)]
    # Boxes of equal height lie on their side.
    lying = len({rounded(box.high - box.low) for box in boxes}) <= 1
    if lying:
        boxes = [box.turned() for box in boxes]
    for line in axes.lines:
        across, along = ([rounded(value) for value in data] for data in (line.get_xdata(), line.get_ydata()))
        if lying:
            across, along = along, across
        box = next((box for box in boxes if across and box.left <= min(across) <= max(across) <= box.right), None)
        if box is None:
            continue
        if line.get_linestyle() in ("None", "none", " ", ""):
            # Outliers are drawn last, after the mean.
            box.outliers = along
        elif len(across) == 2:
            _assign(across, along, box)
    return {
        "type": "box_and_whisker",
        "title": title_of(axes),
        "elements": [_element(box) for box in boxes],
        **labels_of(axes, swapped=lying),
    }


def _box(label: str, patch) -> Box:
    vertices = patch.get_path().vertices
    x, y = [rounded(value) for value in vertices[:, 0]], [rounded(value) for value in vertices[:, 1]]
    return Box(label, min(x), max(x), min(y), max(y))


def _assign(across: list[float], along: list[float], box: Box) -> None:
    """Takes a line of a box for its median or a whisker.

    A whisker is drawn even if it has no length, the lower one first. A cap may lie on the box like a median, but the median is drawn after it.
    """
    if across[0] != across[1]:
        if along[0] == along[1] and box.low <= along[0] <= box.high:
            box.median = along[0]
    elif max(along) == box.low and box.minimum is None:
        box.minimum = min(along)
    elif min(along) == box.high:
        box.maximum = max(along)


def _element(box: Box) -> dict:
    """Raises ValueError for a box that lacks a part; then these shapes were no box plot."""
    if None in (box.minimum, box.median, box.maximum):
        raise ValueError(f"box `{box.label}` is incomplete")
    return {
        "label": box.label,
        "min": box.minimum,
        "first_quartile": box.low,
        "median": box.median,
        "third_quartile": box.high,
        "max": box.maximum,
        # Without outliers the last marker is the mean.
        "outliers": [value for value in box.outliers if not box.minimum <= value <= box.maximum],
    }
