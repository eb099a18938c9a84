"""What the audit page says of one step: pure functions from the core's data to plain values.

A *card* is everything that the page needs of a step. The browser keeps the cards, so that looking at another
token needs no call to the server.
"""

from __future__ import annotations

import math
from typing import TypedDict

from app.services.views import Candidate, Step
from app.ui.presenters_format import (
    count,
    digits_for,
    probability,
    quoted,
    shown_token,
    signed,
    threshold,
    times_likelier,
)

SENSITIVE = 0.5
"""Absolute log ratio from which a token counts as attribute-sensitive."""

NOTICEABLE = 0.1
"""Absolute log ratio under which no bar is drawn."""

HEAT_SLOT = 12
"""Highest sensitivity bar, in pixels."""


class Row(TypedDict):
    """One line of the candidate table."""

    id: int
    t: str
    f: str
    m: str
    x: str
    j: str
    mark: str
    why: str
    act: str


class Card(TypedDict):
    """One step as the page shows it; the short keys keep a step's message small.

    ``i`` index, ``id`` token id, ``t`` raw text, ``w`` shown text, ``c`` classes, ``k`` marks, ``h`` bar height,
    ``n`` masking raises it, ``g`` joins the token before, ``sr`` text for screen readers, ``o`` origin,
    ``v`` verdict, ``b`` the bin words the verdict, ``d`` hint, ``rows`` table, ``p`` bars (factual, masked, fused),
    ``tau`` threshold, ``tt`` its text, ``facts`` figures, ``s`` set size, ``st`` state, ``r`` log ratio,
    ``pt`` the policy's own token.
    """

    i: int
    id: int
    t: str
    w: str
    c: str
    k: list[str]
    h: int
    n: bool
    g: bool
    sr: str
    o: str
    v: tuple[str, str]
    b: bool
    d: str
    rows: list[Row]
    p: list[list[float]]
    tau: float | None
    tt: str
    facts: list[tuple[str, str, str]]
    s: int
    st: str
    r: float
    pt: str


def step_card(step: Step) -> Card:
    """Everything that the page shows of a step."""
    tau = math.exp(step.log_tau)
    digits = _digits(step, tau)
    ratio = step.diagnostics.log_ratio
    rows = [_row(step, candidate, digits) for candidate in step.candidates]
    return Card(
        i=step.index,
        id=step.token_id,
        t=step.token,
        w=shown_token(step.token),
        c=" ".join(token_classes(step)),
        k=token_marks(step),
        h=heat_height(ratio),
        n=ratio < 0,
        g=step.index > 0 and not step.token[:1].isspace(),
        sr=spoken_state(step),
        o=_origin(step),
        v=verdict(step, digits),
        b=_worded_by_bin(step),
        d=hint(step, digits),
        rows=rows,
        p=[_bars(step, view) for view in ("factual", "masked", "fused")],
        tau=round(tau, 8) if _has_threshold(step) else None,
        tt=threshold(tau) if _has_threshold(step) else "",
        facts=facts(step),
        s=step.set_size,
        st=step.state,
        r=round(ratio, 4),
        pt=shown_token(step.policy_token),
    )


def is_plainly_certified(step: Step) -> bool:
    """Whether the token may be shown as certified without a caveat."""
    return step.certified and step.state == "calibrated" and not step.fallback


def token_classes(step: Step) -> list[str]:
    """Classes of the token in the strip; shape carries the state, colour only repeats it."""
    classes = []
    if step.fallback:
        classes.append("fallback")
    elif step.state == "inherited":
        classes.append("inherited")
    elif step.state != "calibrated":
        classes.append("open")
    elif not step.certified:
        classes.append("outside")
    if abs(step.diagnostics.log_ratio) >= SENSITIVE:
        classes.append("sensitive")
    return classes


def token_marks(step: Step) -> list[str]:
    """Marks over the token: a pin when forced, a triangle when nothing certifies it although a set exists."""
    marks = ["pin"] if step.forced else []
    if step.fallback or (step.forced and not step.certified and step.state in ("calibrated", "inherited")):
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


def verdict(step: Step, digits: int) -> tuple[str, str]:
    """The step in plain words: a bold beginning and the rest."""
    joint = min(step.log_p_fused, step.log_p_masked)
    if step.state == "none":
        return ("Not certified:", "no calibration is used, so there is no threshold.")
    if step.state == "mismatch":
        return ("Not certified:", "the calibration belongs to another policy, so its threshold proves nothing here.")
    if step.state == "uninformative":
        return ("Not certified in any useful sense:", "too few contexts for this alpha, so every token passes.")
    if step.forced and not step.certified:
        below = "masked" if step.log_p_masked <= step.log_p_fused else "fused"
        return (
            "You forced a token that is not certified:",
            f"{below} {probability(math.exp(joint), digits)} is under τ {threshold(math.exp(step.log_tau))}.",
        )
    if step.fallback:
        return (
            "Fallback:",
            "no token reached the threshold in both worlds, so the likeliest fused token was written. "
            "Nothing is certified here.",
        )
    if step.state == "inherited":
        return ("Certified with a borrowed threshold:", "no calibration data at this position.")
    return ("Certified:", f"plausible in both worlds. {_effect_of_masking(step, digits)}")


