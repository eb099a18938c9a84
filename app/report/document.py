"""The report as JSON: one typed, versioned document that holds all that is stored of a session.

Logarithms are natural, steps and characters count from 0 (pages and tables count steps from 1), times are UTC, and the
infinities are the texts ``"Infinity"`` and ``"-Infinity"``. Unknown fields are refused, so that a changed document is
never half understood. ``docs/report_format.md`` describes it for readers.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from statistics import fmean
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    PlainValidator,
    SerializerFunctionWrapHandler,
    StrictBool,
    StrictInt,
    ValidationError,
    WithJsonSchema,
    model_serializer,
)

from app.report.tables import SessionData
from app.shared.audits import SENSITIVE
from app.shared.errors import ServiceError
from app.shared.files import plain_json
from app.shared.json import chain_json
from app.shared.thinking import thinking_json, thinking_view
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.chain import ChainCertificate
from coft_core.types import BinState, Candidate, Certificate, CertificateState, Diagnostics, FamilyStep, Span, Step
from db.audits import BranchRecord, SessionRecord
from db.verdicts import AnnotationRecord


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("should be text")
    return value


def _real(value: object) -> float:
    if value in ("Infinity", "-Infinity"):
        return float(str(value))
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError('should be a number, "Infinity" or "-Infinity"')
    return float(value)


# Plain validators keep lone surrogates, which a pasted prompt can hold and which the library's own text type refuses.
Text = Annotated[str, PlainValidator(_text), WithJsonSchema({"type": "string"})]
Real = Annotated[
    float, PlainValidator(_real), WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": ["Infinity", "-Infinity"]}]})
]
Whole = StrictInt
Flag = StrictBool


def canonical(value: object, indent: int | None = None) -> str:
    """JSON text that depends on the content alone: ASCII, keys sorted, infinities as text."""
    separators = (",", ":") if indent is None else None
    plain = _plain(value)
    return json.dumps(
        plain, ensure_ascii=True, allow_nan=False, indent=indent, sort_keys=indent is None, separators=separators
    )


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


KIND = "coft-audit-report"
FORMAT_VERSION = 1
"""Version of the document that is written; another one is refused, never guessed at."""


class DocumentPart(BaseModel):
    """A part of the document; frozen, and without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)


class GrownPart(DocumentPart):
    """A part with fields that earlier versions did not have; they are left out where they say nothing.

    So the reports of sessions that were stored earlier keep their digest.
    """

    added: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        plain: dict[str, Any] = handler(self)
        fields = type(self).model_fields
        absent = {name for name in self.added if getattr(self, name) == fields[name].default}
        return {name: value for name, value in plain.items() if name not in absent}


class ProgramPart(DocumentPart):
    """The program that wrote the report."""

    name: Text
    version: Text


class SpanPart(DocumentPart):
    """A sensitive span: characters ``start`` to ``end`` (exclusive) of the prompt."""

    start: Whole
    end: Whole
    category: Text
    source: Text
    detail: Text
    kept: Flag
    score: Real | None
    suggested: Flag


class SessionPart(GrownPart):
    """What was audited, under which policy; ``policy_settings`` are the settings as the program keeps them."""

    added = ("rendering",)

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


class CandidatePart(DocumentPart):
    """A row of a step's candidate table."""

    token_id: Whole
    token: Text
    log_p_factual: Real
    log_p_masked: Real
    log_p_fused: Real
    certified: Flag
    refused_by: tuple[Text, ...]


class FamilyPart(DocumentPart):
    """With factorized masks, what one attribute family's masked branch says of the step's token."""

    family: Text
    log_p_masked: Real
    log_joint: Real
    log_tau: Real
    certified: Flag
    state: CertificateState


class StepPart(GrownPart):
    """One token with everything that an audit shows of it."""

    added = ("kl_fused_factual", "tv_fused_factual", "certified_in", "set_size_low", "set_size_high", "noise")

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


class BranchPart(DocumentPart):
    """A branch with its own steps; earlier steps of its chain are those of its parent."""

    id: Whole
    path: Text
    parent_id: Whole | None
    fork_step: Whole | None
    name: Text
    finished: Literal["length", "end", "context"] | None
    created_at: datetime
    steps: tuple[StepPart, ...]


class LogPart(DocumentPart):
    """One entry of the verdict log; see :mod:`db.verdicts` for its digest."""

    entry: Whole
    kind: Literal["verdict", "adjudication", "review_started", "review_finished", "comment"]
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


