"""The library of sessions as the services take and give it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Literal

from app.services.views.audits import StartAudit

LibraryOrder = Literal["updated", "created", "name", "prompt", "model", "policy", "certificate", "steps"]
"""What the library is sorted by."""

CertificateState = Literal["certified", "mismatch", "uncertified"]
"""Certified; uncertified since the calibration belongs to another policy; uncertified for any reason."""


@dataclass(frozen=True, slots=True)
class LibraryQuery:
    """A page of sessions; what is None or empty does not matter.

    Attributes:
        text: Text in the name, prompt, a tag, or the note or tag of an entry of the verdict log, in any letter case.
        policy: Policy.
        model: Model.
        certificate: Certification status.
        tag: A tag, in any letter case.
        archived: Archived sessions only (True), the others only (False), or all.
        judged: Whether a verdict on anything of the session stands.
        since: First day of the last change, in UTC.
        until: Last day of it, inclusive.
        batch_id: The batch that it belongs to.
        order: What the rows are sorted by.
        descending: The largest or latest first.
        page: Page, counting from 1.
        page_size: Rows of a page, 1 to 500.
    """

    text: str = ""
    policy: str | None = None
    model: str | None = None
    certificate: CertificateState | None = None
    tag: str | None = None
    archived: bool | None = False
    judged: bool | None = None
    since: date | None = None
    until: date | None = None
    batch_id: int | None = None
    order: LibraryOrder = "updated"
    descending: bool = True
    page: int = 1
    page_size: int = 50


@dataclass(frozen=True, slots=True)
class LibraryEntry:
    """A session in the library.

    Attributes:
        id: Its id.
        name: Its name.
        prompt: Its prompt.
        model: Its model.
        policy: Its policy.
        certificate: What may be claimed of it.
        steps: Length of the active branch's chain.
        branches: Number of its branches.
        created_at: Start.
        updated_at: Last change.
        archived: Whether it is archived.
        batch_id: The batch that it belongs to; None for none.
        verdicts: Tokens, spans, branches and sessions on which a verdict stands.
        tags: Its tags, sorted.
    """

    id: int
    name: str
    prompt: str
    model: str
    policy: str
    certificate: str
    steps: int
    branches: int
    created_at: datetime
    updated_at: datetime
    archived: bool
    batch_id: int | None
    verdicts: int
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LibraryPage:
    """One page of the library.

    Attributes:
        entries: Its sessions.
        total: Sessions that the query finds.
        page: The page that is shown; the last one where the query asks for a later one.
        pages: Number of pages, at least 1.
    """

    entries: tuple[LibraryEntry, ...]
    total: int
    page: int
    pages: int


@dataclass(frozen=True, slots=True)
class LibraryChoices:
    """What the filters can be set to; each with its number of sessions, archived ones included."""

    policies: tuple[tuple[str, int], ...]
    models: tuple[tuple[str, int], ...]
    tags: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What an action on many sessions did.

    Attributes:
        action: ``tagged``, ``untagged``, ``archived``, ``unarchived`` or ``deleted``.
        asked: Sessions that were named, each counted once.
        changed: Sessions that are different now, or gone.
        missing: Sessions that did not exist any more.
    """

    action: str
    asked: int
    changed: int
    missing: int

    @property
    def unchanged(self) -> int:
        """Sessions that were so already."""
        return self.asked - self.changed - self.missing

    @property
    def sentence(self) -> str:
        """The counts in words."""
        parts = [f"{_sessions(self.changed)} {self.action}"]
        if self.unchanged:
            parts.append(f"{self.unchanged} {'was' if self.unchanged == 1 else 'were'} so already")
        if self.missing:
            parts.append(f"{self.missing} no longer {'exists' if self.missing == 1 else 'exist'}")
        return "; ".join(parts) + "."


@dataclass(frozen=True, slots=True)
class BulkExport:
    """Reports of many sessions in one archive.

    Attributes:
        path: The ZIP file: one CSV report a session, and an index of them.
        sessions: Sessions in it.
        missing: Sessions that did not exist any more.
    """

    path: Path
    sessions: int
    missing: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A request that begins a session like a stored one.

    Attributes:
        request: The request; settings and name can be changed before it is started.
        notes: What the stored session had and the request cannot have, one sentence each.
    """

    request: StartAudit
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PrunePreview:
    """What pruning a branch would do.

    Attributes:
        branches: Names of the branches that would go: the branch itself, then those that depart from it.
        steps: Steps that would go with them.
        verdicts: Entries of the verdict log that speak of them.
        refusal: Why the branch cannot be pruned, one sentence; empty if it can.
    """

    branches: tuple[str, ...]
    steps: int
    verdicts: int
    refusal: str

    @property
    def allowed(self) -> bool:
        """Whether the branch can be pruned now."""
        return not self.refusal

    @property
    def sentence(self) -> str:
        """What would happen, in words."""
        if self.refusal:
            return self.refusal
        others = len(self.branches) - 1
        plural = "1 branch that departs" if others == 1 else f"{others} branches that depart"
        along = f" and {plural} from it" if others else ""
        return f"“{self.branches[0]}”{along} will be deleted with {_steps(self.steps)}; this cannot be undone."


def _sessions(count: int) -> str:
    return "1 session" if count == 1 else f"{count} sessions"


def _steps(count: int) -> str:
    return "1 step of its own" if count == 1 else f"{count} steps of their own"
