"""What the audit page says of one step: pure functions from the core's data to plain values.

A *card* is everything that the page needs of a step. The browser keeps the cards, so that looking at another
token needs no call to the server.
"""

from __future__ import annotations

import math
from typing import TypedDict

from app.services.run_until import factual_overruled
from app.services.step_words import shapes
from app.services.views import Candidate, NumericNoise, Step
from app.ui.presenters_families import FamilyRow, candidate_status, family_rows, refused_by
from app.ui.presenters_format import MOST_DIGITS, digits_for, probability, shown_token, signed, threshold
from app.ui.presenters_words import facts, has_threshold, hint, verdict

NOTICEABLE = 0.1
"""Absolute log ratio under which no bar is drawn."""

SHOWN_ROWS = 10
"""Candidates that a card holds in any case."""

CERTIFIED_ROWS = 16
"""Candidates among which a card also holds those that are certified."""

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
    ``pt`` the policy's own token, ``fam`` the families' lines with factorized masks, ``rest`` the candidates beyond the
    table (text, factual, masked, fused, mark), ``kl`` KL(fused || masked), ``tv`` total variation on the set, ``tb``
    its bound, ``mg`` margin; None where it is undefined. ``u``: the likeliest token without the mask is not certified.
    ``a``: the factual reading alone certifies, so that ``j`` and ``mg`` are of it.
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
    fam: list[FamilyRow]
    rest: list[tuple[str, float, float, float, str]]
    kl: float
    tv: float | None
    tb: float | None
    mg: float | None
    u: bool
    a: bool


def step_card(step: Step, noise: NumericNoise | None = None) -> Card:
    """Everything that the page shows of a step.

    Args:
        step: The step.
        noise: Bound on the numeric noise of the model's type.
    """
    tau = math.exp(step.log_tau)
    digits = _digits(step, tau)
    ratio = step.diagnostics.log_ratio
    shown = shown_candidates(step)
    rows = [_row(step, candidate, digits) for candidate in shown]
    return Card(
        i=step.index,
        id=step.token_id,
        t=step.token,
        w=shown_token(step.token),
        c=" ".join(shapes(step)),
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
        p=[_bars(shown, view) for view in ("factual", "masked", "fused")],
        tau=round(tau, 8) if has_threshold(step) else None,
        tt=threshold(tau) if has_threshold(step) else "",
        facts=facts(step, noise),
        s=step.set_size,
        st=step.state,
        r=round(ratio, 4),
        pt=shown_token(step.policy_token),
        fam=family_rows(step, digits),
        rest=[_point(step, candidate) for candidate in step.candidates if candidate not in shown],
        kl=_figure(step.diagnostics.kl_fused_masked) or 0.0,
        tv=_figure(step.diagnostics.tv_on_set),
        tb=_figure(step.diagnostics.tv_bound),
        mg=_figure(step.diagnostics.margin) if has_threshold(step) else None,
        u=factual_overruled(step),
        a=step.certified_in == "factual",
    )


def shown_candidates(step: Step) -> list[Candidate]:
    """The likeliest candidates, the certified ones and the emitted one, in the step's order."""
    return [
        candidate
        for place, candidate in enumerate(step.candidates)
        if place < SHOWN_ROWS or candidate.token_id == step.token_id or (candidate.certified and place < CERTIFIED_ROWS)
    ]


def is_plainly_certified(step: Step) -> bool:
    """Whether the token may be shown as certified without a caveat."""
    return step.certified and step.state == "calibrated" and not step.fallback


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


def _origin(step: Step) -> str:
    if step.forced:
        return "you forced it"
    return "fallback" if step.fallback else ""


def _spoken_certificate(step: Step) -> str:
    if step.fallback:
        return "fallback, nothing certified"
    if step.state in ("none", "mismatch"):
        return {"none": "uncertified, no calibration", "mismatch": "uncertified, policy mismatch"}[step.state]
    if step.state == "uninformative" and not _is_refused(step):
        return "threshold uninformative" if step.log_tau == -math.inf else "threshold too weak"
    if not step.certified:
        return "not certified"
    return "inherited threshold" if step.state == "inherited" else "certified"


def _is_refused(step: Step) -> bool:
    """Whether a family with a threshold of its own refuses the token, however weak the others are."""
    return step.state not in ("none", "mismatch") and bool(refused_by(step))


def _bars(shown: list[Candidate], view: str) -> list[float]:
    return [_probability(candidate, view) for candidate in shown]


def _probability(candidate: Candidate, view: str) -> float:
    return float(f"{math.exp(getattr(candidate, f'log_p_{view}')):.4g}")


def _point(step: Step, candidate: Candidate) -> tuple[str, float, float, float, str]:
    factual, masked, fused = (_probability(candidate, view) for view in ("factual", "masked", "fused"))
    return (shown_token(candidate.token), factual, masked, fused, _row_status(step, candidate)[0])


def _figure(value: float | None) -> float | None:
    """Four significant digits; None where nothing finite is known."""
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None


def _row(step: Step, candidate: Candidate, digits: int) -> Row:
    mark, why = _row_status(step, candidate)
    chosen = candidate.token_id == step.token_id
    return Row(
        id=candidate.token_id,
        t=candidate.token,
        f=probability(math.exp(candidate.log_p_factual), digits),
        m=probability(math.exp(candidate.log_p_masked), digits),
        x=probability(math.exp(candidate.log_p_fused), digits),
        j=probability(math.exp(candidate.log_support(step.certified_in)), digits),
        mark=mark,
        why=why,
        act=("forced" if step.forced else "taken") if chosen else "",
    )


def _row_status(step: Step, candidate: Candidate) -> tuple[str, str]:
    if step.families:
        return candidate_status(step, candidate)
    if not has_threshold(step):
        return ("open", "no τ")
    if step.certified_in == "factual":
        views = [("factual", candidate.log_p_factual)]
    else:
        views = [("masked", candidate.log_p_masked), ("fused", candidate.log_p_fused)]
    short = [name for name, value in views if value < step.log_tau]
    if short:
        return ("out", f"{'both' if len(short) == 2 else short[0]} < τ")
    if step.certified_in == "factual" and not candidate.certified:
        # It reaches the threshold, and the method refuses it by a limit of its own.
        return ("out", "own limit")
    if step.state == "calibrated":
        return ("tick", "certified")
    return ("borrowed", "borrowed τ") if step.state == "inherited" else ("open", "≥ τ")
