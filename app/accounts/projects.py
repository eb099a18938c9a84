"""Projects: list, members, the project of a request, and deletion.

Only members see a project, and do there what the role of their account allows. Each request is about one project.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from app.accounts.disk import PARTS
from app.accounts.service import AccountService, account_name
from app.shared.errors import ServiceError
from app.shared.visitors import present_account
from app.shared.wiring import Services
from db.accounts import AccountRecord
from db.project_contents import ProjectContents, ProjectExtent
from db.projects import ProjectRecord, ProjectsRepository
from db.scope import DEFAULT, in_every_project, in_project
from db.types import NotFoundError
from db.verdicts import Tombstone

HEADER = "x-coft-project"
"""Where a program names the project that it asks about."""
COOKIE = "coft-project"
"""Holds the number of the project that a browser shows; one that its account is not a member of counts as none."""


@dataclass(frozen=True, slots=True)
class ProjectView:
    """A project with its members by name."""

    record: ProjectRecord
    members: Sequence[AccountRecord]


class ProjectService:
    """Makes and renames projects, and says who sees them."""

    def __init__(self, services: Services) -> None:
        self._projects, self._contents = services[ProjectsRepository], services[ProjectContents]
        self._accounts, self._services = services[AccountService], services

    def list(self) -> Sequence[ProjectView]:
        """All projects with their members."""
        return [self._view(project) for project in self._projects.list()]

    def of(self, account: AccountRecord) -> Sequence[ProjectRecord]:
        """The projects that an account sees."""
        return self._projects.of_account(account.id)

    def add(self, name: str) -> ProjectView:
        """Make a project; the account that asks becomes its first member."""
        project = self._projects.add(project_name(name))
        self._accounts.note("add a project", project.name)
        if (asking := present_account()) is not None:
            self.add_member(project.name, asking.name)
        return self._view(project)

    def rename(self, name: str, new: str) -> ProjectView:
        """Change a project's name."""
        project = self._projects.named(name)
        renamed = self._projects.rename(project.id, project_name(new))
        self._accounts.note("rename a project", f"{project.name}, {renamed.name}")
        return self._view(renamed)

    def add_member(self, name: str, account: str) -> ProjectView:
        """Let an account see a project."""
        project, member = self._projects.named(name), self._accounts.named(account)
        if self._projects.add_member(project.id, member.id):
            self._accounts.note("add a member", f"{member.name}, {project.name}")
        return self._view(project)

    def remove_member(self, name: str, account: str) -> ProjectView:
        """Let an account see a project no longer, from its next request on; what it made there stays."""
        project, member = self._projects.named(name), self._accounts.named(account)
        if not self._projects.remove_member(project.id, member.id):
            raise NotFoundError(f"{member.name} is not a member of {project.name}.")
        self._accounts.note("remove a member", f"{member.name}, {project.name}")
        return self._view(project)

    def asked(
        self, account: AccountRecord, named: str = "", chosen: str = "", only: int | None = None
    ) -> ProjectRecord | None:
        """The project that a request is about."""
        seen = [project for project in self.of(account) if only in (None, project.id)]
        if named:
            wanted = " ".join(named.split()).lower()
            found = next((project for project in seen if project.name.lower() == wanted), None)
            if found is None:
                raise NotFoundError(f"There is no project {named!r:.100}.")
            return found
        return next((project for project in seen if str(project.id) == chosen), seen[0] if seen else None)

    def extent(self, name: str) -> ProjectExtent:
        """How much belongs to a project."""
        return self._contents.extent(self._projects.named(name).id)

    def delete(self, name: str, repeated: str = "") -> str:
        """Delete a project with all that belongs to it, whole or not at all; its members see it no longer."""
        project = self._projects.named(name)
        if project.id == DEFAULT:
            raise ServiceError(f"{project.name} cannot be deleted: what names no project belongs to it.")
        extent = self._contents.extent(project.id)
        if extent.rows and " ".join(repeated.split()) != project.name:
            raise ServiceError(
                f"{project.name} has {extent_words(extent)}; all of it would be gone for good. Repeat the project's "
                "name, letter for letter, to delete it."
            )
        if extent.running:
            unfinished = f"{counted(extent.running, 'job')} that {'has' if extent.running == 1 else 'have'} not ended"
            raise ServiceError(
                f"{project.name} has {unfinished}: cancel what runs or wait, and then delete it; "
                "the deletion itself stops nothing."
            )
        said = extent_words(extent) if extent.rows else "it was empty"
        chains = self._contents.chains(project.id)
        held = self._held(chains) if chains else nullcontext()
        with in_project(project.id), held, in_every_project(), self._projects.together():
            self._contents.delete(project.id)
            self._accounts.note("delete a project", f"{project.name}: {said}")
        return f"{project.name} is deleted: {said}."

    def left(self) -> Sequence[Tombstone]:
        """What the verdict logs of deleted projects have left."""
        return self._contents.left()

    def _held(self, chains: Mapping[int, Sequence[int]]) -> AbstractContextManager[None]:
        """Hold sessions still, which come with their branches, and let their live chains go."""
        # Accounts are managed without waiting for the libraries that run models.
        from app.audit.service import AuditService

        return self._services[AuditService].leaving(chains)

    def _view(self, project: ProjectRecord) -> ProjectView:
        return ProjectView(project, self._projects.members(project.id))


def project_name(name: str) -> str:
    """A project's name as it is stored."""
    try:
        return account_name(name)
    except ServiceError as error:
        raise ServiceError(str(error).replace("An account", "A project", 1)) from error


def counted(number: int, what: str) -> str:
    """So many of something."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def extent_words(extent: ProjectExtent) -> str:
    """What belongs to a project, sessions and their verdicts first."""
    entries = "1 entry" if extent.verdicts == 1 else f"{extent.verdicts:,} entries" if extent.verdicts else "no entries"
    told = [f"{counted(extent.sessions, 'session')} with {entries} in verdict logs"] if extent.sessions else []
    told += [f"{PARTS[name]} ({rows:,})" for name, rows in extent.rows.items() if name != "audit_sessions"]
    return ", ".join(told)
