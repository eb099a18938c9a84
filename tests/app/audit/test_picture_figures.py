"""The frames of the audit page's pictures, and the markup of their tools."""

import json

from app.audit.page import PICTURES
from app.shared.charts import FONT_SIZE, divergence_figure, frames, margin_figure, scatter_figure
from app.shared.markup import from_file


def test_every_picture_has_a_frame_without_colours_that_cannot_be_dragged():
    assert {"candidates", "steps", *(name for name, _, _ in PICTURES)} == set(frames())
    text = json.dumps(frames())
    assert "template" not in text
    assert "#" not in text
    for layout in frames().values():
        assert layout["dragmode"] is False
        assert layout["xaxis"]["fixedrange"]
        assert layout["yaxis"]["fixedrange"]
        assert layout["font"]["size"] == FONT_SIZE


def test_axes_of_the_figures():
    layout = scatter_figure().layout
    assert layout.xaxis.type == layout.yaxis.type == "log"
    assert "factual" in layout.xaxis.title.text
    assert "masked" in layout.yaxis.title.text
    layout = divergence_figure().layout
    assert layout.yaxis.domain[0] > layout.yaxis2.domain[1]
    assert layout.yaxis2.range[1] >= 1
    assert margin_figure().layout.yaxis.zeroline


def test_the_tools_of_a_picture_say_which_one_they_belong_to():
    markup = from_file("audit/pictures.html", pictures=[("margin", "Distance to the threshold", "")])
    assert markup.count("Distance to the threshold") == 3
    assert 'data-picture="margin"' in markup
    assert 'data-table="margin"' in markup