class BinPart(DocumentPart):
    """Threshold of the steps ``first_step`` to ``last_step``; the last bin has no end."""

    first_step: Whole
    last_step: Whole | None
    log_tau: Real
    state: BinState
    contexts: Whole


class FamilyBinsPart(DocumentPart):
    """Thresholds of one attribute family, or of the joint mask (no family)."""

    family: Text | None
    alpha: Real
    bins: tuple[BinPart, ...]


class ThresholdsPart(DocumentPart):
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


class SummaryPart(GrownPart):
    """Counts and extremes of one branch's whole chain; steps count from 0."""

    added = ("least_log_factual", "too_weak", "thinking", "certificate")

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
    thinking: dict[str, Any] | None = None
    certificate: Text | None = None


class ReportPart(DocumentPart):
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
    """Read the document."""
    try:
        data = plain_json(text)
    except (ValueError, RecursionError) as error:
        raise ServiceError(f"The report is no JSON text ({error}); it is damaged, or another file.") from error
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise ServiceError("This JSON file is no report of an audit; choose one that was exported as a report.")
    if data.get("version") != FORMAT_VERSION:
        raise ServiceError(
            f"The report is of format {data.get('version')!r}; this program reads format {FORMAT_VERSION}. "
            "Export it again."
        )
    try:
        return ReportPart.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ServiceError(f"The report cannot be read: {place}: {first['msg']}.") from error


def summary_of(
    branch: str, steps: Sequence[Step], chain: ChainCertificate | None, stored: Mapping[str, Any], claim: str
) -> SummaryPart:
    """Counts and extremes of one chain, which begins with its first step."""
    strongest = max(steps, key=lambda step: abs(step.diagnostics.log_ratio), default=None)
    return SummaryPart(
        branch=branch,
        steps=len(steps),
        certified=sum(step.certified and step.state == "calibrated" for step in steps),
        inherited=sum(step.certified and step.state == "inherited" for step in steps),
        uninformative=sum(step.state == "uninformative" for step in steps),
        uncertified=sum(step.state in ("none", "mismatch") for step in steps),
        fallback=sum(step.fallback for step in steps),
        forced=sum(step.forced for step in steps),
        outside=sum(step.state in ("calibrated", "inherited") and not step.certified for step in steps),
        sensitive=sum(abs(step.diagnostics.log_ratio) >= SENSITIVE for step in steps),
        most_sensitive_step=None if strongest is None else strongest.index,
        largest_log_ratio=None if strongest is None else strongest.diagnostics.log_ratio,
        least_log_joint=min((step.log_support for step in steps if step.certified_in == "both"), default=None),
        least_log_factual=min((step.log_support for step in steps if step.certified_in == "factual"), default=None),
        mean_set_size=fmean(step.set_size for step in steps) if steps else None,
        mean_certified_mass=fmean(step.certified_mass for step in steps) if steps else None,
        mean_kl_fused_masked=fmean(step.diagnostics.kl_fused_masked for step in steps) if steps else None,
        chain=chain_json(chain),
        too_weak=sum(step.state == "uninformative" and step.log_tau > -math.inf for step in steps),
        thinking=thinking_json(thinking_view(steps, stored)),
        certificate=Certificate.read(claim).counted(steps).text,
    )


NAME = "COFT Audit"
VERSION = "0.1.0"
"""Version of the program; a test holds it together with the project's."""


_STORED_AS = {"branch": "branch_path", "first_step": "step_index", "last_step": "last_step_index", "at": "created_at"}
"""Fields of a log's entries that the store names otherwise."""


def document_of(
    data: SessionData, times: Mapping[tuple[int, int], datetime], thresholds: ThresholdsPart | None
) -> ReportPart:
    """The report of a session."""
    branches = tuple(_branch_part(branch, data.chains[branch.id], times) for branch in data.branches)
    return ReportPart(
        program=ProgramPart(name=NAME, version=VERSION),
        session=SessionPart.model_validate(data.record),
        branches=branches,
        steps_digest=steps_digest(branches),
        thresholds=thresholds,
        log=tuple(_log_part(record) for record in data.log),
        log_head=data.log[-1].digest if data.log else "",
        summary=tuple(
            summary_of(
                branch.path,
                data.chains[branch.id],
                data.certificates[branch.id],
                data.record.policy_settings,
                data.record.certificate,
            )
            for branch in data.branches
        ),
        drift=data.drift,
    )


