"""Checks of every step without the model: its thresholds are the calibration's, and its numbers follow from others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from statistics import median
from typing import cast

from app.report.bundle import CALIBRATION
from app.report.document import SummaryPart, ThresholdsPart, summary_of, thresholds_of
from app.report.verify import alone
from app.report.verify.findings import Compared, Comparing, Skipped, Within, check, same
from app.report.verify.loaded import Loaded
from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from app.shared.json import chain_json
from app.shared.kept_steps import computations_of
from app.shared.planning import other_layout, policy_of
from app.shared.policies import info_of, policy_info
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.part import JOINT
from coft_core.errors import CoftError
from coft_core.fingerprint import Fingerprint
from coft_core.model.noise import noise_of
from coft_core.policies.base import compared_certificate, factual_only
from coft_core.types import VIEWS, Candidate, Certificate, CertificateState, Step

TOLERANCE = 1e-12
"""Thresholds are read off the same values by the same rule, so that only their printing may differ."""

_WORST_FIRST = ("none", "uninformative", "inherited", "calibrated")


def _require_usable(loaded: Loaded) -> None:
    if loaded.calibration_problem:
        raise ServiceError(f"{CALIBRATION} cannot be used: {loaded.calibration_problem}")


def _calibration(loaded: Loaded) -> Calibration:
    """The calibration with its values, for a check that can do nothing without."""
    _require_usable(loaded)
    if loaded.calibration is None:
        raise Skipped("the calibration's values are not with the report; they are in its bundle")
    return loaded.calibration


@check("Calibration and certificate")
def check_certificate(loaded: Loaded) -> Comparing:
    """The calibration belongs to the policy, or the certificate says that it does not."""
    session, stated = loaded.report.session, loaded.report.thresholds
    certificate = Certificate.read(session.certificate)
    if stated is None:
        if session.calibration_label:
            raise Skipped(f"the calibration “{session.calibration_label}” had been deleted before the export")
        yield same("Session", "whether the certificate says “certified”", certificate.certified, False)
        return "no calibration was used"
    calibration = _calibration(loaded)
    if not stated.applied:
        yield same("report.json", "whether thresholds are applied", stated.applied, loaded.applied is not None)
        refused = other_layout(replace(loaded.settings, proceed_uncertified=True), calibration)
        yield same("Session", "the certificate", certificate, refused)
        return "thresholds of another mask layout, not applied"
    used = Fingerprint.from_dict(session.fingerprint)
    if policy_info(loaded.settings.policy).certified_in == "factual" and calibration.layout == "joint":
        used = factual_only(calibration, used)
    fitting = calibration.fingerprint
    expected = compared_certificate(fitting, used, accept_mismatch=True, silence=calibration.silence).text
    yield same("Session", "the certificate", session.certificate, expected)
    yield same("Session", "the risk level", session.alpha, calibration.alpha)
    return "fingerprints of calibration and policy"


@check("Thresholds by step")
def check_thresholds(loaded: Loaded) -> Comparing:
    """Thresholds are those of the calibration's values, in the report's list and at every step."""
    stated = loaded.report.thresholds
    _require_usable(loaded)
    if stated is None and loaded.report.session.calibration_label:
        raise Skipped("the calibration had been deleted before the export")
    if stated is not None and loaded.calibration is not None and loaded.files is not None:
        settings = loaded.settings
        fresh = thresholds_of(loaded.calibration, loaded.files[CALIBRATION], settings.mask_layout, settings.group)
        yield from _compare_lists(stated, fresh)
    steps, uncalibrated = 0, _uncalibrated(loaded.settings)
    for place, _, step in loaded.own_steps():
        steps += 1
        yield from _check_step(loaded, place, step, uncalibrated)
    if stated is None:
        return f"{steps:,} steps without a threshold"
    if loaded.calibration is None:
        return f"{steps:,} steps, against the report's own list; the values behind it are in its bundle"
    return f"{steps:,} steps, from the values of {loaded.calibration.context_count} contexts"


@check("Certificates of whole chains")
def check_chains(loaded: Loaded) -> Comparing:
    """What the summary claims of chains as a whole follows from the calibration."""
    if loaded.report.thresholds is not None and loaded.lacks_calibration:
        _calibration(loaded)
    if loaded.vocabulary is None:
        raise Skipped(
            "the session was stored without the size of the vocabulary, by a version that claimed more of whole "
            "chains; run the audit again"
        )
    finished = {branch.path: branch.finished for branch in loaded.report.branches}
    stated = {item.branch: item.chain for item in loaded.report.summary}
    for path, steps in loaded.chains().items():
        expected = chain_json(loaded.chain_certificate(steps, finished[path]))
        yield same(f"Branch {path}", "the certificate of its chain", stated.get(path), expected)


def _uncalibrated(settings: AuditSettings) -> float:
    """The log-threshold that the settings' method applies where it reads no calibration; most methods apply none.

    Settings from which no policy can be built have none either; that they are damaged is a finding of its own.
    """
    try:
        return policy_of(settings, None).threshold(0)[0]
    except (CoftError, ServiceError):
        return -math.inf


def _compare_lists(stated: ThresholdsPart, fresh: ThresholdsPart) -> Iterator[Compared]:
    place = "report.json"
    for name in ("calibration", "alpha", "group", "layout", "applied"):
        yield same(place, f"{name} of the thresholds", getattr(stated, name), getattr(fresh, name))
    if stated.uneven is not None:
        yield same(place, "the bins whose steps differ", stated.uneven, fresh.uneven)
    sizes, counted = ([(part.family, part.alpha, len(part.bins)) for part in one.families] for one in (stated, fresh))
    yield same(place, "the list of families and bins", sizes, counted)
    for given, other in zip(stated.families, fresh.families, strict=False):
        family = "" if given.family is None else f", family {given.family}"
        for index, (listed, computed) in enumerate(zip(given.bins, other.bins, strict=False)):
            yield same(f"{place}, bin {index + 1}{family}", "the threshold", listed, computed)


def _check_step(loaded: Loaded, place: str, step: Step, uncalibrated: float) -> Iterator[Compared]:
    families = []
    for part in step.families:
        log_tau, state = _threshold(loaded, part.family, step.index)
        family = f"{place}, family {part.family}"
        yield same(family, "the log-threshold", part.log_tau, log_tau, TOLERANCE)
        yield same(family, "what the threshold rests on", part.state, _effective(loaded, state))
        families.append((log_tau, state))
    if loaded.report.thresholds is None or not loaded.report.thresholds.applied:
        log_tau, state = uncalibrated, "none"
    elif loaded.settings.mask_layout == "joint":
        log_tau, state = _threshold(loaded, None, step.index)
    else:
        log_tau = min((value for value, _ in families), default=-math.inf)
        state = min((state for _, state in families), key=_WORST_FIRST.index, default="uninformative")
    yield same(place, "the log-threshold", step.log_tau, log_tau, TOLERANCE)
    expected = _effective(loaded, loaded.judged(cast(CertificateState, state), step, log_tau))
    yield same(place, "what the threshold rests on", step.state, expected)


def _effective(loaded: Loaded, state: str) -> str:
    return "mismatch" if loaded.mismatched and state != "none" else state


def _threshold(loaded: Loaded, family: str | None, step: int) -> tuple[float, str]:
    """Log-threshold and state of a family (None: of the joint mask) at a step, from the values if they are there."""
    thresholds = loaded.report.thresholds
    if thresholds is None or not thresholds.applied:
        return -math.inf, "none"
    if loaded.applied is not None:
        return loaded.applied.bound(step, family or JOINT)
    listed = [entry for part in thresholds.families if part.family == family for entry in part.bins]
    found = (
        entry for entry in listed if entry.first_step <= step <= (step if entry.last_step is None else entry.last_step)
    )
    # A family that was never calibrated refuses nothing.
    return next(((entry.log_tau, entry.state) for entry in found), (-math.inf, "uninformative"))


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
def check_fusion(loaded: Loaded) -> Comparing:
    """Differences of fused log-probabilities are ``1 - lam`` of the factual plus ``lam`` of the masked ones (Eq. 4).

    Other methods make their distribution by rules of their own, which only a replay on the model recomputes.
    """
    mixes = info_of(loaded.settings.policy).kind in ("fusion", "reference")
    lam = float(loaded.report.session.fingerprint.get("lam", 0.0))
    for place, _, step in loaded.own_steps():
        rows = [row for row in step.candidates if _finite(row) and not row.at_most] if mixes else []
        mixed = [(1 - lam) * row.log_p_factual + lam * row.log_p_masked for row in rows]
        # Fusion leaves one unknown a step, the logarithm of its normaliser; the median of all rows stands for it.
        middle = median(row.log_p_fused - own for row, own in zip(rows, mixed, strict=True)) if rows else 0.0
        for row, own in zip(rows, mixed, strict=True):
            what = f"the fused log-probability at lambda {lam:g}"
            yield same(_named(place, row), what, row.log_p_fused, own + middle, LOG_TOLERANCE)
        for view in VIEWS:
            stated = [getattr(row, f"log_p_{view}") for row in step.candidates if view not in row.at_most]
            total = math.fsum(map(math.exp, stated))
            what = f"the sum of the {view} probabilities"
            yield same(place, what, total, Within(high=1.0), MASS_TOLERANCE)
            for row in step.candidates:
                if view in row.at_most and view != "fused":
                    most = Within(high=min(stated, default=0.0))
                    yield same(_named(place, row), f"its {view} bound", getattr(row, f"log_p_{view}"), most, EXACT)
    remark = "the method's own rule is recomputed only by a replay; only the sums of probabilities were checked"
    return "" if mixes else remark


@check("Certified tokens")
def check_certified(loaded: Loaded) -> Comparing:
    """Whether tokens are certified, and what follows from that; ``verify.py`` of the bundle does the same."""
    yield from alone.check_certified(loaded.document)


@check("Margins, ratios and bounds")
def check_derived(loaded: Loaded) -> Comparing:
    """Margin, log ratio and the bound on total variation follow from the step's other numbers."""
    for place, _, step in loaded.own_steps():
        emitted = next((row for row in step.candidates if row.token_id == step.token_id), None)
        own = [(step.log_support, step.log_tau)]
        supports = [(part.log_joint, part.log_tau) for part in step.families] or own
        margin = min(_difference(joint, log_tau) for joint, log_tau in supports)
        yield same(place, "the margin", step.diagnostics.margin, margin, EXACT)
        ratio = _difference(step.log_p_factual, step.log_p_masked)
        if step.bounds is not None and emitted is not None:
            ratio = step.bounds.log_ratio(emitted)
        yield same(place, "the log ratio", step.diagnostics.log_ratio, ratio, EXACT)
        bound = _tv_bound(step)
        tolerance = EXACT * max(1.0, bound or 0.0)
        yield same(place, "the bound on total variation", step.diagnostics.tv_bound, bound, tolerance)


