"""Checks of the numbers of each step that follow from other numbers of it, without the model and without logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from statistics import median

from app.report.document import SummaryPart, summary_of
from app.report.verify.findings import Findings, Within, check
from app.report.verify.loaded import Loaded
from app.shared.kept_steps import computations_of
from app.shared.policies import info_of
from coft_core.conformal.informative import certifies
from coft_core.model.noise import noise_of
from coft_core.types import Candidate, Step

VIEWS = ("factual", "masked", "fused")
LOG_TOLERANCE = 1e-4
"""Log-probabilities are rounded to float32 one by one, so that sums of them differ by about this at most."""
EXACT = 1e-9
MASS_TOLERANCE = 1e-4
BOUNDARY = 1e-6
"""A token this near to its threshold may fall to either side of it."""


def _refuses_more(loaded: Loaded) -> bool:
    """Whether the method also refuses tokens for reasons that no stored number tells, such as a toxicity."""
    return info_of(loaded.settings.policy).kind == "constraint"


def _support(loaded: Loaded, row: Candidate) -> float:
    """The log-probability that the threshold is compared with: in both readings, or in the factual one alone."""
    return row.log_support("factual" if info_of(loaded.settings.policy).certified_in == "factual" else "both")


def _named(place: str, row: Candidate) -> str:
    return f"{place}, token {row.token!r} ({row.token_id})"


@check("Fusion of the candidates")
def check_fusion(findings: Findings, loaded: Loaded) -> str:
    """Differences of fused log-probabilities are ``1 - lam`` of the factual plus ``lam`` of the masked ones (Eq. 4).

    Other methods make their distribution by rules of their own, which only a replay on the model recomputes.
    """
    mixes = info_of(loaded.settings.policy).kind in ("fusion", "reference")
    lam = float(loaded.report.session.fingerprint.get("lam", 0.0))
    for place, _, step in loaded.own_steps():
        rows = [row for row in step.candidates if _finite(row)] if mixes else []
        mixed = [(1 - lam) * row.log_p_factual + lam * row.log_p_masked for row in rows]
        # Fusion leaves one unknown a step, the logarithm of its normaliser; the median of all rows stands for it.
        middle = median(row.log_p_fused - own for row, own in zip(rows, mixed, strict=True)) if rows else 0.0
        for row, own in zip(rows, mixed, strict=True):
            what = f"the fused log-probability at lambda {lam:g}"
            findings.same(_named(place, row), what, row.log_p_fused, own + middle, LOG_TOLERANCE)
        for view in VIEWS:
            total = math.fsum(math.exp(getattr(row, f"log_p_{view}")) for row in step.candidates)
            what = f"the sum of the {view} probabilities"
            findings.same(place, what, total, Within(high=1.0), MASS_TOLERANCE)
    remark = "the method's own rule is recomputed by a replay alone; only the sums of probabilities were checked"
    return "" if mixes else remark


@check("Certified tokens")
def check_certified(findings: Findings, loaded: Loaded) -> None:
    """A candidate is certified exactly if its joint support reaches the threshold (Eq. 7).

    Ablations that certify in one reading are checked by its probability, and a method that refuses tokens for reasons
    of its own only has to keep to the threshold.
    """
    refuses_more = _refuses_more(loaded)
    for place, _, step in loaded.own_steps():
        emitted = next((row for row in step.candidates if row.token_id == step.token_id), None)
        claims = emitted is not None and emitted.certified and certifies(step.state)
        findings.same(place, "whether its token is certified", step.certified, claims)
        for row in step.candidates:
            margin = _support(loaded, row) - step.log_tau
            allowed = row.certified
            if step.families:
                allowed = row.certified if step.state == "none" else not row.refused_by
            elif refuses_more:
                allowed = row.certified and _support(loaded, row) >= step.log_tau - BOUNDARY
            elif step.state == "none" or abs(margin) > BOUNDARY:
                allowed = step.state != "none" and margin >= 0
            findings.same(_named(place, row), "whether it is certified", row.certified, allowed)
        for part in step.families:
            joint = min(step.log_p_fused, part.log_p_masked)
            family = f"{place}, family {part.family}"
            findings.same(family, "the joint support", part.log_joint, joint, EXACT)
            if part.state not in ("mismatch", "none") and abs(joint - part.log_tau) > BOUNDARY:
                findings.same(family, "whether it certifies", part.certified, joint >= part.log_tau)


@check("Margins, ratios and bounds")
def check_derived(findings: Findings, loaded: Loaded) -> None:
    """Margin, log ratio and the bound on total variation follow from the step's other numbers."""
    for place, _, step in loaded.own_steps():
        emitted = next((row for row in step.candidates if row.token_id == step.token_id), None)
        for name in (f"log_p_{view}" for view in VIEWS):
            findings.same(place, f"{name} of its token", getattr(step, name), getattr(emitted, name, None))
        own = [(step.log_support, step.log_tau)]
        supports = [(part.log_joint, part.log_tau) for part in step.families] or own
        margin = min(_difference(joint, log_tau) for joint, log_tau in supports)
        findings.same(place, "the margin", step.diagnostics.margin, margin, EXACT)
        ratio = _difference(step.log_p_factual, step.log_p_masked)
        findings.same(place, "the log ratio", step.diagnostics.log_ratio, ratio, EXACT)
        bound = _tv_bound(step)
        tolerance = EXACT * max(1.0, bound or 0.0)
        findings.same(place, "the bound on total variation", step.diagnostics.tv_bound, bound, tolerance)


