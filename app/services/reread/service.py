"""Audits read at another lambda or alpha from what was stored, without the model, and continued from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from app.services.audits import AuditService
from app.services.calibration.store import CalibrationStore
from app.services.calibration.thresholds import Thresholds
from app.services.errors import ServiceError
from app.services.mapping import settings_from_json
from app.services.model_host import ModelHost
from app.services.policy_choice import policy_of
from app.services.policy_words import info_of, policy_name
from app.services.reread.chains import StoredChain, StoredChains
from app.services.reread.departures import Departures
from app.services.reread.thresholds import ThresholdChoice
from app.services.views import AuditSettings
from app.services.views.rereading import Departure, Rereading, RereadRequest, RereadRow
from coft_core.digests import same_digests
from coft_core.fingerprint import Fingerprint
from coft_core.fusion import check_lambda
from coft_core.reread import reread
from db.records import BranchRecord, SessionRecord
from db.repositories import SessionsRepository

NOT_COFT = (
    "This audit was made with {}; only the steps of policies that fuse both readings, as COFT does, can be read again "
    "at another lambda or alpha, so audit the prompt with one of them."
)
NOT_KEPT = (
    "This audit was made without keeping its logits, so it cannot be read again; make a new audit of the prompt. "
    "Whether they are kept is a setting of the program, COFT_FULL_LOGITS_KB."
)
NO_ALPHA = "This audit has no thresholds, so there is no alpha to read them at; change lambda alone."


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
        """Wire the service.

        Args:
            sessions: The store of sessions.
            thresholds: Calibrations as settings name them.
            store: All calibrations, among which one for another lambda is sought.
            audits: Where an audit is continued.
            host: Owner of the models; one that is loaded anyway gives texts of tokens.
        """
        self._sessions = sessions
        self._chains = StoredChains(sessions)
        self._choice = ThresholdChoice(thresholds, store)
        self._departures = Departures(sessions, audits)
        self._host = host

    def read(self, request: RereadRequest) -> Rereading:
        """Every step of a chain as it reads at a lambda and an alpha, its prefix being as it was.

        Raises:
            ServiceError: The audit has no lambda, no thresholds for an alpha, no kept logits, or its calibration is
                gone.
            InvalidInputError: Lambda or alpha is outside its range.
            StoredLogitsError: Stored logits are damaged.
            NotFoundError: There is no such session or branch.
        """
        record, branch = self._asked(request)
        stored = settings_from_json(record.policy_settings["settings"])
        if not info_of(stored.policy).fuses:
            raise ServiceError(NOT_COFT.format(policy_name(stored.policy)))
        settings = _changed(stored, request)
        alike = self._choice.alike(record, stored)
        chosen = self._choice.choose(record, settings, alike)
        if chosen.calibration is None and request.alpha is not None:
            raise ServiceError(NO_ALPHA)
        chain = self._chains.of(branch)
        kept = [step for step in chain.steps if step.logits is not None]
        if chain.steps and not kept:
            raise ServiceError(NOT_KEPT)
        readings = reread(
            kept,
            # Whether the thresholds fit is told by comparing fingerprints, and then nothing counts as certified.
            policy_of(replace(settings, proceed_uncertified=True), chosen.calibration),
            seed=settings.seed,
            path=branch.path,
            greedy=settings.greedy,
            fingerprint=Fingerprint.from_dict(record.fingerprint),
            text_of=self._texts(record, settings, chain),
        )
        return Rereading(
            session_id=record.id,
            branch_id=branch.id,
            lam=settings.lam,
            alpha=None if chosen.calibration is None else settings.alpha,
            own_lam=stored.lam,
            own_alpha=None if chosen.calibration is None else stored.alpha,
            thresholds=chosen.told,
            rows=tuple(RereadRow(step, reading) for step, reading in zip(kept, readings, strict=True)),
            unread=tuple(step.index for step in chain.steps if step.logits is None),
            offers=self._choice.offers(alike) if chosen.calibration is not None else (),
        )

    def depart(self, request: RereadRequest) -> Iterator[Departure]:
        """Begin an audit with the settings of a reading and run it to the first step that differs; needs the model.

        Its draws are keyed as the old chain's are, and forced tokens are forced again, so that it repeats the old
        chain up to there. Without a step that differs it repeats the whole chain. A pause of the new session ends it.

        Raises:
            ServiceError: As in :meth:`read`.
            CoftError: The model cannot be loaded, or it is another one than it was.
        """
        reading = self.read(request)
        record, branch = self._asked(request)
        settings = _changed(settings_from_json(record.policy_settings["settings"]), request)
        return self._departures.depart(record, branch, settings, reading)

    def _asked(self, request: RereadRequest) -> tuple[SessionRecord, BranchRecord]:
        record = self._sessions.get(request.session_id)
        wanted = record.active_branch_id if request.branch_id is None else request.branch_id
        branch = self._sessions.branch(wanted)
        if branch.session_id != record.id:
            raise ServiceError(f"Branch {branch.id} does not belong to session {record.id}; open it from its session.")
        return record, branch

    def _texts(self, record: SessionRecord, settings: AuditSettings, chain: StoredChain) -> Callable[[int], str]:
        """Texts that are stored with the steps, and the others from the model if it happens to be loaded."""
        known = chain.texts or {}
        loaded = self._host.loaded(settings.model)
        named = record.fingerprint["tokenizer"]
        same = loaded if loaded and same_digests(loaded.tokenizer_digest, named) else None

        def text_of(token_id: int) -> str:
            if token_id not in known and same is not None:
                known[token_id] = same.token_text(token_id)
            return known.get(token_id, f"<token {token_id}>")

        return text_of


def _changed(stored: AuditSettings, request: RereadRequest) -> AuditSettings:
    lam = stored.lam if request.lam is None else float(request.lam)
    check_lambda(lam)
    return replace(stored, lam=lam, alpha=stored.alpha if request.alpha is None else float(request.alpha))