@check("Choices and divergences")
def check_choices(loaded: Loaded) -> Comparing:
    """The policy's choices, undecided tokens and the divergences fit the candidates."""
    for place, _, step in loaded.own_steps():
        members = [row for row in step.candidates if row.certified]
        if step.bounds is not None:
            least = sum(step.is_open(row) for row in step.candidates)
            yield same(place, "how many tokens are undecided", step.bounds.undecided, Within(low=least))
        undefined = step.diagnostics.tv_on_set is None
        yield same(place, "whether total variation is undefined", undefined, step.set_size == 0)
        listed = [row.log_p_factual for row in step.candidates]
        yield same(place, "the order of its candidates", listed, sorted(listed, reverse=True))
        yield from _check_choice(place, step, members, loaded.report.session.greedy)
        yield from _check_divergences(place, step)


@check("Summary numbers")
def check_summary(loaded: Loaded) -> Comparing:
    """The summary's counts and extremes are those of the steps."""
    session, chains = loaded.report.session, loaded.chains()
    stated = {item.branch: item for item in loaded.report.summary}
    yield same("Summary", "the list of branches", list(stated), list(chains))
    for path in (path for path in chains if path in stated):
        fresh = summary_of(path, chains[path], None, session.policy_settings, session.certificate)
        for name in (field.name for field in fields(SummaryPart) if field.name not in ("branch", "chain")):
            given, other = getattr(stated[path], name), getattr(fresh, name)
            if name == "certificate" and given is None:  # written before it was counted
                continue
            tolerance = EXACT * max(1.0, abs(other)) if isinstance(other, float) else 0.0
            yield same(f"Summary of branch {path}", name, given, other, tolerance)


