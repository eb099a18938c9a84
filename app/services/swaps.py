"""Attribute swaps: the same prompt with one attribute exchanged, and what follows it with and without the policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from app.services.audits import AuditService
from app.services.errors import ServiceError
from app.services.model_host import ModelHost
from app.services.planning import Planner
from app.services.swap_offers import SwapWords
from app.services.swap_variants import swap_variants
from app.services.swap_views import candidates_of, distributions_at, gaps_between, views_of
from app.services.views.audits import AuditSettings, StartAudit
from app.services.views.swaps import SwapChain, SwapOffer, SwapOutcome, SwapRequest, SwapResult, SwapVariant
from coft_core.decode import Plan, Rollout
from coft_core.types import Span

Progress = Callable[[float, str], None]
"""Told the share done and what is being done."""

MOST_CANDIDATES = 50


class SwapService:
    """Exchanges attributes in prompts and compares what follows; nothing of it is stored."""

    def __init__(self, audits: AuditService, planner: Planner, host: ModelHost) -> None:
        """Wire the service.

        Args:
            audits: Detects spans.
            planner: Turns settings into plans.
            host: Owner of the models.
        """
        self._audits = audits
        self._planner = planner
        self._host = host
        self._words = SwapWords()

    def offers(self, category: str, text: str = "") -> tuple[SwapOffer, ...]:
        """Words of the lexicons that could take a span's place, by kind, those of the text's own kind first.

        Args:
            category: The span's family.
            text: The words that it covers.
        """
        return self._words.offers(category, text)

    def variants(self, request: SwapRequest) -> tuple[SwapVariant, ...]:
        """The variants that a request compares, for reading and correcting; needs no model.

        Raises:
            ServiceError: There is nothing to replace or nothing to replace it by, or a choice is unknown.
            InvalidInputError: A span lies outside the prompt.
        """
        return swap_variants(request, self._spans(request), self._words)

    def compare(self, request: SwapRequest, progress: Progress | None = None) -> SwapResult:
        """Run every variant under vanilla decoding and under the policy, and compare one step's distributions.

        Args:
            request: What to exchange, and the settings.
            progress: Told how far it is, variant by variant.

        Raises:
            ServiceError: A choice is unknown, or a chain ends before the step that is compared.
            CoftError: A prompt or a setting cannot be used, or the calibration belongs to another policy.
        """
        _check(request)
        variants = self.variants(request)
        settings = replace(request.settings, max_new_tokens=max(request.max_new_tokens, request.answer_step + 1))
        model = self._host.get(settings.model)
        # Everything is planned before anything runs, so that a refused variant costs no chain.
        plans = [
            tuple(self._planner.plan(model, v.prompt, v.spans, chosen) for chosen in (_vanilla(settings), settings))
            for v in variants
        ]
        first = _masked_ids(plans[0][1])
        outcomes, distributions = [], []
        for index, (variant, (vanilla, policy)) in enumerate(zip(variants, plans, strict=True)):
            if progress is not None:
                progress(index / len(variants), variant.label)
            alone = self._chain(vanilla, variant, _vanilla(settings))
            guided = self._chain(policy, variant, settings)
            with self._host.turn():
                found = distributions_at(policy, _prefix(guided, variant, request.answer_step))
                own = distributions_at(vanilla, _prefix(alone, variant, request.answer_step))
            distributions.append(found | {"factual": own["factual"]})
            tokens = len(policy.prompt.factual_ids)
            outcomes.append(SwapOutcome(variant, alone, guided, _masked_ids(policy) == first, tokens))
        return SwapResult(
            outcomes=tuple(outcomes),
            views=views_of(distributions),
            answer_step=request.answer_step,
            tokens=candidates_of(distributions, request.top, model),
            gaps=gaps_between(distributions),
            notes=tuple(_notes(request, outcomes)),
        )

    def _spans(self, request: SwapRequest) -> tuple[Span, ...]:
        return self._audits.detect(request.prompt, request.settings) if request.spans is None else request.spans

    def _chain(self, prepared: Plan, variant: SwapVariant, settings: AuditSettings) -> SwapChain:
        rollout = Rollout(prepared)
        try:
            while rollout.finished is None:
                with self._host.turn():
                    rollout.step()
            return SwapChain(
                steps=rollout.steps,
                text=rollout.text,
                finished=rollout.finished,
                certificate=prepared.certificate.text,
                start=StartAudit(variant.prompt, settings, variant.spans, f"{variant.label} · {settings.policy}"),
            )
        finally:
            rollout.close()


def _check(request: SwapRequest) -> None:
    if request.max_new_tokens < 1 or request.answer_step < 0:
        raise ServiceError("Chains have at least one token, and steps count from the first; correct the numbers.")
    if not 1 <= request.top <= MOST_CANDIDATES:
        raise ServiceError(f"{request.top} candidates a variant cannot be shown; choose 1 to {MOST_CANDIDATES}.")


def _vanilla(settings: AuditSettings) -> AuditSettings:
    """The same settings for the model alone, without fusion, thresholds and factorized masks."""
    return replace(settings, policy="vanilla", calibration_id=None, group=None, mask_layout="joint")


def _prefix(chain: SwapChain, variant: SwapVariant, answer_step: int) -> list[int]:
    if len(chain.steps) <= answer_step:
        raise ServiceError(
            f"The chain of “{variant.label}” ends after {len(chain.steps)} tokens, before the one that is compared "
            f"({answer_step + 1}); compare an earlier one."
        )
    return [step.token_id for step in chain.steps[:answer_step]]


def _masked_ids(prepared: Plan) -> tuple[tuple[int, ...], ...]:
    """What the masked branches read; without one, the masked prompt all the same."""
    rows = tuple(tuple(branch.input_ids) for branch in prepared.policy.branches(prepared.prompt)[1:])
    return rows or (prepared.prompt.masked_ids,)


def _notes(request: SwapRequest, outcomes: Sequence[SwapOutcome]) -> list[str]:
    settings = request.settings
    notes = [
        f"Distributions are compared over the whole vocabulary at temperature {settings.temperature:g}, before top-p "
        "and top-k."
    ]
    first = outcomes[0]
    for other in (outcome for outcome in outcomes if not outcome.masked_like_first):
        why = "other words stand outside its masked spans"
        if other.tokens != first.tokens:
            why = f"it has {other.tokens} tokens instead of {first.tokens}"
        notes.append(
            f"The masked prompt of “{other.variant.label}” is not that of “{first.variant.label}” ({why}), so that the "
            "masked view differs too."
        )
    prefixes = {tuple(step.token_id for step in outcome.policy.steps[: request.answer_step]) for outcome in outcomes}
    prefixes_alone = {
        tuple(step.token_id for step in outcome.vanilla.steps[: request.answer_step]) for outcome in outcomes
    }
    if len(prefixes) > 1 or len(prefixes_alone) > 1:
        notes.append(
            f"Token {request.answer_step + 1} follows what each chain wrote before it, which is not the same in all "
            "variants; part of the distance comes from there."
        )
    if settings.policy == "vanilla":
        notes.append("The policy is vanilla decoding itself, so that both chains of a variant are the same.")
    return notes
