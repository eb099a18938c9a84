"""Between the core's data, the store's records and what pages see."""

from __future__ import annotations

from dataclasses import asdict, fields
from operator import attrgetter
from typing import cast

from app.shared.audits import AuditSettings, MaskPiece, MaskPreview, ParameterValue
from coft_core.decode.cost import Footprint, StepCost
from coft_core.stored_logits import StoredLogits
from coft_core.types import Candidate, CertificateState, Diagnostics, FamilyStep, Span, Step
from db.records import CandidateRecord, FamilyStepRecord, JsonObject, SpanRecord, StepRecord

_DIAGNOSTICS = tuple(field.name for field in fields(Diagnostics))
_NOT_COLUMNS = ("candidates", "diagnostics", "families", "logits")
_COLUMNS = tuple(field.name for field in fields(Step) if field.name not in _NOT_COLUMNS)
_CANDIDATE = attrgetter(*(field.name for field in fields(CandidateRecord)))


def span_record(span: Span) -> SpanRecord:
    """A span as the store keeps it."""
    return SpanRecord(**asdict(span))


def span_from(record: SpanRecord) -> Span:
    """A stored span as the core knows it."""
    return Span(**asdict(record))


def step_record(step: Step, cost: StepCost | None = None) -> StepRecord:
    """A step as the store keeps it, diagnostics in columns, with what it took where that was measured."""
    plain = {name: getattr(step, name) for name in _COLUMNS}
    diagnostics = {name: getattr(step.diagnostics, name) for name in _DIAGNOSTICS}
    candidates = tuple(CandidateRecord(*_CANDIDATE(candidate)) for candidate in step.candidates)
    families = tuple(FamilyStepRecord(**asdict(part)) for part in step.families)
    logits = None if step.logits is None else step.logits.to_bytes()
    return StepRecord(
        **plain,
        **diagnostics,
        candidates=candidates,
        families=families,
        logits=logits,
        seconds=None if cost is None else cost.seconds,
        peak_bytes=None if cost is None else cost.peak_bytes,
    )


def step_from(record: StepRecord) -> Step:
    """A stored step as the core made it."""
    plain = {name: getattr(record, name) for name in _COLUMNS if name != "state"}
    return Step(
        **plain,
        state=cast(CertificateState, record.state),
        diagnostics=Diagnostics(**{name: getattr(record, name) for name in _DIAGNOSTICS}),
        candidates=tuple(Candidate(*_CANDIDATE(candidate)) for candidate in record.candidates),
        families=tuple(FamilyStep(**asdict(part)) for part in record.families),
        logits=None if record.logits is None else StoredLogits.from_bytes(record.logits),
    )


def footprint_from(data: JsonObject | None) -> Footprint | None:
    """A stored footprint; None for sessions that were stored without."""
    if data is None:
        return None
    rows = {name: tuple(int(size) for size in data[name]) for name in ("prompt_tokens", "token_bytes")}
    return Footprint(**rows, model_bytes=int(data["model_bytes"]), further_bytes=int(data["further_bytes"]))


def preview_to_json(preview: MaskPreview) -> JsonObject:
    """A preview as JSON, so that a session reopens without its model."""
    return {**asdict(preview), "pieces": [[piece.text, piece.masked] for piece in preview.pieces]}


def preview_from_json(data: JsonObject) -> MaskPreview:
    """The inverse of :func:`preview_to_json`."""
    return MaskPreview(
        pieces=tuple(MaskPiece(text, bool(masked)) for text, masked in data["pieces"]),
        token_count=int(data["token_count"]),
        masked_count=int(data["masked_count"]),
        warnings=tuple(data["warnings"]),
        branches=tuple(data.get("branches", ())),
        sentinel=str(data.get("sentinel", "")),
    )


def settings_from_json(data: JsonObject) -> AuditSettings:
    """Settings as stored with a session."""
    families = data.get("masked_families")
    return AuditSettings(
        **{
            **data,
            "masked_families": None if families is None else tuple(families),
            "whitelist": tuple(data.get("whitelist", ())),
            "parameters": tuple((name, _value(own)) for name, own in data.get("parameters", ())),
        }
    )


def _value(own: ParameterValue | list[str]) -> ParameterValue:
    """JSON knows lists alone; settings hold tuples."""
    return tuple(own) if isinstance(own, list) else own
