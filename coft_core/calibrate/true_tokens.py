"""From calibration examples to values: one teacher-forced pass of the model for all fusion weights and families."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from coft_core.calibrate.ledger import Entry, LedgerPhase
from coft_core.calibrate.settings import CalibrationOptions, Progress, counted
from coft_core.calibrate.task import Prepared, masked_views, prepared
from coft_core.conformal.part import JOINT
from coft_core.conformal.values import CalibrationValues
from coft_core.errors import InvalidInputError, PromptTooLongError
from coft_core.model.forced import ForcedItem, ForcedScorer, Limits, OwnRoom, Room, forced_batches, run_each
from coft_core.model.language_model import LanguageModel
from coft_core.policies.bounds import least_support
from coft_core.policies.coft import FusedPolicy
from coft_core.policies.fusion import at_least_float32
from coft_core.text.detection import SpanDetector
from coft_core.text.masking import (
    MaskedPrompt,
    MaskSettings,
    continuation_ids,
    following,
    keep_whitelisted,
    mask_prompt,
)
from coft_core.types import Example, in_page_order

CPU_ELEMENTS = 1 << 18
"""Logits of one branch that are worked on at a time on a CPU: what its caches hold."""

SMALLEST_SUM = 1e-20
"""Below it a shifted sum of exponentials may have lost terms to underflow and is computed again with its own shift."""


def token_support(logits: Tensor, tokens: Tensor, lams: Sequence[float], temperature: float = 1.0) -> Tensor:
    """Joint support ``m(v) = min(log p_fused(v), log p_masked(v))`` of one token a position (Eq. 5, in log space).

    ``(n, B, V)`` logits, the factual branch first, and ``(n,)`` tokens give ``(n, L, B - 1)`` supports: by position,
    fusion weight and masked branch.
    """
    step = len(logits)
    if logits.device.type == "cpu":
        step = max(1, CPU_ELEMENTS // logits.shape[-1])
    pieces = [
        _support(logits[start : start + step], tokens[start : start + step], lams, temperature)
        for start in range(0, len(logits), max(step, 1))
    ]
    return torch.cat(pieces)


def _support(logits: Tensor, tokens: Tensor, lams: Sequence[float], temperature: float) -> Tensor:
    branches = [_shifted(logits[:, b], temperature) for b in range(logits.shape[1])]  # B of (n, V)
    branch_logits = [z.gather(-1, tokens[:, None])[:, 0] for z in branches]  # B of (n,)
    factual, masked = branches[0], branches[1:]
    mean, own_mean = _mean(masked), _mean(branch_logits[1:])  # (n, V), (n,)
    norms = _log_normalisers(factual, masked, mean, lams)  # (B - 1 + L, n)
    log_p_masked = torch.stack(branch_logits[1:]) - norms[: len(masked)]  # (B - 1, n)
    fused = torch.stack([_mixed(branch_logits[0], own_mean, lam) for lam in lams])  # (L, n)
    log_p_fused = fused - norms[len(masked) :]  # (L, n)
    return torch.minimum(log_p_fused.T[:, :, None], log_p_masked.T[:, None])  # (n, L, B - 1)


def _log_normalisers(factual: Tensor, masked: list[Tensor], mean: Tensor, lams: Sequence[float]) -> Tensor:
    """Log-sum-exp of each masked branch and of each fused distribution, ``(B - 1 + L, n)``.

    All branches are at most 0, so exponentials cannot overflow; tiny sums are computed again with their own maximum.
    """
    buffer = torch.empty_like(mean)  # (n, V)
    sums = [torch.exp(z, out=buffer).sum(-1) for z in masked]
    sums += [_mixed(factual, mean, lam, buffer).exp_().sum(-1) for lam in lams]
    totals = torch.stack(sums)  # (B - 1 + L, n)
    if not bool((totals < SMALLEST_SUM).any()):
        return totals.log()
    exact = [torch.logsumexp(z, dim=-1) for z in masked]
    return torch.stack([*exact, *(torch.logsumexp(_mixed(factual, mean, lam), dim=-1) for lam in lams)])


def _mixed(factual: Tensor, masked: Tensor, lam: float, out: Tensor | None = None) -> Tensor:
    """``(1 - lam) * factual + lam * masked`` into a tensor of its own."""
    # An end point is one branch, whatever the other forbids: 0 * inf is NaN.
    if lam in (0.0, 1.0):
        end = factual if lam == 0.0 else masked
        return end.clone() if out is None else out.copy_(end)
    scaled = torch.mul(masked, lam, out=out)
    return scaled.add_(factual, alpha=1.0 - lam)


def _shifted(logits: Tensor, temperature: float) -> Tensor:
    """Logits over temperature with 0 as their maximum, ``(n, V)``; a fresh tensor in float32."""
    scaled = at_least_float32(logits) / temperature
    return scaled.sub_(scaled.amax(-1, keepdim=True))


def _mean(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(parts).mean(0)


TOKEN_BUDGET = 4096
"""Padded tokens of one scoring batch on a CPU, all branches counted."""

ACCELERATOR_TOKEN_BUDGET = 16384
"""The same on an accelerator."""

PHASE = "reference"
"""Label of this phase in a ledger; its entries have one array, ``"support"``, ``(C, L, B - 1)``."""


def prepare(
    model: LanguageModel,
    examples: Sequence[Example],
    contexts: Sequence[int],
    mask: MaskSettings,
    detector: SpanDetector,
) -> list[Prepared]:
    """Mask and tokenize the examples."""
    found = list(prepared(examples, contexts, lambda example: _tokens(model, example, mask, detector)))
    for item in found:
        if item.length > model.context_length:
            raise PromptTooLongError(
                f"Example {item.row} has {item.length:,} tokens with its reference and the model takes "
                f"{model.context_length:,}; shorten it or leave it out."
            )
    return found


def reference_values(
    model: LanguageModel,
    examples: Sequence[Prepared],
    policies: Sequence[FusedPolicy],
    settings: CalibrationOptions,
) -> list[dict[str, CalibrationValues]]:
    """Values of every masked view under each policy, from the examples in which it is masked; the model runs once."""
    views = [masked_views(policies[0], item.prompt) for item in examples]
    kept = [(item, tokens) for item, tokens in zip(examples, views, strict=True) if tokens]
    items = [ForcedItem((p.prompt.factual_ids, *tokens.values()), p.continuation) for p, tokens in kept]
    phase = LedgerPhase(settings.ledger, PHASE, tuple(p.row for p, _ in kept))
    lams = [policy.lam for policy in policies]
    supports = forced_supports(
        model, items, lams, settings.temperature, settings.progress, settings.batch_size, phase, settings.room
    )
    # A reference that stops without the end of text may go on: a model that continues it does not stop there.
    ended = [p.continuation[-1] in model.end_token_ids for p, _ in kept]

    def collected(index: int, view: str) -> CalibrationValues:
        places = [(place, list(tokens).index(view)) for place, (_, tokens) in enumerate(kept) if view in tokens]
        return CalibrationValues.of_chains(
            [supports[place][:, index, column] for place, column in places],
            [kept[place][0].context for place, _ in places],
            [kept[place][0].row for place, _ in places],
            [ended[place] for place, _ in places],
        )

    present = {view for _, tokens in kept for view in tokens}
    names = (JOINT,) if JOINT in present else in_page_order(present)
    return [{view: collected(index, view) for view in names} for index in range(len(lams))]


def forced_supports(
    model: LanguageModel,
    items: Sequence[ForcedItem],
    lams: Sequence[float],
    temperature: float = 1.0,
    progress: Progress | None = None,
    batch_size: int | None = None,
    phase: LedgerPhase | None = None,
    room: Room | None = None,
) -> list[npt.NDArray[np.float32]]:
    """Joint support of every scored token, ``(C, L, B - 1)`` an item; its branches begin with the factual one."""
    limits = Limits.of(model.device)
    budget = TOKEN_BUDGET if model.device.type == "cpu" else ACCELERATOR_TOKEN_BUDGET
    phase = phase or LedgerPhase(None, "", tuple(range(1, len(items) + 1)))
    room = room or OwnRoom()
    scorer = cache(lambda: ForcedScorer(model, limits))

    def scored(batches: Sequence[Sequence[int]]) -> Iterator[list[Entry]]:
        chosen = [[items[place] for place in places] for places in batches]
        works = (
            (scorer().memory_size(batch), partial(_batch_supports, scorer(), model, batch, lams, temperature))
            for batch in chosen
        )
        for batch, supports in zip(chosen, run_each(room, works), strict=True):  # (N, L, K)
            ends = np.cumsum([item.scored for item in batch])[:-1]
            yield [{"support": part} for part in np.split(supports, ends)]

    entries = phase.completed(
        {"support": tuple((item.scored, len(lams), len(item.prompts) - 1) for item in items)},
        lambda: forced_batches(items, budget, batch_size, limits.waste, scorer().fitting(room.most)),
        scored,
        counted(progress, len(items)),
    )
    return [entry["support"] for entry in entries]


def _tokens(
    model: LanguageModel, example: Example, mask: MaskSettings, detector: SpanDetector
) -> tuple[MaskedPrompt, tuple[int, ...]]:
    """The masked prompt and the reference's tokens."""
    if not example.prompt.strip() or not (example.reference or "").strip():
        raise InvalidInputError("The prompt or the reference is empty; fill it in or leave the example out.")
    spans = detector.detect(example.prompt) if example.spans is None else example.spans
    spans = keep_whitelisted(example.prompt, spans, mask.whitelist)
    prompt = mask_prompt(model.tokenizer, example.prompt, spans, mask.sentinel, mask.mode, mask.hint, model.prompting)
    return prompt, continuation_ids(model, prompt, following(model, example.prompt, str(example.reference)))


@torch.inference_mode()
def _batch_supports(
    scorer: ForcedScorer, model: LanguageModel, items: Sequence[ForcedItem], lams: Sequence[float], temperature: float
) -> npt.NDArray[np.float32]:
    tokens = torch.tensor([t for i in items for t in i.continuation[i.first :]], device=model.device)  # (N,)
    shape = (len(tokens), len(lams), len(items[0].prompts) - 1)
    supports: Tensor = torch.empty(shape, dtype=torch.float32, device=model.device)
    for index, logits in scorer.logits(items):
        asked = logits, tokens[index], lams, temperature
        supports[index] = (
            token_support(*asked) if model.most_likely is None else least_support(*asked, model.most_likely)
        ).float()
    array: npt.NDArray[np.float32] = supports.cpu().numpy()
    return array