def thresholds_of(calibration: Calibration, stored: bytes, layout: str, group: str | None) -> ThresholdsPart:
    """The thresholds of a calibration as a session reads it."""
    families = tuple(
        FamilyBinsPart(
            family=name or None, alpha=part.alpha, bins=tuple(BinPart.model_validate(entry) for entry in part.bins)
        )
        for name, part in calibration.parts
    )
    return ThresholdsPart(
        calibration=calibration.name,
        calibration_digest=hashlib.sha256(stored).hexdigest(),
        alpha=calibration.alpha,
        group=group,
        layout=calibration.layout,
        applied=calibration.layout == layout,
        families=families,
        digest=thresholds_digest(families),
        uneven=tuple(
            f"{entry.label} of {name}" if name else entry.label
            for name, part in calibration.parts
            for entry in part.evenness
            if entry.uneven
        ),
    )


def steps_digest(branches: Sequence[BranchPart]) -> str:
    """SHA-256 of all branches with all their steps."""
    return digest_of([branch.model_dump() for branch in branches])


def thresholds_digest(families: Sequence[FamilyBinsPart]) -> str:
    """SHA-256 of all thresholds."""
    return digest_of([family.model_dump() for family in families])


def digest_of(value: object) -> str:
    """SHA-256 of something's canonical JSON text."""
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()


def session_record(report: ReportPart) -> SessionRecord:
    """The session as the store had it."""
    spans = tuple(Span(**span.model_dump()) for span in report.session.spans)
    return SessionRecord(**report.session.model_dump(exclude={"spans"}), spans=spans)


def branch_records(report: ReportPart) -> tuple[BranchRecord, ...]:
    """The branches as the store had them."""
    session = report.session.id
    return tuple(BranchRecord(**branch.model_dump(exclude={"steps"}), session_id=session) for branch in report.branches)


def chains_in(report: ReportPart) -> dict[int, tuple[Step, ...]]:
    """The whole chain of each branch by the branch's id, ancestors' steps first.

    Only for a report whose branches hold together: every parent stands before its children.
    """
    chains: dict[int, tuple[Step, ...]] = {}
    for branch in report.branches:
        before = () if branch.parent_id is None else chains[branch.parent_id][: branch.fork_step]
        chains[branch.id] = before + tuple(_step(part) for part in branch.steps)
    return chains


def log_records(report: ReportPart) -> tuple[AnnotationRecord, ...]:
    """The verdict log as the store had it; entries are known by their numbers."""
    ids = {branch.path: branch.id for branch in report.branches}
    return tuple(
        AnnotationRecord(
            id=entry.entry,
            session_id=report.session.id,
            branch_id=None if entry.branch is None else ids.get(entry.branch),
            **{_STORED_AS.get(name, name): value for name, value in entry},
        )
        for entry in report.log
    )


_PARTED = ("diagnostics", "candidates", "families", "logits")
_STEP = tuple(field.name for field in fields(Step) if field.name not in _PARTED)
_DIAGNOSTICS = tuple(field.name for field in fields(Diagnostics))


def _branch_part(branch: BranchRecord, chain: Sequence[Step], times: Mapping[tuple[int, int], datetime]) -> BranchPart:
    steps = tuple(_step_part(step, times[branch.id, step.index]) for step in chain[branch.fork_step or 0 :])
    return BranchPart(
        **{name: getattr(branch, name) for name in BranchPart.model_fields if name != "steps"}, steps=steps
    )


def _step_part(step: Step, stored_at: datetime) -> StepPart:
    plain = {name: getattr(step, name) for name in (*_STEP, "candidates", "families")}
    diagnostics = {name: getattr(step.diagnostics, name) for name in _DIAGNOSTICS}
    return StepPart.model_validate({**plain, **diagnostics, "created_at": stored_at})


def _step(part: StepPart) -> Step:
    return Step(
        **{name: getattr(part, name) for name in _STEP},
        diagnostics=Diagnostics(**{name: getattr(part, name) for name in _DIAGNOSTICS}),
        candidates=tuple(Candidate(**row.model_dump()) for row in part.candidates),
        families=tuple(FamilyStep(**stated.model_dump()) for stated in part.families),
    )


def _log_part(record: AnnotationRecord) -> LogPart:
    return LogPart(**{name: getattr(record, _STORED_AS.get(name, name)) for name in LogPart.model_fields})
