"""Checks of the numbers of each step that follow from other numbers of it, without the model and without logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from app.report.document import SummaryPart, session_record, summary_of
from app.report.verify.findings import Check, Findings, is_near
from app.report.verify.loaded import Loaded
from app.shared.audits import AuditSettings
from app.shared.computations import computations_of
from app.shared.errors import ServiceError
from app.shared.planning import policy_of
from app.shared.policies import info_of
from coft_core.conformal.informative import certifies
from coft_core.errors import CoftError
from coft_core.model.noise import noise_of
from coft_core.types import Candidate, Step


def _mixes(loaded: Loaded) -> bool:
    """Whether what the method draws from is the geometric mixture of both readings (Eq. 4), lambda 0 included."""
    return info_of(loaded.settings.policy).kind in ("fusion", "reference")


def _refuses_more(loaded: Loaded) -> bool:
    """Whether the method also refuses tokens for reasons that no stored number tells, such as a toxicity."""
    return info_of(loaded.settings.policy).kind == "constraint"


def _support(loaded: Loaded, row: Candidate) -> float:
    """The log-probability that the threshold is compared with: in both readings, or in the factual one alone."""
    return row.log_support("factual" if info_of(loaded.settings.policy).certified_in == "factual" else "both")


def uncalibrated_threshold(settings: AuditSettings) -> float:
    """The log-threshold that the settings' method applies where it reads no calibration; most methods apply none.

    Settings from which no policy can be built have none either; that they are damaged is a finding of its own.
    """
    try:
        policy = policy_of(settings, None)
    except (CoftError, ServiceError):
        return -math.inf
    return policy.threshold(0)[0]


LOG_TOLERANCE = 1e-4
"""Log-probabilities are rounded to float32 one by one, so that sums of them differ by about this at most."""
EXACT = 1e-9
MASS_TOLERANCE = 1e-4
BOUNDARY = 1e-6
"""A token this near to its threshold may fall to either side of it."""


def check_fusion(loaded: Loaded) -> Check:
    """Differences of fused log-probabilities are ``1 - lam`` of the factual plus ``lam`` of the masked ones (Eq. 4).

    Other methods make their distribution by rules of their own, which only a replay on the model recomputes.
    """
    findings = Findings("Fusion of the candidates")
    mixes = _mixes(loaded)
    lam = float(loaded.report.session.fingerprint.get("lam", 0.0))
    for place, _, step in loaded.own_steps():
        rows = [row for row in step.candidates if _finite(row)] if mixes else []
        # Fusion leaves one unknown a step, the logarithm of its normaliser; the median of all rows stands for it.
        offsets = [_offset(row, lam) for row in rows]
        middle = median(offsets) if offsets else 0.0
        for row, offset in zip(rows, offsets, strict=True):
            fits = abs(offset - middle) <= LOG_TOLERANCE
            findings.expect(
                fits,
                f"{place}, token {row.token!r} ({row.token_id}): its factual, masked and fused probabilities do not "
                f"fit together at lambda {lam:g} (off by {offset - middle:+.4g}).",
            )
        for view in ("factual", "masked", "fused"):
            total = math.fsum(math.exp(getattr(row, f"log_p_{view}")) for row in step.candidates)
            findings.expect(
                total <= 1 + MASS_TOLERANCE, f"{place}: the {view} probabilities of its candidates sum to {total:.6g}."
            )
    remark = "the method's own rule is recomputed by a replay alone; only the sums of probabilities were checked"
    return findings.check("" if mixes else remark)


def check_certified(loaded: Loaded) -> Check:
    """A candidate is certified exactly if its joint support reaches the threshold (Eq. 7).

    Ablations that certify in one reading are checked by its probability, and a method that refuses tokens for reasons
    of its own only has to keep to the threshold.
    """
    findings = Findings("Certified tokens")
    refuses_more = _refuses_more(loaded)
    for place, _, step in loaded.own_steps():
        emitted = next((row for row in step.candidates if row.token_id == step.token_id), None)
        claims = emitted is not None and emitted.certified and certifies(step.state)
        findings.same(place, "whether its token is certified", step.certified, claims)
        for row in step.candidates:
            what = f"{place}, token {row.token!r} ({row.token_id})"
            if step.families:
                findings.expect(
                    row.certified == (not row.refused_by) or step.state == "none",
                    f"{what}: it is certified although a family refuses it, or the other way round.",
                )
            elif refuses_more:
                reaches = _support(loaded, row) >= step.log_tau - BOUNDARY
                findings.expect(
                    reaches or not row.certified, f"{what}: it is accepted and does not reach the threshold."
                )
            elif step.state == "none":
                findings.expect(not row.certified, f"{what}: it is marked as certified, and there is no threshold.")
            elif abs(_support(loaded, row) - step.log_tau) > BOUNDARY:
                findings.same(what, "whether it is certified", row.certified, _support(loaded, row) >= step.log_tau)
        for part in step.families:
            joint = min(step.log_p_fused, part.log_p_masked)
            findings.near(f"{place}, family {part.family}", "the joint support", part.log_joint, joint, EXACT)
            if part.state not in ("mismatch", "none") and abs(joint - part.log_tau) > BOUNDARY:
                reaches = joint >= part.log_tau
                findings.same(f"{place}, family {part.family}", "whether it certifies", part.certified, reaches)
    return findings.check()


def check_derived(loaded: Loaded) -> Check:
    """Margin, log ratio and the bound on total variation follow from the step's other numbers."""
    findings = Findings("Margins, ratios and bounds")
    for place, _, step in loaded.own_steps():
        emitted = next((row for row in step.candidates if row.token_id == step.token_id), None)
        for view in ("log_p_factual", "log_p_masked", "log_p_fused"):
            listed = None if emitted is None else getattr(emitted, view)
            findings.near(place, f"{view} of its token", getattr(step, view), listed, 0.0)
        diagnostics = step.diagnostics
        supports = [(part.log_joint, part.log_tau) for part in step.families]
        supports = supports or [(step.log_support, step.log_tau)]
        margin = min(_difference(joint, log_tau) for joint, log_tau in supports)
        findings.near(place, "the margin", diagnostics.margin, margin, EXACT)
        ratio = _difference(step.log_p_factual, step.log_p_masked)
        findings.near(place, "the log ratio", diagnostics.log_ratio, ratio, EXACT)
        bound = _tv_bound(step)
        near = is_near(diagnostics.tv_bound, bound, EXACT * max(1.0, bound or 0.0))
        findings.expect(near, f"{place}: the bound on total variation is {diagnostics.tv_bound}, not {bound}.")
    return findings.check()


