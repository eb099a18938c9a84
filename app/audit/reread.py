"""A written audit read at another lambda or alpha, and a new audit that follows the reading."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from threading import Lock
from typing import Any, Literal, cast

from app.audit.service import AuditService
from app.shared.audits import AuditSettings, StartAudit, settings_from_json
from app.shared.calibrations import CalibrationStore
from app.shared.errors import ServiceError
from app.shared.format import shown_token
from app.shared.model_host import ModelHost
from app.shared.planning import policy_of
from app.shared.policies import info_of, policy_name
from app.shared.project_cache import ProjectCache
from app.shared.prompt_words import Message
from app.shared.thresholds import Thresholds, own_notes
from coft_core.conformal.calibration import Calibration
from coft_core.decode.loop import path_at
from coft_core.decode.reread import reread
from coft_core.errors import InvalidInputError
from coft_core.fingerprint import Fingerprint, same_digests
from coft_core.policies.ablations import factual_only
from coft_core.policies.base import compared_certificate
from coft_core.policies.fusion import check_lambda
from coft_core.stored_logits import StoredLogits, holds_all
from coft_core.types import Certificate, Step
from db.audits import BranchRecord, SessionRecord
from db.calibrations import CalibrationRecord
from db.sessions import SessionsRepository

COMPUTED = "The model read this chain again, because the logits of its steps are not kept."
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
            return "The chain has no token yet."
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
        way = "It repeats this whole chain."
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


KEPT_BYTES = 32 * 1024 * 1024
"""What chains with decoded logits may take at a time, all together; the chain unused for longest goes first."""
STEP_BYTES, CANDIDATE_BYTES = 2_000, 400
"""About what a step takes without logits and candidates, and what a candidate does, as objects."""

NOT_COFT = (
    "This audit was made with {}; only the steps of policies that fuse both readings, as COFT does, can be read again "
    "at another lambda or alpha, so audit the prompt with one of them."
)
NO_ALPHA = "This audit has no thresholds, so there is no alpha to read them at; change only lambda."
NO_THRESHOLDS = "No threshold is applied in this audit, so only lambda can be changed."

_FREE = ("lam", "estimator", "source")
"""Fields of a fingerprint in which a calibration for another lambda may differ from the audit's."""

LONGEST_NAME = 200


def _size(steps: tuple[Step, ...]) -> int:
    """Bytes that a chain takes, about."""
    logits = sum(len(step.logits.values) for step in steps if step.logits is not None)
    return logits + sum(STEP_BYTES + CANDIDATE_BYTES * len(step.candidates) for step in steps)


