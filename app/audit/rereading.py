"""An audit read at another lambda or alpha, from what was stored: what its pages and commands show."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from app.shared.prompt_words import Message
from app.shared.step_words import shown_token
from coft_core.decode.heads import Bounds
from coft_core.decode.reread import RereadStep
from coft_core.types import Certificate, Step

ThresholdKind = Literal["own", "other", "mismatch", "none"]
"""Whose thresholds a reading uses: the audit's own calibration, another one that was made for this lambda, the audit's
own although it was made for another policy, or none."""


@dataclass(frozen=True, slots=True)
class RereadRequest:
    """Which audit to read, and how."""

    session_id: int
    lam: float | None = None
    alpha: float | None = None
    branch_id: int | None = None


@dataclass(frozen=True, slots=True)
class CalibrationOffer:
    """A stored calibration that fits the audit in everything but the lambda that it was made for."""

    lam: float
    calibration_id: int
    name: str


@dataclass(frozen=True, slots=True)
class RereadThresholds:
    """Whose thresholds a reading uses, and what may be claimed with them."""

    kind: ThresholdKind
    certificate: str
    sentence: str
    calibration_id: int | None = None
    name: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RereadRow:
    """One step as it was audited and as it reads now."""

    then: Step
    now: RereadStep

    @property
    def index(self) -> int:
        """Position in the chain, 0-based."""
        return self.then.index

    @property
    def differs(self) -> bool | None:
        """Whether another token would stand here after the same prefix; None if that hangs on what was not kept.

        A forced token stays whatever the policy says.
        """
        return False if self.then.forced else self.now.changed

    @property
    def recertified(self) -> bool | None:
        """Whether the written token's certificate differs; None if it is not known now."""
        return None if self.now.certified is None else self.now.certified != self.then.certified

    @property
    def token_mark(self) -> str:
        """``other``, ``forced`` (it stays, but the policy would choose otherwise), ``unknown``, or nothing."""
        if self.then.forced:
            return "forced" if self.now.changed else ""
        return "unknown" if self.differs is None else "other" if self.differs else ""

    @property
    def certificate_mark(self) -> str:
        """``lost``, ``gained``, ``unknown``, or nothing."""
        if self.recertified is None:
            return "unknown"
        return "" if not self.recertified else "lost" if self.then.certified else "gained"


@dataclass(frozen=True, slots=True)
class Rereading:
    """A chain read at another lambda or alpha."""

    session_id: int
    branch_id: int
    lam: float
    alpha: float | None
    own_lam: float
    own_alpha: float | None
    thresholds: RereadThresholds
    rows: tuple[RereadRow, ...]
    unread: tuple[int, ...] = ()
    offers: tuple[CalibrationOffer, ...] = ()

    @property
    def steps(self) -> int:
        """Length of the chain."""
        return len(self.rows) + len(self.unread)

    @property
    def differing(self) -> tuple[RereadRow, ...]:
        """Steps at which another token would stand."""
        return tuple(row for row in self.rows if row.differs)

    @property
    def undecided(self) -> tuple[RereadRow, ...]:
        """Steps whose token hangs on what was not kept."""
        return tuple(row for row in self.rows if row.differs is None)

    @property
    def first(self) -> RereadRow | None:
        """The first step at which another token would stand."""
        return next(iter(self.differing), None)

    @property
    def certified_then(self) -> int:
        """How many of the steps that can be read were certified when they were audited."""
        return sum(row.then.certified for row in self.rows)

    @property
    def certified_now(self) -> int:
        """How many of them are certified for sure now."""
        return sum(row.now.certified is True for row in self.rows)

    @property
    def claim(self) -> str:
        """What may be claimed of the steps that can be read, with at how many of them."""
        return Certificate.read(self.thresholds.certificate).at(self.certified_now, len(self.rows)).text

    @property
    def fits(self) -> bool:
        """Whether its thresholds certify anything at these settings."""
        return Certificate.read(self.thresholds.certificate).certified

    @property
    def token_sentence(self) -> str:
        """How many tokens would be others, and the first of them."""
        if not self.rows:
            return "No step of this chain can be read." if self.unread else "The chain has no token yet."
        differing, first = self.differing, self.first
        if first is None:
            text = "The token would be the same." if len(self.rows) == 1 else "Every token would be the same."
            text = "No token is known to differ." if self.undecided else text
        else:
            noun = "token" if len(self.rows) == 1 else "tokens"
            told = "others, the first at" if len(differing) > 1 else "another one, at"
            text = (
                f"{len(differing)} of {len(self.rows)} {noun} would be {told} "
                f"step {first.index + 1} ({_quoted(first.then.token)} → {_quoted(first.now.policy_token or '')})."
            )
        return " ".join((text, *self._reservations()))

    @property
    def certificate_sentence(self) -> str:
        """How many tokens are certified, now and when they were audited; empty without thresholds."""
        if self.thresholds.kind == "none" or not self.rows:
            return ""
        then = f"{self.certified_then} as audited"
        if not self.fits:
            return f"Thresholds held: none of {len(self.rows)} now, because the thresholds do not fit; {then}."
        marks = Counter(row.certificate_mark for row in self.rows)
        silent = sum(row.now.state == "uninformative" for row in self.rows)
        hanging = sum(row.now.hangs_on_tail for row in self.rows)
        text = f"Thresholds held: {self.certified_now} of {len(self.rows)} now, {then}"
        if silent:
            text += f"; at {silent} the threshold says nothing, and counts as missed"
        if marks["lost"] or marks["gained"]:
            text += f"; {marks['lost']} would lose the certificate and {marks['gained']} would gain one"
        if hanging:
            text += f"; {hanging} cannot be told, because parts of the vocabulary were not kept"
        return f"{text}."

    @property
    def reach_sentence(self) -> str:
        """What a reading does not say; empty where no token differs."""
        if self.first is None:
            return ""
        return (
            f"What stands after step {self.first.index + 1} reads the old text, token by token; it is not what would "
            "be written after another token there."
        )

    @property
    def unread_sentence(self) -> str:
        """Which steps cannot be read; empty if all can."""
        if not self.unread:
            return ""
        first, last, count = self.unread[0] + 1, self.unread[-1] + 1, len(self.unread)
        if count == 1:
            return f"Step {first} was stored without its logits and cannot be read."
        return f"{count} steps between {first} and {last} were stored without their logits and cannot be read."

    @property
    def summary(self) -> str:
        """The reading in a few sentences."""
        parts = (self.token_sentence, self.certificate_sentence, self.reach_sentence, self.unread_sentence)
        return " ".join(filter(None, parts))

    def _reservations(self) -> Iterator[str]:
        if count := len(self.undecided):
            steps = "1 step" if count == 1 else f"{count} steps"
            yield f"At {steps} the token hangs on parts of the vocabulary that were not kept."
        if moved := sum(row.then.forced and row.now.changed is True for row in self.rows):
            forced = "1 forced token stays" if moved == 1 else f"{moved} forced tokens stay"
            yield f"{forced}, although the policy alone would now choose otherwise."


