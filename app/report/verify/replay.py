"""Checks that compute again: steps from their stored logits, and steps and the calibration on the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace

import numpy as np
import torch

from app.calibrate.service import calibrated_again
from app.hosting.model_host import ModelHost, label_of
from app.report.bundle import CALIBRATION, LOGITS_FILE, PROMPTS_FILE, logits_from, prompts_from
from app.report.document import BranchPart
from app.report.verify.findings import Compared, Comparing, Skipped, Within, check, same
from app.report.verify.loaded import Loaded, place_of
from app.shared.audits import preview_from_json
from app.shared.errors import ServiceError
from app.shared.planning import detector_parts, policy_of, preview_of, rendering_of
from coft_core.decode.cost import reserved_bytes
from coft_core.decode.loop import Rollout
from coft_core.decode.plan import Plan, with_scorers
from coft_core.decode.reread import reread
from coft_core.errors import CoftError
from coft_core.fingerprint import Fingerprint, same_digests
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Policy
from coft_core.policies.bounds import bounded_views
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
def check_logits(loaded: Loaded) -> Comparing:
    """Every step follows from the logits that were stored with it."""
    if loaded.files is None or LOGITS_FILE not in loaded.files:
        raise Skipped("only a report was given" if loaded.files is None else "the audit did not keep its logits")
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
            yield same(place, "the size of the vocabulary", loaded.vocabulary, logits.vocabulary_size)
        try:
            (fresh,) = reread(
                [kept], policy, seed=session.seed, path=branch.path, greedy=session.greedy, fingerprint=fingerprint
            )
        except CoftError as error:
            yield False, f"{place}: {error}"
            continue
        boundary, at_edges = _boundaries(kept, policy)
        yield from _compare_steps(place, step, loaded.computed(fresh, step), TOLERANCE, boundary)
        # The sizes between which the set lies follow from the logits and the stated bound.
        for name in ("set_size_low", "set_size_high"):
            other = getattr(fresh, name)
            allowed = other if other is None else Within(other - at_edges, other + at_edges)
            yield same(place, name, getattr(step, name), allowed)
    yield not stored, f"{LOGITS_FILE} holds logits of {len(stored)} steps that the report does not have."
    return f"{read:,} steps from their logits, {without:,} without"


def _boundaries(kept: Step, policy: Policy) -> tuple[int, int]:
    """Tokens that another processor may put on the other side of the threshold, and of either end of the range."""
    if kept.logits is None:
        return 0, 0
    logits = kept.logits.tensor()[None]  # (1, B, V)
    with torch.inference_mode():
        if kept.bounds is not None:
            views = bounded_views(policy, logits, policy.threshold(kept.index)[0], count=kept.bounds.seen)
        else:
            views = policy.views(logits, kept.index, kept.logits.branches)
    margins = views.margins
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
def check_replay(loaded: Loaded, host: ModelHost | None) -> Comparing:
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
    drawn = yield from _check_rendering(loaded, model)
    plan = _plan(loaded, model, host)
    yield from _check_plan(loaded, plan)
    for branch, chain in zip(loaded.report.branches, loaded.chains().values(), strict=True):
        with host.memory.held(reserved_bytes(plan, len(chain))):
            yield from _replay(loaded, plan, branch, chain, tolerance)
    steps = sum(len(branch.steps) for branch in loaded.report.branches)
    return f"{steps:,} steps; tokens exactly, logarithms within {tolerance:g}{drawn}"


def _check_rendering(loaded: Loaded, model: LanguageModel) -> Comparing:
    """What the model read follows from the prompt, its format and its moment; what cannot be told of it."""
    session, rendering = loaded.report.session, model.prompting
    if rendering.kept is None:
        return ""
    label = model.rendering_label
    if is_steady(label):
        stated = str(session.fingerprint.get("rendering", ""))
        yield same("Fingerprint", "the rendering of the chat template", stated, label)
        fresh = replace(rendering, kept=None)
        for text, stated_tokens in rendering.kept.items():
            read = read_tokens(model.tokenizer, text, fresh)
            yield same("What the model read", f"the tokens of {text!r}", stated_tokens, read)
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


def _check_plan(loaded: Loaded, plan: Plan) -> Iterator[Compared]:
    """The masked prompt is the tokenizer's, token by token, and the certificate the policy's."""
    session = loaded.report.session
    stated, fresh = preview_from_json(session.policy_settings["preview"]), preview_of(plan)
    for name in ("pieces", "token_count", "masked_count", "branches"):
        yield same("Masked prompt", name.replace("_", " "), getattr(stated, name), getattr(fresh, name))
    template, own = str(session.fingerprint.get("chat_template")), plan.model.chat_template_digest
    yield same("Session", "the chat template", template, template if same_digests(own, template) else own)
    yield same("Session", "the label of the model", session.policy_settings.get("model_label"), label_of(plan.model))
    if loaded.vocabulary is not None:
        yield same("Session", "the size of the vocabulary", loaded.vocabulary, plan.model.vocabulary_size)
    if loaded.report.thresholds is None:
        claims = plan.policy.certificate(plan.model, str(session.fingerprint["detector"])).text
        yield same("Session", "the certificate", session.certificate, claims)


def _replay(
    loaded: Loaded, plan: Plan, branch: BranchPart, chain: tuple[Step, ...], tolerance: float
) -> Iterator[Compared]:
    first = branch.fork_step or 0
    rollout = Rollout(plan, branch.path, chain[:first])
    try:
        for step in chain[first:]:
            place = place_of(branch, step)
            if rollout.finished:
                yield False, f"{place}: decoded again, the chain has ended before it ({rollout.finished})."
                return
            fresh = rollout.step(step.token_id if step.forced else None)
            if fresh.token_id != step.token_id:
                yield same(place, "the emitted token", step.token, fresh.token)
                yield from _compare_texts(place, step, plan.model.token_text)
                # The rest of the chain is compared after the token that was reported.
                rollout.back()
                rollout.step(step.token_id)
                continue
            yield from _compare_steps(place, step, loaded.computed(fresh, step), tolerance)
            yield from _compare_texts(place, step, plan.model.token_text)
        if branch.finished is not None:
            yield same(f"Branch {branch.path}", "why it ended", branch.finished, rollout.finished)
    finally:
        rollout.close()


NUMBERS = ("log_p_factual", "log_p_masked", "log_p_fused", "log_tau", "certified_mass")
FLAGS = ("certified", "fallback", "forced", "state")
_UNBOUNDED = ("tv_bound", "kl_fused_masked", "kl_fused_factual")
"""Numbers that can be large, so that they are compared relative to their size."""
_LATER = ("kl_fused_factual", "tv_fused_factual")
"""Numbers that steps stored by earlier versions do not have."""


def _compare_steps(place: str, stated: Step, fresh: Step, tolerance: float, boundary: int = 0) -> Iterator[Compared]:
    """Expect a stored step to be the computed one; ``boundary`` tokens may fall to either side of the threshold."""
    yield same(place, "the emitted token", stated.token_id, fresh.token_id)
    yield same(place, "the policy's token", stated.policy_token_id, fresh.policy_token_id)
    for name in NUMBERS:
        yield same(place, name, getattr(stated, name), getattr(fresh, name), tolerance)
    for name in FLAGS:
        if not (boundary and name in ("certified", "fallback")):
            yield same(place, name, getattr(stated, name), getattr(fresh, name))
    low = stated.set_size if stated.set_size_low is None else stated.set_size_low
    high = stated.set_size if stated.set_size_high is None else stated.set_size_high
    inside = low - boundary <= fresh.set_size <= high + boundary
    yield same(place, "the set size", stated.set_size, stated.set_size if inside else fresh.set_size)
    for field in fields(Diagnostics):
        given, other = getattr(stated.diagnostics, field.name), getattr(fresh.diagnostics, field.name)
        if (boundary and field.name == "tv_on_set") or (field.name in _LATER and given is None):
            continue
        size = max(1.0, abs(other or 0.0)) if field.name in _UNBOUNDED else 1.0
        yield same(place, field.name, given, other, tolerance * size)
    left_out = ("certified", "state", "refused_by") if boundary else ()
    open_to = ("undecided", "exact") if boundary or stated.near_threshold(0.0) else ()
    yield from _compare(place, "what is known of it", stated.bounds, fresh.bounds, tolerance, open_to)
    yield from _compare(place, "the families", stated.families, fresh.families, tolerance, left_out)
    yield from _compare_candidates(place, stated, fresh, tolerance, ("token", *left_out))


def _compare_texts(place: str, stated: Step, text_of: Callable[[int], str]) -> Iterator[Compared]:
    """Expect every token of a stored step to read as the tokenizer decodes it."""
    pairs = [(stated.token_id, stated.token), (stated.policy_token_id, stated.policy_token)]
    for token_id, text in dict.fromkeys(pairs + [(row.token_id, row.token) for row in stated.candidates]):
        yield same(place, f"the text of the token {token_id}", text, text_of(token_id))


def _compare_candidates(
    place: str, stated: Step, fresh: Step, tolerance: float, left_out: Sequence[str]
) -> Iterator[Compared]:
    rows, listed = ({row.token_id: row for row in step.candidates} for step in (fresh, stated))
    yield same(place, "the number of candidates", len(listed), len(rows))
    unlisted = [_likeliest(row) for token_id, row in rows.items() if token_id not in listed]
    for row in stated.candidates:
        what = f"the candidate {row.token!r} ({row.token_id})"
        if row.token_id in rows:
            yield from _compare(place, what, row, rows[row.token_id], tolerance, left_out)
        else:
            # Which of two equally likely tokens ends the list may follow the computer; the emitted one is always there.
            tied = any(abs(_likeliest(row) - likelihood) <= tolerance for likelihood in unlisted)
            yield tied, f"{place}: {what} is listed, and is not among the likeliest tokens."


def _likeliest(row: Candidate) -> float:
    """By which candidates are listed."""
    return max(row.log_p_factual, row.log_p_masked, row.log_p_fused)


CALIBRATION_CHECK = "Calibration from its prompts"
Detector = Callable[[], SpanDetector]

_NOT_COMPUTED = ("name", "created", "fingerprint")
"""What a calibration has beside what is computed; fingerprints are compared by themselves."""


@check(CALIBRATION_CHECK)
def check_calibration(loaded: Loaded, host: ModelHost | None, detector: Detector) -> Comparing:
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
    # Spans that are given need no detector, so that its version may be another one here.
    if not same_digests(chosen.version, stated.fingerprint.detector) and any(
        row.example.spans is None for row in made_of.rows
    ):
        raise Skipped(
            f"spans of its prompts were found by another detector ({stated.fingerprint.detector}) than there is here "
            f"({chosen.version})"
        )
    with host.turn():
        fresh = calibrated_again(model, chosen, made_of.rows, made_of.request, host.memory.room())
    fingerprint = replace(stated.fingerprint, detector=fresh.fingerprint.detector)
    for name, one, other in fingerprint.differences(fresh.fingerprint):
        yield same("Calibration", f"{name} of its fingerprint", one, other)
    tolerance = TOLERANCES.get(model.dtype_name, COARSE_TOLERANCE)
    yield from _compare("Calibration", "it", stated, fresh, tolerance, _NOT_COMPUTED)
    return f"{len(made_of.rows)} prompts; values within {tolerance:g}"


def _compare(
    place: str, what: str, stated: object, fresh: object, tolerance: float, left_out: Sequence[str] = ()
) -> Iterator[Compared]:
    """Compare two values, parts of parts one by one, but for fields that are left out; numbers within the tolerance."""
    if is_dataclass(stated) and type(stated) is type(fresh):
        for field in fields(stated):
            if field.compare and field.name not in left_out:
                pair = getattr(stated, field.name), getattr(fresh, field.name)
                yield from _compare(place, f"{field.name} of {what}", *pair, tolerance, left_out)
    elif isinstance(stated, np.ndarray) and isinstance(fresh, np.ndarray) and stated.shape == fresh.shape:
        with np.errstate(invalid="ignore"):
            # Infinities differ by NaN, and are equal only to themselves.
            near = (stated == fresh) | (np.abs(stated - fresh) <= (tolerance if stated.dtype.kind == "f" else 0))
        yield bool(near.all()), f"{place}: {np.sum(~near)} entries of {what} differ from those that were computed."
    elif isinstance(stated, np.ndarray) and isinstance(fresh, np.ndarray):
        yield same(place, f"the shape of {what}", stated.shape, fresh.shape)
    elif isinstance(stated, tuple) and isinstance(fresh, tuple) and len(stated) == len(fresh):
        for index, pair in enumerate(zip(stated, fresh, strict=True), 1):
            yield from _compare(place, f"{index} of {what}", *pair, tolerance, left_out)
    else:
        yield same(place, what, stated, fresh, tolerance)
