"""Pictures become files without a browser: the same figure gives the same bytes, and nothing is left out silently."""

from __future__ import annotations

import io

import plotly.graph_objects as go
import pytest
from PIL import Image
from pypdf import PdfReader

from app.evaluate.experiments.charts import picture_figure
from app.evaluate.experiments.grid import Chains, Curves, Front, Levels, Speeds, Value
from app.paper.drawing import DOTS, WIDTH, drawn
from coft_core.experiments.choice import Choice, LineSearch, Point, Selection
from coft_core.suites.base import Figure

POINTS = [
    Point(lam, Figure("b", "B", 0.3 - lam / 10, 0.1, 0.4), Figure("u", "U", 60.0 + lam)) for lam in (0.0, 0.5, 1.0)
]
CHOSEN = Selection(POINTS, [True, True, False], None, Choice(0.5, 0.5, {}), LineSearch(0), None, 1, 1)
FAST, SLOW = (Value(100.0, 5.0, 90.0, 120.0), None), (Value(80.0, None, 70.0, 85.0), Value(20.0))
PICTURES = {
    "front": Front("lambda", CHOSEN),
    "levels": Levels({0.1: Value(0.12, 0.01)}, {0.1: Value(0.107, 0.01), 0.2: Value(None)}, "LLaMA-2-13B"),
    "chains": Chains({0.1: {8: Value(0.1, 0.02), 16: Value(0.2)}}),
    "curves": Curves(
        "tokens", "MAUVE", {"Vanilla": {128: Value(0.95, 0.01), 256: Value(0.94)}, "COFT": {128: Value(0.9)}}
    ),
    "speed": Speeds("", {"Tokens a second": {"Vanilla": FAST, "COFT": SLOW}}),
    "scaling": Speeds("tokens", {"Vanilla": {"64": FAST, "128": FAST}, "COFT": {"64": SLOW, "128": SLOW}}),
}


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_drawn_to_the_same_bytes_in_every_form(name):
    figure = picture_figure(PICTURES[name])
    first, second = drawn(figure, ("png", "pdf", "svg")), drawn(figure, ("svg", "pdf", "png"))
    assert first == second
    image = Image.open(io.BytesIO(first["png"]))
    assert image.size == (2 * WIDTH, round(2 * figure.layout.height / DOTS * DOTS))
    assert len({*image.convert("L").getdata()}) > 2
    (page,) = PdfReader(io.BytesIO(first["pdf"])).pages
    assert figure.layout.xaxis.title.text.partition(",")[0] in page.extract_text()
    assert b"<svg" in first["svg"]
    assert b"<dc:date>" not in first["svg"]


def test_another_number_is_another_picture():
    before = drawn(picture_figure(PICTURES["chains"]), ("svg",))
    moved = Chains({0.1: {8: Value(0.1, 0.02), 16: Value(0.3)}})
    assert drawn(picture_figure(moved), ("svg",)) != before


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="kind pie"):
        drawn(go.Figure(go.Pie(values=[1]), layout={"height": 100}), ("png",))
