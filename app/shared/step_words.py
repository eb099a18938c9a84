"""What the audit page says of one step: pure functions from the core's data to plain values.

A *card* is everything that the page needs of a step. The browser keeps the cards, so that looking at another
token needs no call to the server.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from app.shared.audits import FAMILY_NAMES, SENSITIVE
from app.shared.bounds import decided_sentence, emitted, ends_of, is_open_ended, shown_probability, shown_support
from app.shared.format import (
    MOST_DIGITS,
    digits_for,
    named,
    probability,
    quoted,
    shown_token,
    signed,
    threshold,
    times_likelier,
)
from coft_core.conformal.informative import BY_CONSTRUCTION, silence
from coft_core.effects import effect_sentence
from coft_core.messages import catalogue
from coft_core.model.noise import NumericNoise
from coft_core.types import VIEWS, Candidate, Certificate, FamilyStep, Step


def factual_overruled(step: Step) -> bool:
    """Whether the token that the factual view likes best was not certified, where there is a threshold at all."""
    first = step.candidates[0] if step.candidates and step.state != "none" else None
    return first is not None and not first.certified and not step.is_open(first)


def fused_overruled(step: Step) -> bool:
    """Whether certification refused the likeliest fused token of a step while another one was certified."""
    refused = max(
        (c.log_p_fused for c in step.candidates if not c.certified and not step.is_open(c)), default=-math.inf
    )
    accepted = max((c.log_p_fused for c in step.candidates if c.certified), default=math.inf)
    return refused > accepted


def set_size(step: Step) -> str:
    """The size of the certified set, with the sizes between which it lies where tokens stand at the threshold."""
    if step.set_size_low is None or step.set_size_low == step.set_size_high:
        return f"{step.set_size:,}"
    return f"{step.set_size:,} ({step.set_size_low:,} to {step.set_size_high:,})"


def shapes(step: Step) -> list[str]:
    """How a token looks in a text, in the names of the style sheets: its certificate, and its sensitivity."""
    ranges = []
    if step.fallback:
        ranges.append("fallback")
    elif step.state in ("uninformative", "none", "mismatch"):
        ranges.append("open")
    elif not step.certified:
        ranges.append("outside")
    elif step.state == "inherited":
        ranges.append("inherited")
    if abs(step.diagnostics.log_ratio) >= SENSITIVE:
        ranges.append("sensitive")
    return ranges


def certificate_words(text: str) -> str:
    """What is said of a session: at how many steps it is certified, and never that all is well."""
    return "under thresholds" if text == "certified" else text


def counted_claim(text: str) -> str:
    """At how many steps a session is certified, and what carries the information; empty where nothing is certified."""
    certificate = Certificate.read(text)
    return "" if certificate.steps is None else f"{certificate.text.capitalize()}. {BY_CONSTRUCTION}"


THRESHOLD_STATES = {
    "calibrated": "calibrated",
    "inherited": "borrowed",
    "uninformative": "too weak to say anything",
}
"""What a threshold rests on, in words."""


def finding(step: Step, masked: Sequence[str]) -> str:
    """How the token's probability differs between the two readings, in one sentence with both."""
    seen, hidden = probability(math.exp(step.log_p_factual)), probability(math.exp(step.log_p_masked))
    row = emitted(step)
    if row is None or not row.at_most:
        return effect_sentence(step.diagnostics.log_ratio, masked, seen, hidden, catalogue("en"))
    if is_open_ended(step):
        return "How the marked words move this token is not known: a reading did not return it."
    seen, hidden = (shown_probability(step, row, view, 2) for view in ("factual", "masked"))
    sentence = effect_sentence(step.diagnostics.log_ratio, masked, seen, hidden, catalogue("en"))
    return f"{sentence} This is the least that it can be."


def family_rows(step: Step, digits: int) -> list[dict[str, str]]:
    """The families' lines of a step; empty with one masked branch."""
    rows = []
    for part in step.families:
        mark, why = _status(part)
        masked, joint = (probability(math.exp(value), digits) for value in (part.log_p_masked, part.log_joint))
        name = FAMILY_NAMES.get(part.family, part.family)
        rows.append({"n": name, "f": part.family, "m": masked, "j": joint, "tau": _tau(part), "mark": mark, "why": why})
    return rows


def refused_by(step: Step) -> tuple[str, ...]:
    """Families whose threshold the emitted token misses."""
    return tuple(part.family for part in step.families if _is_short(part))


