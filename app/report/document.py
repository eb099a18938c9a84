"""The report as JSON: one typed, versioned document that holds all that is stored of a session.

Logarithms are natural, steps and characters count from 0 (pages and tables count steps from 1), times are UTC, and the
infinities are the texts ``"Infinity"`` and ``"-Infinity"``. Unknown fields are refused, so that a changed document is
never half understood. ``docs/report_format.md`` describes it for readers.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from functools import cache
from statistics import fmean
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from app.report.tables import SessionData
from app.shared.audits import SENSITIVE
from app.shared.errors import ServiceError
from app.shared.files import plain_json
from app.shared.json import chain_json
from app.shared.thinking import thinking_json, thinking_view
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.chain import ChainCertificate
from coft_core.controls.result import Controls
from coft_core.stored_logits import StoredLogits
from coft_core.types import BinState, Candidate, Certificate, Diagnostics, Step
from db.audits import BranchRecord, SessionRecord
from db.verdicts import AnnotationRecord

KIND = "coft-audit-report"
FORMAT_VERSION = 1
"""Version of the document that is written; another one is refused, never guessed at."""
NAME = "COFT Audit"
VERSION = "0.1.0"
"""Version of the program; a test holds it together with the project's."""


@dataclass(frozen=True, slots=True)
class ProgramPart:
    """The program that wrote the report."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class BranchPart:
    """A branch with its own steps and their times; earlier steps of its chain are those of its parent."""

    id: int
    path: str
    parent_id: int | None
    fork_step: int | None
    name: str
    finished: Literal["length", "end", "context"] | None
    created_at: datetime
    steps: tuple[Step, ...]
    times: tuple[datetime, ...]


@dataclass(frozen=True, slots=True)
class BinPart:
    """Threshold of the steps ``first_step`` to ``last_step``; the last bin has no end."""

    first_step: int
    last_step: int | None
    log_tau: float
    state: BinState
    contexts: int


@dataclass(frozen=True, slots=True)
class FamilyBinsPart:
    """Thresholds of one attribute family, or of the joint mask (no family)."""

    family: str | None
    alpha: float
    bins: tuple[BinPart, ...]


@dataclass(frozen=True, slots=True)
class ThresholdsPart:
    """Thresholds that were used, and the calibration that they were read off.

    ``applied`` is false where the calibration has another mask layout, so that no threshold was applied. ``uneven``
    lists the bins whose steps differ beyond noise, by their steps; it is None where that was not yet looked for.
    """

    calibration: str
    calibration_digest: str
    alpha: float
    group: str | None
    layout: Literal["joint", "factorized"]
    applied: bool
    families: tuple[FamilyBinsPart, ...]
    digest: str
    uneven: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class SummaryPart:
    """Counts and extremes of one branch's whole chain; steps count from 0."""

    branch: str
    steps: int
    certified: int
    inherited: int
    uninformative: int
    uncertified: int
    fallback: int
    forced: int
    outside: int
    sensitive: int
    most_sensitive_step: int | None
    largest_log_ratio: float | None
    least_log_joint: float | None
    least_log_factual: float | None
    mean_set_size: float | None
    mean_certified_mass: float | None
    mean_kl_fused_masked: float | None
    chain: dict[str, Any] | None
    too_weak: int | None
    thinking: dict[str, Any] | None
    certificate: str | None


@dataclass(frozen=True, slots=True)
class ControlsPart:
    """The controls of one branch's whole chain."""

    branch: str
    controls: Controls


@dataclass(frozen=True, slots=True)
class ReportPart:
    """The whole document."""

    program: ProgramPart
    session: SessionRecord
    branches: tuple[BranchPart, ...]
    steps_digest: str
    thresholds: ThresholdsPart | None
    log: tuple[AnnotationRecord, ...]
    log_head: str
    summary: tuple[SummaryPart, ...]
    drift: str | None
    controls: tuple[ControlsPart, ...] = ()


_STORED_AS = {"branch": "branch_path", "first_step": "step_index", "last_step": "last_step_index", "at": "created_at"}
"""Fields of a log's entries that the store names otherwise."""

Form = Mapping[str, Any]
"""The fields of a part in the order of the document, with their types."""


@cache
def _hints(kind: type) -> Form:
    return get_type_hints(kind, localns={"StoredLogits": StoredLogits})


def _form(kind: type, names: Iterable[str] = ()) -> Form:
    """Those of a type's fields that are named, or all."""
    hints = _hints(kind)
    return {name: hints[_STORED_AS.get(name, name)] for name in names or hints}


_OWN = tuple(
    field.name for field in fields(Step) if field.name not in ("candidates", "diagnostics", "families", "logits")
)
_DIAGNOSTICS = tuple(field.name for field in fields(Diagnostics))
_LATER_ONES = _OWN.index("certified_in")

