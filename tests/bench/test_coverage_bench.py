"""The script that measures coverage by step, bin, chain, group and family."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import coft_core as cc
from bench import coverage
from coft_core.conformal.coverage import clopper_pearson
from coft_core.conformal.values import CalibrationValues
from coft_core.model.fake import tiny_model
from coft_core.types import Example
from tests.conftest import TOY_FINGERPRINT


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    who = ("He", "The Black man", "The box")
    rows = [
        {"prompt": f"{who[i % 3]} said number {i} to them,", "reference": f"and wrote {i}", "group": "ab"[i % 2]}
        | {"context": str(i)}
        for i in range(60)
    ]
    path.write_text("\n".join(json.dumps(row) for row in [*rows, {"prompt": "", "reference": "x"}]))
    return path


def test_a_single_step_has_the_exact_interval_and_an_average_a_bootstrap_over_contexts() -> None:
    exact = coverage.row_of(np.array([True] * 9 + [False]), np.arange(10))
    assert exact is not None
    assert (exact.interval, (exact.low, exact.high)) == ("exact", clopper_pearson(9, 10))
    generator = np.random.default_rng(0)
    contexts = np.repeat(np.arange(50), 8)
    agreeing = np.repeat(generator.random(50) < 0.8, 8)
    agreeing[::80] ^= True
    mixed = coverage.row_of(agreeing, contexts)
    assert mixed is not None
    assert (mixed.interval, mixed.n, mixed.tokens) == ("bootstrap", 50, 400)
    # Tokens of a context agree here, so an interval over tokens would be far too narrow.
    assert mixed.high - mixed.low > 0.15
    assert coverage.row_of(np.zeros(0, bool), np.zeros(0, int)) is None


def test_every_figure_is_over_contexts_and_rows_are_told_by_group_and_family() -> None:
    whose = [(who, group) for who in ("He", "The box") for group in "ab"]
    examples = [Example(f"{who} said so", group=group) for who, group in whose for _ in range(25)]
    contexts, steps = np.repeat(np.arange(100), 2), np.tile([0, 1], 100)
    made = cc.Calibration.of(TOY_FINGERPRINT, 0.1, CalibrationValues(np.full(200, -5.0), steps, contexts))
    # The first 30 contexts, all of them about "He", miss both steps.
    values = CalibrationValues(np.where(contexts < 30, -9.0, -1.0), steps, contexts, contexts + 1)
    found = coverage.measured(made, values, examples)
    assert {name: (row.n, row.coverage) for name, row in found["groups"].items()} == {"a": (50, 0.5), "b": (50, 0.9)}
    families = {name: (row.n, row.coverage) for name, row in found["families"].items()}
    assert families == {"gender": (50, 0.4), coverage.UNMASKED: (50, 1.0)}
    assert {name: row.coverage for name, row in found["steps"].items()} == {"1": 0.7, "2": 0.7}


def test_the_script_prints_one_json_object_last(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tiny_model()
    monkeypatch.setattr(cc, "load_model", lambda name, device: model)
    coverage.main(["--model", "tiny", "--prompts", str(prompts), "--threads", "1", "--alpha", "0.2"])
    *lines, last = capsys.readouterr().out.splitlines()
    result = json.loads(last)
    assert "left out: line 61, prompt is empty" in lines
    assert (result["benchmark"], result["bin_spacing"], result["left_out"]) == ("coverage", "finest", 1)
    assert list(result["bins"])[:4] == ["1", "2", "3", "4"]
    assert result["overall"]["n"] == 30
    assert set(result["groups"]) == {"a", "b"}
    stored = tmp_path / "stored.zip"
    examples = [Example(f"He said {i} of it", f"and wrote {i}") for i in range(30)]
    cc.calibrate(model, examples, alpha=0.2).save(stored)
    coverage.main(["--prompts", str(prompts), "--threads", "1", "--calibration", str(stored), "--bin-spacing", "even"])
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (again["calibration"], again["bin_spacing"], again["overall"]["n"]) == ("stored.zip", "even", 60)
    assert next(iter(again["bins"])) == "1–8"
