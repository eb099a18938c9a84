"""Verdicts as the services take and give them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from app.services.verdict.agreement import Agreement

VERDICTS: tuple[str, ...] = ("fair", "unfair", "unclear")
"""What a reviewer can say, in the order in which pages list it."""

VerdictStatus = Literal["withdrawn", "single", "agreed", "disputed", "adjudicated"]
"""How a target stands: nobody says anything any more, one reviewer does, several agree or differ, or it was decided."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a verdict is about.

    Attributes:
        branch: Path of the branch; None is the whole session.
        branch_id: Its database id; None where only the path is known, or for the whole session.
        first_step: First step, 0-based; None is the whole branch.
        last_step: Last step, inclusive; the same as the first for a token.
    """

    branch: str | None = None
    branch_id: int | None = None
    first_step: int | None = None
    last_step: int | None = None

    @property
    def kind(self) -> str:
        """``session``, ``branch``, ``token`` or ``span``."""
        if self.branch is None:
            return "session"
        if self.first_step is None:
            return "branch"
        return "token" if self.first_step == self.last_step else "span"

    @property
    def key(self) -> tuple[str, int, int]:
        """What tells targets of one session apart; sorts from the whole to its parts, then by position."""
        return (
            self.branch or "",
            -1 if self.first_step is None else self.first_step,
            -1 if self.last_step is None else self.last_step,
        )

    @property
    def label(self) -> str:
        """The target in words; steps count from 1."""
        return self.named(f"branch {self.branch}")

    def named(self, branch: str) -> str:
        """The target in words with another name for its branch; no name leaves the branch out."""
        if self.kind == "session":
            return "the whole session"
        if self.first_step is None or self.last_step is None:
            return branch or "the whole chain"
        steps = f"step {self.first_step + 1}"
        if self.kind == "span":
            steps = f"steps {self.first_step + 1}\N{EN DASH}{self.last_step + 1}"
        return f"{steps} of {branch}" if branch else steps

    def covers(self, branch: str, step: int) -> bool:
        """Whether it is about a step of a branch, alone or among others."""
        if self.branch != branch or self.first_step is None or self.last_step is None:
            return False
        return self.first_step <= step <= self.last_step


@dataclass(frozen=True, slots=True)
class VerdictRequest:
    """A verdict to be given.

    Attributes:
        session_id: The session.
        reviewer: Who gives it.
        verdict: One of :data:`VERDICTS`; None withdraws the reviewer's verdict, or leaves a note alone.
        branch_id: The branch that the reviewer looks at; None speaks of the whole session.
        first_step: First step of that branch's chain, 0-based; None speaks of the whole branch.
        last_step: Last step, inclusive; None is a single token.
        note: Why, in free text.
        tag: A short label, such as ``pronoun``.
    """

    session_id: int
    reviewer: str
    verdict: str | None
    branch_id: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    note: str = ""
    tag: str = ""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of a session's verdict log.

    Attributes:
        entry: Its number, 1-based.
        kind: ``verdict``, ``adjudication``, ``review_started`` or ``review_finished``.
        reviewer: Who wrote it.
        target: What it is about.
        verdict: The verdict; None withdraws one, or says nothing.
        note: Free text.
        tag: A short label.
        blind: Whether its writer could not see the verdicts of others.
        at: When it was written.
        previous: Digest of the entry before it.
        digest: Its own digest.
    """

    entry: int
    kind: str
    reviewer: str
    target: Target
    verdict: str | None
    note: str
    tag: str
    blind: bool
    at: datetime
    previous: str
    digest: str


@dataclass(frozen=True, slots=True)
class ReviewView:
    """A review that was opened; ``finished_at`` is None while it is open."""

    reviewer: str
    blind: bool
    started_at: datetime
    finished_at: datetime | None = None

    @property
    def open(self) -> bool:
        """Whether it is not finished."""
        return self.finished_at is None


