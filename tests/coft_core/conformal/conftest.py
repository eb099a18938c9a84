"""A policy and a calibration for it, without a model."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.values import CalibrationValues
from tests.conftest import TOY_FINGERPRINT


@pytest.fixture
def fingerprint():
    return TOY_FINGERPRINT


def random_values(contexts, seed, longest=24, first_context=0):
    """Dependent values: contexts of 1 to ``longest`` steps that share a level."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, longest + 1, size=contexts)
    context = np.repeat(np.arange(contexts), lengths)
    step = np.concatenate([np.arange(length) for length in lengths])
    level = generator.normal(size=contexts)[context]
    return CalibrationValues(
        values=-np.exp(level + 0.3 * generator.normal(size=context.size)), steps=step, contexts=context + first_context
    )


@pytest.fixture
def calibration(fingerprint):
    return Calibration.of(
        fingerprint=fingerprint, alpha=0.1, values=random_values(60, seed=1),
        verification=random_values(40, seed=2, first_context=60), seed=3, created="2025-01-02T03:04:05+00:00",
        name="Wörter und mehr",
    )  # fmt: skip


def rewritten(data, **settings):
    """The same file with other settings; a setting given as ``...`` is taken away."""
    source = zipfile.ZipFile(io.BytesIO(data))
    header = json.loads(source.read("calibration.json")) | settings
    header = {name: value for name, value in header.items() if value is not ...}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        target.writestr("calibration.json", json.dumps(header))
        for name in source.namelist()[1:]:
            target.writestr(name, source.read(name))
    return buffer.getvalue()
