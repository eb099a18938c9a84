"""Projects: which there are, who is a member, and which one a request is about.

A member of a project sees it, and does there what the role of her account allows; who is no member sees nothing of it,
whatever her role. Each request is about one project.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.accounts.service import AccountService, account_name
from app.shared.errors import ServiceError
from app.shared.visitors import present_account
from app.shared.wiring import Services
from db.accounts import AccountRecord
from db.projects import ProjectRecord, ProjectsRepository
from db.types import NotFoundError

HEADER = "x-coft-project"
"""Where a program names the project that it asks about."""
COOKIE = "coft-project"
"""Holds the number of the project that a browser shows; what its account is no member of counts as none."""


@dataclass(frozen=True, slots=True)
class ProjectView:
    """A project with its members by name."""

    record: ProjectRecord
    members: Sequence[AccountRecord]


class ProjectService:
    """Makes and renames projects, and says who sees them."""

    def __init__(self, projects: ProjectsRepository, accounts: AccountService) -> None:
        self._projects, self._accounts = projects, accounts

    @classmethod
    def wired(cls, services: Services) -> ProjectService:
        """Built from the program's services."""
        return cls(services[ProjectsRepository], services[AccountService])

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
            raise NotFoundError(f"{member.name} is no member of {project.name}.")
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

    def _view(self, project: ProjectRecord) -> ProjectView:
        return ProjectView(project, self._projects.members(project.id))


def project_name(name: str) -> str:
    """A project's name as it is stored."""
    try:
        return account_name(name)
    except ServiceError as error:
        raise ServiceError(str(error).replace("An account", "A project", 1)) from error
