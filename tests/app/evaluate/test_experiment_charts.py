"""Pictures of experiments show the numbers of their tables, and tell points apart by more than colour."""

from __future__ import annotations

from dataclasses import asdict
from types import SimpleNamespace

from app.evaluate.experiments.charts import picture_figure
from app.evaluate.experiments.figures import Sweep
from app.evaluate.experiments.grid import Front, Line, Paper, Value
from app.evaluate.experiments.speed import MeasuredSpeed, SpeedTable, measured_by
from app.evaluate.experiments.tables import CoverageTable
from app.evaluate.runs import SPEED
from coft_core.experiments.choice import Choice, LineSearch, Point, Selection
from coft_core.suites.base import Figure
from tests.app.evaluate.test_experiment_tables import (
    BIAS,
    CHOICE,
    experiment,
    grid,
    kept,
    note,
    outcomes,
    swept,
    swept_with,
)


def traces(figure):
    return {trace.name: trace for trace in figure.data}


def numbers(table, column):
    """Our numbers of a column by the head of their row."""
    return {head.title: values[column] for head, values in table.rows if not head.source}


def test_the_front_shows_the_tables_numbers_with_their_intervals_and_rings_the_knee_and_the_chosen_value():
    found = swept(harm={**BIAS, 1: 0.2})
    table = swept_with(CHOICE, found)
    shown = traces(picture_figure(table.picture))
    bias, utility = numbers(table, 0), numbers(table, 1)
    for name, labels in (("on the front", ["0.8"]), ("beaten by another value", ["0", "0.2", "0.4", "0.6"])):
        assert list(shown[name].text) == labels
    for name in ("on the front", "beaten by another value", "not eligible"):
        points = shown[name]
        labels = [f"lambda {text}" for text in points.text]
        assert list(points.x) == [bias[label].value for label in labels]
        assert list(points.y) == [utility[label].value for label in labels]
    assert list(shown["not eligible"].text) == ["1"]
    assert list(shown["chosen"].x) == [bias["lambda 0.6"].value]
    assert list(shown["knee"].x) == [bias["lambda 0.8"].value]
    same = [Point(value, Figure("b", "B", 0.2), Figure("u", "U", 50.0)) for value in (0.02, 0.05)]
    found = Selection(same, [True, True], None, Choice(0, 0, {}), LineSearch(0), None, 1, 1)
    assert list(traces(picture_figure(Front("alpha", found)))["on the front"].text) == ["0.02, 0.05", ""]


def test_miscoverage_stands_against_alpha_with_the_diagonal_and_the_papers_values():
    sweep = Sweep("alpha", (0.1, 0.2, 0.3), "coft:calibrated,lam=0.6")
    paper = Paper("m", "s", {"alpha 0.1": (Value(0.107, 0.01), Value(0.1)), "alpha 0.2": (None, Value(0.2))})
    notes = (note("alpha 0.1", 0, 0.9, 30), note("alpha 0.1", 1, 0.8, 40), note("alpha 0.2", 0, 0.7, 10))
    found = {("harm", "alpha 0.1"): outcomes([0.2] * 5)}
    table = swept_with(CoverageTable("C", (paper,)), found, sweep, calibrations=notes)
    shown = traces(picture_figure(table.picture))
    missed = numbers(table, 0)
    assert list(shown["measured"].x) == [0.1, 0.2]
    assert list(shown["measured"].y) == [missed["alpha 0.1"].value, missed["alpha 0.2"].value]
    assert list(shown["measured"].error_y.array) == [missed["alpha 0.1"].deviation, 0.0]
    assert list(shown["measured"].error_y.arrayminus) == [missed["alpha 0.1"].deviation, 0.0]
    assert list(shown["as asked"].x) == list(shown["as asked"].y)
    assert (list(shown["paper, m"].x), list(shown["paper, m"].y)) == ([0.1], [0.107])
    assert shown["paper, m"].marker.symbol != shown["measured"].marker.symbol


TIMED = SpeedTable("Speed", (Paper("m", "s", {"COFT": (Value(108.2), Value(10.2), None)}),))


def timed(table, *lines, **told):
    measured = {0: MeasuredSpeed(0, lines, ("Measured.",))} if lines else {}
    return grid(kept(experiment(table), {}, suites=(), speeds=measured, **told))


def test_speed_stands_by_method_with_the_range_over_rounds_and_the_overhead_beside_it():
    lines = (
        Line("Vanilla", (Value(120.0, None, 110.0, 125.0), None, None), "Vanilla"),
        Line("COFT", (Value(100.0, None, 90.0, 101.0), Value(16.7), None), "COFT"),
        Line("Fast", (Value(130.0, None, 129.0, 131.0), Value(-8.3), None), "Fast"),
    )
    table = timed(TIMED, *lines)
    job = SimpleNamespace(
        result={SPEED: [{"place": 0, "lines": [asdict(own) for own in lines], "notes": ["Measured."]}]}
    )
    assert measured_by(job) == {0: MeasuredSpeed(0, lines, ("Measured.",))}
    assert measured_by(SimpleNamespace(result={"items": 3})) == measured_by(None) == {}
    figure = picture_figure(table.picture)
    (points,) = figure.data
    assert list(points.x) == [value.value for value in numbers(table, 0).values()] == [120.0, 100.0, 130.0]
    assert list(points.error_x.arrayminus) == [10.0, 10.0, 1.0]
    assert list(points.text) == ["", "16.7 % slower", "8.3 % faster"]
    assert list(figure.layout.yaxis.ticktext) == ["Vanilla", "COFT", "Fast"]
    assert [head.source for head, _ in table.rows] == ["", "", "paper, m", ""]
    sizes = SpeedTable("Lengths", (), "lengths", ("Vanilla", "COFT"), lengths=(128, 256))
    lines = (Line(str(size), (Value(size / 2, 4.0), Value(size / 4), Value(50.0)), str(size)) for size in (128, 256))
    shown = traces(picture_figure(timed(sizes, *lines).picture))
    assert [list(shown[label].y) for label in ("Vanilla", "COFT")] == [[64, 128], [32, 64]]
    assert (list(shown["COFT"].x), list(shown["COFT"].text)) == ([128, 256], ["50.0 % slower"] * 2)
    band = shown["Vanilla ± one standard deviation"]
    assert (list(band.x), list(band.y)) == ([128, 256, 256, 128], [68, 132, 124, 60])
    assert "COFT ± one standard deviation" not in shown  # it has no deviation
