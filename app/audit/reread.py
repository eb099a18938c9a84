"""A written audit read at another lambda or alpha, and a new audit that follows the reading."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import takewhile
from threading import Lock
from typing import cast

from app.audit.rereading import (
    Departure,
    Rereading,
    RereadRequest,
    RereadRow,
    RereadThresholds,
)
from app.audit.service import AuditService
from app.hosting.model_host import ModelHost
from app.shared.audits import AuditSettings, StartAudit, settings_from_json
from app.shared.calibrations import CalibrationStore
from app.shared.errors import ServiceError
from app.shared.planning import policy_of
from app.shared.policies import info_of, policy_name
from app.shared.project_cache import ProjectCache
from app.shared.thresholds import Thresholds, own_notes
from app.shared.wiring import Services
from coft_core.conformal.calibration import Calibration
from coft_core.decode.loop import path_at
from coft_core.decode.reread import reread
from coft_core.errors import InvalidInputError
from coft_core.fingerprint import Fingerprint, same_digests
from coft_core.policies.base import compared_certificate, factual_only
from coft_core.policies.fusion import check_lambda
from coft_core.stored_logits import StoredLogits, holds_all
from coft_core.types import Step
from db.audits import BranchRecord, SessionRecord
from db.calibrations import CalibrationRecord
from db.sessions import SessionsRepository

KEPT_BYTES = 32 * 1024 * 1024
"""What chains with decoded logits may take at a time, all together; the chain unused for longest goes first."""
STEP_BYTES, CANDIDATE_BYTES = 2_000, 400
"""About what a step takes without logits and candidates, and what a candidate does, as objects."""

NOT_COFT = (
    "This audit was made with {}; only the steps of policies that fuse both readings, as COFT does, can be read again "
    "at another lambda or alpha, so audit the prompt with one of them."
)
NO_ALPHA = "This audit has no thresholds, so alpha changes nothing; change only lambda."
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

    def __init__(self, services: Services) -> None:
        self._sessions, self._audits = services[SessionsRepository], services[AuditService]
        self._thresholds, self._store = services[Thresholds], services[CalibrationStore]
        self._host = services[ModelHost]
        self._kept: ProjectCache[int, tuple[Step, ...]] = ProjectCache(KEPT_BYTES, getsizeof=_size)
        self._lock = Lock()

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
        return record, self._audits.branch(record.id, request.branch_id)

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