class RereadService:
    """What a reviewer asks of an audit that is written: what if lambda or alpha were others."""

    def __init__(
        self,
        sessions: SessionsRepository,
        thresholds: Thresholds,
        store: CalibrationStore,
        audits: AuditService,
        host: ModelHost,
    ) -> None:
        self._sessions = sessions
        self._kept: ProjectCache[int, tuple[Step, ...]] = ProjectCache(KEPT_BYTES, getsizeof=_size)
        self._lock = Lock()
        self._thresholds = thresholds
        self._store = store
        self._audits = audits
        self._host = host

    def read(self, request: RereadRequest) -> Rereading:
        """Every step of a chain as it reads at a lambda and an alpha, its prefix being as it was."""
        record, branch = self._asked(request)
        stored = settings_from_json(record.policy_settings["settings"])
        if not info_of(stored.policy).fuses:
            raise ServiceError(NOT_COFT.format(policy_name(stored.policy)))
        settings = _changed(stored, request)
        alike = self._alike(record, stored)
        calibration, told = self._chosen(record, settings, alike)
        if calibration is None and request.alpha is not None:
            raise ServiceError(NO_ALPHA)
        steps = self._chain(branch)
        # Whether the thresholds fit is told by comparing fingerprints, and then nothing counts as certified.
        read = partial(
            reread,
            policy=policy_of(replace(settings, proceed_uncertified=True), calibration),
            seed=settings.seed,
            path=branch.path,
            greedy=settings.greedy,
            fingerprint=Fingerprint.from_dict(record.fingerprint),
            text_of=self._texts(record, settings, steps),
        )
        whole = all(step.logits is not None for step in steps)
        readings = read(steps) if whole else self._audits.read_again(record.id, steps, read)
        return Rereading(
            session_id=record.id,
            branch_id=branch.id,
            lam=settings.lam,
            alpha=None if calibration is None else settings.alpha,
            own_lam=stored.lam,
            own_alpha=None if calibration is None else stored.alpha,
            thresholds=told,
            rows=tuple(RereadRow(step, reading) for step, reading in zip(steps, readings, strict=True)),
            offers=_offers(alike) if calibration is not None else (),
            computed=not whole,
        )

    def needs_model(self, request: RereadRequest) -> bool:
        """Whether a reading runs the model, because logits of the chain are not kept."""
        return any(step.logits is None for step in self._chain(self._asked(request)[1]))

    def depart(self, request: RereadRequest) -> Iterator[Departure]:
        """Begin an audit with the settings of a reading and run it to the first step that differs; needs the model.

        Its draws are keyed as the old chain's are, and forced tokens are forced again, so that it repeats the old
        chain up to there. Without a step that differs it repeats the whole chain. A pause of the new session ends it.
        """
        reading = self.read(request)
        record, branch = self._asked(request)
        settings = _changed(settings_from_json(record.policy_settings["settings"]), request)
        target, told = _target(reading), reading.thresholds
        if told.kind != "none":
            # Where the calibration of the reading does not fit, going on is allowed knowingly.
            accept = told.kind == "mismatch"
            settings = replace(settings, calibration_id=told.calibration_id, proceed_uncertified=accept)
        name = _name(record, reading)
        view = self._audits.start(StartAudit(record.prompt, settings, record.spans, name, repeats=record.id))
        session, current = view.session_id, view.branch_id
        yield Departure(session, current, 0, target)
        for index, token_id in _forks(branch.path, target):
            yield from self._advance(session, current, index, target)
            if len(self._sessions.chain(current)) < index:
                break
            current = self._audits.fork(session, current, index, token_id).branch_id
        else:
            yield from self._advance(session, current, target, target)
        yield self._arrived(branch, session, current, reading)

    def _advance(self, session: int, branch: int, wanted: int, target: int) -> Iterator[Departure]:
        if len(self._sessions.chain(branch)) >= wanted:
            return
        running = cast("Generator[Step]", self._audits.run(session, branch))
        with closing(running) as steps:
            for step in steps:
                yield Departure(session, branch, step.index + 1, target)
                if step.index + 1 >= wanted:
                    return

    def _arrived(self, branch: BranchRecord, session: int, current: int, reading: Rereading) -> Departure:
        old = [step.token_id for step in self._sessions.chain(branch.id)]
        new = [step.token_id for step in self._sessions.chain(current)]
        target = _target(reading)
        repeats = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
        departs = repeats if repeats < min(len(old), len(new)) else None
        stopped = len(new) < target and self._sessions.branch(current).finished is None
        told = _sentence(repeats, departs, reading, stopped)
        return Departure(session, current, len(new), target, True, repeats, departs, told)

    def _chain(self, branch: BranchRecord) -> tuple[Step, ...]:
        """The chain of a branch with its logits; what is known of it already is not read again."""
        with self._lock:
            known = self._kept.get(branch.id, ())
        # Steps are only ever added, so that what is known stays true.
        added = self._sessions.chain(branch.id, len(known))
        kept = self._sessions.logits(branch.id, len(known)) if added else {}
        known += tuple(
            replace(step, logits=StoredLogits.from_bytes(data))
            if (data := kept.get(step.index)) and holds_all(data)
            else step
            for step in added
        )
        # A chain that by itself is larger than the cache is read again each time.
        with self._lock, suppress(ValueError):
            self._kept[branch.id] = known
        return known

    def _asked(self, request: RereadRequest) -> tuple[SessionRecord, BranchRecord]:
        record = self._sessions.get(request.session_id)
        wanted = record.active_branch_id if request.branch_id is None else request.branch_id
        branch = self._sessions.branch(wanted)
        if branch.session_id != record.id:
            raise ServiceError(f"Branch {branch.id} does not belong to session {record.id}; open it from its session.")
        return record, branch

    def _chosen(
        self, record: SessionRecord, settings: AuditSettings, alike: Sequence[CalibrationRecord]
    ) -> tuple[Calibration | None, RereadThresholds]:
        """The thresholds for some settings of a stored audit, read at their alpha, and what may be claimed with them.

        The audit's own calibration counts wherever it fits, and at the audit's own lambda whether or not it does.
        Elsewhere one that was made for that lambda takes its place. Where there is none, the audit's own thresholds
        are read, and nothing counts as certified.
        """
        calibration = self._own(record, settings)
        if calibration is None:
            return None, RereadThresholds("none", record.certificate, NO_THRESHOLDS)
        number, label = settings.calibration_id, record.calibration_label
        used = _used(record, settings, calibration)
        differing = tuple(name for name, _, _ in calibration.fingerprint.differences(used))
        if not differing:
            told = f"The thresholds of the audit’s own calibration “{label}” count."
            return calibration, RereadThresholds("own", "certified", told, number, label, own_notes(calibration))
        if settings.lam != record.lam and (fitting := next(self._made_for(settings, alike), None)) is not None:
            other, reading = fitting
            told = f"At this lambda the calibration “{other.name}” counts, which was made for it."
            return reading, RereadThresholds("other", "certified", told, other.id, other.name, own_notes(reading))
        certificate = compared_certificate(calibration.fingerprint, used, accept_mismatch=True).text
        told = (
            f"Uncertified at this lambda: the calibration “{label}” was made for lambda "
            f"{calibration.fingerprint.lam:g}, and no stored calibration fits this audit here. Its thresholds are read "
            "all the same, but nothing counts as certified."
            if differing == ("lam",)
            else f"Uncertified: the calibration “{label}” belongs to another policy ({', '.join(differing)})."
        )
        return calibration, RereadThresholds("mismatch", certificate, told, number, label, own_notes(calibration))

    def _alike(self, record: SessionRecord, settings: AuditSettings) -> list[CalibrationRecord]:
        """Calibrations of an audit's policy at any lambda, its own first, then those of its estimator and source.

        An audit that applies no thresholds has none.
        """
        # Thresholds of the factual reading alone fit at every lambda, so that no other calibration is needed.
        if record.calibration_id is None or info_of(settings.policy).certified_in != "both":
            return []
        used = Fingerprint.from_dict(record.fingerprint)
        same = [
            other
            for other in self._store.list(str(record.fingerprint["model"]))
            if other.mask_layout == settings.mask_layout
            and all(name in _FREE for name, _, _ in Fingerprint.from_dict(other.fingerprint).differences(used))
        ]

        def rank(other: CalibrationRecord) -> tuple[bool, bool, int]:
            kin = all(other.fingerprint[name] == record.fingerprint[name] for name in ("estimator", "source"))
            return other.id != settings.calibration_id, not kin, -other.id

        return sorted(same, key=rank)

    def _own(self, record: SessionRecord, settings: AuditSettings) -> Calibration | None:
        if settings.calibration_id is None:
            return None
        if record.calibration_id is None:
            raise ServiceError(
                f"The calibration “{record.calibration_label}” of this audit has been deleted, so its thresholds "
                "cannot be read again; start a new audit with another calibration."
            )
        calibration = self._thresholds.of(settings)
        # Thresholds of another mask layout were never applied, see the audit's certificate.
        return calibration if calibration is not None and calibration.layout == settings.mask_layout else None

    def _made_for(
        self, settings: AuditSettings, alike: Sequence[CalibrationRecord]
    ) -> Iterator[tuple[CalibrationRecord, Calibration]]:
        """Calibrations that fit at the settings' lambda, read at their alpha and for their group; the best first."""
        for other in alike:
            if other.lam != settings.lam:
                continue
            try:
                reading = self._thresholds.of(replace(settings, calibration_id=other.id))
            except (ServiceError, InvalidInputError):
                # It does not know the audit's group, or has too few contexts of it, so it does not fit.
                continue
            if reading is not None:
                yield other, reading

    def _texts(self, record: SessionRecord, settings: AuditSettings, steps: tuple[Step, ...]) -> Callable[[int], str]:
        """Texts that are stored with the steps, and the others from the model if it happens to be loaded."""
        known = {row.token_id: row.token for step in steps for row in step.candidates}
        for step in steps:
            known[step.token_id], known[step.policy_token_id] = step.token, step.policy_token
        named = str(record.fingerprint["tokenizer"])

        def text_of(token_id: int) -> str:
            loaded = None if token_id in known else self._host.loaded(settings.model)
            if loaded is not None and same_digests(loaded.tokenizer_digest, named):
                known[token_id] = loaded.token_text(token_id)
            return known.get(token_id, f"<token {token_id}>")

        return text_of