_STEP: Form = {
    **_form(Step, _OWN[:_LATER_ONES]),
    **_form(Diagnostics),
    **_form(Step, _OWN[_LATER_ONES:]),
    "created_at": datetime,
    **_form(Step, ("candidates", "families")),
}
_SESSION = _form(
    SessionRecord,
    (
        "id", "name", "prompt", "model", "model_revision", "policy", "policy_settings", "lam", "alpha", "temperature",
        "top_p", "top_k", "greedy", "seed", "max_new_tokens", "calibration_id", "calibration_label", "fingerprint",
        "fingerprint_digest", "certificate", "warnings", "status", "created_at", "updated_at", "active_branch_id",
        "spans", "rendering",
    ),
)  # fmt: skip
_LOG = _form(
    AnnotationRecord,
    (
        "entry", "kind", "reviewer", "branch", "first_step", "last_step", "verdict", "note", "tag", "blind", "at",
        "previous", "digest",
    ),
)  # fmt: skip
_BRANCH: Form = {name: kind for name, kind in _hints(BranchPart).items() if name != "times"} | {"steps": list[Any]}

_LATER: Form = {
    "rendering": None, "kl_fused_factual": None, "tv_fused_factual": None, "certified_in": "both", "set_size_low": None,
    "set_size_high": None, "noise": None, "least_log_factual": None, "too_weak": None, "thinking": None,
    "certificate": None, "uneven": None, "controls": (), "bounds": None, "at_most": (),
}  # fmt: skip
"""Fields that earlier versions did not have, with what they say then; see :func:`_without_absent`."""


