"""Figures: the kind of chart on each of their axes."""

from matplotlib.collections import PathCollection
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Rectangle, Wedge
from matplotlib.text import Text

from .. import jsonable
from .bars import bar_chart
from .boxes import box_chart
from .labels import title_of
from .pie import pie_chart
from .points import is_grid_line, line_chart, scatter_chart


def figure_chart(figure) -> dict:
    """The chart of a figure, or an empty dict if it has none."""
    try:
        axes = figure.get_axes()
        if not any(each.has_data() for each in axes):
            return {}
        if len(axes) == 1:
            chart = axes_chart(axes[0])
        else:
            charts = [axes_chart(each) for each in axes]
            chart = {"type": "superchart", "title": figure.get_suptitle(), "elements": charts}
        return jsonable.convert(chart)
    except Exception:
        # The picture itself is more important: a chart that cannot be read must not prevent it.
        return {}


def axes_chart(axes) -> dict:
    """The chart of one pair of axes."""
    artists = [artist for artist in axes._children if not isinstance(artist, Text)]
    if _all(artists, Line2D):
        return line_chart(axes)
    if _all(artists, (PathPatch, Line2D)):
        return box_chart(axes)
    artists = [artist for artist in artists if not (isinstance(artist, Line2D) and is_grid_line(artist))]
    if _all(artists, PathCollection):
        return scatter_chart(axes)
    if _all(artists, Wedge):
        return pie_chart(axes)
    if _all(artists, Rectangle):
        return bar_chart(axes)
    return {"type": "unknown", "title": title_of(axes), "elements": []}


def _all(artists, kinds) -> bool:
    return all(isinstance(artist, kinds) for artist in artists)