def in_state(step: Step, state: str) -> tuple[str, ...]:
    """Families whose threshold rests on this."""
    return tuple(part.family for part in step.families if part.state == state)


def candidate_status(step: Step, candidate: Candidate) -> tuple[str, str]:
    """Mark of a candidate, and which families speak against it."""
    if all(part.state == "none" for part in step.families):
        return ("open", "no τ")
    if candidate.refused_by:
        every = len(candidate.refused_by) == len(step.families) > 1
        names = "every family" if every else ", ".join(FAMILY_NAMES.get(name, name) for name in candidate.refused_by)
        return ("out", f"refused by {names}")
    if step.state == "calibrated":
        return ("tick", "certified for every family")
    return ("borrowed", "borrowed τ") if step.state == "inherited" else ("open", "≥ τ")


def family_verdict(step: Step) -> tuple[str, str]:
    """Whether the thresholds of a step with factorized masks hold, in plain words: a bold beginning and the rest."""
    if step.fallback:
        return (
            "Fallback:",
            "no token reached the threshold of every family, so the likeliest fused token was written. "
            "Nothing is certified here.",
        )
    if refused := refused_by(step):
        begin = "You forced a token that is not certified:" if step.forced else "Not certified:"
        return (begin, f"{named(refused)} refuse{'s' if len(refused) == 1 else ''} it.")
    if weak := in_state(step, "uninformative"):
        return (
            f"Not certified in any useful sense for {named(weak)}:",
            f"{silence(min(part.log_tau for part in step.families if part.state == 'uninformative'))}.",
        )
    if borrowed := in_state(step, "inherited"):
        return ("A borrowed threshold held:", f"no calibration data at this position for {named(borrowed)}.")
    every = named([part.family for part in step.families], "or")
    return ("Thresholds held:", f"plausible whichever of {every} is masked.")


def family_hint(step: Step, digits: int) -> str:
    """The family that decides, with its figures."""
    # The family that is nearest to refusing the token, or that refuses it by most.
    part = min(step.families, key=_margin)
    joint = probability(math.exp(part.log_joint), digits)
    name = FAMILY_NAMES.get(part.family, part.family)
    if part.log_tau == -math.inf:
        return "No family has an informative threshold here."
    return f"Tightest for {name}: lower probability {joint}; needed {_tau(part)}."


def _status(part: FamilyStep) -> tuple[str, str]:
    if part.state == "none":
        return ("open", "no τ")
    if _is_short(part):
        return ("out", "refuses it")
    return {
        "calibrated": ("tick", "certified"),
        "inherited": ("borrowed", "borrowed τ"),
        "mismatch": ("open", "≥ τ, another policy’s"),
    }.get(part.state, ("open", "every token passes" if part.log_tau == -math.inf else "≥ τ, too weak"))


def _is_short(part: FamilyStep) -> bool:
    return part.state != "none" and part.log_joint < part.log_tau


def _margin(part: FamilyStep) -> float:
    return math.inf if part.log_tau == -math.inf else part.log_joint - part.log_tau


def _tau(part: FamilyStep) -> str:
    return threshold(math.exp(part.log_tau))


ROUNDING = 1e-6
"""A token this near to its threshold may fall to either side of it."""


def has_threshold(step: Step) -> bool:
    """Whether a threshold was applied at this step."""
    return step.state != "none" and step.log_tau > -math.inf


def verdict(step: Step, digits: int) -> tuple[str, str]:
    """Whether the step's threshold holds, in plain words: a bold beginning and the rest."""
    if step.state == "none":
        return ("Not certified:", "no calibration is used, so there is no threshold.")
    if step.state == "mismatch":
        return ("Not certified:", "the calibration belongs to another policy, so its threshold proves nothing here.")
    if step.families:
        return family_verdict(step)
    if step.state == "uninformative":
        return ("Not certified in any useful sense:", f"{silence(step.log_tau)}.")
    if step.forced and not step.certified:
        if (row := emitted(step)) is not None and step.is_open(row):
            return ("You forced a token of which this is undecided:", "it may or may not be certified.")
        if step.certified_in == "factual":
            return ("You forced a token that is not certified:", f"{_as_typed(step, digits)}.")
        below = "masked" if step.log_p_masked <= step.log_p_fused else "fused"
        shown, tau = probability(math.exp(step.log_support), digits), threshold(math.exp(step.log_tau))
        return (
            "You forced a token that is not certified:",
            f"{below} {shown} is under τ {tau}.",
        )
    if step.fallback:
        return (
            "Fallback:",
            f"no token {_enough(step)}{_surely(step)}, so the likeliest one was written. Nothing is certified here.",
        )
    if step.state == "inherited":
        return ("A borrowed threshold held:", "no calibration data at this position.")
    if step.certified_in == "factual":
        return ("Threshold held as typed:", f"{_as_typed(step, digits)}.")
    return (
        "Threshold held:",
        "likely enough with the marked words shown and with them masked, however far the two differ.",
    )


