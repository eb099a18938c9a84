"""Calibration on a model: joint support of the true next tokens of given references (paper Sec. 3.4, offline part)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import torch

from coft_core.certify import joint_support
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.quantile import check_alpha, minimum_contexts
from coft_core.conformal.values import CalibrationValues
from coft_core.engine.model import LanguageModel
from coft_core.engine.scoring import batches, teacher_forced_logits
from coft_core.errors import InvalidInputError, PromptTooLongError
from coft_core.fusion import check_lambda, fuse_logits, log_probabilities
from coft_core.masking.continuation import continuation_ids, joined
from coft_core.masking.masker import DEFAULT_HINT, MaskedPrompt, MaskMode, mask_prompt
from coft_core.masking.spans import SpanDetector, default_detector
from coft_core.policies.fingerprint import MaskSettings, policy_fingerprint
from coft_core.sampling import Sampling
from coft_core.types import Example

TOKEN_BUDGET = 4096
"""Padded tokens of one scoring batch, both branches counted."""

Progress = Callable[[int, int], None]
"""Called with (examples done, examples in all); raising from it ends the calibration."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """An example in tokens, with its context number."""

    prompt: MaskedPrompt
    continuation: tuple[int, ...]
    context: int

    @property
    def length(self) -> int:
        return len(self.prompt.factual_ids) + len(self.continuation)


def calibrate(
    model: LanguageModel,
    examples: Sequence[Example],
    lam: float = 0.6,
    alpha: float = 0.1,
    estimator: str = "hierarchical",
    source: str = "reference",
    *,
    temperature: float = 1.0,
    top_p: float = 0.9,
    top_k: int = 0,
    sentinel: str | None = None,
    mask_mode: MaskMode = "hard",
    mask_hint: str = DEFAULT_HINT,
    bin_width: int = 8,
    max_position: int = 256,
    verification_share: float = 0.25,
    seed: int = 0,
    detector: SpanDetector | None = None,
    progress: Progress | None = None,
    name: str = "",
) -> Calibration:
    """Calibrate thresholds on the references of given prompts.

    Contexts (examples that share a ``group`` are one) are split at random: one part gives the thresholds, the other is
    kept apart and gives the empirical coverage. The calibration part keeps at least as many contexts as ``alpha``
    needs, whatever the share. A missing space between prompt and reference is supplied.

    Args:
        model: The model.
        examples: Prompts with references.
        lam: Fusion weight.
        alpha: Risk level.
        estimator: ``"hierarchical"``, ``"one_per_context"`` or ``"pooled"``.
        source: ``"reference"``: teacher-forced on each prompt's reference.
        temperature: Temperature of the policy that will use the thresholds.
        top_p: Its nucleus mass.
        top_k: Its number of tokens kept.
        sentinel: Its sentinel; None takes the tokenizer's own.
        mask_mode: Its mask mode.
        mask_hint: Hint of its soft mask.
        bin_width: Steps that share a threshold.
        max_position: Steps beyond are tied to the last bin.
        verification_share: Share of the contexts kept apart.
        seed: Seed of the split and of ``one_per_context``.
        detector: Finds spans where an example has none; the default one if None.
        progress: Called after each batch.
        name: Name of the calibration.

    Returns:
        The calibration with all its values.

    Raises:
        InvalidInputError: A parameter is outside its range, there is no example, or an example (named by its number)
            has no reference.
        PromptTooLongError: An example does not fit into the model's context.
    """
    check_lambda(lam)
    check_alpha(alpha)
    if source != "reference":
        raise InvalidInputError(f"There is no context source {source!r}; use 'reference'.")
    if not 0 <= verification_share < 1:
        raise InvalidInputError(f"The verification share is {verification_share}; choose 0 or more and below 1.")
    detector = detector or default_detector()
    sampling = Sampling(temperature, top_p, top_k)
    mask = MaskSettings(mask_mode, mask_hint, sentinel)
    fingerprint = policy_fingerprint(model, lam, sampling, mask, detector.version, estimator, source)
    prepared = _prepare(model, examples, mask, detector)
    values = _score(model, prepared, lam, temperature, progress)
    held_out = _held_out_contexts(values.contexts, alpha, verification_share, seed)
    kept = np.setdiff1d(values.contexts, held_out)
    return Calibration(
        fingerprint=fingerprint,
        alpha=alpha,
        values=values.select(kept.tolist()),
        verification=values.select(held_out.tolist()),
        bin_width=bin_width,
        max_position=max_position,
        seed=seed,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        name=name,
    )


def _prepare(
    model: LanguageModel, examples: Sequence[Example], mask: MaskSettings, detector: SpanDetector
) -> list[_Prepared]:
    if not examples:
        raise InvalidInputError("There are no calibration prompts; give at least one with a reference.")
    context_numbers: dict[object, int] = {}
    prepared = []
    for number, example in enumerate(examples, start=1):
        if not example.prompt.strip() or not (example.reference or "").strip():
            raise InvalidInputError(f"Example {number} lacks a prompt or a reference; fill it in or leave it out.")
        spans = detector.detect(example.prompt) if example.spans is None else example.spans
        try:
            prompt = mask_prompt(
                model.tokenizer, example.prompt, spans, mask.sentinel, mask.mode, mask.hint, model.chat
            )
            reference = str(example.reference)
            continuation = continuation_ids(
                model, prompt, reference if model.chat else joined(example.prompt, reference)
            )
        except InvalidInputError as error:
            raise InvalidInputError(f"Example {number}: {error}") from error
        key = ("row", number) if example.group is None else ("group", example.group)
        context = context_numbers.setdefault(key, len(context_numbers))
        item = _Prepared(prompt, continuation, context)
        if item.length > model.context_length:
            raise PromptTooLongError(
                f"Example {number} has {item.length:,} tokens with its reference and the model takes "
                f"{model.context_length:,}; shorten it or leave it out."
            )
        prepared.append(item)
    return prepared


def _score(
    model: LanguageModel,
    prepared: Sequence[_Prepared],
    lam: float,
    temperature: float,
    progress: Progress | None,
) -> CalibrationValues:
    values: list[np.ndarray | None] = [None] * len(prepared)
    done = 0
    for batch in batches([2 * item.length for item in prepared], TOKEN_BUDGET):
        items = [prepared[i] for i in batch]
        rows = [(ids, i.continuation) for i in items for ids in (i.prompt.factual_ids, i.prompt.masked_ids)]
        logits = teacher_forced_logits(model, rows)
        for position, (index, item) in enumerate(zip(batch, items, strict=True)):
            factual, masked = logits[2 * position].float(), logits[2 * position + 1].float()  # (C, V)
            values[index] = _true_token_support(factual, masked, item.continuation, lam, temperature)
        done += len(batch)
        if progress:
            progress(done, len(prepared))
    arrays = [v for v in values if v is not None]
    return CalibrationValues(
        values=np.concatenate(arrays).astype(np.float32),
        steps=np.concatenate([np.arange(len(v)) for v in arrays]).astype(np.int32),
        contexts=np.concatenate(
            [np.full(len(v), item.context) for v, item in zip(arrays, prepared, strict=True)]
        ).astype(np.int32),
    )


def _true_token_support(
    factual: torch.Tensor, masked: torch.Tensor, tokens: Sequence[int], lam: float, temperature: float
) -> np.ndarray:
    """Joint support ``m`` of the true token at each step, ``(C,)``."""
    with torch.inference_mode():
        log_p_masked = log_probabilities(masked, temperature)  # (C, V)
        log_p_fused = log_probabilities(fuse_logits(factual, masked, lam), temperature)  # (C, V)
        index = torch.tensor(tokens, device=factual.device)[:, None]  # (C, 1)
        support = joint_support(log_p_fused.gather(-1, index), log_p_masked.gather(-1, index))[:, 0]
    array: np.ndarray = support.cpu().numpy()
    return array


def _held_out_contexts(contexts: np.ndarray, alpha: float, share: float, seed: int) -> np.ndarray:
    names = np.unique(contexts)
    wanted = math.floor(share * len(names))
    spare = max(len(names) - minimum_contexts(alpha), 0)
    order = np.random.default_rng(seed).permutation(names)
    chosen: np.ndarray = order[: min(wanted, spare)]
    return chosen


def example_length(model: LanguageModel, example: Example) -> int:
    """Tokens of an example with its reference, to be compared with the model's context."""
    prompt = mask_prompt(model.tokenizer, example.prompt, (), chat=model.chat)
    reference = example.reference or ""
    text = reference if model.chat else joined(example.prompt, reference)
    return len(prompt.factual_ids) + (len(continuation_ids(model, prompt, text)) if text else 0)
