"""The charts of an HTML report: a strip of sensitivity, and set size with threshold by step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go
from markupsafe import Markup
from plotly.io import to_html
from plotly.offline import get_plotlyjs

from app.services.reporting.summary import has_threshold
from app.services.views import Step
from app.services.views.running import SENSITIVE

WIDTH = 680
"""Pixels of a chart: the width of a printed A4 page, so that the same drawing serves screen and paper."""
STEPS_HEIGHT = 210
STRIP_HEIGHT = 44
MOST_CELLS = 340
FONT_SIZE = 11
INK, QUIET, LINE, ACCENT, BARS, SIGNAL, CAUTION = (
    "#1b1c1e", "#666a70", "#e3e3df", "#2b59c3", "#84878d", "#b4470c", "#855200",
)  # fmt: skip
FONT = "-apple-system, Segoe UI, Roboto, Helvetica Neue, Noto Sans, Liberation Sans, Arial, sans-serif"
_BASELINE, _UP, _DOWN, _SCALE = 30, 28, 11, 22.5


def plotly_script() -> Markup:
    """The chart library, to be placed in a page once."""
    return Markup(get_plotlyjs())


def strip(steps: Sequence[Step]) -> Markup:
    """Sensitivity of every token: bars up where the visible attribute makes it likelier, down where masking does.

    Long chains share a cell among neighbours, which then shows the strongest of them.
    """
    if not steps:
        return Markup("")
    per = math.ceil(len(steps) / MOST_CELLS)
    cells = [steps[start : start + per] for start in range(0, len(steps), per)]
    width = WIDTH / max(len(cells), 1)
    parts = [_baseline(steps)]
    for index, cell in enumerate(cells):
        strongest = max((step.diagnostics.log_ratio for step in cell), key=abs)
        high = min(_DOWN if strongest < 0 else _UP, abs(strongest) * _SCALE)
        top = _BASELINE if strongest < 0 else _BASELINE - high
        colour = SIGNAL if abs(strongest) >= SENSITIVE else BARS
        if high >= 0.4:
            left, wide = (index + 0.15) * width, min(width * 0.7, 14)
            parts.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="{colour}"/>')
        if any(step.fallback for step in cell):
            middle = (index + 0.15) * width + min(width * 0.7, 14) / 2
            parts.append(f'<path d="M{middle:.1f} 33.5l4 7h-8z" fill="{CAUTION}"/>')
    hot = [str(step.index + 1) for step in steps if abs(step.diagnostics.log_ratio) >= SENSITIVE]
    said = f"sensitive at {'step' if len(hot) == 1 else 'steps'} {', '.join(hot)}" if hot else "no step is sensitive"
    return Markup(
        f'<svg class="heatstrip" viewBox="0 0 {WIDTH} {STRIP_HEIGHT}" role="img" '
        f'aria-label="Sensitivity of {len(steps)} steps: {said}.">{"".join(parts)}</svg>'
    )


def steps_chart(steps: Sequence[Step], name: str) -> Markup:
    """Certified-set size and threshold by step; needs the library of :func:`plotly_script` in the page.

    Args:
        steps: The chain.
        name: Identifies the chart in the page.
    """
    places = [step.index + 1 for step in steps]
    limited = [step.state not in ("none", "uninformative") for step in steps]
    sizes = [step.set_size if shown else None for step, shown in zip(steps, limited, strict=True)]
    taus = [math.exp(step.log_tau) if has_threshold(step) else None for step in steps]
    supports = [math.exp(step.log_support) for step in steps]
    support = "support as typed" if any(step.certified_in == "factual" for step in steps) else "joint support"
    figure = go.Figure(layout=_layout([*supports, *(tau for tau in taus if tau)], max(filter(None, sizes), default=4)))
    figure.add_bar(
        x=places, y=sizes, name="tokens in the certified set", marker={"color": BARS}, hovertemplate="%{y} tokens"
    )
    figure.add_scatter(
        x=places, y=supports, yaxis="y2", mode="markers", name=f"{support} of the written token",
        marker={"color": ACCENT, "size": 5}, hovertemplate=f"{support} %{{y:.3g}}",
    )  # fmt: skip
    figure.add_scatter(
        x=places, y=taus, yaxis="y2", mode="lines", name="threshold τ",
        line={"color": INK, "width": 1.6, "shape": "hvh"}, hovertemplate="τ %{y:.3g}",
    )  # fmt: skip
    _note_open_steps(figure, steps, limited)
    html = to_html(
        figure,
        include_plotlyjs=False,
        full_html=False,
        div_id=f"chart-{name}",
        config={"displayModeBar": False, "staticPlot": False, "responsive": False},
        validate=False,
    )
    return Markup(html)


def _note_open_steps(figure: go.Figure, steps: Sequence[Step], limited: Sequence[bool]) -> None:
    if not any(limited):
        none = all(step.state == "none" for step in steps)
        text = "no calibration, so there is no set" if none else "the thresholds say nothing"
        figure.add_annotation(
            x=0.5, y=0.75, xref="paper", yref="paper", text=text, showarrow=False, font={"color": QUIET}
        )


def _baseline(steps: Sequence[Step]) -> str:
    """Solid where thresholds are calibrated, dotted where they are borrowed, dashed where there is none."""
    dashes = {"calibrated": "", "mismatch": "", "inherited": ' stroke-dasharray="1.5 3"'}
    parts, start = [], 0
    for index in range(1, len(steps) + 1):
        if index < len(steps) and steps[index].state == steps[start].state:
            continue
        dash = dashes.get(steps[start].state, ' stroke-dasharray="5 3"')
        left, right = start / len(steps) * WIDTH, index / len(steps) * WIDTH
        parts.append(
            f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{_BASELINE}" y2="{_BASELINE}" stroke="{QUIET}"{dash}/>'
        )
        start = index
    return "".join(parts)


def _layout(probabilities: Sequence[float], largest: int) -> go.Layout:
    # Three labels fit beside the lower chart, however many powers of ten it spans.
    lowest = min((value for value in probabilities if value > 0), default=0.1)
    font = {"family": FONT, "size": FONT_SIZE, "color": QUIET}
    axis = {
        "gridcolor": LINE,
        "linecolor": QUIET,
        "zerolinecolor": LINE,
        "tickcolor": QUIET,
        "tickfont": font,
        "fixedrange": True,
    }

    def title(text: str) -> dict[str, object]:
        return {"text": text, "standoff": 4, "font": font}

    return go.Layout(
        width=WIDTH,
        height=STEPS_HEIGHT,
        margin={"l": 58, "r": 6, "t": 26, "b": 34},
        font=font,
        paper_bgcolor="#ffffff",
        plot_bgcolor="#ffffff",
        showlegend=True,
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "itemclick": False, "font": font},
        dragmode=False,
        hovermode="x",
        bargap=0.38,
        xaxis={**axis, "showgrid": False, "title": title("step"), "anchor": "y2", "tickformat": "d"},
        yaxis={
            **axis,
            "domain": [0.56, 1],
            "rangemode": "tozero",
            "dtick": -(-largest // 2),
            "title": title("set size"),
        },
        yaxis2={
            **axis,
            "domain": [0, 0.44],
            "type": "log",
            "dtick": max(1, math.ceil(-math.log10(lowest) / 3)),
            "tickformat": "~g",
            "title": title("probability"),
        },
    )
