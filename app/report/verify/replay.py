"""Checks that compute again: steps from their stored logits, and steps and the calibration on the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace

import numpy as np
import torch

from app.calibrate.service import calibrated_again
from app.report.bundle import CALIBRATION, LOGITS_FILE, PROMPTS_FILE, logits_from, prompts_from
from app.report.document import BranchPart
from app.report.verify.findings import Findings, Skipped, Within, check
from app.report.verify.loaded import Loaded, place_of
from app.shared.audits import preview_from_json
from app.shared.errors import ServiceError
from app.shared.model_host import ModelHost, label_of
from app.shared.planning import detector_parts, policy_of, preview_of, rendering_of
from coft_core.decode.cost import reserved_bytes
from coft_core.decode.loop import Rollout
from coft_core.decode.plan import Plan, with_scorers
from coft_core.decode.reread import reread
from coft_core.errors import CoftError
from coft_core.fingerprint import Fingerprint, same_digests
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Policy
from coft_core.text.detection import SpanDetector
from coft_core.text.masking import keep_whitelisted, mask_prompt
from coft_core.text.placing import read_tokens
from coft_core.text.rendering import is_steady
from coft_core.types import Candidate, Certificate, Diagnostics, Step

LOGITS_CHECK = "Steps from stored logits"
TOLERANCE = 1e-4
"""Logarithms are computed in float32, on whatever processor the audit ran."""
BOUNDARY = 1e-5


@check(LOGITS_CHECK)
def check_logits(findings: Findings, loaded: Loaded) -> str:
    """Every step follows from the logits that were stored with it."""
    if loaded.files is None or LOGITS_FILE not in loaded.files:
        raise Skipped("a report alone was given" if loaded.files is None else "the audit did not keep its logits")
    if loaded.lacks_calibration:
        raise Skipped("the calibration is not in the bundle, and a step is certified by its thresholds")
    stored = logits_from(loaded.files[LOGITS_FILE])
    policy = policy_of(loaded.settings, loaded.applied)
    session = loaded.report.session
    fingerprint = Fingerprint.from_dict(session.fingerprint)
    read = without = 0
    for place, branch, step in loaded.own_steps():
        logits = stored.pop((branch.id, step.index), None)
        if logits is None:
            without += 1
            continue
        read += 1
        kept = replace(step, logits=logits)
        if loaded.vocabulary is not None:
            findings.same(place, "the size of the vocabulary", loaded.vocabulary, logits.vocabulary_size)
        try:
            (fresh,) = reread(
                [kept], policy, seed=session.seed, path=branch.path, greedy=session.greedy, fingerprint=fingerprint
            )
        except CoftError as error:
            findings.expect(False, f"{place}: {error}")
            continue
        boundary, at_edges = _boundaries(kept, policy)
        _compare_steps(findings, place, step, loaded.computed(fresh, step), TOLERANCE, boundary)
        # The sizes between which the set lies follow from the logits and the stated bound.
        for name in ("set_size_low", "set_size_high"):
            other = getattr(fresh, name)
            allowed = other if other is None else Within(other - at_edges, other + at_edges)
            findings.same(place, name, getattr(step, name), allowed)
    findings.expect(not stored, f"{LOGITS_FILE} holds logits of {len(stored)} steps that the report does not have.")
    return f"{read:,} steps from their logits, {without:,} without"


def _boundaries(kept: Step, policy: Policy) -> tuple[int, int]:
    """Tokens that another processor may put on the other side of the threshold, and of either end of the range."""
    if kept.logits is None:
        return 0, 0
    with torch.inference_mode():
        margins = policy.views(kept.logits.tensor()[None], kept.index, kept.logits.branches).margins
    if margins is None:
        return 0, 0
    noise = kept.noise or 0.0
    at_edges = (margins.abs() - noise).abs() <= BOUNDARY
    return int((margins.abs() <= BOUNDARY).sum()), int(at_edges.sum())


REPLAY_CHECK = "Replay on the model"
TOLERANCES = {"float32": 1e-3, "float64": 1e-3}
"""Allowed difference of logarithms by the model's number type; other processors round otherwise."""
COARSE_TOLERANCE = 0.1
"""The same for 16-bit types, whose logits carry about three decimal digits."""