@dataclass(frozen=True, slots=True)
class StandingVerdict:
    """How a target stands.

    Attributes:
        target: The target.
        status: How the reviewers' opinions add up.
        verdict: The verdict that stands; None while it is disputed or withdrawn.
        opinions: The newest entry of each reviewer on it, oldest first; withdrawn ones are left out.
        adjudication: The decision, if there is one that is newer than all opinions.
    """

    target: Target
    status: VerdictStatus
    verdict: str | None
    opinions: tuple[LogEntry, ...]
    adjudication: LogEntry | None = None

    @property
    def in_words(self) -> str:
        """The verdict in a word; ``disputed`` and ``withdrawn`` are words too."""
        return self.verdict or self.status

    @property
    def notes(self) -> str:
        """All notes in one line, each with its reviewer where there are several."""
        entries = (*self.opinions, *(() if self.adjudication is None else (self.adjudication,)))
        if len(entries) == 1:
            return entries[0].note
        return "; ".join(_signed(entry) for entry in entries)


@dataclass(frozen=True, slots=True)
class CurrentVerdicts:
    """The verdicts of a session as one reader may see them.

    Attributes:
        session_id: The session.
        targets: How each target stands, the whole session first, then by position.
        reviews: All reviews that were opened.
        review: The reader's own newest review; None if she opened none, or if the reader is not named.
        hidden: Entries of others that she may not see before she finishes her blind review.
        newest: Number of the newest entry that the reader may see; 0 without any. It tells an older reading of the
            same reader from a newer one.
    """

    session_id: int
    targets: tuple[StandingVerdict, ...]
    reviews: tuple[ReviewView, ...] = ()
    review: ReviewView | None = None
    hidden: int = 0
    newest: int = 0


@dataclass(frozen=True, slots=True)
class ReviewSheet:
    """Everything that a reviewer needs to go through a session's verdicts.

    Attributes:
        session_id: The session.
        name: Its name.
        prompt: Its prompt.
        current: How the targets stand, as far as the reader may see it.
        log: The entries that the reader may see, oldest first.
        check: Whether the whole log holds together.
        words: The text of each target that is a step or a span, by the target's key.
        branches: Name of each branch, by its id.
        reviewers: All who have written into the log, sorted.
        may_be_blind: Whether the reader could still review it blind: as far as the log knows, she has seen nothing.
    """

    session_id: int
    name: str
    prompt: str
    current: CurrentVerdicts
    log: tuple[LogEntry, ...]
    check: LogCheck
    words: dict[tuple[str, int, int], str]
    branches: dict[int, str]
    reviewers: tuple[str, ...]
    may_be_blind: bool = True


@dataclass(frozen=True, slots=True)
class ReviewerAgreement:
    """How far two reviewers agree, on one session or on all that both judged.

    Attributes:
        first: A reviewer.
        second: Another one.
        result: Kappa with its interval and the table of counts.
        blind_pairs: Targets that the later of the two judged in a blind review, so without seeing the other's verdict.
        sessions: Sessions with targets that both judged.
        waiting: Sessions left out because a blind review of one of them is still open.
    """

    first: str
    second: str
    result: Agreement
    blind_pairs: int
    sessions: int
    waiting: int = 0

    @property
    def sentence(self) -> str:
        """The result in words, with how far it rests on blind judgements."""
        text = f"{self.first} and {self.second}: {self.result.sentence}"
        if self.result.pairs:
            text += f" {self.blind_pairs} of the {self.result.pairs} were judged blind by the later of the two."
        if self.waiting:
            open_reviews = "session is" if self.waiting == 1 else "sessions are"
            text += f" {self.waiting} {open_reviews} left out until the blind review there is finished."
        return text


@dataclass(frozen=True, slots=True)
class LogCheck:
    """Whether a verdict log holds together.

    Attributes:
        entries: Number of its entries.
        head: Digest of the newest one; empty without entries.
        broken_entry: Number of the first entry that does not fit; None if all do.
        sentence: The finding in words.
    """

    entries: int
    head: str
    broken_entry: int | None
    sentence: str

    @property
    def whole(self) -> bool:
        """Whether every entry fits."""
        return self.broken_entry is None


def _signed(entry: LogEntry) -> str:
    says = f"decides {entry.verdict}" if entry.kind == "adjudication" else str(entry.verdict)
    return f"{entry.reviewer} ({says}): {entry.note}" if entry.note else f"{entry.reviewer} ({says})"
