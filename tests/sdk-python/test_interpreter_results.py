"""Results: values and displayed things in every representation the clients know."""

import base64
import json

import pytest

from harness.interpreters import clients, code  # noqa: F401


def only(execution):
    assert execution.error is None, execution.error.traceback
    assert len(execution.results) == 1, execution.results
    return execution.results[0]


def test_values_are_main_results_and_displayed_things_are_not(code):
    execution = code.run_code("display(1)\ndisplay(2, 3)\n4")
    assert [(result.text, result.is_main_result) for result in execution.results] == [
        ("1", False), ("2", False), ("3", False), ("4", True),
    ]  # fmt: skip
    assert execution.text == "4"


def test_nothing_is_no_result(code):
    for program in ("None", "x = 1", "pass", "5;", "display()"):
        assert code.run_code(program).results == []


@pytest.mark.parametrize(
    ("value", "text"),
    [("'plain'", "plain"), ('"it\'s"', "it's"), ("'a\\nb'", "a\\nb"), ("''", ""), ("b'x'", "b'x'"), ("1.5", "1.5"), ("float('nan')", "nan")],
)
def test_text_is_the_representation_without_its_quotes(code, value, text):
    assert only(code.run_code(value)).text == text


def test_long_collections_are_whole(code):
    assert eval(only(code.run_code("list(range(5000))")).text) == list(range(5000))
    assert len(only(code.run_code("set(range(3000))")).text) > 15000