def _changed(stored: AuditSettings, request: RereadRequest) -> AuditSettings:
    lam = stored.lam if request.lam is None else float(request.lam)
    check_lambda(lam)
    return replace(stored, lam=lam, alpha=stored.alpha if request.alpha is None else float(request.alpha))


def _offers(alike: Sequence[CalibrationRecord]) -> tuple[CalibrationRecord, ...]:
    """The best of the calibrations that fit an audit in everything but lambda, one for each lambda, by lambda."""
    best: dict[float, CalibrationRecord] = {}
    for record in alike:
        best.setdefault(record.lam, record)
    return tuple(best[lam] for lam in sorted(best))


def _used(record: SessionRecord, settings: AuditSettings, calibration: Calibration) -> Fingerprint:
    """The audit's fingerprint at the lambda of the settings, as the calibration would have to have it."""
    decoded = Fingerprint.from_dict(record.fingerprint)
    used = replace(decoded, lam=float(settings.lam), estimator=calibration.estimator, source=calibration.source)
    if info_of(settings.policy).certified_in == "factual" and calibration.layout == "joint":
        return factual_only(calibration, used)
    return used


def _name(record: SessionRecord, reading: Rereading) -> str:
    changed = [f"λ {reading.lam:g}"] + ([] if reading.alpha is None else [f"α {reading.alpha:g}"])
    ending = f" ({', '.join(changed)})"
    return f"{record.name[: LONGEST_NAME - len(ending)]}{ending}"


def _forks(path: str, target: int) -> list[tuple[int, int]]:
    """Forced tokens that lead to a chain's steps before ``target``, in the order in which they were forced."""
    forks = [part.split(":") for part in path_at(path, target).split("/")[1:]]
    return [(int(index), int(token_id)) for index, token_id in forks]


def _target(reading: Rereading) -> int:
    return len(reading.rows) if reading.first is None else reading.first.index + 1


def _sentence(repeats: int, departs: int | None, reading: Rereading, stopped: bool) -> str:
    same = "no token" if repeats == 0 else "the first token" if repeats == 1 else f"the first {repeats} tokens"
    begun = f"This audit repeats {same} of audit {reading.session_id}"
    if departs is None:
        return f"{begun}; it was stopped there, and Run takes it on." if stopped else f"{begun}; none of them differs."
    told = f"{begun} and departs at step {departs + 1}."
    if departs + 1 >= _target(reading):
        return told
    return f"{told} The reading did not say so: the model no longer computes what it did."
