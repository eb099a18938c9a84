"""Commands of the review: what a terminal is told of assignments, disputes, comments and agreement."""

import csv
import json

import pytest

from app.audit.service import AuditService
from app.bootstrap import services
from app.review.log import VerdictRequest
from app.review.operations import add_comment, assign_reviews, list_assignments, list_disagreements, team_agreement
from app.review.service import VerdictService
from app.serving.endpoints import callable_of
from app.settings import Settings
from app.shared.audits import AuditSettings, StartAudit
from tests.conftest import load_tiny


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
    assert "'soon' is no date" in err


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


def test_endpoints_answer_in_plain_json(session, command):
    with services(Settings(), loader=load_tiny) as wired:
        called = {
            operation.name: callable_of(operation, wired)
            for operation in (add_comment, assign_reviews, list_assignments, list_disagreements, team_agreement)
        }
        _judge(wired, session)
        assert called["add_comment"](session, "A", "why?", None, None, None)["kind"] == "comment"
        assert called["assign_reviews"]("Lead", ["Ana"], [session], "", "", "")["new"] == 1
        assert called["list_assignments"]("Ana")["assignments"][0]["state"] == "open"
        assert called["list_disagreements"]("Ana")["assigned"] == 1
        (target,) = called["list_disagreements"]("")["targets"]
        assert [opinion["verdict"] for opinion in target["opinions"]] == ["fair", "unfair"]
        finding = called["team_agreement"](None, None)
        assert (finding["kind"], finding["result"]["result"]["kappa"]) == ("kappa", None)
        json.dumps([finding, target])


def _judge(wired, session):
    for reviewer, verdict in (("A", "fair"), ("B", "unfair")):
        wired[VerdictService].add(VerdictRequest(session, reviewer, verdict))