@pytest.mark.parametrize(
    ("shown", "member", "value"),
    [
        ("HTML('<b>1</b>')", "html", "<b>1</b>"),
        ("Markdown('# A *b*')", "markdown", "# A *b*"),
        ("SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"></svg>')", "svg", '<svg xmlns="http://www.w3.org/2000/svg"/>'),
        ("Latex('$x^2$')", "latex", "$x^2$"),
        ("Math('x^2')", "latex", "$\\displaystyle x^2$"),
        ("Javascript('alert(1)')", "javascript", "alert(1)"),
        ("JSON({'a': [1, None, 'é']})", "json", {"a": [1, None, "é"]}),
    ],
)
@pytest.mark.parametrize("main", [True, False])
def test_the_display_classes(code, shown, member, value, main):
    program = f"from IPython.display import *\n{shown if main else f'display({shown})'}"
    result = only(code.run_code(program))
    given = getattr(result, member)
    assert given == value or (member == "svg" and given.startswith("<svg"))
    assert result.is_main_result is main
    assert result.text.startswith("<IPython.core.display.")
    assert set(result.formats()) == {"text", member}


def test_pictures_of_files_and_bytes(code):
    one_pixel = (
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    program = f"import base64\nfrom IPython.display import Image\nImage(base64.b64decode('{one_pixel}'))"
    assert only(code.run_code(program)).png.strip() == one_pixel


def test_a_bundle_is_taken_apart(code):
    result = only(
        code.run_code(
            "display({'text/plain': \"'quoted'\", 'text/html': '<i>', 'application/pdf': 'JVBERg==', 'image/jpeg': '/9j/',"
            " 'application/x-own': {'a': 1}}, raw=True)"
        )
    )
    assert (result.text, result.html, result.pdf, result.jpeg) == ("quoted", "<i>", "JVBERg==", "/9j/")
    assert result.extra == {"application/x-own": {"a": 1}}


def test_classes_choose_their_representations(code):
    program = (
        "class Own:\n    def __repr__(self): return 'own'\n    def _repr_html_(self): return '<u>'\n"
        "    def _repr_markdown_(self): return '**'\n    def _repr_latex_(self): return '$'\n"
        "    def _repr_json_(self): return {'k': 1}\n    def _repr_javascript_(self): return 'js'\n"
        "    def _repr_svg_(self): return '<svg/>'\n    def _repr_png_(self): return b'\\x89PNG'\n"
        "    def _repr_jpeg_(self): return b'\\xff\\xd8'\n    def _repr_pdf_(self): return b'%PDF'\n"
        "    def _repr_e2b_data_(self): return {'c': [1]}\n"
        "    def _repr_e2b_chart_(self): return {'type': 'pie', 'title': 'T', 'elements': []}\nOwn()"
    )
    result = only(code.run_code(program))
    assert (result.text, result.html, result.markdown, result.latex) == ("own", "<u>", "**", "$")
    assert (result.json, result.javascript, result.svg, result.data) == ({"k": 1}, "js", "<svg/>", {"c": [1]})
    assert base64.b64decode(result.png) == b"\x89PNG"
    assert base64.b64decode(result.jpeg) == b"\xff\xd8"
    assert base64.b64decode(result.pdf) == b"%PDF"
    assert (result.chart.type.value, result.chart.title) == ("pie", "T")
    assert list(result.formats()) == [
        "text", "html", "markdown", "svg", "png", "jpeg", "pdf", "latex", "json", "javascript", "data", "chart",
    ]  # fmt: skip


def test_mime_bundles_of_classes(code):
    program = "class Own:\n    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/plain': 'p', 'x/y': 'z'}\nOwn()"
    result = only(code.run_code(program))
    assert (result.text, result.extra) == ("p", {"x/y": "z"})


def test_collections_are_json_too(code):
    result = only(code.run_code("{'a': [1, 2.5, None, True], 3: {'b': 'é'}}"))
    assert result.json == {"a": [1, 2.5, None, True], "3": {"b": "é"}}
    assert only(code.run_code("[1, 'x']")).json == [1, "x"]
    assert only(code.run_code("import numpy\n[numpy.int64(1), numpy.float32(0.5), numpy.arange(3)]")).json == [1, 0.5, [0, 1, 2]]
    assert only(code.run_code("[float('nan'), float('inf')]")).json == [None, None]
    assert only(code.run_code("[object()]")).json is None
    classes = "import dataclasses, enum, uuid\nclass E(enum.Enum): A = 'a'\n@dataclasses.dataclass\nclass D: n: int"
    assert only(code.run_code(f"{classes}\n[uuid.UUID(int=1), E.A, D(2)]")).json == ["00000000-0000-0000-0000-000000000001", "a", {"n": 2}]
    assert only(code.run_code("{E.A: 1}")).json == {"a": 1}
    assert only(code.run_code("{(1, 2): 3}")).json is None
    assert only(code.run_code("endless = []\nendless.append(endless)\nendless")).text == "[[...]]"


def test_values_beyond_what_json_readers_take_have_none(code):
    """Integers of more than 64 bits and deep nesting: the text is whole, and the context lives on."""
    code.run_code("mark = 5")
    for value, text in [
        ("[2 ** 64]", "[18446744073709551616]"),
        ("{'a': -2 ** 63 - 1}", "{'a': -9223372036854775809}"),
        ("[10 ** 400]", f"[1{'0' * 400}]"),
        ("deep = []\nfor _ in range(123): deep = [deep]\ndeep", "[" * 124 + "]" * 124),
        ("deep = []\nfor _ in range(150): deep = [deep]\ndeep", "[" * 151 + "]" * 151),
    ]:
        result = only(code.run_code(value))
        assert result.json is None and "".join(result.text.split()) == text.replace(" ", ""), value
    assert only(code.run_code("[2 ** 64 - 1, -2 ** 63]")).json == [2**64 - 1, -(2**63)]
    assert only(code.run_code("import pandas as pd\npd.DataFrame({'n': [1, 2 ** 70]})")).data == {"n": [1, str(2**70)]}
    assert only(code.run_code("display({'x/y': 10 ** 400, 'text/plain': 't'}, raw=True)")).text == "t"
    shown = "class Own:\n    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/plain': 'p', 'x/y': [10 ** 5000]}\nOwn()"
    assert only(code.run_code(shown)).text == "p"
    assert only(code.run_code("mark")).text == "5"


def test_event_loops_can_be_nested(code):
    program = "import asyncio, nest_asyncio\nnest_asyncio.apply()\nasync def five(): return 5\nasyncio.run(five())"
    context = code.create_code_context()
    code.run_code("import asyncio\nkept = 1\nasync def tick():\n    while True: await asyncio.sleep(0)", context=context)
    # With and without something else that the outer loop is about to call.
    for before in ("", "task = asyncio.get_running_loop().create_task(tick())\n"):
        assert only(code.run_code(before + program, context=context)).text == "5"
        assert only(code.run_code("kept", context=context)).text == "1"
    code.remove_code_context(context)


def test_data_frames(code):
    program = (
        "import pandas as pd, numpy as np\n"
        "pd.DataFrame({'n': [1, 2, 3], 'f': [0.5, np.nan, np.inf], 's': ['é', None, 'x'],\n"
        "  'd': pd.to_datetime(['2024-01-31', None, '2024-02-29']), 7: [True, False, True]})"
    )
    result = only(code.run_code(program))
    assert set(result.formats()) == {"text", "html", "data"}
    assert result.is_main_result and "<table" in result.html and "2024-01-31" in result.text
    assert result.data == {
        "n": [1, 2, 3],
        "f": [0.5, None, None],
        "s": ["é", None, "x"],
        "d": ["2024-01-31T00:00:00", "NaT", "2024-02-29T00:00:00"],
        "7": [True, False, True],
    }


def test_frames_hold_what_databases_and_groups_give(code):
    values = {
        "b'x\\xff'": "eP8=",
        "{1}": [1],
        "frozenset([2])": [2],
        "range(2)": [0, 1],
        "bytearray(b'x')": [120],
        "[b'x', {3}]": ["eA==", [3]],
        "uuid.UUID(int=1)": "00000000-0000-0000-0000-000000000001",
        "fractions.Fraction(1, 2)": 0.5,
        "decimal.Decimal('1.5')": "1.5",
    }
    frame = ", ".join(f"{str(number)!r}: [{value}]" for number, value in enumerate(values))
    result = only(code.run_code(f"import decimal, fractions, uuid, pandas as pd\npd.DataFrame({{{frame}}})"))
    assert result.data == {str(number): [form] for number, form in enumerate(values.values())}


@pytest.mark.parametrize("value", ["(n for n in [1, 2])", "range(10 ** 9)", "object()", "fractions.Fraction(10 ** 400)"])
def test_a_frame_is_shown_though_a_value_has_no_form(code, value):
    """Nothing is used up, and nothing endless is listed."""
    execution = code.run_code(f"import fractions, pandas as pd\nshown = {value}\npd.DataFrame({{'a': [shown]}})")
    assert execution.error.name == "ValueError" and execution.results[0].html
    if value.startswith("("):
        assert code.run_code("list(shown)").text == "[1, 2]"


def test_what_raises_when_it_is_looked_at_is_shown_as_text(code):
    unset = "import dataclasses\n@dataclasses.dataclass\nclass Unset:\n    n: int = dataclasses.field(init=False)\n    def __repr__(self): return 'unset'"
    execution = code.run_code(f"{unset}\n[Unset()]")
    assert execution.error is None and (execution.text, execution.results[0].json) == ("[unset]", None)


def test_series_and_arrays_are_text(code):
    assert set(only(code.run_code("import pandas as pd\npd.Series([1, 2])")).formats()) == {"text"}
    assert only(code.run_code("import numpy as np\nnp.arange(3)")).text == "array([0, 1, 2])"
    assert only(code.run_code("pd.DataFrame({'a': [1]})['a'].sum()")).text == "np.int64(1)"


def test_a_frame_without_a_data_form_says_so(code):
    execution = code.run_code("import pandas as pd\npd.DataFrame({'t': [pd.Timedelta(1)]})")
    assert execution.error.name == "ValueError" and "Timedelta" in execution.error.value
    assert code.run_code("1").text == "1"


def test_figures_are_shown_once_each(code):
    program = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nplt.plot([3, 4])\nNone"
    execution = code.run_code(program)
    assert [result.text for result in execution.results] == ["<Figure size 640x480 with 1 Axes>"] * 2
    for result in execution.results:
        assert set(result.formats()) == {"text", "png", "chart"} and result.extra == {}
        assert base64.b64decode(result.png).startswith(b"\x89PNG\r\n") and not result.is_main_result
    assert [result.chart.elements[0].points[0][1] for result in execution.results] == [1, 3]
    assert code.run_code("1").results[0].text == "1"


def test_a_figure_as_value_is_shown_twice(code):
    execution = code.run_code("import matplotlib.pyplot as plt\nfigure, axes = plt.subplots()\naxes.plot([1, 2])\nfigure")
    assert [(result.is_main_result, bool(result.png)) for result in execution.results] == [(True, True), (False, True)]
    execution = code.run_code("plt.plot([1, 2])")
    assert [(result.is_main_result, bool(result.png)) for result in execution.results] == [(True, False), (False, True)]
    assert "Line2D" in execution.text


def test_a_figure_of_a_failing_cell_does_not_come_later(code):
    code.run_code("import matplotlib.pyplot as plt\nplt.plot([1])\n1/0")
    assert not [result for result in code.run_code("7").results if result.png]


def test_a_figure_without_axes_is_only_named(code):
    result = only(code.run_code("import matplotlib.pyplot as plt\nplt.figure()\nplt.show()"))
    assert (result.text, result.png, result.chart) == ("<Figure size 640x480 with 0 Axes>", None, None)


def test_seaborn_and_pandas_draw(code):
    for program in (
        "import pandas as pd\npd.DataFrame({'a': [1, 3]}).plot.bar(); None",
        "import seaborn\nseaborn.scatterplot(x=[1, 2], y=[3, 4]); None",
    ):
        assert [bool(result.png) for result in code.run_code(program, timeout=600).results] == [True]


def test_pil_pictures(code):
    program = "from PIL import Image\npicture = Image.new('RGB', (4, 3), 'red')\npicture"
    result = only(code.run_code(program))
    assert base64.b64decode(result.png).startswith(b"\x89PNG") and result.is_main_result
    shown = only(code.run_code("display(picture)"))
    assert shown.png == result.png and not shown.is_main_result
    for call in ("picture.save('/tmp/p.png')", "picture.show()"):
        saved = only(code.run_code(call))
        assert saved.png and not saved.is_main_result
    assert code.run_code("import io\npicture.save(io.BytesIO(), 'png')").results == []
    assert bytes(code.files.read("/tmp/p.png", format="bytes")).startswith(b"\x89PNG")


def test_plotly_figures(code):
    program = "import plotly.graph_objects as go\nfigure = go.Figure(go.Bar(x=['a'], y=[2]))\n"
    for last in ("figure", "figure.show()"):
        # The first figure is preceded by the library that draws it.
        result = code.run_code(program + last, timeout=600).results[-1]
        plot = result.extra["application/vnd.plotly.v1+json"]
        assert plot["data"][0]["type"] == "bar"
        assert "plotly" in result.html
        json.dumps(plot, allow_nan=False)


def test_sympy_formulas(code):
    result = only(code.run_code("import sympy\nx = sympy.Symbol('x')\nsympy.Integral(sympy.sqrt(1 / x), x)", timeout=600))
    assert result.latex == r"$\displaystyle \int \sqrt{\frac{1}{x}}\, dx$"
    assert result.text == "Integral(sqrt(1/x), x)"


def test_updates_and_clearing_are_no_results(code):
    program = "from IPython.display import *\nh = display('first', display_id=True)\nh.update('second')\nclear_output()"
    assert [result.text for result in code.run_code(program).results] == ["first"]


def test_executions_can_be_written_as_json(code):
    execution = code.run_code("import pandas as pd\nprint('x')\ndisplay(pd.DataFrame({'a': [1]}))\n1/0")
    written = json.loads(execution.to_json())
    assert written["results"][0]["data"] == {"a": [1]}
    assert json.loads(written["error"])["name"] == "ZeroDivisionError"
    assert json.loads(written["logs"])["stdout"] == ["x\n"]
