"""Chains put beside each other: what each is, how each differs from the first, and what to know of both."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from app.services.comparing.alignment import align, beside, first_divergence
from app.services.comparing.cells import mean_of, peak_bytes, seconds_per_token
from app.services.comparing.columns import own_model
from app.services.mapping import footprint_from
from app.services.plain import chain_text
from app.services.views.audits import AuditView
from app.services.views.comparisons import ChainSummary, Comparison, PairComparison, StepDivergence
from coft_core.digests import same_digests
from coft_core.footprint import Footprint
from coft_core.types import Step
from db.records import MeasuredStepRecord, SessionRecord


def compared(
    views: Sequence[AuditView], records: Sequence[SessionRecord], measured: Sequence[Sequence[MeasuredStepRecord]]
) -> Comparison:
    """Compare chains, the others with the first.

    Args:
        views: The chains.
        records: The session of each as it is stored.
        measured: What the steps of each took.
    """
    tokenizers = [record.fingerprint["tokenizer"] for record in records]
    pairs = tuple(
        _pair(views[0], view, place, by_text=not same_digests(tokenizers[place], tokenizers[0]))
        for place, view in enumerate(views)
        if place
    )
    chains = tuple(
        _summary(view, steps, footprint_from(record.footprint))
        for view, steps, record in zip(views, measured, records, strict=True)
    )
    return Comparison(
        chains=chains,
        pairs=pairs,
        divergence=_divergence(chains),
        notes=tuple(_notes(views, pairs)),
        rows=beside(len(chains[0].steps), [pair.rows for pair in pairs]),
    )


def overruled(step: Step) -> bool:
    """Whether certification refused the likeliest fused token of a step while another one was certified."""
    refused = max((c.log_p_fused for c in step.candidates if not c.certified), default=-math.inf)
    accepted = max((c.log_p_fused for c in step.candidates if c.certified), default=math.inf)
    return refused > accepted


def _summary(view: AuditView, measured: Sequence[MeasuredStepRecord], footprint: Footprint | None) -> ChainSummary:
    apart = own_model(view.settings)
    thresholded = view.certificate == "certified" or "policy mismatch" in view.certificate
    ratios = [abs(step.diagnostics.log_ratio) for step in view.steps]
    return ChainSummary(
        session_id=view.session_id,
        branch_id=view.branch_id,
        name=view.name,
        branch=next(branch.name for branch in view.branches if branch.id == view.branch_id),
        policy=view.settings.policy,
        model=view.model,
        certificate=view.certificate,
        text=chain_text(view),
        steps=view.steps,
        finished=view.finished,
        prompt=view.prompt,
        spans=view.spans,
        settings=view.settings,
        calibration=view.calibration,
        branches=view.branches,
        warnings=tuple(dict.fromkeys((*view.warnings, *view.preview.warnings))),
        certified=sum(step.certified for step in view.steps) if view.certificate == "certified" else None,
        fallbacks=sum(step.fallback for step in view.steps) if thresholded else None,
        overruled=sum(overruled(step) for step in view.steps) if thresholded else None,
        mean_log_ratio=sum(ratios) / len(ratios) if ratios else None,
        seconds_per_token=seconds_per_token(measured),
        mean_kl_factual=None if apart else mean_of(step.diagnostics.kl_fused_factual for step in view.steps),
        mean_tv_factual=None if apart else mean_of(step.diagnostics.tv_fused_factual for step in view.steps),
        own_model=apart,
        footprint=footprint,
        peak_bytes=peak_bytes(measured),
    )


def _pair(first: AuditView, other: AuditView, place: int, by_text: bool) -> PairComparison:
    left, right = ([_token(step, by_text) for step in view.steps] for view in (first, other))
    rows = align(left, right)
    counts = Counter(row.kind for row in rows)
    return PairComparison(
        other=place,
        rows=rows,
        first_divergence=first_divergence(left, right),
        same=counts["same"],
        changed=counts["changed"],
        removed=counts["removed"],
        added=counts["added"],
        by_text=by_text,
        differences=tuple(_differences(first, other)),
    )


def _token(step: Step, by_text: bool) -> int | str:
    return step.token if by_text else step.token_id


def _differences(first: AuditView, other: AuditView) -> Iterator[tuple[str, str, str]]:
    """What the sessions do not share; a setting that makes no difference to either is compared all the same."""
    left, right = asdict(first.settings), asdict(other.settings)
    pairs = [("prompt", first.prompt, other.prompt), ("spans", _spans(first), _spans(other))]
    pairs += [(name, str(left[name]), str(right[name])) for name in left]
    yield from (pair for pair in pairs if pair[1] != pair[2])


def _spans(view: AuditView) -> str:
    return ", ".join(f"{view.prompt[s.start : s.end]} ({s.category})" for s in view.spans if s.masked)


def _divergence(chains: Sequence[ChainSummary]) -> tuple[StepDivergence, ...]:
    def each(index: int, field: str, from_vanilla: bool = False) -> tuple[float | None, ...]:
        return tuple(
            None
            if index >= len(chain.steps) or (from_vanilla and chain.own_model)
            else getattr(chain.steps[index].diagnostics, field)
            for chain in chains
        )

    return tuple(
        StepDivergence(
            step=index,
            kl=each(index, "kl_fused_masked"),
            tv=each(index, "tv_on_set"),
            log_ratio=each(index, "log_ratio"),
            kl_factual=each(index, "kl_fused_factual", from_vanilla=True),
            tv_factual=each(index, "tv_fused_factual", from_vanilla=True),
        )
        for index in range(max(len(chain.steps) for chain in chains))
    )


def _notes(views: Sequence[AuditView], pairs: Sequence[PairComparison]) -> Iterator[str]:
    if len({view.prompt for view in views}) > 1:
        yield "The sessions have different prompts, so that tokens can differ for that reason alone."
    if len({view.settings.seed for view in views}) > 1 and not all(view.settings.greedy for view in views):
        yield "The sessions have different seeds, so that tokens can differ by chance alone."
    if any(pair.by_text for pair in pairs):
        yield "The models have different vocabularies, so that tokens are compared by their text."
    if any(view.finished is None for view in views):
        yield "A chain is not finished; what comes after its last token is not compared."
