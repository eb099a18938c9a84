"""Verdicts and exports as pages and commands see them; part of :mod:`app.services.ports`."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from app.services.views.verdicts import (
    CurrentVerdicts,
    LogCheck,
    LogEntry,
    ReviewerAgreement,
    ReviewSheet,
    ReviewView,
    StandingVerdict,
    VerdictRequest,
)


class Exports(Protocol):
    """Reports that leave the program; the same session gives the same bytes."""

    def json(self, session_id: int) -> str:
        """The report as a typed, versioned JSON document."""

    def html(self, session_id: int) -> str:
        """The report for people: one HTML file that needs nothing else, also to be printed."""

    def tables(self, session_id: int) -> bytes:
        """An archive of the steps, candidates and verdict log as CSV files."""

    def bundle(self, session_id: int) -> bytes:
        """The evidence bundle: everything that a third party needs to recompute the report."""

    def content(self, session_id: int, kind: str) -> bytes:
        """An export (``csv``, ``json``, ``html``, ``zip`` or ``bundle``) as a file's content."""

    def write(self, session_id: int, kind: str, folder: Path) -> Path:
        """Write an export into a folder, atomically, and return its path."""


class Verdicts(Protocol):
    """What reviewers say of sessions, spans and tokens."""

    def add(self, request: VerdictRequest) -> LogEntry:
        """Write a verdict into the log; it takes the place of the reviewer's earlier one on the same target."""

    def history(self, session_id: int, reviewer: str | None = None) -> tuple[LogEntry, ...]:
        """The whole log, oldest entry first; to a reviewer in her blind review only what she wrote herself."""

    def current(self, session_id: int, reviewer: str | None = None) -> CurrentVerdicts:
        """How every target stands, as far as the reader may see it."""

    def sheet(self, session_id: int, reviewer: str | None = None) -> ReviewSheet:
        """Everything that a reviewer needs to go through a session's verdicts, with the words that they are about."""

    def reviewers(self) -> tuple[str, ...]:
        """Everybody who has written into a log, sorted."""

    def write_csv(self, session_id: int, folder: Path, reviewer: str | None = None) -> Path:
        """Write the log, as far as the reader may see it, as a CSV file into a folder, and return its path."""

    def start_review(self, session_id: int, reviewer: str, blind: bool = True) -> ReviewView:
        """Open a review; in a blind one the verdicts of others stay hidden until she finishes it."""

    def finish_review(self, session_id: int, reviewer: str) -> ReviewView:
        """Submit a review; from here on the reviewer sees the verdicts of others."""

    def adjudicate(self, request: VerdictRequest) -> LogEntry:
        """Decide a disagreement by a third reviewer's verdict."""

    def disagreements(self, session_id: int, reviewer: str | None = None) -> tuple[StandingVerdict, ...]:
        """Targets on which reviewers differ, decided or not."""

    def agreement(self, first: str, second: str, session_id: int | None = None) -> ReviewerAgreement:
        """Cohen's kappa of two reviewers over targets that both judged, on one session or on all."""

    def verify_log(self, session_id: int) -> LogCheck:
        """Whether every entry of a session's log follows from the one before and says what it was written as."""
