"""The check by replay: the model writes every branch again from the same seed and forced tokens."""

from __future__ import annotations

from dataclasses import replace

from app.services.errors import CoftError, ServiceError
from app.services.mapping import preview_from_json, span_from
from app.services.mask_previews import branch_names, preview_of
from app.services.model_host import ModelHost, label_of
from app.services.policy_choice import policy_of
from app.services.prompting import rendering_of
from app.services.reporting.document import session_record
from app.services.reporting.schema import BranchPart
from app.services.reporting.verify.findings import Findings, failed, skipped
from app.services.reporting.verify.loaded import Loaded
from app.services.reporting.verify.steps import compare_steps, compare_texts
from app.services.views import Step
from app.services.views.verification import Check
from coft_core.decode import Plan, Rollout
from coft_core.digests import same_digests
from coft_core.engine.model import LanguageModel
from coft_core.footprint import reserved_bytes
from coft_core.masking.masker import mask_prompt
from coft_core.masking.placing import read_tokens
from coft_core.masking.rendering import is_steady
from coft_core.masking.whitelist import keep_whitelisted
from coft_core.needed_models import with_scorers
from coft_core.policies.base import Certificate, Preparing

NAME = "Replay on the model"
TOLERANCES = {"float32": 1e-3, "float64": 1e-3}
"""Allowed difference of logarithms by the model's number type; other processors round otherwise."""
COARSE_TOLERANCE = 0.1
"""The same for 16-bit types, whose logits carry about three decimal digits."""


def check_replay(loaded: Loaded, host: ModelHost | None) -> Check:
    """Every token and every number comes out again.

    Args:
        loaded: The report.
        host: Loads the model; None if a replay was not asked for.
    """
    if host is None:
        return skipped(NAME, "not asked for; --replay loads the model and writes every branch again")
    if loaded.lacks_calibration:
        return skipped(NAME, "the calibration is not with the report, and thresholds decide which tokens are drawn")
    session = loaded.report.session
    try:
        model = host.get(loaded.settings.model)
    except CoftError as error:
        return failed(NAME, f"The model {loaded.settings.model} cannot be loaded: {error}")
    used = (model.weights_digest, model.tokenizer_digest, model.dtype_name, model.revision)
    stated = tuple(session.fingerprint.get(name) for name in ("weights", "tokenizer", "dtype", "revision"))
    if not all(same_digests(own, str(other)) for own, other in zip(used, stated, strict=True)):
        return failed(
            NAME,
            f"The model {loaded.settings.model} has other weights, another tokenizer, number type or revision here "
            f"({', '.join(used)}) than in the report ({', '.join(map(str, stated))}); load the very same model.",
        )
    found = Findings(NAME)
    tolerance = TOLERANCES.get(model.dtype_name, COARSE_TOLERANCE)
    try:
        model = model.rendered_as(rendering_of(session.rendering, model))
        drawn = _check_rendering(found, loaded, model)
        plan = _plan(loaded, model, host)
        _check_plan(found, loaded, plan)
        for branch, chain in zip(loaded.report.branches, loaded.chains().values(), strict=True):
            with host.memory.held(reserved_bytes(plan, len(chain))):
                _replay(found, plan, branch, chain, tolerance)
    except (CoftError, ServiceError) as error:
        return failed(NAME, f"The audit cannot be decoded again: {error}")
    steps = sum(len(branch.steps) for branch in loaded.report.branches)
    return found.check(f"{steps:,} steps; tokens exactly, logarithms within {tolerance:g}{drawn}")