def _check_choice(place: str, step: Step, members: Sequence[Candidate], greedy: bool) -> Iterator[Compared]:
    """Left alone, the policy takes the likeliest fused token of the set if it is greedy or falls back."""
    chosen = next((row for row in step.candidates if row.token_id == step.policy_token_id), None)
    if chosen is None:
        return
    if step.fallback or greedy:
        known = [row for row in step.candidates if "fused" not in row.at_most]
        best = max((row.log_p_fused for row in members or known), default=-math.inf)
        what = f"the fused log-probability of the policy's token {chosen.token!r}"
        yield same(place, what, chosen.log_p_fused, Within(low=best), BOUNDARY)


def _check_divergences(place: str, step: Step) -> Iterator[Compared]:
    """Merging tokens lowers entropies and divergences, so the candidates and one rest bound them from below."""
    stated = step.diagnostics
    if step.bounds is not None:
        # They are the least that they can be, whatever the engine did not return.
        return
    shares = {view: _cells(step, view) for view in VIEWS}
    for view, cells in shares.items():
        least = Within(low=-math.fsum(p * math.log(p) for p in cells if p > 0))
        yield same(place, f"the {view} entropy", getattr(stated, f"entropy_{view}"), least, LOG_TOLERANCE)
    for view, kl in (("masked", stated.kl_fused_masked), ("factual", stated.kl_fused_factual)):
        if kl is not None:
            pairs = zip(shares["fused"], shares[view], strict=True)
            least = Within(low=math.fsum(p * math.log(p / q) for p, q in pairs if p > 0 and q > 0))
            yield same(place, f"the divergence from the {view} reading", kl, least, LOG_TOLERANCE)
    distance, kl = stated.tv_fused_factual, stated.kl_fused_factual
    if kl is not None and distance is not None:
        # Pinsker's inequality bounds one distance by the other.
        most = min(1.0, math.sqrt(max(kl, 0.0) / 2)) + math.sqrt(LOG_TOLERANCE)
        pairs = zip(shares["fused"], shares["factual"], strict=True)
        low = math.fsum(abs(p - q) for p, q in pairs) / 2 - LOG_TOLERANCE
        yield same(place, "the distance from the factual reading", distance, Within(low, most))