def check_choices(loaded: Loaded) -> Check:
    """Fallbacks, the policy's choices and the size and mass of the set fit the candidates."""
    findings = Findings("Fallbacks, choices and sets")
    refuses = _refuses_more(loaded)
    for place, _, step in loaded.own_steps():
        members = [row for row in step.candidates if row.certified]
        empty = step.set_size == 0 and step.state != "none"
        # A method that refuses tokens without a calibration may refuse them all, which is a fallback too.
        if step.state != "none" or not refuses:
            findings.same(place, "whether it is a fallback", step.fallback, empty)
        findings.expect(
            step.set_size >= len(members),
            f"{place}: the set has {step.set_size} tokens, and {len(members)} are listed.",
        )
        mass = math.fsum(math.exp(row.log_p_fused) for row in members)
        whole = len(members) == step.set_size
        fits = (
            abs(step.certified_mass - mass) <= MASS_TOLERANCE if whole else step.certified_mass >= mass - MASS_TOLERANCE
        )
        fits = fits and step.certified_mass <= 1
        findings.expect(
            fits, f"{place}: the certified mass is {step.certified_mass:.6g}; its candidates give {mass:.6g}."
        )
        findings.same(
            place, "whether total variation is undefined", step.diagnostics.tv_on_set is None, step.set_size == 0
        )
        _check_order(findings, place, step)
        _check_choice(findings, place, step, members, loaded.report.session.greedy)
        _check_divergences(findings, place, step)
    return findings.check()