@dataclass(frozen=True, slots=True)
class Departure:
    """A new audit on its way to the step at which it leaves the old chain."""

    session_id: int
    branch_id: int
    written: int
    target: int
    done: bool = False
    repeats: int = 0
    departs: int | None = None
    sentence: str = ""


def _quoted(token: str) -> str:
    return f"“{token.strip() or token}”"


def rereading_json(rereading: Rereading) -> dict[str, Any]:
    """A reading with all its steps; steps count from 1, and what hangs on logits that were not kept is null."""
    told = rereading.thresholds
    return {
        "session_id": rereading.session_id,
        "branch_id": rereading.branch_id,
        "lam": rereading.lam,
        "alpha": rereading.alpha,
        "own_lam": rereading.own_lam,
        "own_alpha": rereading.own_alpha,
        "certificate": rereading.claim,
        "thresholds": told.kind,
        "thresholds_text": told.sentence,
        "calibration_id": told.calibration_id,
        "calibration": told.name,
        "notes": list(told.notes),
        "summary": rereading.summary,
        "differing": len(rereading.differing),
        "first": None if rereading.first is None else rereading.first.index + 1,
        "certified_then": rereading.certified_then,
        "certified": rereading.certified_now,
        "not_kept": [index + 1 for index in rereading.unread],
        "other_lambdas": [asdict(offer) for offer in rereading.offers],
        "steps": [row_json(row) for row in rereading.rows],
    }


def row_json(row: RereadRow) -> dict[str, Any]:
    """One step as it was audited and as it reads now; numbers that are only bounded are ``[low, high]``."""
    then, now = row.then, row.now
    return {
        "step": row.index + 1,
        "token_id": then.token_id,
        "token": then.token,
        "chosen_by": "reviewer" if then.forced else "policy",
        "differs": row.differs,
        "policy_token_then": then.policy_token,
        "policy_token_id": now.policy_token_id,
        "policy_token": now.policy_token,
        "certified_then": then.certified,
        "certified": now.certified,
        "threshold_state_then": then.state,
        "threshold_state": now.state,
        "fallback_then": then.fallback,
        "fallback": now.fallback,
        "tau_then": math.exp(then.log_tau),
        "tau": math.exp(now.log_tau),
        "p_fused_then": math.exp(then.log_p_fused),
        "p_fused": _number(Bounds(math.exp(now.log_p_fused.low), math.exp(now.log_p_fused.high))),
        "set_size_then": then.set_size,
        "set_size": _number(now.set_size),
        "exact": now.mode == "full",
        "note": now.note,
    }