def _cells(step: Step, view: str) -> list[float]:
    """Probabilities of the candidates and of all other tokens together."""
    listed = [math.exp(getattr(row, f"log_p_{view}")) for row in step.candidates]
    return [*listed, max(1.0 - math.fsum(listed), 0.0)]


def _finite(row: Candidate) -> bool:
    return all(map(math.isfinite, (row.log_p_factual, row.log_p_masked, row.log_p_fused)))


def _tv_bound(step: Step) -> float | None:
    """Corollary 1's bound ``sqrt(KL / 2) / tau``; None without threshold, or if the factual reading certifies."""
    tau, divergence = math.exp(step.log_tau), step.diagnostics.kl_fused_masked
    unknown = step.state == "none" or step.certified_in == "factual" or step.bounds is not None
    if unknown or tau == 0 or math.isinf(divergence):
        return None
    return math.sqrt(divergence / 2) / tau


def _difference(first: float, second: float) -> float:
    return 0.0 if first == second else first - second


@check("Set sizes within numeric noise")
def check_ranges(loaded: Loaded) -> Comparing:
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
            yield same(place, "whether its range is given", given, [told and step.state != "none"] * 3)
            continue
        ranges += 1
        yield same(place, "the set size", step.set_size, Within(low, high))
        yield same(place, "its numeric noise", noise, Within(low=least * (1 - BOUNDARY)))
        if not step.families and not _refuses_more(loaded):
            margins = [_support(loaded, row) - step.log_tau for row in step.candidates if step.is_known(row)]
            yield from _check_listed(place, (low, high), margins, noise)
    return f"{ranges:,} ranges"


def _check_listed(place: str, sizes: tuple[int, int], margins: Sequence[float], noise: float) -> Iterator[Compared]:
    """What is listed and stands clear of the threshold is in the least set, and what is near it in the largest."""
    sure = sum(margin >= noise + BOUNDARY for margin in margins)
    refused = sum(margin < -noise - BOUNDARY for margin in margins)
    possible = sum(margin >= -noise + BOUNDARY for margin in margins)
    at_edges = sum(abs(abs(margin) - noise) < BOUNDARY for margin in margins)
    low, high = sizes
    yield same(place, "the size of the least set", low, Within(low=sure))
    yield same(place, "the size of the largest set", high, Within(low=possible))
    near = len(margins) - sure - refused - at_edges
    yield same(place, "how many tokens stand at the threshold within the noise", high - low, Within(low=near))


@check("Controls")
def check_controls(loaded: Loaded) -> Comparing:
    """p-values and evidence follow from the effects, which belong to the steps of their branch."""
    if not loaded.report.controls:
        raise Skipped("the report has no controls")
    chains, joint = loaded.chains(), loaded.settings.mask_layout == "joint"
    for part in loaded.report.controls:
        place, controls, chain = f"Controls of branch {part.branch}", part.controls, chains.get(part.branch, ())
        yield part.branch in chains, f"{place}: the report has no such branch."
        rows = [row for family in controls.families for row in (family.marked, *family.neutral, *family.others)]
        lengths = {len(values) for row in rows for values in (row.effects, row.log_ratios)}
        whole = lengths == {controls.steps} and controls.steps <= len(chain)
        yield whole, f"{place}: its rows differ in length."
        yield all(0 <= value <= 1 for row in rows for value in row.effects), f"{place}: an effect is not a share."
        if not whole:
            continue
        yield same(place, "the evidence", controls.evidence, controls.computed(), 1e-9)
        for family in controls.families:
            yield same(place, f"the p-values of {family.family}", family.p_values, family.computed())
        if joint and len(controls.families) == 1 and loaded.settings.policy == "coft":
            for step, ratio in zip(chain, controls.families[0].marked.log_ratios, strict=False):
                what, slack = f"the log ratio of step {step.index + 1}", 1e-3 + 2 * (step.noise or 1e-3)
                yield same(place, what, ratio, step.diagnostics.log_ratio, slack)
