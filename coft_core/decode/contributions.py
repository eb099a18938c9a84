"""Leave one span out: what each masked span contributes to the sensitivity of the tokens of a chain.

The sensitivity of a token is the difference of its logits between the factual and the masked branch (Delta_t of paper
Sec. 3.3). A span's contribution is the part of it that goes away when that span alone is shown again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from coft_core.decode.plan import plan
from coft_core.errors import InvalidInputError
from coft_core.model.forced import ForcedItem, ForcedScorer
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Policy
from coft_core.policies.fusion import at_least_float32
from coft_core.text.detection import SpanDetector
from coft_core.text.masking import mask_families, masked_spans, show_span
from coft_core.types import Span

SPANS_AT_ONCE = 14
"""Spans of one batch; each has a row beside the factual and the masked one."""


@dataclass(frozen=True, slots=True)
class SpanContribution:
    """What one masked span contributes, step by step: the same differences, with only this span shown again."""

    span: Span
    sensitivity: tuple[float, ...]
    log_ratio: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """Sensitivity of a chain's tokens at the steps that were asked for, 0-based, in total and by span.

    Attributes:
        sensitivity: ``z_factual - z_masked`` of each token, raw logits.
        log_ratio: ``log p_factual - log p_masked`` of each token at the policy's temperature.
        spans: The contributions, in the order of the text. They need not sum to the total: spans can replace each
            other, or act only together.
    """

    steps: tuple[int, ...]
    token_ids: tuple[int, ...]
    sensitivity: tuple[float, ...]
    log_ratio: tuple[float, ...]
    spans: tuple[SpanContribution, ...]

    @property
    def interaction(self) -> tuple[float, ...]:
        """What of each step's log-ratio no span has alone: the total minus the sum of the contributions."""
        return tuple(
            total - sum(contribution.log_ratio[index] for contribution in self.spans)
            for index, total in enumerate(self.log_ratio)
        )


def leave_one_out(
    model: LanguageModel,
    text: str,
    policy: Policy,
    tokens: Sequence[int],
    spans: Sequence[Span] | None = None,
    step: int | None = None,
    detector: SpanDetector | None = None,
) -> LeaveOneOut:
    """Show one masked span at a time and see what that does to the tokens of a chain, at one step (0-based) or at all.

    Of the policy its mask and its temperature matter. With factorized masks the contributions are those to the joint
    masked prompt of its families.

    Raises:
        InvalidInputError: The prompt or the chain is empty, or there is no such step or token.
        PromptTooLongError: Prompt and chain exceed the model's context.
        CalibrationMismatch: The policy's calibration belongs to another policy.
    """
    model.require_all_tokens("What each word contributes")
    chain, first = _chain(model, tokens, step)
    planned = plan(model, text, policy, spans, detector=detector)
    prompt, families = planned.prompt, planned.policy.mask.families
    shown = masked_spans(prompt, families)
    rows = [show_span(prompt, span, families) for span in shown]
    factual_and_masked = (prompt.factual_ids, mask_families(prompt, families))
    scorer, temperature = ForcedScorer(model), policy.sampling.temperature
    logits, log_p = [], []
    for start in range(0, max(len(rows), 1), SPANS_AT_ONCE):
        item = ForcedItem((*factual_and_masked, *rows[start : start + SPANS_AT_ONCE]), chain, first)
        z, p = _token_values(scorer, model, item, temperature)  # (S, 2 + spans) each
        logits.append(z if not start else z[:, 2:])
        log_p.append(p if not start else p[:, 2:])
    z, p = torch.cat(logits, dim=1), torch.cat(log_p, dim=1)
    gain, ratio = (x - x[:, 1:2] for x in (z, p))  # over the masked branch
    return LeaveOneOut(
        steps=tuple(range(first, len(chain))),
        token_ids=chain[first:],
        sensitivity=tuple(gain[:, 0].tolist()),
        log_ratio=tuple(ratio[:, 0].tolist()),
        spans=tuple(
            SpanContribution(span, tuple(gain[:, index].tolist()), tuple(ratio[:, index].tolist()))
            for index, span in enumerate(shown, start=2)
        ),
    )


def _chain(model: LanguageModel, tokens: Sequence[int], step: int | None) -> tuple[tuple[int, ...], int]:
    """The tokens that have to be fed, and the first step that is asked for."""
    if not tokens:
        raise InvalidInputError("The chain has no tokens; take at least one step first.")
    if wrong := [token for token in tokens if not 0 <= token < model.vocabulary_size]:
        raise InvalidInputError(f"There is no token {wrong[0]}; the vocabulary has {model.vocabulary_size:,}.")
    if step is None:
        return tuple(tokens), 0
    if not 0 <= step < len(tokens):
        raise InvalidInputError(f"There is no step {step}; the chain has {len(tokens)}, counted from 0.")
    return tuple(tokens[: step + 1]), step


@torch.inference_mode()
def _token_values(
    scorer: ForcedScorer, model: LanguageModel, item: ForcedItem, temperature: float
) -> tuple[Tensor, Tensor]:
    """Logit and log-probability of each scored token in each branch, ``(S, B)`` in float64 on the host."""
    tokens = torch.tensor(item.continuation[item.first :], device=model.device)  # (S,)
    values = torch.empty((item.scored, len(item.prompts)), dtype=torch.float64, device=model.device)  # (S, B)
    log_p = torch.empty_like(values)
    for index, logits in scorer.logits([item]):
        full = at_least_float32(logits)  # (n, B, V)
        z = full.gather(-1, tokens[index][:, None, None].expand(-1, full.shape[1], 1))[..., 0]  # (n, B)
        values[index] = z.double()
        log_p[index] = (z / temperature - torch.logsumexp(full / temperature, dim=-1)).double()
    return values.cpu(), log_p.cpu()