def hint(step: Step, digits: int) -> str:
    """The figures behind the verdict, and what would have happened otherwise."""
    sentences = []
    tau = threshold(math.exp(step.log_tau))
    joint = math.exp(min(step.log_p_fused, step.log_p_masked))
    if step.set_size == 0 and _has_threshold(step):
        best = max(math.exp(candidate.log_joint) for candidate in step.candidates)
        sentences.append(f"The best joint support is {probability(best, digits)}, under the threshold τ {tau}.")
    elif _has_threshold(step):
        side = "reaches" if joint >= math.exp(step.log_tau) else "is under"
        sentences.append(f"Joint support {probability(joint, digits)} {side} the threshold τ {tau}.")
    else:
        sentences.append(_effect_of_masking(step, digits))
    if step.state == "inherited" and (step.fallback or not step.certified):
        sentences.append("The threshold is borrowed from another position.")
    if step.forced and step.policy_token_id != step.token_id:
        sentences.append(f"Left alone, COFT would have written {quoted(step.policy_token)}.")
    return " ".join(sentences)


def facts(step: Step) -> list[tuple[str, str, str]]:
    """The four figures under the chart: name, value, what it means."""
    return [_set_fact(step), _mass_fact(step), _variation_fact(step), _sensitivity_fact(step)]


def _set_fact(step: Step) -> tuple[str, str, str]:
    notes = {
        "uninformative": "every token passes: the threshold is uninformative",
        "none": "there is no threshold",
        "mismatch": "tokens over a threshold of another policy",
        "inherited": "tokens over a borrowed threshold",
    }
    if step.state == "none":
        return ("Set size", "none", notes["none"])
    return ("Set size", count(step.set_size), notes.get(step.state, "tokens certified at this step"))


def _mass_fact(step: Step) -> tuple[str, str, str]:
    if step.state == "none":
        return ("Certified mass", "none", "nothing is certified")
    return ("Certified mass", probability(step.certified_mass), "of the fused probability")


def _variation_fact(step: Step) -> tuple[str, str, str]:
    found, bound = step.diagnostics.tv_on_set, step.diagnostics.tv_bound
    if found is None:
        return ("TV on the set", "none", "undefined: the set is empty")
    if bound is None:
        return ("TV on the set", probability(found), "no bound: there is no threshold")
    if bound > 1:
        return ("TV on the set", probability(found), f"bound {bound:.2f}: above 1, so it says nothing here")
    return ("TV on the set", probability(found), f"and at most {bound:.2f} by its bound")


def _sensitivity_fact(step: Step) -> tuple[str, str, str]:
    ratio = step.diagnostics.log_ratio
    return ("Sensitivity", signed(ratio), times_likelier(ratio))


def _digits(step: Step, tau: float) -> int:
    values = [math.exp(value) for c in step.candidates for value in (c.log_p_masked, c.log_p_fused)]
    return digits_for(values, tau if _has_threshold(step) else 0.0)


def _has_threshold(step: Step) -> bool:
    return step.state != "none" and step.log_tau > -math.inf


def _worded_by_bin(step: Step) -> bool:
    if step.state == "uninformative":
        return True
    return step.state == "inherited" and step.certified and not step.fallback


def _effect_of_masking(step: Step, digits: int) -> str:
    seen = probability(math.exp(step.log_p_factual), digits)
    masked = probability(math.exp(step.log_p_masked), digits)
    if seen == masked:
        return f"Masking leaves this token at {seen}."
    verb = "lowers" if step.log_p_masked < step.log_p_factual else "raises"
    return f"Masking {verb} this token from {seen} to {masked}."


def _origin(step: Step) -> str:
    if step.forced:
        return "you forced it"
    return "fallback" if step.fallback else ""


def _spoken_certificate(step: Step) -> str:
    if step.fallback:
        return "fallback, nothing certified"
    if step.state in ("none", "mismatch"):
        return {"none": "uncertified, no calibration", "mismatch": "uncertified, policy mismatch"}[step.state]
    if step.state == "uninformative":
        return "threshold uninformative"
    if not step.certified:
        return "not certified"
    return "inherited threshold" if step.state == "inherited" else "certified"


def _bars(step: Step, view: str) -> list[float]:
    return [float(f"{math.exp(getattr(candidate, f'log_p_{view}')):.4g}") for candidate in step.candidates]


def _row(step: Step, candidate: Candidate, digits: int) -> Row:
    mark, why = _row_status(step, candidate)
    chosen = candidate.token_id == step.token_id
    return Row(
        id=candidate.token_id,
        t=candidate.token,
        f=probability(math.exp(candidate.log_p_factual), digits),
        m=probability(math.exp(candidate.log_p_masked), digits),
        x=probability(math.exp(candidate.log_p_fused), digits),
        j=probability(math.exp(candidate.log_joint), digits),
        mark=mark,
        why=why,
        act=("forced" if step.forced else "taken") if chosen else "",
    )


def _row_status(step: Step, candidate: Candidate) -> tuple[str, str]:
    if not _has_threshold(step):
        return ("open", "no τ")
    short = [
        name
        for name, value in (("masked", candidate.log_p_masked), ("fused", candidate.log_p_fused))
        if value < step.log_tau
    ]
    if short:
        return ("out", f"{'both' if len(short) == 2 else short[0]} < τ")
    if step.state == "calibrated":
        return ("tick", "certified")
    return ("borrowed", "borrowed τ") if step.state == "inherited" else ("open", "other policy")