@check(REPLAY_CHECK)
def check_replay(findings: Findings, loaded: Loaded, host: ModelHost | None) -> str:
    """Every token and every number comes out again."""
    if host is None:
        raise Skipped("not asked for; --replay loads the model and writes every branch again")
    if loaded.lacks_calibration:
        raise Skipped("the calibration is not with the report, and thresholds decide which tokens are drawn")
    session = loaded.report.session
    model = host.get(loaded.settings.model)
    used = (model.weights_digest, model.tokenizer_digest, model.dtype_name, model.revision)
    stated = tuple(session.fingerprint.get(name) for name in ("weights", "tokenizer", "dtype", "revision"))
    if not all(same_digests(digest, str(other)) for digest, other in zip(used, stated, strict=True)):
        raise ServiceError(
            f"The model {loaded.settings.model} has other weights, another tokenizer, number type or revision here "
            f"({', '.join(used)}) than in the report ({', '.join(map(str, stated))}); load the very same model."
        )
    tolerance = TOLERANCES.get(model.dtype_name, COARSE_TOLERANCE)
    model = model.rendered_as(rendering_of(session.rendering, model))
    drawn = _check_rendering(findings, loaded, model)
    plan = _plan(loaded, model, host)
    _check_plan(findings, loaded, plan)
    for branch, chain in zip(loaded.report.branches, loaded.chains().values(), strict=True):
        with host.memory.held(reserved_bytes(plan, len(chain))):
            _replay(findings, loaded, plan, branch, chain, tolerance)
    steps = sum(len(branch.steps) for branch in loaded.report.branches)
    return f"{steps:,} steps; tokens exactly, logarithms within {tolerance:g}{drawn}"


def _check_rendering(findings: Findings, loaded: Loaded, model: LanguageModel) -> str:
    """What the model read follows from the prompt, its format and its moment; what cannot be told of it."""
    session, rendering = loaded.report.session, model.prompting
    if rendering.kept is None:
        return ""
    label = model.rendering_label
    if is_steady(label):
        stated = str(session.fingerprint.get("rendering", ""))
        findings.same("Fingerprint", "the rendering of the chat template", stated, label)
        fresh = replace(rendering, kept=None)
        for text, stated_tokens in rendering.kept.items():
            read = read_tokens(model.tokenizer, text, fresh)
            findings.same("What the model read", f"the tokens of {text!r}", stated_tokens, read)
        return ""
    return "; what the chat template drew at random in the prompt cannot be told"


def _plan(loaded: Loaded, model: LanguageModel, host: ModelHost) -> Plan:
    """The session's plan with the report's own spans and calibration; whatever detectors are here plays no part."""
    session = loaded.report.session
    # The sentinel is the report's, whatever would be chosen here.
    settings = replace(loaded.settings, sentinel=str(session.fingerprint.get("sentinel") or "") or None)
    policy = policy_of(settings, loaded.applied)
    prompt = mask_prompt(
        model.tokenizer,
        session.prompt,
        keep_whitelisted(session.prompt, session.spans, policy.mask.whitelist),
        sentinel=policy.mask.sentinel,
        mode=policy.mask.mode,
        hint=policy.mask.hint,
        chat=model.prompting,
        required=policy.needs_masked,
    )
    certificate = Certificate.read(session.certificate)
    further = host.further(policy, model)
    further = {role: model_beside.dated(model.prompting.moment) for role, model_beside in further.items()}
    policy = with_scorers(policy, host.scorers(policy, model), str(model.device)).bound(model, further, prompt)
    drawn = (session.seed, session.greedy, session.max_new_tokens)
    return Plan(model, policy, prompt, certificate, *drawn, models=further)


def _check_plan(findings: Findings, loaded: Loaded, plan: Plan) -> None:
    """The masked prompt is the tokenizer's, token by token, and the certificate the policy's."""
    session = loaded.report.session
    stated, fresh = preview_from_json(session.policy_settings["preview"]), preview_of(plan)
    for name in ("pieces", "token_count", "masked_count", "branches"):
        findings.same("Masked prompt", name.replace("_", " "), getattr(stated, name), getattr(fresh, name))
    template, own = str(session.fingerprint.get("chat_template")), plan.model.chat_template_digest
    findings.same("Session", "the chat template", template, template if same_digests(own, template) else own)
    findings.same("Session", "the label of the model", session.policy_settings.get("model_label"), label_of(plan.model))
    if loaded.vocabulary is not None:
        findings.same("Session", "the size of the vocabulary", loaded.vocabulary, plan.model.vocabulary_size)
    if loaded.report.thresholds is None:
        claims = plan.policy.certificate(plan.model, str(session.fingerprint["detector"])).text
        findings.same("Session", "the certificate", session.certificate, claims)