def _number(bounds: Bounds) -> float | list[float]:
    return bounds.low if bounds.exact else [bounds.low, bounds.high]


MOST_ROWS = 60
"""Rows of the table; a chain of a thousand steps could differ everywhere, and the strip shows the rest."""


def rereading_message(rereading: Rereading) -> Message:
    """A reading: its words, the marks of the strip, and the table of what differs."""
    told, first = rereading.thresholds, rereading.first
    # Where the thresholds do not fit no token is certified, which is said once and not at every token.
    fits = rereading.fits
    remarkable = [row for row in rereading.rows if row.token_mark or (fits and row.certificate_mark)]
    more = len(remarkable) - MOST_ROWS
    return {
        "kind": "reread",
        "session": rereading.session_id,
        "branch": rereading.branch_id,
        "steps": rereading.steps,
        "lam": rereading.lam,
        "alpha": rereading.alpha,
        "own": [rereading.own_lam, rereading.own_alpha],
        "moved": (rereading.lam, rereading.alpha) != (rereading.own_lam, rereading.own_alpha),
        "state": _badge(rereading),
        "told": told.sentence,
        "notes": list(told.notes),
        "offers": [{"lam": offer.lam, "t": f"λ {offer.lam:g}", "n": offer.name} for offer in rereading.offers],
        "token": rereading.token_sentence,
        "certificate": rereading.certificate_sentence,
        "reach": rereading.reach_sentence,
        "gap": rereading.unread_sentence,
        "unread": list(rereading.unread),
        "first": None if first is None else first.index,
        "marks": [mark(row, fits) for row in remarkable],
        "rows": [table_row(row, fits) for row in remarkable[:MOST_ROWS]],
        "more": "" if more <= 0 else f"{more} more steps differ; the strip above shows them.",
        "own_text": settings_text(rereading.own_lam, rereading.own_alpha),
        "now_text": settings_text(rereading.lam, rereading.alpha),
        "renewal": renewal(rereading),
    }


def refusal_message(text: str, session: int, branch: int | None) -> Message:
    """Why a chain cannot be read."""
    return {"kind": "refused", "session": session, "branch": branch, "text": text}


def departure_message(departure: Departure) -> Message:
    """A new audit on its way, or arrived."""
    return {
        "kind": "departed" if departure.done else "departing",
        "session": departure.session_id,
        "branch": departure.branch_id,
        "text": departure.sentence
        if departure.done
        else f"Writing token {departure.written + 1} of {departure.target} …",
    }


def mark(row: RereadRow, fits: bool) -> Message:
    """The marks of one token: ``t`` of the token, ``c`` of its certificate where the thresholds fit, and the words."""
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
    certificate = row.certificate_mark if fits else ""
    words = filter(None, (of_token.get(row.token_mark), of_certificate.get(certificate)))
    return {"i": row.index, "t": row.token_mark, "c": certificate, "sr": "; ".join(words)}


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
        "t": row.token_mark,
        "c": row.certificate_mark if fits else "",
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
        return "missed"
    return "held, borrowed" if state == "inherited" else "held"


def settings_text(lam: float, alpha: float | None) -> str:
    """Lambda and alpha as they are named in a sentence."""
    return f"λ {lam:g}" if alpha is None else f"λ {lam:g} and α {alpha:g}"


def renewal(rereading: Rereading) -> str:
    """What a new audit at these settings would be."""
    unchanged = "Same prompt, spans and seed."
    if rereading.first is None:
        way = (
            "It repeats this whole chain."
            if not rereading.undecided
            else "It repeats this chain as far as can be told."
        )
    elif rereading.first.index == 0:
        way = "It departs at the first step."
    else:
        before = "the first token" if rereading.first.index == 1 else f"the first {rereading.first.index} tokens"
        way = f"It repeats {before} and departs at step {rereading.first.index + 1}."
    certain = {
        "mismatch": "Uncertified: its calibration is not made for these settings.",
        "none": "Without thresholds, as this audit.",
    }.get(rereading.thresholds.kind, f"Certified by “{rereading.thresholds.name}”.")
    return f"{unchanged} {way} {certain}"


def _would(row: RereadRow) -> str:
    kind = row.token_mark
    if kind == "unknown":
        return "cannot be told"
    if kind == "forced":
        return f"forced (else {shown_token(row.now.policy_token or '')})"
    return shown_token(row.now.policy_token or "") if kind == "other" else "the same"


def _badge(rereading: Rereading) -> tuple[str, str]:
    """State and word of the thresholds' badge."""
    if rereading.thresholds.kind == "none":
        return "none", "no thresholds"
    return ("calibrated", "under thresholds") if rereading.fits else ("uninformative", "no threshold fits")
