"""The chart extractor, against the types that clients know (contract: interpreter, section 5.3)."""

import datetime
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from sandcove_kernel.charts import figure_chart


@pytest.fixture
def figure():
    figure = plt.figure()
    yield figure
    plt.close(figure)


def test_a_line_chart_has_its_keys_in_order(figure):
    plt.plot([1, 2, 3], [4, 5, float("nan")], label="speed")
    plt.plot([1, 2], [3, 4])
    plt.axhline(3)
    plt.title("Title")
    plt.xlabel("Time (s)")
    plt.ylabel("Voltage [mV]")
    chart = figure_chart(figure)
    assert list(chart) == [
        *("type", "title", "elements", "x_label", "y_label", "x_unit", "y_unit"),
        *("x_ticks", "x_tick_labels", "x_scale", "y_ticks", "y_tick_labels", "y_scale"),
    ]
    assert chart["type"] == "line"
    assert chart["title"] == "Title"
    assert chart["elements"] == [
        {"label": "speed", "points": [[1.0, 4.0], [2.0, 5.0], [3.0, None]]},
        {"label": "Line 1", "points": [[1.0, 3.0], [2.0, 4.0]]},
    ]
    assert (chart["x_label"], chart["x_unit"]) == ("Time (s)", "s")
    assert (chart["y_label"], chart["y_unit"]) == ("Voltage [mV]", "mV")
    assert chart["x_scale"] == "linear"


@pytest.mark.parametrize("scale", ["log", "symlog", "logit", "asinh"])
def test_other_scales_keep_their_name(figure, scale):
    plt.plot([0.1, 0.5, 0.9], [1, 2, 3])
    plt.xscale(scale)
    assert figure_chart(figure)["x_scale"] == scale


def test_dates_are_iso_text(figure):
    plt.plot([datetime.date(2020, 1, 1), datetime.date(2020, 2, 1)], [1, 2])
    chart = figure_chart(figure)
    assert chart["x_scale"] == "datetime"
    assert chart["elements"][0]["points"][0] == ["2020-01-01", 1.0]
    assert chart["x_ticks"][0] == "2020-01-01T00:00:00+00:00"


def test_categories_are_text(figure):
    plt.plot(["a", "b"], [1, 2])
    chart = figure_chart(figure)
    assert chart["x_scale"] == "categorical"
    assert chart["x_tick_labels"] == ["a", "b"]
    assert chart["elements"][0]["points"] == [["a", 1.0], ["b", 2.0]]


def test_scatter_keeps_the_names_of_matplotlib(figure):
    plt.scatter([1, 2], [3, 4])
    assert figure_chart(figure)["elements"] == [{"label": "_child0", "points": [[1.0, 3.0], [2.0, 4.0]]}]


def test_bars_are_grouped_and_labelled(figure):
    plt.bar(["a", "b"], [1, 2], label="first")
    plt.bar(["a", "b"], [3, 4])
    plt.xlabel("Kind")
    chart = figure_chart(figure)
    assert chart["x_label"] == "Kind"
    assert chart["elements"] == [
        {"label": "a", "group": "first", "value": 1.0},
        {"label": "b", "group": "first", "value": 2.0},
        {"label": "a", "group": "Group 1", "value": 3.0},
        {"label": "b", "group": "Group 1", "value": 4.0},
    ]


def test_lying_bars_swap_the_axes(figure):
    plt.barh(["a", "b"], [1, 2])
    plt.xlabel("Count (n)")
    chart = figure_chart(figure)
    assert (chart["x_label"], chart["y_label"], chart["y_unit"]) == (None, "Count (n)", "n")
    assert [(bar["label"], bar["value"]) for bar in chart["elements"]] == [("a", 1.0), ("b", 2.0)]


def test_pies_have_angles(figure):
    plt.pie([1, 3], labels=["a", "b"])
    chart = figure_chart(figure)
    assert chart == {
        "type": "pie",
        "title": None,
        "elements": [
            {"label": "a", "angle": 90.0, "radius": 1.0},
            {"label": "b", "angle": 270.0, "radius": 1.0},
        ],
    }


@pytest.mark.parametrize("lying", [False, True])
def test_filled_boxes_have_quartiles(figure, lying):
    direction = {"vert": False} if lying else {}
    plt.boxplot([[1, 2, 3, 4, 5, 6, 20], [2, 3, 4, 5, 7]], patch_artist=True, **direction)
    chart = figure_chart(figure)
    assert chart["type"] == "box_and_whisker"
    first = {**chart["elements"][0]}
    first.pop("label")
    assert first == {
        "min": 1.0,
        "first_quartile": 2.5,
        "median": 4.0,
        "third_quartile": 5.5,
        "max": 6.0,
        "outliers": [20.0],
    }


def test_whiskers_may_have_no_length(figure):
    plt.boxplot([[2, 4, 6, 8, 30], [5, 5, 5, 5]], patch_artist=True, showmeans=True)
    first, second = figure_chart(figure)["elements"]
    assert (first["median"], first["third_quartile"], first["max"], first["outliers"]) == (6.0, 8.0, 8.0, [30.0])
    assert [second[key] for key in ("min", "first_quartile", "median", "third_quartile", "max")] == [5.0] * 5


def test_all_outliers_are_told(figure):
    plt.boxplot([[1, 2, 3, 4, 5, 6, 7, 40, -30], [2, 4, 7, 9, 30]], patch_artist=True)
    first, second = figure_chart(figure)["elements"]
    assert sorted(first["outliers"]) == [-30.0, 40.0]
    assert (second["median"], second["max"], second["outliers"]) == (7.0, 9.0, [30.0])


def test_several_axes_are_a_superchart(figure):
    left, right = figure.subplots(1, 2)
    left.plot([1, 2])
    right.pie([1, 1])
    figure.suptitle("Both")
    chart = figure_chart(figure)
    assert (chart["type"], chart["title"]) == ("superchart", "Both")
    assert [each["type"] for each in chart["elements"]] == ["line", "pie"]


def test_mixtures_are_unknown(figure):
    plt.plot([1, 2], [3, 5])
    plt.scatter([1], [2])
    assert figure_chart(figure) == {"type": "unknown", "title": None, "elements": []}


def test_blank_figures_have_no_chart(figure):
    assert figure_chart(figure) == {}
    figure.subplots()
    assert figure_chart(figure) == {}
