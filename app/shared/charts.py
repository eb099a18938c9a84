"""The pages' charts: Plotly figures without colours, and one template of colours for light and for dark.

Traces take their colours from the template by their order, so that a change of theme swaps the template alone.
Fonts are fixed at 11 px, because a chart grows with its box and its text must not.
"""

from __future__ import annotations

import re

import plotly.graph_objects as go

from coft_core.assets import assets_path

_COLOURS = ("text", "text-2", "text-3", "line", "control", "surface", "surface-2", "accent", "accent-tint", "signal",
            "caution", "data-2")  # fmt: skip
_PAIRS = re.findall(r"--([\w-]+): light-dark\((.*?), (.*?)\)", assets_path("base", "base.css").read_text("utf-8"))
PALETTES = {
    "light": {name: light for name, light, _ in _PAIRS if name in _COLOURS},
    "dark": {name: dark for name, _, dark in _PAIRS if name in _COLOURS},
}
"""The chart colours, which are those of the pages."""

SANS = "-apple-system, BlinkMacSystemFont, Segoe UI, Roboto, Helvetica Neue, Noto Sans, Liberation Sans, Arial"
MONO = "SF Mono, Cascadia Mono, Menlo, Consolas, DejaVu Sans Mono, Liberation Mono, monospace"
FONT_SIZE = 11


def template(mode: str) -> dict[str, object]:
    """Colours of one theme (``light`` or ``dark``), as Plotly's template in plain JSON."""
    c = PALETTES[mode]
    axis = {
        "gridcolor": c["line"],
        "linecolor": c["control"],
        "zerolinecolor": c["control"],
        "tickcolor": c["control"],
        "tickfont": {"color": c["text-3"]},
        "title": {"font": {"color": c["text-3"], "size": FONT_SIZE}},
    }
    factual = {"marker": {"color": c["surface"], "line": {"color": c["text-2"], "width": 1.2}}}
    masked = {
        "marker": {
            "color": c["data-2"],
            "line": {"color": c["data-2"], "width": 1},
            "pattern": {"shape": "/", "size": 5, "solidity": 0.35, "fgcolor": c["data-2"], "bgcolor": c["surface"]},
        }
    }
    fused = {"marker": {"color": c["accent"], "line": {"color": c["accent"], "width": 1}}}
    plain = {"marker": {"color": c["data-2"], "line": {"color": c["data-2"], "width": 1}}}
    return {
        "data": {
            "bar": [factual, masked, fused, plain],
            "scatter": [
                {"line": {"color": c["text"]}, "marker": {"color": c["caution"]}},
                {"line": {"color": c["text"]}, "marker": {"color": c["text"]}},
                {"line": {"color": c["text-2"]}, "marker": {"color": c["text-2"]}},
                {"line": {"color": c["accent"]}, "marker": {"color": c["accent"]}},
                {"line": {"color": c["caution"]}, "marker": {"color": c["caution"]}},
            ],
        },
        "layout": {
            "font": {"family": SANS, "size": FONT_SIZE, "color": c["text-3"]},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "xaxis": axis,
            "yaxis": axis,
            "shapedefaults": {"line": {"color": c["text"]}},
            "annotationdefaults": {"font": {"color": c["text"], "size": FONT_SIZE}},
            "hoverlabel": {"bgcolor": c["surface"], "bordercolor": c["control"], "font": {"color": c["text"]}},
        },
    }


def plain_layout(height: int, margin: dict[str, int]) -> go.Layout:
    """What all charts have in common: no legend, no zoom, the light template until the page swaps it."""
    return go.Layout(
        template=template("light"),
        height=height,
        margin=margin,
        showlegend=False,
        dragmode=False,
        font={"family": SANS, "size": FONT_SIZE},
        xaxis={"fixedrange": True, "showline": True},
        yaxis={"fixedrange": True},
        yaxis2={"fixedrange": True},
    )