def hint(step: Step, digits: int) -> str:
    """The figures behind the verdict, and what would have happened otherwise; may be empty."""
    by_family = step.families and step.state != "none"
    sentences = [family_hint(step, digits)] if by_family else [_support(step, digits)]
    if step.state == "inherited" and (step.fallback or not step.certified):
        sentences.append("The threshold is borrowed from another position.")
    if step.forced and step.policy_token_id != step.token_id:
        sentences.append(f"Left alone, the policy would have written {quoted(step.policy_token)}.")
    sentences.append(decided_sentence(step))
    return " ".join(filter(None, sentences))


def _support(step: Step, digits: int) -> str:
    """The support against the threshold; empty without one."""
    tau = threshold(math.exp(step.log_tau))
    if not has_threshold(step):
        return ""
    if step.set_size == 0:
        known = [math.exp(row.log_support(step.certified_in)) for row in step.candidates if step.is_known(row)]
        best = max(known, default=0.0)
        if step.certified_in == "factual" and best >= math.exp(step.log_tau):
            return "Tokens reach the threshold; the method refuses them by a limit of its own."
        name = "probability as typed" if step.certified_in == "factual" else "lower probability"
        return f"The best {name} is {probability(best, digits)}; needed {tau}."
    if step.certified_in == "factual":
        sentence = _as_typed(step, digits)
        return f"{sentence[0].upper()}{sentence[1:]}."
    return f"Lower probability {probability(math.exp(step.log_support), digits)}; needed {tau}."


def _surely(step: Step) -> str:
    return " for certain" if step.bounds is not None and step.bounds.undecided else ""


def _enough(step: Step) -> str:
    """What no token did where none is certified."""
    if step.certified_in == "both":
        return "reached the threshold in both worlds"
    limited = any(row.log_p_factual >= step.log_tau for row in step.candidates)
    return "passed the threshold and the method’s own limit" if limited else "reached the threshold as typed"


def _as_typed(step: Step, digits: int) -> str:
    """The probability as typed against the threshold, or that something else decided of the token."""
    row = emitted(step)
    accepted = row is not None and row.certified
    if accepted == (step.log_p_factual >= step.log_tau) or abs(step.log_p_factual - step.log_tau) <= ROUNDING:
        side = "reaches" if accepted else "is under"
        shown = probability(math.exp(step.log_p_factual), digits)
        return f"its probability as typed, {shown}, {side} τ {threshold(math.exp(step.log_tau))}"
    return "the method refuses it by a limit of its own"


def facts(step: Step, noise: NumericNoise | None = None) -> list[tuple[str, str, str]]:
    """The four figures under the chart: name, value, what it means. Without ``noise`` no token is at its threshold."""
    ratio = step.diagnostics.log_ratio
    mass, meaning = probability(step.certified_mass), "of the fused probability"
    if step.bounds is not None:
        mass, meaning = f"≥ {mass}", "of the fused probability, on what is certain"
    if step.state == "none":
        mass, meaning = "none", "nothing is certified"
    return [
        ("Sensitivity", "none", "not known")
        if is_open_ended(step)
        else ("Sensitivity", signed(ratio), times_likelier(ratio)),
        ("How much masking shifts the choice", *_variation(step)),
        _set_fact(step, noise),
        ("Certified mass", mass, meaning),
    ]


def _set_fact(step: Step, noise: NumericNoise | None) -> tuple[str, str, str]:
    notes = {
        "uninformative": f"tokens pass: {silence(step.log_tau)}",
        "none": "there is no threshold",
        "mismatch": "tokens over a threshold of another policy",
        "inherited": "tokens over a borrowed threshold",
    }
    if step.families:
        notes |= {
            "uninformative": "tokens that no family refuses; the threshold of a family, or all together, say nothing",
            "calibrated": "tokens certified for every family",
        }
    if step.state == "none":
        return ("Set size", "none", notes["none"])
    note = notes.get(step.state, "tokens certified at this step")
    if noise is not None and step.near_threshold(noise.nats):
        note += f"; within numeric noise ({noise.text}) tokens stand at the threshold"
    return ("Set size", set_size(step), note)