@check("Fallbacks, choices and sets")
def check_choices(findings: Findings, loaded: Loaded) -> None:
    """Fallbacks, the policy's choices and the size and mass of the set fit the candidates."""
    refuses = _refuses_more(loaded)
    for place, _, step in loaded.own_steps():
        members = [row for row in step.candidates if row.certified]
        # A method that refuses tokens without a calibration may refuse them all, which is a fallback too.
        if step.state != "none" or not refuses:
            empty = step.set_size == 0 and step.state != "none"
            findings.same(place, "whether it is a fallback", step.fallback, empty)
        findings.same(place, "the set size", step.set_size, Within(low=len(members)))
        mass = math.fsum(math.exp(row.log_p_fused) for row in members)
        most = mass + MASS_TOLERANCE if len(members) == step.set_size else 1.0
        findings.same(place, "the certified mass", step.certified_mass, Within(mass - MASS_TOLERANCE, min(most, 1.0)))
        undefined = step.diagnostics.tv_on_set is None
        findings.same(place, "whether total variation is undefined", undefined, step.set_size == 0)
        listed = [row.log_p_factual for row in step.candidates]
        findings.same(place, "the order of its candidates", listed, sorted(listed, reverse=True))
        _check_choice(findings, place, step, members, loaded.report.session.greedy)
        _check_divergences(findings, place, step)


@check("Summary numbers")
def check_summary(findings: Findings, loaded: Loaded) -> None:
    """The summary's counts and extremes are those of the steps."""
    session, chains = loaded.report.session, loaded.stated_chains()
    stated = {item.branch: item for item in loaded.report.summary}
    findings.same("Summary", "the list of branches", list(stated), list(chains))
    for path in (path for path in chains if path in stated):
        fresh = summary_of(path, chains[path], None, session.policy_settings, session.certificate)
        for name in (field.name for field in fields(SummaryPart) if field.name not in ("branch", "chain")):
            given, other = getattr(stated[path], name), getattr(fresh, name)
            if name in ("too_weak", "certificate") and given is None:  # written before such steps were counted
                continue
            tolerance = EXACT * max(1.0, abs(other)) if isinstance(other, float) else 0.0
            findings.same(f"Summary of branch {path}", name, given, other, tolerance)


def _check_choice(findings: Findings, place: str, step: Step, members: Sequence[Candidate], greedy: bool) -> None:
    """Left alone, the policy takes a certified token; the likeliest fused one if it is greedy or falls back."""
    chosen = next((row for row in step.candidates if row.token_id == step.policy_token_id), None)
    if chosen is None:
        return
    if step.set_size:
        findings.same(place, f"whether the policy's token {chosen.token!r} is certified", chosen.certified, True)
    if step.fallback or greedy:
        best = max((row.log_p_fused for row in members or step.candidates), default=-math.inf)
        what = f"the fused log-probability of the policy's token {chosen.token!r}"
        findings.same(place, what, chosen.log_p_fused, Within(low=best), BOUNDARY)


