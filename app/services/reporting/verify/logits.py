"""The check from stored logits: every step is computed again by the program's own rule, without the model."""

from __future__ import annotations

from dataclasses import replace

import torch

from app.services.errors import CoftError, ServiceError
from app.services.policy_choice import policy_of
from app.services.reporting.logits import FILE, logits_from
from app.services.reporting.verify.findings import Findings, failed, skipped
from app.services.reporting.verify.loaded import Loaded
from app.services.reporting.verify.steps import compare_steps
from app.services.views import Step
from app.services.views.verification import Check
from coft_core import informative
from coft_core.fingerprint import Fingerprint
from coft_core.policies.base import Policy
from coft_core.reread import reread
from coft_core.reread_types import Bounds, RereadStep

NAME = "Steps from stored logits"
TOLERANCE = 1e-4
"""Logarithms are computed in float32, on whatever processor the audit ran."""
BOUNDARY = 1e-5


def check_logits(loaded: Loaded) -> Check:
    """Every step follows from the logits that were stored with it."""
    if loaded.files is None or FILE not in loaded.files:
        why = "a report alone was given" if loaded.files is None else "the audit did not keep its logits"
        return skipped(NAME, why)
    if loaded.lacks_calibration:
        return skipped(NAME, "the calibration is not in the bundle, and a step is certified by its thresholds")
    try:
        stored = logits_from(loaded.files[FILE])
        policy = policy_of(loaded.settings, loaded.applied)
        fingerprint = Fingerprint.from_dict(loaded.report.session.fingerprint)
    except (ServiceError, CoftError) as error:
        return failed(NAME, str(error))
    found = Findings(NAME)
    session = loaded.report.session
    counts = {"full": 0, "head": 0, "none": 0}
    for branch, step in loaded.own_steps():
        place = f"Branch {branch.path}, step {step.index + 1}"
        logits = stored.pop((branch.id, step.index), None)
        if logits is None:
            counts["none"] += 1
            continue
        counts[logits.mode] += 1
        kept = replace(step, logits=logits)
        try:
            (fresh,) = reread(
                [kept], policy, seed=session.seed, path=branch.path, greedy=session.greedy, fingerprint=fingerprint
            )
        except CoftError as error:
            found.expect(False, f"{place}: {error}")
            continue
        if fresh.step is not None:
            boundary, at_edges = _boundaries(kept, policy)
            compare_steps(found, place, step, fresh.step, TOLERANCE, boundary)
            _compare_ranges(found, place, step, fresh.step, at_edges)
        else:
            _compare_bounds(found, place, step, fresh)
    found.expect(not stored, f"{FILE} holds logits of {len(stored)} steps that the report does not have.")
    return found.check(
        f"{counts['full']:,} steps from all logits, {counts['head']:,} within bounds from the likeliest ones, "
        f"{counts['none']:,} without"
    )


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


def _compare_ranges(found: Findings, place: str, stated: Step, fresh: Step, at_edges: int) -> None:
    """The sizes between which the set lies follow from the logits and the stated bound."""
    for name in ("set_size_low", "set_size_high"):
        own, other = getattr(stated, name), getattr(fresh, name)
        fits = own == other or (own is not None and other is not None and abs(own - other) <= at_edges)
        found.expect(fits, f"{place}: {name} is stated as {own} and computed as {other}.")


def _compare_bounds(found: Findings, place: str, stated: Step, fresh: RereadStep) -> None:
    """A step of which only the likeliest logits were kept: every number lies within its bounds."""
    numbers: tuple[tuple[str, float, Bounds], ...] = (
        ("log_p_fused", stated.log_p_fused, fresh.log_p_fused),
        ("set_size", stated.set_size, fresh.set_size),
        ("certified_mass", stated.certified_mass, fresh.certified_mass),
        ("margin", stated.diagnostics.margin, fresh.margin),
        ("kl_fused_masked", stated.diagnostics.kl_fused_masked, fresh.kl_fused_masked),
    )
    for name, value, bounds in numbers:
        slack = TOLERANCE * max(1.0, abs(value)) if name == "kl_fused_masked" else TOLERANCE
        fits = bounds.low - slack <= value <= bounds.high + slack
        found.expect(fits, f"{place}: {name} is {value:.9g}, outside {bounds.low:.9g} to {bounds.high:.9g}.")
    found.near(place, "log_tau", stated.log_tau, fresh.log_tau, TOLERANCE)
    flags: tuple[tuple[str, object, object], ...] = (
        ("whether its token is certified", stated.certified, fresh.certified),
        ("whether it is a fallback", stated.fallback, fresh.fallback),
        ("the policy's token", stated.policy_token_id, fresh.policy_token_id),
        (
            "what the threshold rests on",
            stated.state,
            # Whether the set is too wide is known of the stated one where the kept logits leave it open.
            informative.stated(fresh.state, fresh.log_tau, stated.set_size, stated.certified_mass),
        ),
    )
    for what, stated_flag, computed in flags:
        if computed is not None:
            found.same(place, what, stated_flag, computed)