def _variation(step: Step) -> tuple[str, str]:
    distance, bound = step.diagnostics.tv_on_set, step.diagnostics.tv_bound
    if distance is None:
        return ("none", "undefined: the set is empty")
    if bound is None or bound > 1:
        return (probability(distance), "0 not at all, 1 entirely")
    return (probability(distance), f"0 not at all, 1 entirely; at most {bound:.2f} by its bound")


NOTICEABLE = 0.1
"""Absolute log ratio under which no bar is drawn."""

SHOWN_ROWS = 10
"""Candidates that a card holds in any case."""

CERTIFIED_ROWS = 16
"""Candidates among which a card also holds those that are certified."""

HEAT_SLOT = 12
"""Highest sensitivity bar, in pixels."""


def step_card(step: Step, noise: NumericNoise | None = None, masked: Sequence[str] = ()) -> dict[str, Any]:
    """Everything that the page shows of a step; the short keys keep its message small.

    ``i`` index, ``id`` token id, ``t`` raw text, ``w`` shown text, ``c`` classes, ``k`` marks, ``h`` bar height,
    ``n`` masking raises it, ``g`` joins the token before, ``sr`` text for screen readers, ``o`` origin,
    ``e`` how the two readings differ,
    ``v`` verdict, ``b`` the bin words the verdict, ``d`` hint, ``rows`` table, ``p`` bars (factual, masked, fused),
    ``tau`` threshold, ``tt`` its text, ``facts`` figures, ``s`` set size, ``st`` state, ``r`` log ratio,
    ``pt`` the policy's own token, ``fam`` the families' lines with factorized masks, ``rest`` the candidates beyond the
    table (text, factual, masked, fused, mark), ``kl`` KL(fused || masked), ``tv`` total variation on the set, ``tb``
    its bound, ``mg`` margin; None where it is undefined. ``u``: the likeliest token without the mask is not certified.
    ``a``: the factual reading alone certifies, so that ``j`` and ``mg`` are of it.
    """
    tau = math.exp(step.log_tau)
    digits = _digits(step, tau)
    ratio = step.diagnostics.log_ratio
    shown = shown_candidates(step)
    return {
        "i": step.index,
        "id": step.token_id,
        "t": step.token,
        "w": shown_token(step.token),
        "c": " ".join(shapes(step)),
        "k": token_marks(step),
        "h": heat_height(ratio),
        "n": ratio < 0,
        "g": step.index > 0 and not step.token[:1].isspace(),
        "sr": spoken_state(step),
        "o": "you forced it" if step.forced else "fallback" if step.fallback else "",
        "e": finding(step, masked),
        "v": verdict(step, digits),
        "b": _worded_by_bin(step),
        "d": hint(step, digits),
        "rows": [_row(step, candidate, digits) for candidate in shown],
        "p": [[_probability(candidate, view) for candidate in shown] for view in VIEWS],
        "tau": round(tau, 8) if has_threshold(step) else None,
        "tt": threshold(tau) if has_threshold(step) else "",
        "facts": facts(step, noise),
        "s": step.set_size,
        "st": step.state,
        "r": round(ratio, 4),
        "pt": shown_token(step.policy_token),
        "fam": family_rows(step, digits),
        "rest": [_point(step, candidate) for candidate in step.candidates if candidate not in shown],
        "kl": _figure(step.diagnostics.kl_fused_masked) or 0.0,
        "tv": _figure(step.diagnostics.tv_on_set),
        "tb": _figure(step.diagnostics.tv_bound),
        "mg": _figure(step.diagnostics.margin) if has_threshold(step) else None,
        "u": factual_overruled(step),
        "a": step.certified_in == "factual",
    }


def shown_candidates(step: Step) -> list[Candidate]:
    """The likeliest candidates, the certified ones and the emitted one, in the step's order."""
    return [
        candidate
        for place, candidate in enumerate(step.candidates)
        if place < SHOWN_ROWS or candidate.token_id == step.token_id or (candidate.certified and place < CERTIFIED_ROWS)
    ]


