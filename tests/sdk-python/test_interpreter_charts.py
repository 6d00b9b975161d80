"""Charts as the client parses them (`e2b_code_interpreter.charts`), for every type and scale it knows."""

import json

import pytest
from e2b_code_interpreter import charts

from harness.interpreters import clients, code  # noqa: F401


def drawn(code, program):
    """The chart of the figure that `program` draws with `plt` and `np`."""
    head = "import matplotlib.pyplot as plt, numpy as np, datetime\nplt.close('all')\n"
    execution = code.run_code(f"{head}{program}\nplt.show()")
    assert execution.error is None, execution.error.traceback
    assert len(execution.results) == 1 and execution.results[0].png and execution.results[0].extra == {}
    chart = execution.results[0].chart
    if chart is not None:
        json.dumps(chart.to_dict(), allow_nan=False)
    return chart


def test_line(code):
    chart = drawn(
        code,
        "plt.plot([1, 2, 3], [10, 20.5, 15], label='one')\nplt.plot([1, 2, 3], [1, 2, 3])\n"
        "plt.title('Lines'); plt.xlabel('Time (s)'); plt.ylabel('Speed [m/s]')",
    )
    assert isinstance(chart, charts.LineChart)
    assert (chart.title, chart.x_label, chart.y_label) == ("Lines", "Time (s)", "Speed [m/s]")
    assert (chart.x_unit, chart.y_unit) == ("s", "m/s")
    assert (chart.x_scale, chart.y_scale) == (charts.ScaleType.LINEAR, charts.ScaleType.LINEAR)
    assert [(line.label, line.points) for line in chart.elements] == [
        ("one", [(1, 10), (2, 20.5), (3, 15)]), ("Line 1", [(1, 1), (2, 2), (3, 3)]),
    ]  # fmt: skip
    assert all(isinstance(tick, float) for tick in chart.x_ticks + chart.y_ticks)
    assert len(chart.x_ticks) == len(chart.x_tick_labels) and len(chart.y_ticks) == len(chart.y_tick_labels)
    assert list(chart.to_dict()) == [
        "type", "title", "elements", "x_label", "y_label", "x_unit", "y_unit",
        "x_ticks", "x_tick_labels", "x_scale", "y_ticks", "y_tick_labels", "y_scale",
    ]  # fmt: skip


def test_missing_titles_and_values_are_null(code):
    chart = drawn(code, "plt.plot([1, 2, 3], [1, np.nan, 3])")
    assert (chart.title, chart.x_label, chart.y_label, chart.x_unit, chart.y_unit) == (None,) * 5
    assert chart.elements[0].points == [(1, 1), (2, None), (3, 3)]


@pytest.mark.parametrize("scale", ["log", "symlog", "logit", "asinh"])
def test_scales(code, scale):
    chart = drawn(code, f"plt.plot([0.1, 0.2, 0.9], [0.1, 0.5, 0.9]); plt.yscale({scale!r})")
    assert (chart.x_scale, chart.y_scale) == (charts.ScaleType.LINEAR, charts.ScaleType(scale))


def test_dates(code):
    chart = drawn(code, "plt.plot([datetime.date(2020, 1, d) for d in (1, 2, 3)], [1, 2, 3])")
    assert chart.x_scale == charts.ScaleType.DATETIME
    assert [x for x, _ in chart.elements[0].points] == ["2020-01-01", "2020-01-02", "2020-01-03"]
    assert all("T" in tick for tick in chart.x_ticks)
    chart = drawn(code, "plt.plot(np.array(['2020-01-01', '2020-01-02'], dtype='datetime64[D]'), [1, 2])")
    assert [x for x, _ in chart.elements[0].points] == ["2020-01-01T00:00:00", "2020-01-02T00:00:00"]


def test_categories(code):
    chart = drawn(code, "plt.plot(['a', 'b', 'c'], [1, 2, 3])")
    assert chart.x_scale == charts.ScaleType.CATEGORICAL
    assert chart.elements[0].points == [("a", 1), ("b", 2), ("c", 3)]
    assert chart.x_tick_labels == ["a", "b", "c"]


