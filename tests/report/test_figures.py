"""Figures: the same bytes each time, right outside a browser, in a page's colours inside it, and no text lost."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.report.made import record, write_bench, write_run
from unrank.record import read_run
from unrank.report.bench_figures import style_of
from unrank.report.bench_folder import read_bench
from unrank.report.charts import (
    MRR,
    Bars,
    Curve,
    Polygon,
    Spread,
    Target,
    Trade,
    curves,
    grouped_bars,
    histograms,
    intervals,
    panels,
    radar,
    rank_bars,
    row_bars,
    tradeoff,
)
from unrank.report.drawing import DARK, LIGHT, Drawing, Style, file_svg, inline_svg, stylesheet, write_drawing
from unrank.report.run_figures import run_curves

BAD = "</svg><script>x</script> & $a_b$ \"' \x00\x1b\ud800 \u6f22"
ONE, TWO = Style.of(0), Style.of(1)
SCORES = {"forgotten": [0, 3, 1], "kept": [1, 1, 1]}


def each_chart(name: str) -> list[Drawing]:
    """Return one drawing of each kind; a name from data is in all of them."""
    spread, kinds = Spread(0.6, 0.5, 0.7), {"forgotten": ONE, "kept": TWO}
    return [
        grouped_bars(
            "bars", "Bars", "", ["forget", "test"], [Bars(name, ONE, [0.5, 0.0]), Bars("b", TWO, [1, 1])], MRR
        ),
        rank_bars("Ranks", [(name, ONE, [1, 1, 9]), ("after", TWO, [2, 40, 0])]),
        row_bars("rows", "Rows", "times", [(name, ONE, 0.2), ("b", TWO, 1.3)], 1.0),
        curves("curves", "Curves", [Curve(name, ONE, [(0, 0.9), (1, 0.4)], (1, 0.5))], [Target(0.5, 1)]),
        histograms("scores", "Scores", [0, 1, 2, 3], {"before": SCORES, name: SCORES}, kinds),
        intervals("intervals", name, [("forget", spread, spread)], 0.6, (ONE, TWO)),
        radar("radar", "Radar", [name, "b", "c"], [Polygon(name, ONE, [0.5, None, 1.2])]),
        tradeoff("trade", "Trade", [Trade(name, ONE, 0.99, 1.01), Trade("b", TWO, 0.7, 0.4)]),
    ]


@pytest.fixture(scope="module")
def charts() -> list[Drawing]:
    return each_chart(BAD)


def colours(svg: str) -> set[str]:
    return set(re.findall(r"(?:fill|stroke): ([^;\"]+)", svg))


def test_a_file_has_its_colours_as_values(charts: list[Drawing]) -> None:
    """A style sheet of variables is black in every viewer but a browser."""
    for drawing in charts:
        svg = file_svg(drawing)
        assert "var(" not in svg and "<style" not in svg and "class=" not in svg
        assert colours(svg) - {"none"} <= set(LIGHT.values())
        assert {LIGHT["ink"], LIGHT["series-0"]} <= colours(svg)


def test_inside_a_page_a_figure_takes_the_colours_of_the_page(charts: list[Drawing]) -> None:
    assert DARK.keys() == LIGHT.keys() and len(set(LIGHT.values())) == len(LIGHT)
    for drawing in charts:
        svg = inline_svg(drawing)
        assert colours(svg) - {"none"} <= {f"var(--{role})" for role in LIGHT}
        assert "<rect" not in svg, "the page is its paper"
    for dark, values in ((False, LIGHT), (True, DARK)):
        assert stylesheet(dark) == "".join(f"--{role}:{colour};" for role, colour in values.items())


def test_texts_from_data_stay_texts(charts: list[Drawing]) -> None:
    for drawing in charts:
        root = ElementTree.fromstring(file_svg(drawing))
        tags = {each.tag.rpartition("}")[2] for each in root.iter()}
        assert tags <= {"svg", "title", "desc", "rect", "defs", "path", "g", "use", "text"}
        assert "</svg><script>x</script> & $a_b$" in "".join(root.itertext())
        assert "<script" not in inline_svg(drawing)


def test_ids_are_the_figures_own_and_lead_somewhere(charts: list[Drawing]) -> None:
    page = "".join(map(inline_svg, charts))
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]*)"', page)) <= set(ids)
    assert set(" ".join(re.findall(r'aria-labelledby="([^"]*)"', page)).split()) <= set(ids)
    assert "url(" not in page


def test_a_name_of_any_length_leaves_the_chart_in_the_figure() -> None:
    for drawing in each_chart("word " * 60):
        places = re.findall(r'<text [^>]*x="([-0-9.]+)"', drawing.shapes)
        assert places and all(0 <= float(x) <= drawing.width * 72 for x in places)
        assert max(map(len, re.findall(">([^<]*)</text", drawing.shapes))) <= 40


@pytest.mark.slow
def test_the_same_bytes_come_again(charts: list[Drawing], tmp_path: Path) -> None:
    again = each_chart(BAD)
    for first, second in zip(charts, again, strict=True):
        assert file_svg(first) == file_svg(second)
    for name, drawing in (("one", charts[2]), ("two", again[2])):
        write_drawing(drawing, tmp_path / name)
    for ending, start in {"svg": b"<svg ", "pdf": b"%PDF", "png": b"\x89PNG"}.items():
        one, two = ((tmp_path / f"{name}.{ending}").read_bytes() for name in ("one", "two"))
        assert one == two and one.startswith(start)


@pytest.mark.slow
def test_matplotlib_is_imported_for_a_figure_only_and_left_as_it_was() -> None:
    code = """
