"""The frames of the audit page's pictures, and the markup of their tools."""

from __future__ import annotations

import json

from app.audit.page import PICTURES
from app.shared.charts import FONT_SIZE, divergence_figure, frames, margin_figure, scatter_figure
from app.shared.markup import from_file


def test_every_picture_has_a_frame_and_every_frame_a_picture():
    assert {"candidates", "steps", *(name for name, _, _ in PICTURES)} == set(frames())


def test_frames_are_plain_json_without_colours_so_that_a_theme_swaps_the_template_alone():
    text = json.dumps(frames())
    assert "template" not in text
    assert "#" not in text


def test_both_probabilities_of_a_candidate_are_drawn_on_logarithmic_axes_with_titles():
    layout = scatter_figure().layout
    assert layout.xaxis.type == layout.yaxis.type == "log"
    assert "factual" in layout.xaxis.title.text
    assert "masked" in layout.yaxis.title.text


def test_divergence_and_its_bound_do_not_share_an_axis_and_total_variation_ends_at_one():
    layout = divergence_figure().layout
    assert layout.yaxis.domain[0] > layout.yaxis2.domain[1]
    assert layout.yaxis2.range[1] >= 1


def test_no_picture_can_be_dragged_or_grows_its_text():
    for layout in frames().values():
        assert layout["dragmode"] is False
        assert layout["xaxis"]["fixedrange"]
        assert layout["yaxis"]["fixedrange"]
        assert layout["font"]["size"] == FONT_SIZE


def test_the_margin_has_a_line_at_the_threshold():
    assert margin_figure().layout.yaxis.zeroline


def test_the_tools_of_a_picture_say_which_one_they_belong_to():
    markup = from_file("audit/pictures.html", pictures=[("margin", "Distance to the threshold", "")])
    assert markup.count("Distance to the threshold") == 3
    assert 'data-picture="margin"' in markup
    assert 'data-table="margin"' in markup