def test_scatter(code):
    chart = drawn(code, "plt.scatter([1, 2], [3, 4], label='dots'); plt.scatter([5], [6]); plt.title('S')")
    assert isinstance(chart, charts.ScatterChart) and chart.title == "S"
    assert (chart.elements[0].label, chart.elements[0].points) == ("dots", [(1, 3), (2, 4)])
    assert chart.elements[1].label.startswith("_child") and chart.elements[1].points == [(5, 6)]


def test_bar(code):
    chart = drawn(
        code, "plt.bar(['x', 'y'], [1, 2], label='one'); plt.bar(['x', 'y'], [3, 4], bottom=[1, 2]); plt.ylabel('Size (kg)')"
    )
    assert isinstance(chart, charts.BarChart) and chart.y_unit == "kg"
    assert [(bar.label, bar.group, bar.value) for bar in chart.elements] == [
        ("x", "one", 1), ("y", "one", 2), ("x", "Group 1", 3), ("y", "Group 1", 4),
    ]  # fmt: skip


def test_horizontal_bar(code):
    chart = drawn(code, "plt.barh(['x', 'y'], [1, 2]); plt.xlabel('Size'); plt.ylabel('Who')")
    assert [(bar.label, bar.value) for bar in chart.elements] == [("x", 1), ("y", 2)]
    assert (chart.x_label, chart.y_label) == ("Who", "Size")


def test_histogram(code):
    chart = drawn(code, "plt.hist([1, 1, 2, 3, 3, 3], bins=3)")
    assert isinstance(chart, charts.BarChart)
    assert [bar.value for bar in chart.elements] == [2, 1, 3]


def test_pie(code):
    chart = drawn(code, "plt.pie([1, 3], labels=['small', 'big'], startangle=90, radius=1.5); plt.title('P')")
    assert isinstance(chart, charts.PieChart) and chart.title == "P"
    assert [(slice.label, slice.angle, slice.radius) for slice in chart.elements] == [
        ("small", pytest.approx(90, abs=0.01), 1.5), ("big", pytest.approx(270, abs=0.01), 1.5),
    ]  # fmt: skip


def test_box_and_whisker(code):
    program = "plt.boxplot([[1, 2, 3, 4, 5], [2, 4, 6, 8, 30]], tick_labels=['a', 'b'], patch_artist=True)"
    chart = drawn(code, program)
    assert isinstance(chart, charts.BoxAndWhiskerChart)
    first, second = chart.elements
    assert (first.label, first.min, first.first_quartile, first.median, first.third_quartile, first.max) == ("a", 1, 2, 3, 4, 5)
    assert (second.label, second.median, second.max, second.outliers) == ("b", 6, 8, [30])


def test_superchart(code):
    chart = drawn(
        code,
        "figure, (left, right) = plt.subplots(1, 2); left.plot([1, 2]); left.set_title('L'); right.bar(['a'], [1])\n"
        "figure.suptitle('Both')",
    )
    assert isinstance(chart, charts.SuperChart) and chart.title == "Both"
    assert [type(part) for part in chart.elements] == [charts.LineChart, charts.BarChart]
    assert chart.elements[0].title == "L"


@pytest.mark.parametrize("program", ["plt.plot([1, 2]); plt.scatter([1], [2])", "plt.imshow([[1, 2], [3, 4]])"])
def test_mixtures_and_pictures_are_unknown(code, program):
    chart = drawn(code, program)
    assert (chart.type, chart.elements) == (charts.ChartType.UNKNOWN, [])


def test_without_data_there_is_no_chart(code):
    assert drawn(code, "plt.subplots()") is None


def test_grid_lines_are_no_data(code):
    chart = drawn(code, "plt.plot([1, 2, 3], [4, 5, 6]); plt.axhline(5); plt.axvline(2); plt.grid(True)")
    assert [line.points for line in chart.elements] == [[(1, 4), (2, 5), (3, 6)]]
