"""What each causal class of transformers can do here: a tiny random model is stepped, cut, forked, scored, calibrated.

Everything is compared with forwards over whole texts without any cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

from coft_core.calibrate.true_tokens import forced_supports
from coft_core.errors import ModelLoadError
from coft_core.model.branches import BranchBatch
from coft_core.model.fake import byte_tokenizer
from coft_core.model.forced import ForcedItem, teacher_forced_logits
from coft_core.model.language_model import LanguageModel
from coft_core.model.load import wrap_model
from coft_core.model.loading import explain
from coft_core.model.memory_fit import fit_of
from coft_core.model.requirements import require_causal
from tests.models.tiny import NOT_MADE, random_module, tiny_config

TOLERANCE = 2e-3
"""Largest difference of two logits over the spread of all: sums in another order stay far below."""

FACTUAL, MASKED, OTHER = [7, 90, 34, 120, 55, 8, 200, 41, 3], [7, 90, 34, 99, 55, 8, 200, 41, 3], [12, 5, 77, 180, 9]
CONTINUATION = (60, 14, 140, 33, 71)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a class."""

    model_type: str
    architecture: str
    memory: str
    refusal: str
    notes: str = ""


def configurations() -> dict[str, type[PreTrainedConfig]]:
    """Configuration classes of all causal models by their names."""
    return {each.model_type: each for each in MODEL_FOR_CAUSAL_LM_MAPPING if _is_transformers(each)}


def _is_transformers(config_class: type[PreTrainedConfig]) -> bool:
    """Others are registered by models that bring their own code."""
    return config_class.__module__.startswith("transformers.models.")


def with_images() -> dict[str, type[PreTrainedConfig]]:
    """Those of models that read images besides text, and of which no text part is mapped to a causal model."""
    causal = configurations()
    return {each.model_type: each for each in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING if each.model_type not in causal}


def architecture_of(config_class: type[PreTrainedConfig]) -> str:
    """The class that transformers makes of a configuration."""
    # The mappings of classes would import the modules of all of them.
    names = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES | MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return str(names[config_class.model_type])


def examined(config_class: type[PreTrainedConfig]) -> Outcome:
    """Try a class out."""
    about = (config_class.model_type, architecture_of(config_class))
    if why := NOT_MADE.get(config_class.model_type):
        return Outcome(*about, "", "", why)
    try:
        model = loaded(config_class)
    except ModelLoadError as error:
        return Outcome(*about, "", one_sentence(error))
    require_equal(model)
    fit = fit_of(model)
    return Outcome(*about, fit.kind, "", fit.reason)


def loaded(config_class: type[PreTrainedConfig]) -> LanguageModel:
    """A tiny model of a configuration's class, as loading checks it."""
    name, config = architecture_of(config_class), tiny_config(config_class)
    config.architectures = [name]
    require_causal(name, config)
    try:
        module = random_module(config)
    except ImportError as error:
        raise ModelLoadError(explain(name, error)) from error
    return wrap_model(module, byte_tokenizer(), name)


def one_sentence(error: Exception) -> str:
    """An error's sentence, which must be one."""
    text = " ".join(str(error).split())
    assert text.endswith("."), text
    assert "\n" not in str(error), text
    return text


def require_equal(model: LanguageModel) -> None:
    """Step, go back, fork, score and calibrate."""
    for rows in ([FACTUAL, MASKED], [FACTUAL, OTHER]):
        _step(model, rows)
    _score(model)
    _calibrate(model)


def _step(model: LanguageModel, prompts: Sequence[Sequence[int]]) -> None:
    batch = BranchBatch(model, prompts)
    written: list[int] = []
    _same(model, batch.logits(), prompts, written, "the prompts")
    for token in (60, 14, 140, 33):
        batch.append(torch.full((2,), token))
        written.append(token)
        _same(model, batch.logits(), prompts, written, "a step")
    fork = batch.fork(2)
    _same(model, fork.logits(), prompts, written[:2], "a fork")
    batch.crop(1)
    _same(model, batch.logits(), prompts, written[:1], "going back")
    batch.append(torch.full((2,), 201))
    _same(model, batch.logits(), prompts, [written[0], 201], "a step after going back")
    fork.append(torch.full((2,), 17))
    _same(model, fork.logits(), prompts, [*written[:2], 17], "a step of a fork")
    batch.close()
    fork.close()


def _score(model: LanguageModel) -> None:
    rows = [(FACTUAL, CONTINUATION), (MASKED, CONTINUATION), (OTHER, CONTINUATION[:3])]
    for logits, (prompt, continuation) in zip(teacher_forced_logits(model, rows), rows, strict=True):
        expected = _plain(model, [*prompt, *continuation])[len(prompt) - 1 : -1]
        _close(logits, expected, "scoring")


def _calibrate(model: LanguageModel) -> None:
    items = [ForcedItem((tuple(FACTUAL), tuple(MASKED)), CONTINUATION)]
    (supports,) = forced_supports(model, items, (0.6,))
    tokens = torch.tensor(CONTINUATION)[:, None]
    factual, masked = (_plain(model, [*prompt, *CONTINUATION])[8:-1] for prompt in (FACTUAL, MASKED))  # (C, V)
    fused = torch.log_softmax(0.4 * factual + 0.6 * masked, -1).gather(-1, tokens)
    expected = torch.minimum(fused, torch.log_softmax(masked, -1).gather(-1, tokens))[:, 0]
    np.testing.assert_allclose(supports[:, 0, 0], expected.numpy(), rtol=5e-3, atol=5e-3, err_msg="calibrating")


def _same(
    model: LanguageModel, logits: Tensor, prompts: Sequence[Sequence[int]], written: Sequence[int], what: str
) -> None:
    expected = torch.stack([_plain(model, [*prompt, *written])[-1] for prompt in prompts])
    _close(logits, expected, what)


def _plain(model: LanguageModel, ids: Sequence[int]) -> Tensor:
    return model.plain_logits(torch.tensor([list(ids)]))[0].float()


def _close(logits: Tensor, expected: Tensor, what: str) -> None:
    error = float((logits.float() - expected).abs().max() / (expected.max() - expected.min()))
    assert error <= TOLERANCE, f"{what}: logits differ by {error:.2g} of their spread"
