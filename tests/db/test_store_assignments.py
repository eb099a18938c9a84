"""Assignments and readings: each once a reviewer and session, gone with the session, and never less than before."""

from __future__ import annotations

from datetime import date

import pytest

from db.assignments import AssignmentsRepository, ReadingsRepository
from db.sessions import SessionsRepository
from db.types import NotFoundError
from tests.db.conftest import new_session

TRIGGERS = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgenabled = 'O'",
}
GUARDS = {"sqlite": {"annotations_keep", "annotations_stay"}, "postgresql": {"annotations_keep"}}


@pytest.fixture
def sessions(database) -> list[int]:
    made = SessionsRepository(database)
    return [made.create(new_session()).id for _ in range(3)]


def told(found):
    return [(record.session_id, record.reviewer, record.due_on) for record in found]


def test_a_session_is_assigned_once_to_a_reviewer_and_the_new_date_takes_the_old_ones_place(database, sessions) -> None:
    assignments = AssignmentsRepository(database)
    first, second, _ = sessions
    assert assignments.assign([first, second], ["Å", "B"], "Lead", date(2026, 5, 4)) == 4
    assert assignments.assign([first], ["Å", "C"], "Other", None) == 1
    assert told(assignments.list("Å")) == [(second, "Å", date(2026, 5, 4)), (first, "Å", None)]
    assert [record.lead for record in assignments.list(session_id=first)] == ["Lead", "Other", "Other"]
    assert assignments.withdraw([first, second], ["B", "nobody"]) == 2
    assert {record.reviewer for record in assignments.list()} == {"Å", "C"}


def test_assignments_of_a_session_that_does_not_exist_are_all_refused(database, sessions) -> None:
    assignments = AssignmentsRepository(database)
    with pytest.raises(NotFoundError, match="no audit session"):
        assignments.assign([sessions[0], 404], ["A"], "Lead")
    assert assignments.list() == []


def test_a_reading_keeps_its_first_moment_and_its_newest_entry(database, sessions) -> None:
    readings = ReadingsRepository(database)
    assert readings.of(sessions[0], "A") is None
    readings.note(sessions[0], "A", 3)
    first = readings.of(sessions[0], "A")
    for entry in (2, 5, 4):
        readings.note(sessions[0], "A", entry)
    newest = readings.of(sessions[0], "A")
    assert (first.entry, newest.entry, newest.shown_at) == (3, 5, first.shown_at)
    assert readings.of(sessions[1], "A") is None
    with pytest.raises(NotFoundError):
        readings.note(404, "A", 1)


def test_a_deleted_session_takes_its_assignments_and_readings_along(database, sessions) -> None:
    AssignmentsRepository(database).assign(sessions, ["A"], "Lead")
    ReadingsRepository(database).note(sessions[0], "A", 1)
    SessionsRepository(database).delete(sessions[0])
    assert [record.session_id for record in AssignmentsRepository(database).list()] == sessions[1:]
    assert ReadingsRepository(database).of(sessions[0], "A") is None