def _replay(
    findings: Findings, loaded: Loaded, plan: Plan, branch: BranchPart, chain: tuple[Step, ...], tolerance: float
) -> None:
    first = branch.fork_step or 0
    rollout = Rollout(plan, branch.path, chain[:first])
    try:
        for step in chain[first:]:
            place = place_of(branch, step)
            if rollout.finished:
                findings.expect(False, f"{place}: decoded again, the chain has ended before it ({rollout.finished}).")
                return
            fresh = rollout.step(step.token_id if step.forced else None)
            if fresh.token_id != step.token_id:
                findings.same(place, "the emitted token", step.token, fresh.token)
                _compare_texts(findings, place, step, plan.model.token_text)
                # The rest of the chain is compared after the token that was reported.
                rollout.back()
                rollout.step(step.token_id)
                continue
            _compare_steps(findings, place, step, loaded.computed(fresh, step), tolerance)
            _compare_texts(findings, place, step, plan.model.token_text)
        if branch.finished is not None:
            findings.same(f"Branch {branch.path}", "why it ended", branch.finished, rollout.finished)
    finally:
        rollout.close()


NUMBERS = ("log_p_factual", "log_p_masked", "log_p_fused", "log_tau", "certified_mass")
FLAGS = ("certified", "fallback", "forced", "state")
_UNBOUNDED = ("tv_bound", "kl_fused_masked", "kl_fused_factual")
"""Numbers that can be large, so that they are compared relative to their size."""
_LATER = ("kl_fused_factual", "tv_fused_factual")
"""Numbers that steps stored by earlier versions do not have."""


def _compare_steps(
    findings: Findings, place: str, stated: Step, fresh: Step, tolerance: float, boundary: int = 0
) -> None:
    """Expect a stored step to be the computed one; ``boundary`` tokens may fall to either side of the threshold."""
    findings.same(place, "the emitted token", stated.token_id, fresh.token_id)
    findings.same(place, "the policy's token", stated.policy_token_id, fresh.policy_token_id)
    for name in NUMBERS:
        findings.same(place, name, getattr(stated, name), getattr(fresh, name), tolerance)
    for name in FLAGS:
        if not (boundary and name in ("certified", "fallback")):
            findings.same(place, name, getattr(stated, name), getattr(fresh, name))
    low = stated.set_size if stated.set_size_low is None else stated.set_size_low
    high = stated.set_size if stated.set_size_high is None else stated.set_size_high
    inside = low - boundary <= fresh.set_size <= high + boundary
    findings.same(place, "the set size", stated.set_size, stated.set_size if inside else fresh.set_size)
    for field in fields(Diagnostics):
        given, other = getattr(stated.diagnostics, field.name), getattr(fresh.diagnostics, field.name)
        if (boundary and field.name == "tv_on_set") or (field.name in _LATER and given is None):
            continue
        size = max(1.0, abs(other or 0.0)) if field.name in _UNBOUNDED else 1.0
        findings.same(place, field.name, given, other, tolerance * size)
    _compare_candidates(findings, place, stated, fresh, tolerance, boundary)
    listed = {part.family: part for part in fresh.families}
    findings.same(place, "the list of families", [part.family for part in stated.families], list(listed))
    for part in stated.families:
        if part.family in listed:
            other = listed[part.family]
            for name in ("log_p_masked", "log_joint", "log_tau"):
                what = f"{name} of the family {part.family}"
                findings.same(place, what, getattr(part, name), getattr(other, name), tolerance)
            if not boundary:
                what = f"the certificate of the family {part.family}"
                findings.same(place, what, (part.certified, part.state), (other.certified, other.state))


def _compare_texts(findings: Findings, place: str, stated: Step, text_of: Callable[[int], str]) -> None:
    """Expect every token of a stored step to read as the tokenizer decodes it."""
    pairs = [(stated.token_id, stated.token), (stated.policy_token_id, stated.policy_token)]
    for token_id, text in dict.fromkeys(pairs + [(row.token_id, row.token) for row in stated.candidates]):
        findings.same(place, f"the text of the token {token_id}", text, text_of(token_id))


def _compare_candidates(
    findings: Findings, place: str, stated: Step, fresh: Step, tolerance: float, boundary: int
) -> None:
    rows, listed = ({row.token_id: row for row in step.candidates} for step in (fresh, stated))
    findings.same(place, "the number of candidates", len(listed), len(rows))
    left_out = [_likeliest(row) for token_id, row in rows.items() if token_id not in listed]
    for row in stated.candidates:
        other = rows.get(row.token_id)
        what = f"of {row.token!r} ({row.token_id})"
        if other is None:
            # Which of two equally likely tokens ends the list may follow the computer; the emitted one is always there.
            tied = any(abs(_likeliest(row) - likelihood) <= tolerance for likelihood in left_out)
            findings.expect(tied, f"{place}: a row {what} is listed among the likeliest tokens, and is none of them.")
            continue
        for view in ("log_p_factual", "log_p_masked", "log_p_fused"):
            findings.same(place, f"{view} {what}", getattr(row, view), getattr(other, view), tolerance)
        if not boundary:
            findings.same(place, f"the certificate {what}", row.certified, other.certified)
            findings.same(place, f"the families that refuse {what[3:]}", row.refused_by, other.refused_by)