def check_summary(loaded: Loaded) -> Check:
    """The summary's counts and extremes are those of the steps."""
    findings = Findings("Summary numbers")
    stated = {item.branch: item for item in loaded.report.summary}
    chains = loaded.stated_chains()
    findings.same("Summary", "the list of branches", list(stated), list(chains))
    for path, steps in chains.items():
        session = loaded.report.session
        fresh = summary_of(path, steps, None, session.policy_settings, session.certificate)
        for name in SummaryPart.model_fields:
            if name in ("branch", "chain") or path not in stated:
                continue
            given, other = getattr(stated[path], name), getattr(fresh, name)
            if name in ("too_weak", "certificate") and given is None:  # written before such steps were counted
                continue
            if isinstance(given, float) and isinstance(other, float):
                findings.near(f"Summary of branch {path}", name, given, other, EXACT * max(1.0, abs(other)))
            else:
                findings.same(f"Summary of branch {path}", name, given, other)
    return findings.check()


def _check_order(findings: Findings, place: str, step: Step) -> None:
    """Candidates are listed by their factual probability, the largest first."""
    listed = [row.log_p_factual for row in step.candidates]
    ordered = listed == sorted(listed, reverse=True)
    findings.expect(ordered, f"{place}: its candidates are not in the order of their factual probabilities.")


def _check_choice(findings: Findings, place: str, step: Step, members: Sequence[Candidate], greedy: bool) -> None:
    """Left alone, the policy takes a certified token; the likeliest fused one if it is greedy or falls back."""
    chosen = next((row for row in step.candidates if row.token_id == step.policy_token_id), None)
    if chosen is None:
        return
    pool = list(members) if members else list(step.candidates)
    if step.set_size:
        findings.expect(chosen.certified, f"{place}: the policy chose {chosen.token!r}, which is not certified.")
    if step.fallback or greedy:
        best = max((row.log_p_fused for row in pool), default=-math.inf)
        fits = chosen.log_p_fused >= best - BOUNDARY
        findings.expect(fits, f"{place}: the policy chose {chosen.token!r}, and another token is likelier.")


def _check_divergences(findings: Findings, place: str, step: Step) -> None:
    """Merging tokens lowers entropies and divergences, so the candidates and one rest bound them from below."""
    shares = {view: _cells(step, view) for view in ("factual", "masked", "fused")}
    for view, cells in shares.items():
        least = -math.fsum(p * math.log(p) for p in cells if p > 0)
        stated = getattr(step.diagnostics, f"entropy_{view}")
        findings.expect(
            stated >= least - LOG_TOLERANCE, f"{place}: the {view} entropy is {stated:.6g}, and at least {least:.6g}."
        )
    pairs = zip(shares["fused"], shares["masked"], strict=True)
    least = math.fsum(p * math.log(p / q) for p, q in pairs if p > 0 and q > 0)
    stated = step.diagnostics.kl_fused_masked
    findings.expect(
        stated >= least - LOG_TOLERANCE, f"{place}: the divergence is {stated:.6g}, and at least {least:.6g}."
    )
    _check_divergence_from_vanilla(findings, place, step, shares)


def _check_divergence_from_vanilla(findings: Findings, place: str, step: Step, shares: dict[str, list[float]]) -> None:
    """Merging bounds both distances from below, and Pinsker's inequality one by the other."""
    kl, distance = step.diagnostics.kl_fused_factual, step.diagnostics.tv_fused_factual
    if kl is None or distance is None:
        return
    pairs = list(zip(shares["fused"], shares["factual"], strict=True))
    least_kl = math.fsum(p * math.log(p / q) for p, q in pairs if p > 0 and q > 0)
    least = math.fsum(abs(p - q) for p, q in pairs) / 2
    most = min(1.0, math.sqrt(max(kl, 0.0) / 2))
    findings.expect(
        kl >= least_kl - LOG_TOLERANCE,
        f"{place}: the divergence from the factual reading is {kl:.6g}, and at least {least_kl:.6g}.",
    )
    findings.expect(
        least - LOG_TOLERANCE <= distance <= most + math.sqrt(LOG_TOLERANCE),
        f"{place}: the distance from the factual reading is {distance:.6g}, outside {least:.6g} to {most:.6g}.",
    )


