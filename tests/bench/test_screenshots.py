"""The pictures of the documentation: every page has one, and they are small without losing what is on them."""

import io

import numpy as np
import pytest
from PIL import Image

from app.bootstrap import FEATURES
from bench.screenshots import COLOURS, Story, main, scenes, smaller


def test_every_page_of_a_laptop_has_a_picture_of_its_own():
    pictured = {scene.address.split("?")[0] for scene in scenes(Story(1, 2, 3, 4, 5, 6, 7, 8))}
    assert pictured == {f"/{feature.page.path}" for feature in FEATURES if feature.page and not feature.page.for_admins}


def test_a_smaller_picture_has_few_colours_and_looks_the_same():
    across, down = np.meshgrid(np.linspace(0, 255, 200), np.linspace(0, 255, 100))
    pixels = np.stack([across, down, (across + down) / 2], axis=-1).astype(np.uint8)
    before = io.BytesIO()
    Image.fromarray(pixels).save(before, "PNG")
    after = Image.open(io.BytesIO(smaller(before.getvalue())))
    assert after.size == (200, 100)
    assert len(after.getcolors() or ()) <= COLOURS
    assert np.abs(np.asarray(after.convert("RGB"), float) - pixels).mean() < 8


def test_a_page_that_does_not_exist_is_refused_with_those_that_do(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["screenshots", "--out", "x", "--pages", "audits"])
    with pytest.raises(SystemExit):
        main()
    assert "no page 'audits'; the pages are audit, words" in capsys.readouterr().err
