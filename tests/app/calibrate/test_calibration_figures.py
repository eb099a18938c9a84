"""The charts of calibrations: every bin drawn, every state told without colour."""

from __future__ import annotations

from app.calibrate.charts import thresholds_figure
from coft_core.conformal.coverage import CoverageRow
from tests.records import position_bins

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
