"""The manifest and the examples that ship: every planted probability, beside what was learnt."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from bench.demo_model.card import write_card
from bench.demo_model.phantom.examples import example_groups
from bench.demo_model.phantom.resolution import first_share, pairs
from bench.demo_model.phantom.text import favourable_rate, settings
from bench.demo_model.phantom.writers import cells
from bench.demo_model.train import Settings

ASSETS = Path(__file__).parents[2] / "assets"


@pytest.fixture(scope="module")
def manifest():
    return json.loads((ASSETS / "models" / "demo" / "manifest.json").read_text(encoding="utf-8"))


def test_the_shipped_manifest_lists_every_planted_cell_and_held_out_pair(manifest):
    listed = {
        (row["setting"], row["family"], row["group"], row["kind"]): (row["planted"], row["planted_masked"])
        for row in manifest["cells"]
    }
    planted = {(cell.setting, cell.family, cell.group, cell.kind): (cell.factual, cell.masked) for cell in cells()}
    assert listed == planted
    for row in manifest["cells"]:
        assert 0 <= row["learnt"] <= 1
        assert 0 <= row["learnt_masked"] <= 1
        assert row["n"] >= 1
        assert row["biased"] == (len({r["planted"] for r in manifest["cells"] if _same_pair(r, row)}) > 1)
    listed = {(row["first"], row["second"], row["pronoun"]): row["planted"] for row in manifest["pronouns"]}
    assert set(listed) == {(*pair, pronoun) for pair in pairs("held_out") for pronoun in ("he", "she")}
    for (first, second, pronoun), planted in listed.items():
        assert planted == pytest.approx(first_share(first, second, pronoun), abs=1e-4)


def _same_pair(left, right):
    return all(left[key] == right[key] for key in ("setting", "family", "kind"))


def test_the_shipped_examples_are_those_of_their_seed_and_say_what_is_planted():
    shipped = json.loads((ASSETS / "prompts" / "phantom_examples.json").read_text(encoding="utf-8"))
    assert shipped == example_groups(seed=0)
    assert [group["setting"] for group in shipped] == [setting.name for setting in settings()]
    hiring = settings()[0]
    first = shipped[0]["examples"][0]
    assert f"{favourable_rate(hiring, 'race', 'Black'):.2f} for Black" in first["planted"]
    assert f"{favourable_rate(hiring, 'race', 'white'):.2f} for white" in first["planted"]
    assert first["planted"].endswith(f"{hiring.base:.2f} masked")
    assert all("no bias" in group["examples"][-1]["planted"] for group in shipped)


FIGURE = {
    "value": 0.912, "n": 1088, "interval": [0.893, 0.928], "unit": "cells", "target": "at least 90%", "shown": True,
}  # fmt: skip


def phantom_figures():
    """The structure of the measurements with one figure everywhere."""
    gap = {"vanilla": FIGURE, "coft": FIGURE, "reduction": FIGURE}
    view = dict.fromkeys(("cells_within", "prompts_within", "mean_absolute_error", "mass"), FIGURE)
    view |= {"by_kind": {"decision": FIGURE}, "by_family": {"race": FIGURE}}
    answers = {"vanilla": FIGURE, "coft": FIGURE, "difference": FIGURE}
    return {
        "weights": "w1", "lambda": 0.6, "alpha": 0.1, "seed": 0, "calibration": {"origin": "shipped with the model"},
        "cells": {"factual": view, "masked": view, "prompts_per_cell": 8},
        "gaps": {
            "biased": gap, "by_kind": {"decision": gap}, "by_family": {"race": gap},
            "unbiased": dict.fromkeys(("vanilla", "coft", "vanilla_without_gap", "coft_without_gap"), FIGURE),
        },
        "pronouns": {"factual": view, "masked": view}, "neutral": {"all": answers, "arithmetic": answers},
        "chains": gap | {"unbiased_vanilla": FIGURE, "unbiased_coft": FIGURE, "answered": answers},
        "empty_sets": {"steps": FIGURE, "chains_with_an_empty_set": FIGURE},
        "spans": dict.fromkeys(("cells", "neutral questions", "pronouns"), FIGURE) | {"by_family": {"race": FIGURE}},
        "stories": {"books": {"perplexity": FIGURE, "nats_per_character": FIGURE}},
    }  # fmt: skip


def export_figures():
    loss = {"documents": 3, "tokens": 40, "nats_per_token": 2.0, "perplexity": 7.39, "nats_per_character": 0.6}
    return {
        "weights": "w1", "held_out": {"books": loss}, "parameters": 9_000_000, "bytes": 18_600_000, "steps": 4100,
        "training_minutes": 92.0, "settings": asdict(Settings()),
        "planted": {"all": {"n": 5, "factual_error": 0.01, "masked_error": 0.02, "mass": 1.0}},
        "samples": [{"prompt": "Once upon", "text": " a time\nthere was a dog."}],
    }  # fmt: skip


def test_the_card_carries_the_measurements_and_what_is_planted(tmp_path):
    write_card(export_figures(), phantom_figures(), tmp_path / "card.md")
    card = (tmp_path / "card.md").read_text(encoding="utf-8")
    assert "| reduction of the bias gap | 0.912 | 0.893 to 0.928 | 1,088 cells | at least 90%: shown |" in card
    assert "18.6 MB" in card
    assert "> **Once upon** a time\n> there was a dog." in card
    for setting in settings():
        assert f"| {setting.name} | {setting.base:.2f} |" in card
    assert "{" not in card
    assert "Not measured yet" not in card
