"""What a written audit says at another lambda or alpha: its rows, its sentences, and as JSON and on the page."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from app.prompts.words import Message
from app.shared.format import shown_token
from coft_core.types import Certificate, Step
from db.calibrations import CalibrationRecord

COMPUTED = "The model read this text again, because the logits of its steps are not kept."
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
    now: Step

    @property
    def index(self) -> int:
        """Position in the chain, 0-based."""
        return self.then.index

    @property
    def moved(self) -> bool:
        """Whether the policy would choose another token after the same prefix."""
        return self.now.policy_token_id != self.then.policy_token_id

    @property
    def differs(self) -> bool:
        """Whether another token would be written after the same prefix; a forced token stays."""
        return self.moved and not self.then.forced

    @property
    def token_mark(self) -> str:
        """``other``, ``forced`` (it stays, but the policy would choose otherwise), or nothing."""
        return "" if not self.moved else "forced" if self.then.forced else "other"

    @property
    def certificate_mark(self) -> str:
        """``lost``, ``gained``, or nothing."""
        if self.now.certified == self.then.certified:
            return ""
        return "lost" if self.then.certified else "gained"


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
    offers: tuple[CalibrationRecord, ...] = ()
    computed: bool = False
    """Whether the model ran again, because logits of this chain were not kept."""

    @property
    def differing(self) -> tuple[RereadRow, ...]:
        """Steps at which another token would be written."""
        return tuple(row for row in self.rows if row.differs)

    @property
    def first(self) -> RereadRow | None:
        """The first step at which another token would be written."""
        return next(iter(self.differing), None)

    @property
    def certified_then(self) -> int:
        """How many of the steps were certified when they were audited."""
        return sum(row.then.certified for row in self.rows)

    @property
    def certified_now(self) -> int:
        """How many of them are certified now."""
        return sum(row.now.certified for row in self.rows)

    @property
    def claim(self) -> str:
        """What may be claimed of the steps, with at how many of them."""
        return Certificate.read(self.thresholds.certificate).at(self.certified_now, len(self.rows)).text

    @property
    def fits(self) -> bool:
        """Whether its thresholds certify anything at these settings."""
        return Certificate.read(self.thresholds.certificate).certified

    @property
    def token_sentence(self) -> str:
        """How many tokens would be others, and the first of them."""
        if not self.rows:
            return "The text has no token yet."
        differing, first = self.differing, self.first
        if first is None:
            text = "The token would be the same." if len(self.rows) == 1 else "Every token would be the same."
        else:
            noun = "token" if len(self.rows) == 1 else "tokens"
            told = "others, the first at" if len(differing) > 1 else "another one, at"
            text = (
                f"{len(differing)} of {len(self.rows)} {noun} would be {told} "
                f"step {first.index + 1} ({_quoted(first.then.token)} → {_quoted(first.now.policy_token)})."
            )
        if moved := sum(row.token_mark == "forced" for row in self.rows):
            forced = "1 forced token stays" if moved == 1 else f"{moved} forced tokens stay"
            text += f" {forced}, although the policy by itself would now choose otherwise."
        return text

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
        text = f"Thresholds held: {self.certified_now} of {len(self.rows)} now, {then}"
        if silent:
            text += f"; at {silent} the threshold says nothing, and counts as missed"
        if marks["lost"] or marks["gained"]:
            text += f"; {marks['lost']} would lose the certificate and {marks['gained']} would gain one"
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
    def summary(self) -> str:
        """The reading in a few sentences."""
        parts = (self.token_sentence, self.certificate_sentence, self.reach_sentence, COMPUTED if self.computed else "")
        return " ".join(filter(None, parts))


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
    """A reading with all its steps; steps count from 1, and every number is exact."""
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
        "not_kept": [],
        "other_lambdas": [{"lam": one.lam, "calibration_id": one.id, "name": one.name} for one in rereading.offers],
        "steps": [_row_json(row) for row in rereading.rows],
    }


def _row_json(row: RereadRow) -> dict[str, Any]:
    """One step as it was audited and as it reads now."""
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
        "p_fused": math.exp(now.log_p_fused),
        "set_size_then": then.set_size,
        "set_size": now.set_size,
        "exact": True,
        "note": "",
    }


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
        "steps": len(rereading.rows),
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
        "source": COMPUTED if rereading.computed else "",
        "first": None if first is None else first.index,
        "marks": [_mark(row, fits) for row in remarkable],
        "rows": [_table_row(row, fits) for row in remarkable[:MOST_ROWS]],
        "more": "" if more <= 0 else f"{more} more steps differ; the strip above shows them.",
        "own_text": _settings(rereading.own_lam, rereading.own_alpha),
        "now_text": _settings(rereading.lam, rereading.alpha),
        "renewal": _renewal(rereading),
    }


def _mark(row: RereadRow, fits: bool) -> Message:
    """The marks of one token: ``t`` of the token, ``c`` of its certificate where the thresholds fit, and the words."""
    other = shown_token(row.now.policy_token)
    of_token = {"other": f"would be {other}", "forced": f"forced; the policy would now choose {other}"}
    of_certificate = {"lost": "would lose its certificate", "gained": "would be certified"}
    certificate = row.certificate_mark if fits else ""
    words = filter(None, (of_token.get(row.token_mark), of_certificate.get(certificate)))
    return {"i": row.index, "t": row.token_mark, "c": certificate, "sr": "; ".join(words)}


def _table_row(row: RereadRow, fits: bool) -> Message:
    """One row of the table; ``id`` is the token that can be forced there, if it is another one."""
    other = shown_token(row.now.policy_token)
    return {
        "i": row.index,
        "step": row.index + 1,
        "written": shown_token(row.then.token),
        "would": {"forced": f"forced (else {other})", "other": other}.get(row.token_mark, "the same"),
        "id": row.now.policy_token_id if row.differs else None,
        "then": _certificate(row.then),
        "now": _certificate(row.now),
        "t": row.token_mark,
        "c": row.certificate_mark if fits else "",
    }


def _certificate(step: Step) -> str:
    """Whether a token is certified, in a word or two."""
    held = {"calibrated": "held", "inherited": "held, borrowed"}.get(step.state)
    if held is not None:
        return held if step.certified else "missed"
    return {"none": "no threshold", "mismatch": "uncertified"}.get(step.state, "says nothing")


def _settings(lam: float, alpha: float | None) -> str:
    return f"λ {lam:g}" if alpha is None else f"λ {lam:g} and α {alpha:g}"


def _renewal(rereading: Rereading) -> str:
    """What a new audit at these settings would be."""
    unchanged = "Same prompt, spans and seed."
    if rereading.first is None:
        way = "It repeats this whole text."
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


def _badge(rereading: Rereading) -> tuple[str, str]:
    """State and word of the thresholds' badge."""
    if rereading.thresholds.kind == "none":
        return "none", "no thresholds"
    return ("calibrated", "under thresholds") if rereading.fits else ("uninformative", "no threshold fits")
