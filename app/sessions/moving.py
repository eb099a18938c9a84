"""Sessions that are moved to another project of whoever asks."""

from __future__ import annotations

from collections.abc import Sequence

from app.audit.service import AuditService
from app.sessions.service import BulkResult
from app.shared.errors import ServiceError
from app.shared.visitors import present, present_account
from app.shared.wiring import Services
from db.moving import MovingRepository
from db.projects import ProjectRecord, ProjectsRepository
from db.scope import present_project
from db.sessions import SessionsRepository
from db.trail import TrailFields, TrailRepository
from db.types import NotFoundError


class SessionMoves:
    """Moves sessions out of the present project, and says where to they can go."""

    def __init__(self, services: Services) -> None:
        self._sessions = services[SessionsRepository]
        self._moving = services[MovingRepository]
        self._projects = services[ProjectsRepository]
        self._audits = services[AuditService]
        self._trail = services[TrailRepository]

    def targets(self) -> Sequence[ProjectRecord]:
        """The other projects that whoever asks sees; none for a token that opens one project alone."""
        visitor, account = present(), present_account()
        if visitor is not None and visitor.bound:
            return ()
        seen = self._projects.list() if account is None else self._projects.of_account(account.id)
        return [project for project in seen if project.id != present_project()] if len(seen) > 1 else ()

    def move(self, session_ids: Sequence[int], name: str) -> BulkResult:
        """Move sessions to another project, all or none; those that do not exist any more are counted."""
        named = list(dict.fromkeys(session_ids))
        if not named:
            raise ServiceError("No session is chosen, so there is nothing to move; choose at least one.")
        target = self._target(name)
        # What is not seen from here is not there.
        chains = {number: branches for number in named if (branches := self._branches(number)) is not None}
        with self._audits.leaving(chains):
            moved = self._moving.move(chains, target.id)
        account = present_account()
        if account is not None and moved:
            numbers = ", ".join(str(number) for number in chains)
            told = TrailFields(actor=account.name, action="move sessions", subject=f"{numbers} to {target.name}"[:200])
            self._trail.add(told)
        return BulkResult(f"moved to {target.name}", len(named), moved, len(named) - len(chains))

    def _target(self, name: str) -> ProjectRecord:
        wanted = " ".join(name.split()).lower()
        targets = self.targets()
        found = next((project for project in targets if project.name.lower() == wanted), None)
        if found is not None:
            return found
        if not targets:
            raise ServiceError("There is no other project that you see, so that nothing can be moved to one.")
        known = ", ".join(project.name for project in targets)
        raise ServiceError(f"There is no other project {name!r:.100} that you see; choose {known}.")

    def _branches(self, session_id: int) -> list[int] | None:
        try:
            return [branch.id for branch in self._sessions.branches(session_id)]
        except NotFoundError:
            return None