def token_marks(step: Step) -> list[str]:
    """Marks over the token: a pin when forced, a triangle when nothing certifies it although a set exists."""
    marks = ["pin"] if step.forced else []
    missed = not step.certified and (step.state in ("calibrated", "inherited") or _is_refused(step))
    if step.fallback or (step.forced and missed):
        marks.append("tri")
    return marks


def heat_height(log_ratio: float) -> int:
    """Height of the sensitivity bar in pixels; 0 draws none."""
    size = abs(log_ratio)
    return 0 if size < NOTICEABLE else min(HEAT_SLOT, max(2, round(size * 9)))


def spoken_state(step: Step) -> str:
    """The token's state for a screen reader."""
    parts = [f"step {step.index + 1}"]
    if step.forced:
        parts.append("forced by you")
    parts.append(_spoken_certificate(step))
    if abs(step.diagnostics.log_ratio) >= NOTICEABLE:
        parts.append(f"sensitivity {signed(step.diagnostics.log_ratio)}")
    return ", ".join(parts)


def _digits(step: Step, tau: float) -> int:
    if step.families:
        # Each family has a threshold of its own, so that no number of digits suits them all.
        return MOST_DIGITS
    alone = step.certified_in == "factual"
    values = [
        math.exp(value)
        for c in step.candidates
        for value in ((c.log_p_factual,) if alone else (c.log_p_masked, c.log_p_fused))
    ]
    return digits_for(values, tau if has_threshold(step) else 0.0)


def _worded_by_bin(step: Step) -> bool:
    if step.families:
        return False
    if step.state == "uninformative" and step.log_tau == -math.inf:
        return True
    return step.state == "inherited" and step.certified and not step.fallback


def _spoken_certificate(step: Step) -> str:
    if step.fallback:
        return "fallback, nothing certified"
    if step.state in ("none", "mismatch"):
        return {"none": "uncertified, no calibration", "mismatch": "uncertified, policy mismatch"}[step.state]
    if step.state == "uninformative" and not _is_refused(step):
        return "threshold too weak to say anything"
    if not step.certified:
        return "not certified"
    return "borrowed threshold held" if step.state == "inherited" else "threshold held"


def _is_refused(step: Step) -> bool:
    """Whether a family with a threshold of its own refuses the token, however weak the others are."""
    return step.state not in ("none", "mismatch") and bool(refused_by(step))


def _probability(candidate: Candidate, view: str) -> float:
    return float(f"{math.exp(getattr(candidate, f'log_p_{view}')):.4g}")


def _point(step: Step, candidate: Candidate) -> tuple[str, float, float, float, str]:
    factual, masked, fused = (_probability(candidate, view) for view in VIEWS)
    return (shown_token(candidate.token), factual, masked, fused, _row_status(step, candidate)[0])


def _figure(value: float | None) -> float | None:
    """Four significant digits; None where nothing finite is known."""
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None


def _row(step: Step, candidate: Candidate, digits: int) -> dict[str, Any]:
    mark, why = _row_status(step, candidate)
    chosen = candidate.token_id == step.token_id
    return {
        "id": candidate.token_id,
        "t": candidate.token,
        "f": shown_probability(step, candidate, "factual", digits),
        "m": shown_probability(step, candidate, "masked", digits),
        "x": shown_probability(step, candidate, "fused", digits),
        "j": shown_support(step, candidate, digits),
        "mark": mark,
        "why": why,
        "act": ("forced" if step.forced else "taken") if chosen else "",
    }


def _row_status(step: Step, candidate: Candidate) -> tuple[str, str]:
    if step.families:
        return candidate_status(step, candidate)
    if not has_threshold(step):
        return ("open", "no τ")
    if step.is_open(candidate):
        return ("open", "undecided")
    views = ("factual",) if step.certified_in == "factual" else ("masked", "fused")
    short = [view for view in views if ends_of(step, candidate, view)[1] < step.log_tau]
    if short:
        return ("out", f"{'both' if len(short) == 2 else short[0]} < τ")
    if step.certified_in == "factual" and not candidate.certified:
        # It reaches the threshold, and the method refuses it by a limit of its own.
        return ("out", "own limit")
    if step.state == "calibrated":
        return ("tick", "certified")
    return ("borrowed", "borrowed τ") if step.state == "inherited" else ("open", "≥ τ")