def _check_divergences(findings: Findings, place: str, step: Step) -> None:
    """Merging tokens lowers entropies and divergences, so the candidates and one rest bound them from below."""
    stated = step.diagnostics
    shares = {view: _cells(step, view) for view in VIEWS}
    for view, cells in shares.items():
        least = Within(low=-math.fsum(p * math.log(p) for p in cells if p > 0))
        findings.same(place, f"the {view} entropy", getattr(stated, f"entropy_{view}"), least, LOG_TOLERANCE)
    for view, kl in (("masked", stated.kl_fused_masked), ("factual", stated.kl_fused_factual)):
        if kl is not None:
            pairs = zip(shares["fused"], shares[view], strict=True)
            least = Within(low=math.fsum(p * math.log(p / q) for p, q in pairs if p > 0 and q > 0))
            findings.same(place, f"the divergence from the {view} reading", kl, least, LOG_TOLERANCE)
    distance, kl = stated.tv_fused_factual, stated.kl_fused_factual
    if kl is not None and distance is not None:
        # Pinsker's inequality bounds one distance by the other.
        most = min(1.0, math.sqrt(max(kl, 0.0) / 2)) + math.sqrt(LOG_TOLERANCE)
        pairs = zip(shares["fused"], shares["factual"], strict=True)
        low = math.fsum(abs(p - q) for p, q in pairs) / 2 - LOG_TOLERANCE
        findings.same(place, "the distance from the factual reading", distance, Within(low, most))


def _cells(step: Step, view: str) -> list[float]:
    """Probabilities of the candidates and of all other tokens together."""
    listed = [math.exp(getattr(row, f"log_p_{view}")) for row in step.candidates]
    return [*listed, max(1.0 - math.fsum(listed), 0.0)]


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


@check("Set sizes within numeric noise")
def check_ranges(findings: Findings, loaded: Loaded) -> str:
    """Sizes within numeric noise follow from the candidates as far as these tell, with a bound that is not too small.

    How far the model's own log-probabilities lie apart was measured when it was loaded, and only a replay can do that
    again; but the bound is never below that of the number type at the session's temperature.
    """
    record = loaded.report.session
    least = noise_of(record.fingerprint.get("dtype"), record.temperature).nats
    ways = computations_of(record)
    told = bool(ways) and all(way.temperature is not None for way in ways)
    ranges = 0
    for place, _, step in loaded.own_steps():
        low, high, noise = step.set_size_low, step.set_size_high, step.noise
        if low is None or high is None or noise is None:
            given = [part is not None for part in (low, high, noise)]
            findings.same(place, "whether its range is given", given, [told and step.state != "none"] * 3)
            continue
        ranges += 1
        findings.same(place, "the set size", step.set_size, Within(low, high))
        findings.same(place, "its numeric noise", noise, Within(low=least * (1 - BOUNDARY)))
        if not step.families and not _refuses_more(loaded):
            margins = [_support(loaded, row) - step.log_tau for row in step.candidates]
            _check_listed(findings, place, (low, high), margins, noise)
    return f"{ranges:,} ranges"


def _check_listed(
    findings: Findings, place: str, sizes: tuple[int, int], margins: Sequence[float], noise: float
) -> None:
    """What is listed and stands clear of the threshold is in the least set, and what is near it in the largest."""
    sure = sum(margin >= noise + BOUNDARY for margin in margins)
    refused = sum(margin < -noise - BOUNDARY for margin in margins)
    possible = sum(margin >= -noise + BOUNDARY for margin in margins)
    at_edges = sum(abs(abs(margin) - noise) < BOUNDARY for margin in margins)
    low, high = sizes
    findings.same(place, "the size of the least set", low, Within(low=sure))
    findings.same(place, "the size of the largest set", high, Within(low=possible))
    near = len(margins) - sure - refused - at_edges
    findings.same(place, "how many tokens stand at the threshold within the noise", high - low, Within(low=near))
