"""The report as JSON: one typed, versioned document that holds all that is stored of a session.

Logarithms are natural, steps and characters count from 0 (pages and tables count steps from 1), times are UTC, and the
infinities are the texts ``"Infinity"`` and ``"-Infinity"``. Unknown fields are refused, so that a changed document is
never half understood. ``docs/report_format.md`` describes it for readers.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer

from app.services.errors import ServiceError
from app.services.reporting.canonical import canonical
from app.services.reporting.values import Flag, Real, Text, Whole
from coft_core.types import BinState, CertificateState

KIND = "coft-audit-report"
VERSION = 1
"""Version of the document that is written; another one is refused, never guessed at."""


class Part(BaseModel):
    """A part of the document; frozen, and without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)


class ProgramPart(Part):
    """The program that wrote the report."""

    name: Text
    version: Text


class SpanPart(Part):
    """A sensitive span: characters ``start`` to ``end`` (exclusive) of the prompt."""

    start: Whole
    end: Whole
    category: Text
    source: Text
    detail: Text
    kept: Flag
    score: Real | None
    suggested: Flag


class SessionPart(Part):
    """What was audited, under which policy; ``policy_settings`` are the settings as the program keeps them."""

    id: Whole
    name: Text
    prompt: Text
    model: Text
    model_revision: Text
    policy: Text
    policy_settings: dict[str, Any]
    lam: Real | None
    alpha: Real | None
    temperature: Real
    top_p: Real
    top_k: Whole
    greedy: Flag
    seed: Whole
    max_new_tokens: Whole
    calibration_id: Whole | None
    calibration_label: Text
    fingerprint: dict[str, Any]
    fingerprint_digest: Text
    certificate: Text
    warnings: tuple[Text, ...]
    status: Text
    created_at: datetime
    updated_at: datetime
    active_branch_id: Whole
    spans: tuple[SpanPart, ...]
    rendering: dict[str, Any] | None = None

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what sessions stored earlier do not have, so that their reports keep their digest."""
        plain: dict[str, Any] = handler(self)
        return plain if self.rendering is not None else {k: v for k, v in plain.items() if k != "rendering"}


class CandidatePart(Part):
    """A row of a step's candidate table."""

    token_id: Whole
    token: Text
    log_p_factual: Real
    log_p_masked: Real
    log_p_fused: Real
    certified: Flag
    refused_by: tuple[Text, ...]


class FamilyPart(Part):
    """With factorized masks, what one attribute family's masked branch says of the step's token."""

    family: Text
    log_p_masked: Real
    log_joint: Real
    log_tau: Real
    certified: Flag
    state: CertificateState


_LATER = ("kl_fused_factual", "tv_fused_factual", "set_size_low", "set_size_high", "noise")
"""What steps of earlier versions do not have."""