import sys, unrank.report.write, unrank.cli.main
assert "matplotlib" not in sys.modules
from tests.report.test_figures import each_chart
import matplotlib
before = matplotlib.rcParams.copy()
assert each_chart("name")[0].shapes
assert matplotlib.rcParams.copy() == before
assert "matplotlib.pyplot" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0


def test_the_epoch_that_met_the_target_is_marked(tmp_path: Path) -> None:
    met = read_run(write_run(tmp_path / "met", record("cocol", (0.59, 0.9, 0.9, 0.6))))
    missed = read_run(write_run(tmp_path / "missed", record("cocol", (0.61, 0.9, 0.9, 0.6))))
    assert (met.met, missed.met) == (3.0, None)
    drawn, undrawn = run_curves(met), run_curves(missed)
    assert drawn is not None and undrawn is not None
    assert drawn.description.endswith("target 0.600, met after epoch 3.")
    assert undrawn.description.endswith("target 0.600.")
    assert (">epoch 3<" in drawn.shapes, ">epoch 3<" in undrawn.shapes) == (True, False)
    assert "<title>forget, landed: 0.590</title>" in drawn.shapes


def test_a_curve_may_have_another_measure_and_values_below_0() -> None:
    curve = Curve("highest", ONE, [(1, -0.1), (2, 0.04)])
    drawn = curves("above", "Above", [curve], [Target(0.05, name="limit")], "request", "MRR above a target")
    assert drawn.description == "MRR above a target over requests: highest from -0.100 to 0.040; limit 0.050."
    assert "<title>highest, request 1: -0.100, request 2: 0.040</title>" in drawn.shapes
    assert ">limit 0.050<" in drawn.shapes
    group = drawn.shapes.partition("<title>highest")[2]
    line = re.search(r'd="M [0-9.]+ ([0-9.]+) L [0-9.]+ ([0-9.]+)"', group)
    zero = re.search(r'text-anchor: end[^>]*y="([0-9.]+)"[^>]*>0[.]00</text', drawn.shapes)
    assert line is not None and zero is not None
    assert float(line[2]) < float(zero[1]) < float(line[1]), "the line at 0 lies between the two"


def test_panels_hold_every_drawing_under_its_title(charts: list[Drawing]) -> None:
    shown = each_chart("name")[2:5]
    made = panels("all", "All", shown)
    assert made is not None
    assert made.width == 2 * shown[0].width
    assert made.description == " ".join(f"{drawing.title}: {drawing.description}" for drawing in shown)
    for drawing in shown:
        texts = re.findall(">([^<]*)</text", drawing.shapes)
        assert set(texts) <= set(re.findall(">([^<]*)</text", made.shapes))
        assert f">{drawing.title}</text" in made.shapes
    assert panels("none", "None", []) is None


def test_a_method_has_the_same_colour_in_every_bench(tmp_path: Path) -> None:
    few, many = (
        read_bench(write_bench(tmp_path / str(len(methods)), methods, ["one"], ["bi-encoder"], [0.25], [0]))
        for methods in (["retrain", "ssd"], ["retrain", "amnesiac", "cocol", "cocol,a=1", "cocol,b=2", "ssd", "own"])
    )
    assert all(style_of(few, name) == style_of(many, name) for name in few.series)
    styles = [style_of(many, name) for name in many.series]
    assert len({style.colour for style in styles}) == len(many.series) == 7, "all can be told apart"
