"""Reviewers' word lists as the services take and give them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.services.views.prompt_sets import RowError
from coft_core.masking.user_list import UserTerm


@dataclass(frozen=True, slots=True)
class ParsedUserList:
    """An uploaded word list after reading.

    Attributes:
        filename: Name of the file as uploaded.
        terms: Usable terms with their line numbers.
        errors: What is wrong with the other lines.
        total: Terms in the file.
        ignored_columns: Columns that are not known and were not read.
    """

    filename: str
    terms: tuple[tuple[int, UserTerm], ...]
    errors: tuple[RowError, ...]
    total: int
    ignored_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UserListSummary:
    """A word list in a list of them.

    Attributes:
        id: Database id.
        name: Its name.
        digest: First 12 digits of the digest of its terms.
        terms: Number of its terms.
        created_at: When it was stored.
    """

    id: int
    name: str
    digest: str
    terms: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class UserListView:
    """A word list with its terms, in the order of the uploaded file."""

    summary: UserListSummary
    terms: tuple[UserTerm, ...]

    @property
    def masked(self) -> int:
        """Number of terms that are masked."""
        return sum(not term.keep for term in self.terms)

    @property
    def kept(self) -> int:
        """Number of terms that stay visible."""
        return len(self.terms) - self.masked
