"""Assignments, and the commands of the review."""

from __future__ import annotations

import csv
import json
from datetime import date

import pytest

from app.audit.service import AuditService
from app.bootstrap import services
from app.review.assignments import (
    AssignmentRequest,
    AssignmentService,
    due_date,
    workloads,
    write_assignments,
)
from app.review.service import VerdictService
from app.settings import Settings
from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import ServiceError
from db.types import NotFoundError
from tests.conftest import load_tiny

DUE, BEFORE, AFTER = date(2026, 5, 4), date(2026, 5, 4), date(2026, 5, 5)


@pytest.fixture
def sessions(wired):
    """Three sessions, of which two are about a nurse."""
    settings = AuditSettings(model="tiny", max_new_tokens=2)
    prompts = ("the nurse said", "a nurse asked", "the cook said")
    return [wired[AuditService].start(StartAudit(prompt, settings, (), prompt)).session_id for prompt in prompts]


@pytest.fixture
def assignments(wired):
    return wired[AssignmentService]


def asked(**more):
    return AssignmentRequest(**{"lead": "Lead", "reviewers": ("Ana", "Ben"), **more})


def test_sessions_are_assigned_by_number_and_by_what_they_mention_to_several_at_once(assignments, sessions):
    done = assignments.assign(asked(text="nurse", due_on=DUE))
    assert (done.sessions, done.new) == (2, 4)
    assert done.sentence == "2 sessions are assigned to Ana, Ben."
    again = assignments.assign(asked(reviewers=(" Ben ,  Cleo",), session_ids=(sessions[2],), text="nurse"))
    assert (again.sessions, again.reviewers, again.new) == (3, ("Ben", "Cleo"), 4)
    assert again.sentence.endswith("2 of these assignments were there before.")
    assert [item.session_id for item in assignments.list("Ana", BEFORE)] == sessions[:2]
    assert {item.due_on for item in assignments.list("Ben", BEFORE)} == {None}


def test_an_assignment_is_overdue_after_its_day_and_done_with_the_end_of_the_review(assignments, sessions, wired):
    assignments.assign(asked(reviewers=("Ana",), session_ids=tuple(sessions), due_on=DUE))
    verdicts = wired[VerdictService]
    for session in sessions[:2]:
        verdicts.start_review(session, "Ana")
    verdicts.finish_review(sessions[1], "Ana")
    verdicts.start_review(sessions[2], "Ben")
    verdicts.finish_review(sessions[2], "Ben")
    states = {item.session_id: item.state for item in assignments.list("Ana", BEFORE)}
    assert [states[session] for session in sessions] == ["begun", "done", "open"]
    late = assignments.list("Ana", AFTER)
    assert [(item.session_id, item.state) for item in late] == [
        (sessions[0], "overdue"), (sessions[2], "overdue"), (sessions[1], "done"),
    ]  # fmt: skip
    assert [load.sentence for load in workloads(late)] == ["Ana: 1 of 3 done, 2 overdue"]
    assert [load.sentence for load in workloads(assignments.list("", BEFORE))] == ["Ana: 1 of 3 done"]


def test_assignments_are_taken_back_and_written_as_csv_and_what_was_said_stays(assignments, sessions, wired, tmp_path):
    assignments.assign(asked(session_ids=tuple(sessions)))
    wired[VerdictService].start_review(sessions[0], "Ana")
    assert assignments.withdraw(sessions[:2], ["Ana"]) == 2
    assert [item.session_id for item in assignments.list("Ana")] == sessions[2:]
    assert len(wired[VerdictService].history(sessions[0])) == 1
    assignments.assign(asked(reviewers=("=Ana",), session_ids=(sessions[0],), due_on=DUE))
    path = write_assignments(assignments.list("=Ana", AFTER), tmp_path / "assignments.csv")
    (row,) = csv.DictReader(path.open(newline="", encoding="utf-8"))
    assert (row["reviewer"], row["due_on"], row["state"], row["finished_at"]) == ("'=Ana", "2026-05-04", "overdue", "")


def test_an_assignment_that_names_nobody_or_nothing_is_refused(assignments, sessions):
    for request, sentence in (
        (asked(lead=" ", text="nurse"), "no name"), (asked(reviewers=(" , ",), text="nurse"), "No reviewer is named"),
        (asked(), "No session is named"), (asked(text="zebra"), "No session matches 'zebra'"),
        (asked(session_ids=tuple(range(1, 6000))), "more than 10,000"),
    ):  # fmt: skip
        with pytest.raises(ServiceError, match=sentence):
            assignments.assign(request)
    with pytest.raises(NotFoundError):
        assignments.assign(asked(session_ids=(404,)))
    with pytest.raises(ServiceError, match="'4 May' is not a date; write it as 2026-12-31"):
        due_date("4 May")
    assert due_date(" ") is None
    assert assignments.list() == ()


@pytest.fixture
def session(command):
    """A session in the commands' store, by its number."""
    with services(Settings(), loader=load_tiny) as wired:
        settings = AuditSettings(model="tiny", max_new_tokens=2)
        return wired[AuditService].start(StartAudit("he said", settings, ())).session_id


def test_commands_assign_list_and_take_back(command, session, tmp_path):
    asked = ("--lead", "Lead", "--reviewer", "Ana,Ben", "--due", "2026-01-02")
    assert command("verdicts", "assign", *asked, "--session", session) == (
        0, "1 session is assigned to Ana, Ben.\n", "",
    )  # fmt: skip
    code, out, _ = command("verdicts", "assignments", "--out", tmp_path / "a.csv")
    assert code == 0
    assert "Ana: 0 of 1 done, 1 overdue" in out
    rows = list(csv.DictReader((tmp_path / "a.csv").open(newline="", encoding="utf-8")))
    assert [(row["reviewer"], row["due_on"]) for row in rows] == [("Ana", "2026-01-02"), ("Ben", "2026-01-02")]
    code, out, _ = command("verdicts", "unassign", "--reviewer", "Ana", "--session", session)
    assert (code, out) == (0, "1 assignment is taken back.\n")
    assert json.loads(command("verdicts", "assignments", "--json")[1])["reviewers"][0]["reviewer"] == "Ben"
    code, _, err = command("verdicts", "assign", *asked[:4], "--due", "soon", "--text", "he")
    assert code == 1
    assert "'soon' is not a date" in err


def test_commands_comment_show_disputes_and_the_finding_and_hide_what_is_reviewed_blind(command, session):
    for reviewer, verdict in (("A", "fair"), ("B", "unfair")):
        assert command("verdicts", "add", session, verdict, "--reviewer", reviewer)[0] == 0
    assert (
        "A: comments on the whole session: why?"
        in command("verdicts", "comment", session, "--reviewer", "A", "--note", "why?")[1]
    )
    out = command("verdicts", "disputes")[1]
    assert f"session {session}, the whole session '': A fair; B unfair" in out
    assert out.endswith("1 target waits for a decision.\n")
    assert "8 targets are needed, and 1" in command("verdicts", "finding")[1]
    assert command("verdicts", "start", session, "--reviewer", "C")[0] == 0
    shown = command("verdicts", "show", session)[1]
    assert "why?" not in shown
    assert "unfair" not in shown
    assert "3 entries are hidden until the blind review is finished." in shown
    assert "1 session is left out until the blind review there is finished." in command("verdicts", "disputes")[1]
