"""Comparing sessions token by token, and starting the same prompt under several policies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import cast

from app.services.audits import AuditService
from app.services.comparing.chains import compared
from app.services.comparing.columns import MOST_CHAINS, checked_columns, labels_of
from app.services.comparing.tables import comparison_csv
from app.services.csv_files import write_text
from app.services.errors import CalibrationMismatch, ColumnMismatch, ServiceError
from app.services.known_policies import KNOWN_POLICIES, fitted
from app.services.views.audits import AuditSettings, StartAudit
from app.services.views.comparisons import Comparison
from app.services.views.policies import PolicyInfo
from coft_core.types import Step
from db.repositories import ComparisonsRepository, SessionsRepository


class ComparisonService:
    """Puts chains beside each other."""

    def __init__(self, sessions: SessionsRepository, audits: AuditService, measured: ComparisonsRepository) -> None:
        """Wire to the store of sessions, to what starts and shows them, and to what their steps took."""
        self._sessions = sessions
        self._audits = audits
        self._measured = measured
        self._stops: defaultdict[int, set[Event]] = defaultdict(set)

    def policies(self) -> tuple[PolicyInfo, ...]:
        """The policies that a prompt can be run under."""
        return KNOWN_POLICIES

    def compare(self, session_ids: Sequence[int], branch_ids: Sequence[int | None] = ()) -> Comparison:
        """Compare the chains of sessions, the others with the first; needs no model.

        Args:
            session_ids: The sessions; one can be named several times for several of its branches.
            branch_ids: A branch of each; None, and none at all, take the active one.

        Raises:
            ServiceError: There are fewer than two chains or too many, one is named twice, or a branch is another
                session's.
            NotFoundError: There is no such session or branch.
        """
        if not 2 <= len(session_ids) <= MOST_CHAINS:
            raise ServiceError(f"{len(session_ids)} chains cannot be compared; choose 2 to {MOST_CHAINS}.")
        if branch_ids and len(branch_ids) != len(session_ids):
            raise ServiceError("Each session needs a branch or None; give as many branches as sessions.")
        wanted = zip(session_ids, branch_ids or (None,) * len(session_ids), strict=True)
        views = [self._audits.view(session_id, branch_id) for session_id, branch_id in wanted]
        if len({view.branch_id for view in views}) < len(views):
            raise ServiceError("The same chain is chosen twice; choose another one to compare it with.")
        records = [self._sessions.get(view.session_id) for view in views]
        return compared(views, records, [self._measured.branch_steps(view.branch_id) for view in views])

    def write_csv(self, session_ids: Sequence[int], branch_ids: Sequence[int | None], folder: Path) -> Path:
        """Write a comparison into a folder, atomically, and return its path; raises what :meth:`compare` does."""
        numbers = "-".join(str(session_id) for session_id in session_ids)
        return write_text(
            Path(folder) / f"compare-{numbers}.csv", comparison_csv(self.compare(session_ids, branch_ids))
        )

    def run_beside(self, request: StartAudit, policies: Sequence[str]) -> tuple[int, ...]:
        """Begin one session a policy with the same prompt, spans and seed; none if one of them is refused.

        A policy without thresholds leaves the request's calibration out, vanilla decoding its factorized masks too.

        Args:
            request: Prompt, spans and settings.
            policies: Names of the policies, each once.

        Returns:
            The sessions in the order of the policies; :meth:`advance` generates them together.

        Raises:
            ServiceError: There are fewer than two policies or too many, or one is named twice or unknown.
            CoftError: The prompt or a setting cannot be used, or the calibration belongs to another policy.
        """
        if not 2 <= len(policies) <= MOST_CHAINS or len(set(policies)) < len(policies):
            raise ServiceError(f"Choose 2 to {MOST_CHAINS} different policies to run beside each other.")
        return self.run_columns(request, [fitted(request.settings, policy) for policy in policies])

    def run_columns(self, request: StartAudit, columns: Sequence[AuditSettings]) -> tuple[int, ...]:
        """Begin one session for each of several settings with the same prompt and spans; none if one is refused.

        Args:
            request: Prompt, spans and name; its settings only say how spans are detected where none are given.
            columns: The settings of each session; a policy may come several times with other settings.

        Returns:
            The sessions in the order of the columns; :meth:`advance` generates them together.

        Raises:
            ServiceError: There are fewer than two columns or too many, two are alike, or a policy is unknown.
            ColumnMismatch: A column's calibration belongs to another policy and going on was not allowed.
            CoftError: The prompt or a setting cannot be used.
        """
        wanted = checked_columns(columns)
        # Detected once, so that a setting of one column cannot give it other spans.
        spans = self._audits.detect(request.prompt, request.settings) if request.spans is None else request.spans
        name = request.name or " ".join(request.prompt.split())[:60]
        started: list[int] = []
        try:
            for settings, label in zip(wanted, labels_of(wanted), strict=True):
                own = StartAudit(request.prompt, settings, spans, f"{name} · {label}")
                started.append(self._audits.start(own).session_id)
        except BaseException as error:
            for session_id in started:
                self._audits.delete(session_id)
            if isinstance(error, CalibrationMismatch):
                raise ColumnMismatch(len(started), error) from error
            raise
        return tuple(started)

    def advance(self, session_ids: Sequence[int]) -> Iterator[tuple[int, Step]]:
        """Generate sessions to their ends, one token each in turn; pausing one lets the others go on.

        A pause that comes after this call counts, also before the first step.

        Yields:
            Session and its new step, which is durable then.
        """
        stops = {session_id: Event() for session_id in dict.fromkeys(session_ids)}
        for session_id, stop in stops.items():
            self._stops[session_id].add(stop)
        return self._advance(stops)

    def pause(self, session_ids: Sequence[int]) -> None:
        """Stop sessions after their current tokens; those that :meth:`advance` has not come to yet do not begin."""
        for session_id in session_ids:
            for stop in tuple(self._stops.get(session_id, ())):
                stop.set()
            self._audits.pause(session_id)

    def _advance(self, stops: dict[int, Event]) -> Iterator[tuple[int, Step]]:
        running = {number: cast("Generator[Step]", self._audits.run(number)) for number in stops}
        try:
            while running:
                for session_id, steps in tuple(running.items()):
                    step = None if stops[session_id].is_set() else next(steps, None)
                    if step is None:
                        running.pop(session_id).close()
                    else:
                        yield session_id, step
        finally:
            for steps in running.values():
                steps.close()
            for session_id, stop in stops.items():
                self._stops[session_id].discard(stop)
