"""The check of settings: what the report says twice of an audit must be the same, and of the right kind."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pydantic import TypeAdapter, ValidationError

from app.services.calibration.fingerprint_parts import detector_parts
from app.services.errors import CoftError, ServiceError
from app.services.known_policies import certifies, policy_info
from app.services.mapping import span_from
from app.services.policy_choice import policy_of
from app.services.reporting.document import session_record
from app.services.reporting.verify.findings import Findings, failed
from app.services.reporting.verify.loaded import Loaded
from app.services.reporting.verify.rendering import check_rendering
from app.services.views import AuditSettings
from app.services.views.verification import Check
from coft_core.digests import same_digests
from coft_core.errors import InvalidInputError
from coft_core.fingerprint import Fingerprint
from coft_core.masking.merge import validate_spans
from coft_core.masking.rendering import FORMATS
from coft_core.policies.baseline import BaselinePolicy
from coft_core.policies.single_branch import SingleBranchPolicy
from coft_core.types import FAMILIES

NAME = "Prompt, spans and settings"
STATUSES = ("open",)
"""Where a session can stand."""

_SETTINGS = TypeAdapter(AuditSettings)
_FAMILIES = (*FAMILIES, "other")

Pair = tuple[str, object, object]


def check_settings(loaded: Loaded) -> Check:
    """Spans lie in the prompt, settings are of their types, and they agree with session and fingerprint."""
    session = loaded.report.session
    found = Findings(NAME)
    _check_spans(found, loaded)
    _check_types(found, loaded)
    try:
        fingerprint = Fingerprint.from_dict(session.fingerprint)
        pairs = list(_pairs(loaded, fingerprint))
        check_rendering(found, session, fingerprint, int(session.policy_settings["preview"]["token_count"]))
    except (CoftError, ServiceError) as error:
        return failed(NAME, f"The session's policy cannot be built from its settings: {error}")
    for name, value in session.fingerprint.items():
        wanted = float if name in ("lam", "temperature", "top_p") else int if name == "top_k" else str
        fits = type(value) is wanted or (wanted is float and type(value) is int)
        found.expect(fits, f"Fingerprint: {name} is {value!r}, which is of another type than {name} is.")
    fits = same_digests(session.fingerprint_digest, fingerprint.digest)
    found.expect(
        fits, f"Fingerprint: its digest is stated as {session.fingerprint_digest!r} and is {fingerprint.digest!r}."
    )
    for name, stated, other in pairs:
        found.same("Settings", name, stated, other)
    earlier = all(name != "method with its parameters" for name, _, _ in pairs)
    told = f"; {session.policy} had another rule then, which only the program of that time can apply" if earlier else ""
    return found.check(f"{len(session.spans)} spans, {len(pairs)} settings{told}")


def _check_spans(found: Findings, loaded: Loaded) -> None:
    session = loaded.report.session
    for span in session.spans:
        inside = 0 <= span.start < span.end <= len(session.prompt)
        found.expect(inside, f"The span {span.start} to {span.end} ({span.category}) lies outside the prompt.")
    try:
        validate_spans(session.prompt, [span_from(span) for span in session_record(loaded.report).spans])
    except InvalidInputError as error:
        found.expect(False, str(error))


def _check_types(found: Findings, loaded: Loaded) -> None:
    """What the schema leaves open: settings are kept as the program had them, and labels as text."""
    session = loaded.report.session
    try:
        _SETTINGS.validate_json(json.dumps(session.policy_settings["settings"]), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        found.expect(False, f"Settings: {place} is of another type than it can be ({first['msg']}).")
    chosen = loaded.settings.prompt_format
    found.expect(chosen in FORMATS, f"Settings: there is no prompt format {chosen!r}.")
    found.expect(session.status in STATUSES, f"Session: there is no status {session.status!r}.")
    for branch, step in loaded.own_steps():
        place = f"Branch {branch.path}, step {step.index + 1}"
        named = [part.family for part in step.families]
        named += [family for row in step.candidates for family in row.refused_by]
        unknown = sorted(set(named) - set(_FAMILIES))
        found.expect(not unknown, f"{place}: there is no family {', '.join(unknown)}.")


def _pairs(loaded: Loaded, fingerprint: Fingerprint) -> Iterator[Pair]:
    """Everything that the report says in two places.

    Raises:
        CoftError: No policy can be built from the settings.
    """
    session, settings = loaded.report.session, loaded.settings
    policy = policy_of(settings, None)
    info = policy_info(settings.policy)
    certified = certifies(settings) and settings.calibration_id is not None
    yield "model", session.model, fingerprint.model
    yield "model_revision", session.model_revision, fingerprint.revision
    for name in ("temperature", "top_p", "top_k"):
        yield name, getattr(session, name), getattr(fingerprint, name)
        yield f"setting {name}", getattr(settings, name), getattr(fingerprint, name)
    yield "lam", session.lam, fingerprint.lam if info.fuses else None
    yield "setting lam", settings.lam if info.fuses else 0.0, fingerprint.lam
    for name in ("policy", "seed", "greedy", "max_new_tokens"):
        yield name, getattr(session, name), getattr(settings, name)
    yield "alpha", session.alpha, settings.alpha if certified else None
    yield "whether a calibration is named", bool(session.calibration_label), certified
    if session.calibration_id is not None:
        yield "calibration_id", session.calibration_id, settings.calibration_id
    if not _is_earlier_rule(policy, fingerprint.method):
        yield "method with its parameters", _method(policy), fingerprint.method
    yield "masks", policy.mask.label, fingerprint.mask_mode
    if settings.prompt_format != "auto":
        yield "prompt format", settings.prompt_format == "chat", fingerprint.chat_template != "none"
    if loaded.mismatched:
        yield "whether going on uncertified was allowed", settings.proceed_uncertified, True
    if settings.sentinel:
        yield "sentinel", settings.sentinel, fingerprint.sentinel
    yield from _of_the_detector(loaded, fingerprint)
    for index, computed in enumerate(session.policy_settings.get("computed", ())):
        yield f"number type of computation {index + 1}", computed["dtype"], fingerprint.dtype


def _of_the_detector(loaded: Loaded, fingerprint: Fingerprint) -> Iterator[Pair]:
    parts = detector_parts(fingerprint.detector)
    if parts is None:
        return
    chosen = loaded.settings.masked_families
    if chosen is not None:
        yield "masked families", sorted(chosen), sorted(parts.masked_families)
    named = str(loaded.report.session.policy_settings.get("user_list", ""))
    yield "the word list", parts.user_list.rpartition("+")[0], f"list {named!r}" if named else ""
    yield "whether there is a word list", loaded.settings.user_list_id is not None, bool(named)


def _is_earlier_rule(policy: object, stated: str) -> bool:
    """Whether the audit was made before the method's rule was changed, which this program cannot apply any more."""
    return isinstance(policy, BaselinePolicy) and bool(policy.rule) and stated.startswith(f"{policy.method} ")


def _method(policy: object) -> str:
    """The method with all its parameters, as a fingerprint holds it; the rest of it names COFT and vanilla."""
    if isinstance(policy, BaselinePolicy):
        return policy.label
    return policy.name if isinstance(policy, SingleBranchPolicy) else ""
