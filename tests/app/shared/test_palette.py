"""The colours: readable on every surface."""

from __future__ import annotations

import re

import pytest

from app.shared.web import ASSETS

TEXT = ("text", "text-2", "text-3", "accent", "signal", "caution", "danger")
SURFACES = ("bg", "surface", "surface-2")
FAMILIES = (
    "gender", "race", "nationality", "religion", "age", "disability", "appearance", "orientation", "socioeconomic",
    "family", "name",
)  # fmt: skip


def tokens(mode: str) -> dict[str, str]:
    css = (ASSETS / "base" / "base.css").read_text("utf-8")
    found = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", css)
    return {name: dark if mode == "dark" else light for name, light, dark in found}


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_text_reaches_four_and_a_half_on_every_surface(mode):
    found = tokens(mode)
    weak = {
        (name, on): round(contrast(found[name], found[on]), 2)
        for name in (*TEXT, *(f"f-{family}" for family in FAMILIES))
        for on in SURFACES
        if contrast(found[name], found[on]) < 4.5
    }
    assert weak == {}


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_edges_bars_and_buttons_reach_their_contrast(mode):
    found = tokens(mode)
    assert all(contrast(found[name], found[on]) >= 3 for name in ("control", "data-2") for on in SURFACES)
    assert contrast(found["on-accent"], found["accent"]) >= 4.5
    assert contrast(found["text"], found["accent-tint"]) >= 4.5
    assert contrast(found["accent"], found["accent-tint"]) >= 4.5
    assert contrast(found["text-2"], found["accent-tint"]) >= 4.5


def test_every_family_has_its_own_mark():
    css = (ASSETS / "base" / "prompt.css").read_text("utf-8")
    marks = {}
    for family in FAMILIES:
        block = re.search(rf"\.f-{family} \{{(.*?)\}}", css, re.DOTALL)
        assert block, family
        marks[family] = re.sub(r"--fam:.*?;", "", block.group(1)).split()
    assert len({tuple(mark) for mark in marks.values()}) == len(FAMILIES)