class StepPart(Part):
    """One token with everything that an audit shows of it."""

    index: Whole
    token_id: Whole
    token: Text
    log_p_factual: Real
    log_p_masked: Real
    log_p_fused: Real
    log_tau: Real
    certified: Flag
    set_size: Whole
    certified_mass: Real
    fallback: Flag
    forced: Flag
    policy_token_id: Whole
    policy_token: Text
    state: CertificateState
    entropy_factual: Real
    entropy_masked: Real
    entropy_fused: Real
    kl_fused_masked: Real
    tv_on_set: Real | None
    tv_bound: Real | None
    sensitivity: Real
    log_ratio: Real
    margin: Real
    kl_fused_factual: Real | None = None
    tv_fused_factual: Real | None = None
    certified_in: Literal["both", "factual"] = "both"
    set_size_low: Whole | None = None
    set_size_high: Whole | None = None
    noise: Real | None = None
    created_at: datetime
    candidates: tuple[CandidatePart, ...]
    families: tuple[FamilyPart, ...]

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what steps stored earlier do not have, so that their reports keep their digest."""
        plain: dict[str, Any] = handler(self)
        absent = {name for name in _LATER if getattr(self, name) is None}
        absent |= {"certified_in"} if self.certified_in == "both" else set()
        return {name: value for name, value in plain.items() if name not in absent}


class BranchPart(Part):
    """A branch with its own steps; earlier steps of its chain are those of its parent."""

    id: Whole
    path: Text
    parent_id: Whole | None
    fork_step: Whole | None
    name: Text
    finished: Literal["length", "end", "context"] | None
    created_at: datetime
    steps: tuple[StepPart, ...]


class LogPart(Part):
    """One entry of the verdict log; see :mod:`db.log_chain` for its digest."""

    entry: Whole
    kind: Literal["verdict", "adjudication", "review_started", "review_finished"]
    reviewer: Text
    branch: Text | None
    first_step: Whole | None
    last_step: Whole | None
    verdict: Literal["fair", "unfair", "unclear"] | None
    note: Text
    tag: Text
    blind: Flag
    at: datetime
    previous: Text
    digest: Text


class BinPart(Part):
    """Threshold of the steps ``first_step`` to ``last_step``; the last bin has no end."""

    first_step: Whole
    last_step: Whole | None
    log_tau: Real
    state: BinState
    contexts: Whole


class FamilyBinsPart(Part):
    """Thresholds of one attribute family, or of the joint mask (no family)."""

    family: Text | None
    alpha: Real
    bins: tuple[BinPart, ...]


class ThresholdsPart(Part):
    """Thresholds that were used, and the calibration that they were read off.

    ``applied`` is false where the calibration has another mask layout, so that no threshold was applied. ``uneven``
    lists the bins whose steps differ beyond noise, by their steps; it is None where that was not yet looked for.
    """

    calibration: Text
    calibration_digest: Text
    alpha: Real
    group: Text | None
    layout: Literal["joint", "factorized"]
    applied: Flag
    families: tuple[FamilyBinsPart, ...]
    digest: Text
    uneven: tuple[Text, ...] | None = None


class SummaryPart(Part):
    """Counts and extremes of one branch's whole chain; steps count from 0."""

    branch: Text
    steps: Whole
    certified: Whole
    inherited: Whole
    uninformative: Whole
    uncertified: Whole
    fallback: Whole
    forced: Whole
    outside: Whole
    sensitive: Whole
    most_sensitive_step: Whole | None
    largest_log_ratio: Real | None
    least_log_joint: Real | None
    least_log_factual: Real | None = None
    mean_set_size: Real | None
    mean_certified_mass: Real | None
    mean_kl_fused_masked: Real | None
    chain: dict[str, Any] | None
    too_weak: Whole | None = None

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what only some chains have, and what earlier versions did not count."""
        plain: dict[str, Any] = handler(self)
        absent = {name for name in ("least_log_factual", "too_weak") if getattr(self, name) is None}
        return {name: value for name, value in plain.items() if name not in absent}


class ReportPart(Part):
    """The whole document."""

    kind: Literal["coft-audit-report"] = "coft-audit-report"
    version: Literal[1] = 1
    program: ProgramPart
    session: SessionPart
    branches: tuple[BranchPart, ...]
    steps_digest: Text
    thresholds: ThresholdsPart | None
    log: tuple[LogPart, ...]
    log_head: Text
    summary: tuple[SummaryPart, ...]
    drift: Text | None


def report_text(report: ReportPart) -> str:
    """The document as JSON text; equal reports give equal text, in ASCII whatever the tokens hold."""
    return canonical(report.model_dump(), indent=1) + "\n"


def report_from(text: str | bytes) -> ReportPart:
    """Read the document.

    Raises:
        ServiceError: It is no JSON, no report, of another version, or a field is missing, unknown or of a wrong type.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ServiceError(f"The report is no JSON text ({error}); it is damaged, or another file.") from error
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise ServiceError("This JSON file is no report of an audit; choose one that was exported as a report.")
    if data.get("version") != VERSION:
        raise ServiceError(
            f"The report is of format {data.get('version')!r}; this program reads format {VERSION}. Export it again."
        )
    try:
        return ReportPart.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ServiceError(f"The report cannot be read: {place}: {first['msg']}.") from error
