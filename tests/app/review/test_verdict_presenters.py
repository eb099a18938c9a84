"""What the pages say of verdicts."""

import re
from dataclasses import fields, replace
from datetime import UTC, datetime

from app.review.service import CurrentVerdicts, DisputedTarget, DisputeQueue, ReviewSheet
from app.review.words import (
    disputes,
    sheet_message,
    verdicts_message,
)
from app.shared.prompt_rows import row_views
from app.shared.verdicts import LogCheck, standing
from coft_core.types import Example
from db.batches import BatchRowRecord
from db.prompt_sets import PromptRow
from db.verdicts import AnnotationRecord, Target

NOW = datetime(2026, 5, 4, 14, 2, tzinfo=UTC)
TOKEN = Target("0", 7, 2, 2)
SPAN = Target("0", 7, 2, 5)


def entry(number, who, verdict, target=TOKEN, kind="verdict", note=""):
    return AnnotationRecord(
        session_id=1, id=number, entry=number, kind=kind, reviewer=who, verdict=verdict, note=note,
        branch_id=target.branch_id, branch_path=target.branch, step_index=target.first_step,
        last_step_index=target.last_step, created_at=NOW, previous="", digest=f"{number:064x}",
    )  # fmt: skip


def sheet(*log, review=None, check=None):
    current = CurrentVerdicts(1, standing(log), () if review is None else (review,), review, 0, len(log))
    found = check or LogCheck(len(log), "", None, "")
    names = tuple(sorted({item.reviewer for item in log}))
    return ReviewSheet(1, "Ward", "The <b>nurse</b>", current, log, found, {TOKEN.key: " <he>"}, {7: "main"}, names)


def test_a_reviewer_finds_only_her_own_opinion_to_be_changed():
    log = (entry(1, "A", "fair", note="a\nb"), entry(2, "B", "unfair"))
    message = verdicts_message(CurrentVerdicts(1, standing(log), newest=2), "A")
    (target,) = message["targets"]
    assert target["own"] == {"v": "fair", "note": "a\nb", "tag": "", "saved": target["own"]["saved"]}
    assert target["own"]["saved"].endswith("log entry 1")
    assert [(item["who"], item["v"]) for item in target["says"]] == [("A", "fair"), ("B", "unfair")]
    (unnamed,) = verdicts_message(CurrentVerdicts(1, standing(log)), "")["targets"]
    assert unnamed["own"] is None


def test_the_sheet_stays_closed_to_a_newcomer_until_she_chooses():
    found = sheet(entry(1, "A", "fair", note="secret"))
    closed = sheet_message(found, "B")
    assert closed["closed"]
    assert "secret" not in "".join(str(value) for value in closed.values())
    assert "Start a blind review" in str(closed["review"])
    assert "secret" in str(sheet_message(found, "B", reveal=True)["targets"])
    assert not sheet_message(found, "A")["closed"]
    assert not sheet_message(sheet(), "B")["closed"]


def test_what_reviewers_wrote_is_shown_as_text():
    made = sheet_message(sheet(entry(1, "<i>A</i>", "fair", note="<script>")), "<i>A</i>")
    markup = "".join(str(made[part]) for part in ("head", "targets", "log", "review"))
    assert "<script>" not in markup
    assert "<i>A" not in markup
    assert "&lt;he&gt;" in markup


def test_a_dispute_of_a_session_and_of_the_list_is_offered_to_a_third_person_alone():
    log = (entry(1, "A", "fair"), entry(2, "B", "unfair"))
    assert 'data-do="decide"' in str(sheet_message(sheet(*log), "C", reveal=True)["targets"])
    assert 'data-first="2" data-last="2"' in str(sheet_message(sheet(*log), "C", reveal=True)["targets"])
    assert 'data-do="decide"' not in str(sheet_message(sheet(*log), "A")["targets"])
    judged = sheet_message(sheet(*log, entry(3, "0", "fair", kind="review_started")), "A")
    assert judged["reviewers"] == ["A", "B", "0"]
    assert sheet_message(sheet(*log), "A")["statuses"] == [("", "All (1)"), ("disputed", "Disputed (1)")]
    log = (entry(1, "A", "fair", note="<b>"), entry(2, "B", "unfair"))
    (item,) = standing(log)
    queue = DisputeQueue((DisputedTarget(4, "<Ward>", item, NOW, " he"),), waiting=1, assigned=2)
    third, first = str(disputes(queue, "C")), str(disputes(queue, "A"))
    assert 'data-session="4" data-branch="7" data-first="2" data-last="2"' in " ".join(third.split())
    assert "data-do" not in first
    assert "&lt;Ward&gt;" in third
    assert "<b>" not in third
    assert re.findall(r"\d+ \w+", queue.sentence) == ["1 target", "1 session", "2 sessions"]


def test_a_batch_says_nothing_of_a_session_that_is_under_blind_review():
    begun = replace(entry(2, "B", None, Target(), "review_started"), blind=True)
    over = replace(entry(3, "B", None, Target(), "review_finished"), blind=True)
    said = entry(1, "A", "unfair", Target())
    record = BatchRowRecord(
        **dict.fromkeys(field.name for field in fields(BatchRowRecord)) | {"line": 2, "session_id": 1, "steps": 0}
    )
    for log, verdict, count in (((said,), "unfair", 1), ((said, begun), "", 0), ((said, begun, over), "unfair", 1)):
        (row,) = row_views([record], [PromptRow(2, Example("he said"))], log)
        assert (row.verdict, row.verdicts) == (verdict, count)


def test_comments_on_a_token_stand_in_its_row_and_reach_the_panel_in_order():
    log = (
        entry(1, "A", "fair"),
        entry(2, "B", None, kind="comment", note="<why>"),
        entry(3, "A", None, kind="comment", note="so"),
    )
    targets = str(sheet_message(sheet(*log), "A")["targets"])
    assert targets.index("&lt;why&gt;") < targets.index("so</span>")
    message = verdicts_message(CurrentVerdicts(1, standing(log), comments=log[1:]), "A")
    (thread,) = message["threads"]
    assert (thread["b"], thread["f"], thread["l"]) == (7, 2, 2)
    assert [(item["who"], item["text"]) for item in thread["says"]] == [("B", "<why>"), ("A", "so")]
