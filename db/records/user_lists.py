"""Records of reviewers' word lists."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class UserTermRecord:
    """One term of a word list: its attribute family, and whether it stays visible instead of being masked."""

    term: str
    family: str = "other"
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UserListRecord:
    """A stored word list without its terms.

    Attributes:
        id: Its id.
        name: Its name; no two lists share one.
        digest: Digest of its terms.
        created_at: When it was stored.
        term_count: Number of its terms.
    """

    id: int
    name: str
    digest: str
    created_at: datetime
    term_count: int
