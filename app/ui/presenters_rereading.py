"""What the audit page says of a chain that is read at another lambda or alpha."""

from __future__ import annotations

from app.services.views.rereading import Departure, Rereading, RereadRow
from app.ui.presenters_format import shown_token
from app.ui.presenters_session import Message

MOST_ROWS = 60
"""Rows of the table; a chain of a thousand steps could differ everywhere, and the strip shows the rest."""


def rereading_message(found: Rereading) -> Message:
    """A reading: its words, the marks of the strip, and the table of what differs."""
    told, first = found.thresholds, found.first
    # Where the thresholds do not fit no token is certified, which is said once and not at every token.
    fits = told.certificate == "certified"
    remarkable = [row for row in found.rows if token_mark(row) or (fits and certificate_mark(row))]
    return {
        "kind": "reread",
        "session": found.session_id,
        "branch": found.branch_id,
        "steps": found.steps,
        "lam": found.lam,
        "alpha": found.alpha,
        "own": [found.own_lam, found.own_alpha],
        "moved": (found.lam, found.alpha) != (found.own_lam, found.own_alpha),
        "state": _badge(found),
        "told": told.sentence,
        "notes": list(told.notes),
        "offers": [{"lam": offer.lam, "t": f"λ {offer.lam:g}", "n": offer.name} for offer in found.offers],
        "token": found.token_sentence,
        "certificate": found.certificate_sentence,
        "reach": found.reach_sentence,
        "gap": found.unread_sentence,
        "unread": list(found.unread),
        "first": None if first is None else first.index,
        "marks": [mark(row, fits) for row in remarkable],
        "rows": [table_row(row, fits) for row in remarkable[:MOST_ROWS]],
        "more": _more(len(remarkable)),
        "own_text": settings_text(found.own_lam, found.own_alpha),
        "now_text": settings_text(found.lam, found.alpha),
        "renewal": renewal(found),
    }


def refusal_message(text: str, session: int, branch: int | None) -> Message:
    """Why a chain cannot be read."""
    return {"kind": "refused", "session": session, "branch": branch, "text": text}


def departure_message(found: Departure) -> Message:
    """A new audit on its way, or arrived."""
    return {
        "kind": "departed" if found.done else "departing",
        "session": found.session_id,
        "branch": found.branch_id,
        "text": found.sentence if found.done else f"Writing token {found.written + 1} of {found.target} …",
    }


def mark(row: RereadRow, fits: bool) -> Message:
    """The marks of one token: ``t`` of the token, ``c`` of its certificate where the thresholds fit, and the words."""
    token, certificate = token_mark(row), certificate_mark(row) if fits else ""
    return {"i": row.index, "t": token, "c": certificate, "sr": "; ".join(_words(row, token, certificate))}


def token_mark(row: RereadRow) -> str:
    """``other``, ``forced`` (it stays, but the policy would choose otherwise), ``unknown``, or nothing."""
    if row.then.forced:
        return "forced" if row.now.changed else ""
    return "unknown" if row.differs is None else "other" if row.differs else ""


def certificate_mark(row: RereadRow) -> str:
    """``lost``, ``gained``, ``unknown``, or nothing."""
    if row.recertified is None:
        return "unknown"
    return "" if not row.recertified else "lost" if row.then.certified else "gained"


def table_row(row: RereadRow, fits: bool) -> Message:
    """One row of the table; ``id`` is the token that can be forced there, if it is known and another one."""
    other = row.differs is True and row.now.policy_token_id is not None
    return {
        "i": row.index,
        "step": row.index + 1,
        "written": shown_token(row.then.token),
        "would": _would(row),
        "id": row.now.policy_token_id if other else None,
        "then": certificate_word(row.then.certified, row.then.state),
        "now": certificate_word(row.now.certified, row.now.state),
        "t": token_mark(row),
        "c": certificate_mark(row) if fits else "",
    }


def certificate_word(certified: bool | None, state: str) -> str:
    """Whether a token is certified, in a word or two."""
    if certified is None:
        return "cannot be told"
    if state == "none":
        return "no threshold"
    if state == "mismatch":
        return "uncertified"
    if state == "uninformative":
        return "says nothing"
    if not certified:
        return "not certified"
    return "certified, borrowed" if state == "inherited" else "certified"


def settings_text(lam: float, alpha: float | None) -> str:
    """Lambda and alpha as they are named in a sentence."""
    return f"λ {lam:g}" if alpha is None else f"λ {lam:g} and α {alpha:g}"


def renewal(found: Rereading) -> str:
    """What a new audit at these settings would be."""
    own = "Same prompt, spans and seed."
    if found.first is None:
        way = "It repeats this whole chain." if not found.undecided else "It repeats this chain as far as can be told."
    elif found.first.index == 0:
        way = "It departs at the first step."
    else:
        before = "the first token" if found.first.index == 1 else f"the first {found.first.index} tokens"
        way = f"It repeats {before} and departs at step {found.first.index + 1}."
    certain = {
        "own": f"Certified by “{found.thresholds.name}”.",
        "other": f"Certified by “{found.thresholds.name}”.",
        "mismatch": "Uncertified: its calibration is not made for these settings.",
        "none": "Without thresholds, as this audit.",
    }[found.thresholds.kind]
    return f"{own} {way} {certain}"


def _words(row: RereadRow, token: str, certificate: str) -> list[str]:
    """What differs at a step, as the pointer shows it."""
    other = shown_token(row.now.policy_token or "")
    of_token = {
        "other": f"would be {other}",
        "forced": f"forced; the policy would now choose {other}",
        "unknown": "the token cannot be told",
    }
    of_certificate = {
        "lost": "would lose its certificate",
        "gained": "would be certified",
        "unknown": "its certificate cannot be told",
    }
    return [text for text in (of_token.get(token), of_certificate.get(certificate)) if text]


def _would(row: RereadRow) -> str:
    kind = token_mark(row)
    if kind == "unknown":
        return "cannot be told"
    if kind == "forced":
        return f"forced (else {shown_token(row.now.policy_token or '')})"
    return shown_token(row.now.policy_token or "") if kind == "other" else "the same"


def _badge(found: Rereading) -> tuple[str, str]:
    """State and word of the thresholds' badge."""
    if found.thresholds.kind == "none":
        return "none", "no thresholds"
    if found.thresholds.certificate != "certified":
        return "uninformative", "uncertified"
    return "calibrated", "certified"


def _more(count: int) -> str:
    left = count - MOST_ROWS
    return "" if left <= 0 else f"{left} more steps differ; the strip above shows them."
