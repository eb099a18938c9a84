"""Comparing sessions token by token, and starting the same prompt under several policies."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import cast

from app.services.audits import AuditService
from app.services.comparing.alignment import align, beside, first_divergence
from app.services.comparing.cells import mean_of, peak_bytes, seconds_per_token
from app.services.comparing.columns import MOST_CHAINS, checked_columns, labels_of, own_model
from app.services.comparing.tables import comparison_csv
from app.services.csv_files import write_text
from app.services.errors import CalibrationMismatch, ColumnMismatch, ServiceError
from app.services.known_policies import KNOWN_POLICIES, fitted
from app.services.mapping import footprint_from
from app.services.plain import chain_text
from app.services.views.audits import AuditSettings, AuditView, StartAudit
from app.services.views.comparisons import ChainSummary, Comparison, PairComparison, StepDivergence
from app.services.views.policies import PolicyInfo
from coft_core.footprint import Footprint
from coft_core.types import Step
from db.records import MeasuredStepRecord
from db.repositories import ComparisonsRepository, SessionsRepository


class ComparisonService:
    """Puts chains beside each other."""

    def __init__(self, sessions: SessionsRepository, audits: AuditService, measured: ComparisonsRepository) -> None:
        """Wire to the store of sessions, to what starts and shows them, and to what their steps took."""
        self._sessions = sessions
        self._audits = audits
        self._measured = measured
        self._stops: defaultdict[int, set[Event]] = defaultdict(set)

    def policies(self) -> tuple[PolicyInfo, ...]:
        """The policies that a prompt can be run under."""
        return KNOWN_POLICIES

    def compare(self, session_ids: Sequence[int], branch_ids: Sequence[int | None] = ()) -> Comparison:
        """Compare the chains of sessions, the others with the first; needs no model.

        Args:
            session_ids: The sessions; one can be named several times for several of its branches.
            branch_ids: A branch of each; None, and none at all, take the active one.

        Raises:
            ServiceError: There are fewer than two chains or too many, one is named twice, or a branch is another
                session's.
            NotFoundError: There is no such session or branch.
        """
        if not 2 <= len(session_ids) <= MOST_CHAINS:
            raise ServiceError(f"{len(session_ids)} chains cannot be compared; choose 2 to {MOST_CHAINS}.")
        if branch_ids and len(branch_ids) != len(session_ids):
            raise ServiceError("Each session needs a branch or None; give as many branches as sessions.")
        wanted = zip(session_ids, branch_ids or (None,) * len(session_ids), strict=True)
        views = [self._audits.view(session_id, branch_id) for session_id, branch_id in wanted]
        if len({view.branch_id for view in views}) < len(views):
            raise ServiceError("The same chain is chosen twice; choose another one to compare it with.")
        records = [self._sessions.get(view.session_id) for view in views]
        tokenizers = [record.fingerprint["tokenizer"] for record in records]
        pairs = tuple(
            _pair(views[0], view, place, by_text=tokenizers[place] != tokenizers[0])
            for place, view in enumerate(views)
            if place
        )
        measured = [self._measured.branch_steps(view.branch_id) for view in views]
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

    def write_csv(self, session_ids: Sequence[int], branch_ids: Sequence[int | None], folder: Path) -> Path:
        """Write a comparison into a folder, atomically, and return its path; raises what :meth:`compare` does."""
        numbers = "-".join(str(session_id) for session_id in session_ids)
        return write_text(
            Path(folder) / f"compare-{numbers}.csv", comparison_csv(self.compare(session_ids, branch_ids))
        )

    def run_beside(self, request: StartAudit, policies: Sequence[str]) -> tuple[int, ...]:
        """Begin one session a policy with the same prompt, spans and seed; none if one of them is refused.

        A policy without thresholds leaves the request's calibration out, vanilla decoding its factorized masks too.

        Args:
            request: Prompt, spans and settings.
            policies: Names of the policies, each once.

        Returns:
            The sessions in the order of the policies; :meth:`advance` generates them together.

        Raises:
            ServiceError: There are fewer than two policies or too many, or one is named twice or unknown.
            CoftError: The prompt or a setting cannot be used, or the calibration belongs to another policy.
        """
        if not 2 <= len(policies) <= MOST_CHAINS or len(set(policies)) < len(policies):
            raise ServiceError(f"Choose 2 to {MOST_CHAINS} different policies to run beside each other.")
        return self.run_columns(request, [fitted(request.settings, policy) for policy in policies])

    def run_columns(self, request: StartAudit, columns: Sequence[AuditSettings]) -> tuple[int, ...]:
        """Begin one session for each of several settings with the same prompt and spans; none if one is refused.

        Args:
            request: Prompt, spans and name; its settings only say how spans are detected where none are given.
            columns: The settings of each session; a policy may come several times with other settings.

        Returns:
            The sessions in the order of the columns; :meth:`advance` generates them together.

        Raises:
            ServiceError: There are fewer than two columns or too many, two are alike, or a policy is unknown.
            ColumnMismatch: A column's calibration belongs to another policy and going on was not allowed.
            CoftError: The prompt or a setting cannot be used.
        """
        wanted = checked_columns(columns)
        # Detected once, so that a setting of one column cannot give it other spans.
        spans = self._audits.detect(request.prompt, request.settings) if request.spans is None else request.spans
        name = request.name or " ".join(request.prompt.split())[:60]
        started: list[int] = []
        try:
            for settings, label in zip(wanted, labels_of(wanted), strict=True):
                own = StartAudit(request.prompt, settings, spans, f"{name} · {label}")
                started.append(self._audits.start(own).session_id)
        except BaseException as error:
            for session_id in started:
                self._audits.delete(session_id)
            if isinstance(error, CalibrationMismatch):
                raise ColumnMismatch(len(started), error) from error
            raise
        return tuple(started)

    def advance(self, session_ids: Sequence[int]) -> Iterator[tuple[int, Step]]:
        """Generate sessions to their ends, one token each in turn; pausing one lets the others go on.

        A pause that comes after this call counts, also before the first step.

        Yields:
            Session and its new step, which is durable then.
        """
        stops = {session_id: Event() for session_id in dict.fromkeys(session_ids)}
        for session_id, stop in stops.items():
            self._stops[session_id].add(stop)
        return self._advance(stops)

    def pause(self, session_ids: Sequence[int]) -> None:
        """Stop sessions after their current tokens; those that :meth:`advance` has not come to yet do not begin."""
        for session_id in session_ids:
            for stop in tuple(self._stops.get(session_id, ())):
                stop.set()
            self._audits.pause(session_id)

    def _advance(self, stops: dict[int, Event]) -> Iterator[tuple[int, Step]]:
        running = {number: cast("Generator[Step]", self._audits.run(number)) for number in stops}
        try:
            while running:
                for session_id, steps in tuple(running.items()):
                    step = None if stops[session_id].is_set() else next(steps, None)
                    if step is None:
                        running.pop(session_id).close()
                    else:
                        yield session_id, step
        finally:
            for steps in running.values():
                steps.close()
            for session_id, stop in stops.items():
                self._stops[session_id].discard(stop)


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