def _likeliest(row: Candidate) -> float:
    """By which candidates are listed."""
    return max(row.log_p_factual, row.log_p_masked, row.log_p_fused)


CALIBRATION_CHECK = "Calibration from its prompts"
Detector = Callable[[], SpanDetector]

_NOT_COMPUTED = ("name", "created", "fingerprint")
"""What a calibration has beside what is computed; fingerprints are compared by themselves."""


@check(CALIBRATION_CHECK)
def check_calibration(findings: Findings, loaded: Loaded, host: ModelHost | None, detector: Detector) -> str:
    """Every value of the calibration comes out again from the prompts in the bundle."""
    files, stated = loaded.files or {}, loaded.stated
    if CALIBRATION not in files:
        raise Skipped("there is no calibration in the bundle")
    if PROMPTS_FILE not in files:
        raise Skipped("the bundle was exported without the calibration's prompts")
    made_of = prompts_from(files[PROMPTS_FILE])
    if stated is None:
        raise ServiceError(loaded.calibration_problem)
    if host is None:
        raise Skipped("not asked for; --replay loads the model and calibrates again")
    model = host.get(made_of.request.model)
    parts = detector_parts(stated.fingerprint.detector)
    families = made_of.request.masked_families if parts is None else parts.masked_families
    chosen = detector().adapted(families, made_of.user_list)
    same = same_digests(chosen.version, stated.fingerprint.detector)
    # Spans that are given need no detector, so that its version may be another one here.
    if not same and any(row.example.spans is None for row in made_of.rows):
        raise Skipped(
            f"spans of its prompts were found by another detector ({stated.fingerprint.detector}) than there is here "
            f"({chosen.version})"
        )
    with host.turn():
        fresh = calibrated_again(model, chosen, made_of.rows, made_of.request, host.memory.room())
    findings.same("Calibration", "its kind", type(stated).__name__, type(fresh).__name__)
    fingerprint = replace(stated.fingerprint, detector=fresh.fingerprint.detector)
    for name, one, other in fingerprint.differences(fresh.fingerprint):
        findings.same("Calibration", f"{name} of its fingerprint", one, other)
    tolerance = TOLERANCES.get(model.dtype_name, COARSE_TOLERANCE)
    if type(stated) is type(fresh):
        _compare(findings, "", stated, fresh, tolerance)
    return f"{len(made_of.rows)} prompts; values within {tolerance:g}"


def _compare(findings: Findings, place: str, stated: object, fresh: object, tolerance: float) -> None:
    """Expect two values to be equal: numbers within the tolerance, and parts of parts one by one."""
    if is_dataclass(stated) and type(stated) is type(fresh):
        for field in fields(stated):
            if field.compare and field.name not in _NOT_COMPUTED:
                part = f"{place}.{field.name}" if place else field.name
                _compare(findings, part, getattr(stated, field.name), getattr(fresh, field.name), tolerance)
    elif isinstance(stated, np.ndarray) and isinstance(fresh, np.ndarray):
        _compare_arrays(findings, place, stated, fresh, tolerance)
    elif isinstance(stated, tuple) and isinstance(fresh, tuple) and len(stated) == len(fresh):
        for index, (given, other) in enumerate(zip(stated, fresh, strict=True), 1):
            _compare(findings, f"{place} {index}", given, other, tolerance)
    else:
        findings.same("Calibration", place, stated, fresh, tolerance)


def _compare_arrays(findings: Findings, place: str, stated: np.ndarray, fresh: np.ndarray, tolerance: float) -> None:
    if not findings.same("Calibration", f"the shape of {place}", stated.shape, fresh.shape):
        return
    with np.errstate(invalid="ignore"):
        # Infinities differ by NaN, and are equal to themselves alone.
        near = (stated == fresh) | (np.abs(stated - fresh) <= (tolerance if stated.dtype.kind == "f" else 0))
    wrong = np.flatnonzero(~near.reshape(-1))
    for first in wrong[:1]:
        what = f"the first of {wrong.size} entries of {place} that differ"
        findings.same("Calibration", what, stated.reshape(-1)[first], fresh.reshape(-1)[first])
