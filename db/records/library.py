"""Records of the library of sessions: what is asked of it, and its entries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

SessionOrder = Literal["updated", "created", "name", "prompt", "model", "policy", "certificate", "steps"]
"""What a list of sessions is sorted by."""

CertificateFilter = Literal["certified", "mismatch", "uncertified"]
"""Certified; uncertified since the calibration belongs to another policy; uncertified for any reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Which sessions are wanted; what is None or empty does not matter.

    Attributes:
        text: Text in the name, prompt, a tag, or the note or tag of an entry of the verdict log, in any letter case.
        policy: Policy.
        model: Model.
        certificate: Certification status.
        tag: A tag, in any letter case.
        archived: Archived sessions only (True), or the others only.
        judged: Whether a verdict on anything of the session stands.
        since: Last changed at this moment or later.
        before: Last changed before this moment.
        batch_id: The batch that it belongs to.
    """

    text: str = ""
    policy: str | None = None
    model: str | None = None
    certificate: CertificateFilter | None = None
    tag: str | None = None
    archived: bool | None = False
    judged: bool | None = None
    since: datetime | None = None
    before: datetime | None = None
    batch_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEntryRecord:
    """A session in the library.

    Attributes:
        id: Its id.
        name: Its name.
        prompt: Its prompt.
        model: Its model.
        policy: Its policy.
        certificate: What may be claimed of it.
        step_count: Length of the active branch's chain.
        branch_count: Number of its branches.
        created_at: Start.
        updated_at: Last change.
        archived_at: When it was archived; None if it is not.
        batch_id: The batch that it belongs to; None for none.
        verdict_count: Targets (tokens, spans, branches, the session) on which a verdict stands.
        tags: Its tags, sorted.
    """

    id: int
    name: str
    prompt: str
    model: str
    policy: str
    certificate: str
    step_count: int
    branch_count: int
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None
    batch_id: int | None
    verdict_count: int
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryChoicesRecord:
    """What the library's filters can be set to; each with its number of sessions, archived ones included."""

    policies: tuple[tuple[str, int], ...]
    models: tuple[tuple[str, int], ...]
    tags: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchExtentRecord:
    """What hangs on a branch: itself, everything that departs from it, and what was said of these.

    Attributes:
        branch_ids: The branch and its descendants, itself first.
        names: Their names, in the same order.
        steps: Steps that are their own.
        verdicts: Entries of the verdict log that speak of them.
    """

    branch_ids: tuple[int, ...]
    names: tuple[str, ...]
    steps: int
    verdicts: int