def _cells(step: Step, view: str) -> list[float]:
    """Probabilities of the candidates and of all other tokens together."""
    listed = [math.exp(getattr(row, f"log_p_{view}")) for row in step.candidates]
    return [*listed, max(1.0 - math.fsum(listed), 0.0)]


def _offset(row: Candidate, lam: float) -> float:
    return row.log_p_fused - (1 - lam) * row.log_p_factual - lam * row.log_p_masked


def _finite(row: Candidate) -> bool:
    return all(map(math.isfinite, (row.log_p_factual, row.log_p_masked, row.log_p_fused)))


def _tv_bound(step: Step) -> float | None:
    """Corollary 1's bound ``sqrt(KL / 2) / tau``; None without threshold, or if the factual reading certifies."""
    tau, divergence = math.exp(step.log_tau), step.diagnostics.kl_fused_masked
    if step.state == "none" or step.certified_in == "factual" or tau == 0 or math.isinf(divergence):
        return None
    return math.sqrt(divergence / 2) / tau


def _difference(first: float, second: float) -> float:
    return 0.0 if first == second else first - second


def check_ranges(loaded: Loaded) -> Check:
    """Sizes within numeric noise follow from the candidates as far as these tell, with a bound that is not too small.

    How far the model's own log-probabilities lie apart was measured when it was loaded, and only a replay can do that
    again; but the bound is never below that of the number type at the session's temperature.
    """
    findings = Findings("Set sizes within numeric noise")
    record = session_record(loaded.report)
    least = noise_of(record.fingerprint.get("dtype"), record.temperature).nats
    ways = computations_of(record)
    told = bool(ways) and all(way.temperature is not None for way in ways)
    ranges = 0
    for place, _, step in loaded.own_steps():
        parts = (step.set_size_low, step.set_size_high, step.noise)
        if parts == (None, None, None):
            had = told and step.state != "none"
            findings.expect(not had, f"{place}: the session gives set sizes as ranges, and this step has none.")
            continue
        if step.set_size_low is None or step.set_size_high is None or step.noise is None:
            findings.expect(False, f"{place}: its range of set sizes is given in part.")
            continue
        ranges += 1
        low, high = step.set_size_low, step.set_size_high
        findings.expect(
            low <= step.set_size <= high, f"{place}: the set size {step.set_size} is outside its range {low} to {high}."
        )
        enough = step.noise >= least * (1 - BOUNDARY)
        findings.expect(enough, f"{place}: its numeric noise is {step.noise:g} nats, and at least {least:g}.")
        if not step.families and not _refuses_more(loaded):
            margins = [_support(loaded, row) - step.log_tau for row in step.candidates]
            _check_listed(findings, place, step, margins, step.noise)
    return findings.check(f"{ranges:,} ranges")


def _check_listed(findings: Findings, place: str, step: Step, margins: Sequence[float], noise: float) -> None:
    """What is listed and stands clear of the threshold is in the least set, and what is near it in the largest."""
    sure = sum(margin >= noise + BOUNDARY for margin in margins)
    refused = sum(margin < -noise - BOUNDARY for margin in margins)
    possible = sum(margin >= -noise + BOUNDARY for margin in margins)
    low, high = step.set_size_low or 0, step.set_size_high or 0
    findings.expect(low >= sure, f"{place}: the least set has {low} tokens, and {sure} listed ones are in it.")
    findings.expect(
        high >= possible, f"{place}: the largest set has {high} tokens, and {possible} listed ones are in it."
    )
    near = len(margins) - sure - refused
    findings.expect(
        high - low >= near - sum(abs(abs(margin) - noise) < BOUNDARY for margin in margins),
        f"{place}: its range is {low} to {high}, and {near} listed tokens stand at the threshold within the noise.",
    )