def _without_absent(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part without later fields that say nothing, so that reports of older sessions keep their digest."""
    return {name: value for name, value in part.items() if name not in _LATER or value != _LATER[name]}


def canonical(value: object, indent: int | None = None) -> str:
    """JSON text that depends on the content alone: ASCII, keys sorted, infinities as text."""
    separators = (",", ":") if indent is None else None
    plain = _plain(value)
    return json.dumps(
        plain, ensure_ascii=True, allow_nan=False, indent=indent, sort_keys=indent is None, separators=separators
    )


def _plain(value: Any) -> object:
    """A value as plain JSON; a part of the document has its fields in their order."""
    if isinstance(value, BranchPart):
        steps = [_step_json(step, at) for step, at in zip(value.steps, value.times, strict=True)]
        return {name: steps if name == "steps" else _plain(getattr(value, name)) for name in _BRANCH}
    if isinstance(value, SessionRecord):
        return _plain(_without_absent({name: getattr(value, name) for name in _SESSION}))
    if isinstance(value, AnnotationRecord):
        return {name: _plain(getattr(value, _STORED_AS.get(name, name))) for name in _LOG}
    if is_dataclass(value):
        own = {field.name: getattr(value, field.name) for field in fields(value)}
        return _plain(_without_absent(own) if isinstance(value, (SummaryPart, Candidate)) else own)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _step_json(step: Step, at: datetime) -> object:
    values = {
        name: at if name == "created_at" else getattr(step.diagnostics if name in _DIAGNOSTICS else step, name)
        for name in _STEP
    }
    return _plain(_without_absent(values))


def report_text(report: ReportPart) -> str:
    """The document as JSON text; equal reports give equal text, in ASCII whatever the tokens hold."""
    parts = {field.name: getattr(report, field.name) for field in fields(report)}
    return canonical({"kind": KIND, "version": FORMAT_VERSION, **_without_absent(parts)}, indent=1) + "\n"


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
    whole = _values({"kind": str, "version": int, **_hints(ReportPart)}, data, "")
    del whole["kind"], whole["version"]
    report = ReportPart(**whole)
    session, ids = report.session.id, {branch.path: branch.id for branch in report.branches}
    log = (replace(entry, session_id=session, branch_id=ids.get(entry.branch_path or "")) for entry in report.log)
    return replace(report, log=tuple(log))


def _session(value: object, place: str) -> SessionRecord:
    return SessionRecord(**_values(_SESSION, value, place))


def _entry(value: object, place: str) -> AnnotationRecord:
    """An entry of the log, by its number and of no session yet."""
    values = {_STORED_AS.get(name, name): item for name, item in _values(_LOG, value, place).items()}
    return AnnotationRecord(**values, id=values["entry"], session_id=0)


def _branch(value: object, place: str) -> BranchPart:
    values = _values(_BRANCH, value, place)
    steps = [_values(_STEP, step, f"{place}steps.{number}.") for number, step in enumerate(values["steps"])]
    values["times"] = tuple(step.pop("created_at") for step in steps)
    for step in steps:
        step["diagnostics"] = Diagnostics(**{name: step.pop(name) for name in _DIAGNOSTICS})
    values["steps"] = tuple(Step(**step) for step in steps)
    return BranchPart(**values)


_READERS: Mapping[Any, Callable[[object, str], Any]] = {
    SessionRecord: _session,
    BranchPart: _branch,
    AnnotationRecord: _entry,
}
"""What reads the parts that are not written field by field as they are."""


def _values(form: Form, value: object, place: str) -> dict[str, Any]:
    """The fields of a part, each of its type; unknown fields are refused, and missing ones unless they came later."""
    if not isinstance(value, dict):
        raise _unfit(place[:-1], "should be an object")
    if unknown := next((name for name in value if name not in form), None):
        raise _unfit(place + unknown, "is not known")
    if missing := next((name for name in form if name not in value and name not in _LATER), None):
        raise _unfit(place + missing, "is missing")
    return {name: _value(kind, value.get(name, _LATER.get(name)), place + name) for name, kind in form.items()}


def _value(kind: Any, value: Any, place: str) -> Any:
    """A value of a type from plain JSON; lone surrogates are kept, which a pasted prompt can hold."""
    origin, parts = get_origin(kind), get_args(kind)
    if NoneType in parts:
        return None if value is None else _value(parts[0], value, place)
    if origin is tuple and isinstance(value, list):
        return tuple(_value(parts[0], item, f"{place}.{number}") for number, item in enumerate(value))
    if reader := _READERS.get(kind):
        return reader(value, f"{place}.")
    if is_dataclass(kind):
        return kind(**_values(_hints(kind), value, f"{place}."))
    if origin is Literal and value in parts and isinstance(value, str):
        return value
    if kind is float:
        return _real(value, place)
    if kind is datetime and isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError as error:
            raise _unfit(place, "should be a time") from error
    if kind is Any or type(value) is (origin or kind):
        return value
    raise _unfit(place, f"should be of the type {getattr(kind, '__name__', kind)}")


def _real(value: Any, place: str) -> float:
    if value in ("Infinity", "-Infinity"):
        return float(value)
    if type(value) not in (int, float) or math.isnan(value):
        raise _unfit(place, 'should be a number, "Infinity" or "-Infinity"')
    return float(value)


def _unfit(place: str, problem: str) -> ServiceError:
    return ServiceError(f"The report cannot be read: {place}: it {problem}.")


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
        least_log_joint=min((step.least_support for step in steps if step.certified_in == "both"), default=None),
        least_log_factual=min((step.least_support for step in steps if step.certified_in == "factual"), default=None),
        mean_set_size=fmean(step.set_size for step in steps) if steps else None,
        mean_certified_mass=fmean(step.certified_mass for step in steps) if steps else None,
        mean_kl_fused_masked=fmean(step.diagnostics.kl_fused_masked for step in steps) if steps else None,
        chain=chain_json(chain),
        too_weak=sum(step.state == "uninformative" and step.log_tau > -math.inf for step in steps),
        thinking=thinking_json(thinking_view(steps, stored)),
        certificate=Certificate.read(claim).counted(steps).text,
    )


def document_of(
    data: SessionData, times: Mapping[tuple[int, int], datetime], thresholds: ThresholdsPart | None
) -> ReportPart:
    """The report of a session."""
    branches = tuple(_branch_part(branch, data.chains[branch.id], times) for branch in data.branches)
    settings, certificate = data.record.policy_settings, data.record.certificate
    return ReportPart(
        program=ProgramPart(name=NAME, version=VERSION),
        session=data.record,
        branches=branches,
        steps_digest=digest_of(branches),
        thresholds=thresholds,
        log=tuple(data.log),
        log_head=data.log[-1].digest if data.log else "",
        summary=tuple(
            summary_of(branch.path, data.chains[branch.id], data.certificates[branch.id], settings, certificate)
            for branch in data.branches
        ),
        drift=data.drift,
        controls=tuple(
            ControlsPart(branch.path, data.controls[branch.id])
            for branch in data.branches
            if branch.id in data.controls
        ),
    )


def thresholds_of(calibration: Calibration, stored: bytes, layout: str, group: str | None) -> ThresholdsPart:
    """The thresholds of a calibration as a session reads it."""
    families = tuple(
        FamilyBinsPart(
            name or None,
            part.alpha,
            tuple(BinPart(*(getattr(entry, field.name) for field in fields(BinPart))) for entry in part.bins),
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
        digest=digest_of(families),
        uneven=tuple(
            f"{entry.label} of {name}" if name else entry.label
            for name, part in calibration.parts
            for entry in part.evenness
            if entry.uneven
        ),
    )


def digest_of(value: object) -> str:
    """SHA-256 of something's canonical JSON text."""
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()


def branch_records(report: ReportPart) -> tuple[BranchRecord, ...]:
    """The branches as the store had them."""
    names = [name for name in _BRANCH if name != "steps"]
    return tuple(
        BranchRecord(session_id=report.session.id, **{name: getattr(branch, name) for name in names})
        for branch in report.branches
    )


def chains_in(report: ReportPart) -> dict[int, tuple[Step, ...]]:
    """The whole chain of each branch by the branch's id, ancestors' steps first.

    Only for a report whose branches hold together: every parent stands before its children.
    """
    chains: dict[int, tuple[Step, ...]] = {}
    for branch in report.branches:
        before = () if branch.parent_id is None else chains[branch.parent_id][: branch.fork_step]
        chains[branch.id] = before + branch.steps
    return chains


def _branch_part(branch: BranchRecord, chain: Sequence[Step], times: Mapping[tuple[int, int], datetime]) -> BranchPart:
    steps = tuple(chain[branch.fork_step or 0 :])
    own = {name: getattr(branch, name) for name in _BRANCH if name != "steps"}
    return BranchPart(**own, steps=steps, times=tuple(times[branch.id, step.index] for step in steps))
