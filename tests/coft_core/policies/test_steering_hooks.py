"""Directions of attention heads: found in every supported kind of model, fitted, kept, and applied exactly."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.steering_directions.fitting import LabelledPair, fit_directions
from coft_core.decode.plan import plan
from coft_core.errors import InvalidInputError
from coft_core.model.branches import attached
from coft_core.model.fake import tiny_model
from coft_core.model.language_model import LanguageModel
from coft_core.model.steering import Directions, SteeringHook, head_geometry
from coft_core.policies.iti import ItiPolicy
from tests.coft_core.model.architectures import random_model

KINDS = ("llama", "mistral", "mixtral", "qwen2", "gpt2", "gpt-neox")
WORDS = ("one", "two", "six", "ten", "red", "sun", "sea", "sky", "oak", "elm")
PAIRS = [LabelledPair(f"{word} is fair", f"{word} is unjust") for word in WORDS]


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> LanguageModel:
    return random_model(request.param)


def logits_of(module: Any) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = module(input_ids=torch.tensor([[5, 9, 200, 3]])).logits
    return found


def with_bias(module: Any, directions: Directions, strength: float) -> Any:
    """A copy whose projections add to their outputs what they make of the shift: the same thing, another way."""
    shifted = copy.deepcopy(module)
    geometry = head_geometry(shifted)
    for layer, projection in enumerate(geometry.projections):
        shift = torch.zeros(geometry.heads * geometry.width)
        for place in np.flatnonzero(directions.layers == layer):
            start = int(directions.heads[place]) * geometry.width
            move = strength * directions.spreads[place] * directions.vectors[place]
            shift[start : start + geometry.width] = torch.from_numpy(move)
        weight = projection.weight.T if type(projection).__name__ == "Conv1D" else projection.weight
        bias = weight @ shift + (0 if projection.bias is None else projection.bias)
        projection.bias = torch.nn.Parameter(bias, requires_grad=False)
    return shifted


def test_steering_equals_a_model_whose_projections_carry_the_shift_as_a_bias(model: LanguageModel):
    directions = fit_directions(model, PAIRS).best(3)
    plain = logits_of(model.module)
    with attached(model.module, (SteeringHook(directions, 2.0),)):
        steered = logits_of(model.module)
    assert torch.allclose(steered, logits_of(with_bias(model.module, directions, 2.0)), atol=1e-5)
    assert not torch.allclose(steered, plain, atol=1e-4)
    assert torch.equal(logits_of(model.module), plain)


def test_a_direction_leads_from_the_unwanted_texts_to_the_wanted_ones(model: LanguageModel):
    directions = fit_directions(model, PAIRS)
    geometry = head_geometry(model.module)
    assert len(directions.layers) == geometry.layers * geometry.heads
    assert np.allclose(np.linalg.norm(directions.vectors, axis=1), 1, atol=1e-4)
    turned = fit_directions(model, [LabelledPair(pair.unwanted, pair.wanted) for pair in PAIRS])
    assert np.allclose(turned.vectors, -directions.vectors, atol=1e-5)
    assert np.allclose(turned.accuracies, directions.accuracies)


def test_the_best_heads_tell_most_held_out_pairs_apart_and_too_few_pairs_are_refused():
    directions = fit_directions(tiny_model(), PAIRS)
    best = directions.best(3)
    assert len(best.accuracies) == 3
    assert sorted(best.accuracies) == sorted(directions.accuracies)[-3:]
    with pytest.raises(InvalidInputError, match="give at least 10"):
        fit_directions(tiny_model(), PAIRS[:3])
    with pytest.raises(InvalidInputError, match="OPTForCausalLM"):
        head_geometry(random_model("opt").module)


def test_directions_survive_a_file_serve_only_their_model_and_no_other_file_is_one(tmp_path: Path):
    path = tmp_path / "own.npz"
    directions = fit_directions(tiny_model(), PAIRS)
    directions.save(path)
    read = Directions.load(path)
    assert np.array_equal(read.vectors, directions.vectors)
    assert (read.model, read.pairs) == (directions.model, len(PAIRS))
    with pytest.raises(InvalidInputError, match="fitted on 'tiny-0' with other weights than 'tiny-4'"):
        plan(tiny_model(4), "a text", ItiPolicy(directions=str(path)), ())
    with pytest.raises(InvalidInputError, match="no file of directions at"):
        Directions.load(tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(InvalidInputError, match="is no file of directions"):
        Directions.load(tmp_path / "text.npz")


def test_a_hook_that_fails_to_attach_takes_the_others_off():
    module = tiny_model().module
    directions = fit_directions(tiny_model(), PAIRS).best(2)

    def failing(_: Any) -> Any:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError), attached(module, (SteeringHook(directions, 1.0), failing)):
        pass
    assert all(not part._forward_pre_hooks for part in module.modules())
