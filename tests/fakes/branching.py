"""Branches of made-up sessions: the tree as a page sees it, renaming and pruning."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from app.sessions.service import PrunePreview
from app.shared.audits import AuditView
from app.shared.errors import ServiceError
from db.chains import BranchOutline

if TYPE_CHECKING:
    from tests.fakes.audits import Branch, FakeAudits, Session


def tree_of(session: Session) -> tuple[BranchOutline, ...]:
    """The branches with the lengths that they have now."""
    longest = session.request.settings.max_new_tokens
    return tuple(
        replace(item.view, length=len(item.steps), finished="length" if len(item.steps) >= longest else None)
        for item in session.branches
    )


class FakeBranching:
    """What the library does with branches; those in ``judged`` have verdicts and stay."""

    audits: FakeAudits
    judged: frozenset[int] = frozenset()

    def rename_branch(self, session_id: int, branch_id: int, name: str) -> None:
        if not name.strip():
            raise ServiceError("The name of a branch has 1 to 200 characters; write a shorter one, or any.")
        if name == "refused":
            raise ServiceError("This name is refused.")
        branch = self._branch(session_id, branch_id)
        branch.view = replace(branch.view, name=name)

    def prune_preview(self, session_id: int, branch_id: int) -> PrunePreview:
        gone = self._subtree(session_id, branch_id)
        refusal = "The verdict log has 1 entry on this branch." if {item.view.id for item in gone} & self.judged else ""
        steps = sum(len(item.steps) - (item.view.fork_step or 0) for item in gone)
        return PrunePreview(tuple(item.view.name for item in gone), steps, 1 if refusal else 0, refusal)

    def prune(self, session_id: int, branch_id: int) -> AuditView:
        preview = self.prune_preview(session_id, branch_id)
        if not preview.allowed:
            raise ServiceError(preview.refusal)
        gone = {item.view.id for item in self._subtree(session_id, branch_id)}
        session = self.audits.stored[session_id]
        if session.active in gone:
            session.active = self._branch(session_id, branch_id).view.parent_id or session.active
        session.branches = [item for item in session.branches if item.view.id not in gone]
        return self.audits.view(session_id)

    def _branch(self, session_id: int, branch_id: int) -> Branch:
        return next(item for item in self.audits.stored[session_id].branches if item.view.id == branch_id)

    def _subtree(self, session_id: int, branch_id: int) -> list[Branch]:
        found = [self._branch(session_id, branch_id)]
        for item in self.audits.stored[session_id].branches:
            if item.view.parent_id in {other.view.id for other in found}:
                found.append(item)
        return found
