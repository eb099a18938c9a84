"""The pictures of the documentation: every page has one, and they are small without losing what is on them."""

import io

import numpy as np
from PIL import Image

from bench.screenshots import COLOURS, smaller


def test_a_smaller_picture_has_few_colours_and_looks_the_same():
    across, down = np.meshgrid(np.linspace(0, 255, 200), np.linspace(0, 255, 100))
    pixels = np.stack([across, down, (across + down) / 2], axis=-1).astype(np.uint8)
    before = io.BytesIO()
    Image.fromarray(pixels).save(before, "PNG")
    after = Image.open(io.BytesIO(smaller(before.getvalue())))
    assert after.size == (200, 100)
    assert len(after.getcolors() or ()) <= COLOURS
    assert np.abs(np.asarray(after.convert("RGB"), float) - pixels).mean() < 8