def _check_rendering(found: Findings, loaded: Loaded, model: LanguageModel) -> str:
    """What the model read follows from the prompt, its format and its moment; what cannot be told of it."""
    session, rendering = loaded.report.session, model.prompting
    if rendering.kept is None:
        return ""
    label = model.rendering_label
    if is_steady(label):
        stated = str(session.fingerprint.get("rendering", ""))
        found.same("Fingerprint", "the rendering of the chat template", stated, label)
        fresh = replace(rendering, kept=None)
        for text, stated_tokens in rendering.kept.items():
            same = read_tokens(model.tokenizer, text, fresh) == stated_tokens
            found.expect(same, f"What the model read: {text!r} does not give the tokens that are stated.")
        return ""
    return "; what the chat template drew at random in the prompt cannot be told"


def _plan(loaded: Loaded, model: LanguageModel, host: ModelHost) -> Plan:
    """The session's plan with the report's own spans and calibration; whatever detectors are here plays no part."""
    session = loaded.report.session
    # The sentinel is the report's, whatever would be chosen here.
    settings = replace(loaded.settings, sentinel=str(session.fingerprint.get("sentinel") or "") or None)
    policy = policy_of(settings, loaded.applied)
    spans = [span_from(span) for span in session_record(loaded.report).spans]
    prompt = mask_prompt(
        model.tokenizer,
        session.prompt,
        keep_whitelisted(session.prompt, spans, policy.mask.whitelist),
        sentinel=policy.mask.sentinel,
        mode=policy.mask.mode,
        hint=policy.mask.hint,
        chat=model.prompting,
        required=policy.needs_masked,
    )
    certificate = Certificate(session.certificate, mismatched=loaded.mismatched and loaded.applied is not None)
    further = host.further(policy, model)
    further = {role: own.dated(model.prompting.moment) for role, own in further.items()}
    policy = with_scorers(policy, host.scorers(policy, model), str(model.device))
    if isinstance(policy, Preparing):
        policy = policy.prepared(model, further, prompt)
    drawn = (session.seed, session.greedy, session.max_new_tokens)
    return Plan(model, policy, prompt, certificate, *drawn, models=further)


def _check_plan(found: Findings, loaded: Loaded, plan: Plan) -> None:
    """The masked prompt is the tokenizer's, token by token, and the certificate the policy's."""
    session = loaded.report.session
    stated, fresh = preview_from_json(session.policy_settings["preview"]), preview_of(plan, branch_names(plan))
    for name in ("pieces", "token_count", "masked_count", "branches"):
        same = getattr(stated, name) == getattr(fresh, name)
        found.expect(same, f"Masked prompt: {name.replace('_', ' ')} of the preview are not those of the tokenizer.")
    template = str(session.fingerprint.get("chat_template"))
    fits = same_digests(plan.model.chat_template_digest, template)
    found.expect(fits, f"The model's chat template is {plan.model.chat_template_digest}, not {template}.")
    found.same("Session", "the label of the model", session.policy_settings.get("model_label"), label_of(plan.model))
    if loaded.report.thresholds is None:
        claims = plan.policy.certificate(plan.model, str(session.fingerprint["detector"])).text
        found.same("Session", "the certificate", session.certificate, claims)


def _replay(found: Findings, plan: Plan, branch: BranchPart, chain: tuple[Step, ...], tolerance: float) -> None:
    first = branch.fork_step or 0
    rollout = Rollout(plan, branch.path, chain[:first])
    try:
        for step in chain[first:]:
            place = f"Branch {branch.path}, step {step.index + 1}"
            if rollout.finished:
                found.expect(False, f"{place}: decoded again, the chain has ended before it ({rollout.finished}).")
                return
            fresh = rollout.step(step.token_id if step.forced else None)
            if fresh.token_id != step.token_id:
                found.same(place, "the emitted token", step.token, fresh.token)
                compare_texts(found, place, step, plan.model.token_text)
                # The rest of the chain is compared after the token that was reported.
                rollout.back()
                rollout.step(step.token_id)
                continue
            compare_steps(found, place, step, fresh, tolerance)
            compare_texts(found, place, step, plan.model.token_text)
        if branch.finished is not None:
            found.same(f"Branch {branch.path}", "why it ended", branch.finished, rollout.finished)
    finally:
        rollout.close()
