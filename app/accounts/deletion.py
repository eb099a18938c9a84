"""Projects that are deleted with all that belongs to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from app.accounts.disk import PARTS
from app.accounts.service import AccountService
from app.shared.errors import ServiceError
from app.shared.wiring import Services
from db.project_contents import ProjectContents, ProjectExtent
from db.projects import ProjectsRepository
from db.scope import DEFAULT, in_every_project, in_project
from db.verdicts import Tombstone

Held = Callable[[Mapping[int, Sequence[int]]], AbstractContextManager[None]]
"""Holds sessions still, which come with their branches, and lets their live chains go."""


class ProjectDeletion:
    """Says what belongs to a project, and deletes both."""

    def __init__(
        self, projects: ProjectsRepository, accounts: AccountService, contents: ProjectContents, held: Held
    ) -> None:
        """Wire the service to the store."""
        self._projects, self._accounts, self._contents, self._held = projects, accounts, contents, held

    @classmethod
    def wired(cls, services: Services) -> ProjectDeletion:
        """Built from the program's services."""

        def held(chains: Mapping[int, Sequence[int]]) -> AbstractContextManager[None]:
            # Accounts are managed without waiting for the libraries that run models.
            from app.audit.service import AuditService

            return services[AuditService].leaving(chains)

        return cls(services[ProjectsRepository], services[AccountService], services[ProjectContents], held)

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


def counted(number: int, what: str) -> str:
    """So many of something."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def extent_words(extent: ProjectExtent) -> str:
    """What belongs to a project, sessions and their verdicts first."""
    entries = "1 entry" if extent.verdicts == 1 else f"{extent.verdicts:,} entries" if extent.verdicts else "no entries"
    told = [f"{counted(extent.sessions, 'session')} with {entries} in verdict logs"] if extent.sessions else []
    told += [f"{PARTS[name]} ({rows:,})" for name, rows in extent.rows.items() if name != "audit_sessions"]
    return ", ".join(told)
