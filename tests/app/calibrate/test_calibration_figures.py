"""The charts of calibrations: every bin drawn, every state told without colour."""

from __future__ import annotations

from app.calibrate.charts import comparison_figure, drift_figure, thresholds_figure
from coft_core.conformal.coverage import CoverageRow
from tests.records import drift_report, position_bins

BINS = position_bins()
COVERAGE = tuple(
    CoverageRow(item.label, item.contexts, item.contexts, 0.1, 0.91, 0.88, 0.94)
    for item in BINS
    if item.state == "calibrated"
)


def test_each_state_has_its_own_dash_and_marker():
    figure = thresholds_figure(BINS, COVERAGE, 0.9)
    lines = [trace for trace in figure.data if trace.type == "scatter" and trace.x and trace.yaxis is None]
    looks = {(trace.line.dash, str(trace.marker.symbol)) for trace in lines}
    assert looks == {("solid", "circle"), ("2px,3px", "square-open"), (None, "x")}
    assert lines[-1].text == ("none",)


def test_the_coverage_band_and_the_contexts_are_those_of_the_bins():
    figure = thresholds_figure(BINS, COVERAGE, 0.9)
    band = next(trace for trace in figure.data if trace.type == "bar" and trace.base)
    assert [round(low + high, 6) for low, high in zip(band.base, band.y, strict=True)] == [
        round(item.coverage_high, 6) for item in BINS if item.coverage_high is not None
    ]
    contexts = next(trace for trace in figure.data if trace.type == "bar" and trace.yaxis == "y3")
    assert list(contexts.y) == [item.contexts for item in BINS]


def test_traces_hold_no_colours_so_that_the_theme_gives_them_and_each_audit_is_one_dot():
    report = drift_report("watch")
    for figure in (
        thresholds_figure(BINS, COVERAGE, 0.9),
        comparison_figure(BINS, BINS, "a", "b"),
        drift_figure(report),
    ):
        assert all(trace.marker.color is None for trace in figure.data)
        assert all(trace.line.color is None for trace in figure.data if trace.type == "scatter")
    dots = next(trace for trace in drift_figure(report).data if trace.mode == "markers")
    assert list(dots.y) == list(report.p_values)


def test_two_runs_differ_in_dash_and_marker_and_break_where_there_is_no_threshold():
    first, second = position_bins(), position_bins(0.05, 4)
    figure = comparison_figure(first, second, "a", "b")
    runs = [trace for trace in figure.data if trace.name]
    assert {trace.line.dash for trace in runs} == {"solid", "6px,4px"}
    assert runs[0].y[3] is None
    assert (runs[0].marker.symbol[4], runs[1].marker.symbol[0]) == ("circle-open", "square")
    assert (runs[0].x[0], runs[1].x[0]) == (4.5, 2.5)
