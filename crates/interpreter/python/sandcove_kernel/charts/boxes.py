"""Box-and-whisker charts, read back from the shapes that draw them."""

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
        _assign(across, along, boxes)
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


def _assign(across: list[float], along: list[float], boxes: list[Box]) -> None:
    """Gives a line to the box it belongs to: an outlier, the median, or a whisker."""
    if len(across) not in (1, 2):
        return
    box = next((box for box in boxes if box.left <= across[0] <= across[-1] <= box.right), None)
    if box is None:
        return
    if len(across) == 1:
        box.outliers.append(along[0])
    elif along[0] == along[1] and box.low <= along[0] <= box.high:
        box.median = along[0]
    elif max(along) == box.low:
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
        "outliers": box.outliers,
    }
