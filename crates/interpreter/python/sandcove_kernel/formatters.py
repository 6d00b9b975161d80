"""Representations beyond IPython's own: data frames, charts, and JSON for plain collections (contract: interpreter, 5.2)."""

import sys

from IPython.core.formatters import BaseFormatter
from traitlets import ObjectName, Unicode

from . import jsonable


class DataFormatter(BaseFormatter):
    """Formats tabular data as columns, for ``e2b/data``."""

    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = dict


class ChartFormatter(BaseFormatter):
    """Formats a figure as the data it shows, for ``e2b/chart``."""

    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = dict

    def __call__(self, obj):
        # Not a registered printer: choosing a backend makes IPython drop all printers of figures.
        figures = sys.modules.get("matplotlib.figure")
        if figures is not None and isinstance(obj, figures.Figure):
            return figure_chart(obj)
        return super().__call__(obj)


def install(shell) -> None:
    """Registers the representations with the shell."""
    formatter = shell.display_formatter
    formatter.formatters["e2b/data"] = DataFormatter(parent=formatter)
    formatter.formatters["e2b/chart"] = ChartFormatter(parent=formatter)
    data = formatter.formatters["e2b/data"]
    # pandas 3 names its public module; earlier versions name the file.
    data.for_type_by_name("pandas.core.frame", "DataFrame", frame_data)
    data.for_type_by_name("pandas", "DataFrame", frame_data)
    for collection in (list, dict):
        formatter.formatters["application/json"].for_type(collection, collection_json)


def figure_chart(figure) -> dict:
    """The chart of a matplotlib figure. The extractor needs matplotlib, which may be imported later."""
    from . import charts

    return charts.figure_chart(figure)


def collection_json(value):
    """The JSON of a list or dict, or None when it has none."""
    try:
        return jsonable.convert(value)
    except Exception:  # noqa: BLE001 -- what is in a collection may raise anything when it is looked at
        return None


def frame_data(frame) -> dict:
    """The columns of a data frame as lists; the index is dropped.

    Raises ValueError for a value without a JSON form.
    """
    columns = {}
    for position, name in enumerate(frame.columns):
        series = frame.iloc[:, position]
        columns[str(name)] = [_cell(value) for value in _values(series)]
    return columns


def _values(series) -> list:
    pandas = sys.modules["pandas"]
    if pandas.api.types.is_datetime64_any_dtype(series.dtype):
        # A missing date inside a column of dates stays visible as text.
        return ["NaT" if value is pandas.NaT else value.isoformat() for value in series]
    return series.tolist()


def _cell(value):
    pandas = sys.modules["pandas"]
    if value is pandas.NA or value is pandas.NaT:
        return None
    if isinstance(value, (pandas.Timestamp, pandas.Period)):
        return value.isoformat() if isinstance(value, pandas.Timestamp) else str(value)
    try:
        return jsonable.convert(value, other=jsonable.packed)
    except Exception as error:  # noqa: BLE001 -- as above
        raise ValueError(f"data frame holds a value that cannot be shown as data: {error}") from error
