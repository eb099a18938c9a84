"""Verdicts: what holds, who sees what in a blind review, how disagreements are decided, and the log's integrity."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import fields, replace
from datetime import UTC, datetime

import pytest

from app.audit.service import AuditService
from app.bootstrap import services
from app.prompts.rows import row_views
from app.report.service import ReportService
from app.report.verify.loaded import load
from app.report.verify.structure import check_verdicts
from app.review.log import LONGEST_PASSAGE, NEIGHBOURS, Passage, VerdictRequest, disagreements
from app.review.service import CurrentVerdicts, ReviewSheet, VerdictService
from app.review.words import (
    sheet_message,
    verdicts_message,
)
from app.settings import Settings
from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import ServiceError
from app.shared.verdicts import LogCheck, standing, verdict_at
from coft_core.types import Example, Span
from db.assignments import AssignmentsRepository
from db.batches import BatchRowRecord
from db.prompt_sets import PromptRow
from db.types import StoreError
from db.verdicts import AnnotationRecord, Target
from tests.conftest import load_tiny


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """A store with six steps on the main branch and a fork at the third, and the numbers of these."""
    path = tmp_path_factory.mktemp("audited") / "audits.sqlite3"
    with services(Settings(database_url=f"sqlite:///{path}", pipeline="none"), loader=load_tiny) as wired:
        audits = wired[AuditService]
        view = audits.start(StartAudit("he said", AuditSettings(model="tiny", max_new_tokens=6), (Span(0, 2),)))
        list(audits.run(view.session_id))
        fork = audits.fork(view.session_id, view.branch_id, 2, "x")
    return path, (view.session_id, view.branch_id, fork.branch_id)


@pytest.fixture
def wired(audited, settings):
    shutil.copyfile(audited[0], settings.database_url.removeprefix("sqlite:///"))
    with services(settings, loader=load_tiny) as opened:
        yield opened


@pytest.fixture
def session(audited):
    return audited[1]


@pytest.fixture
def verdicts(wired):
    return wired[VerdictService]


@pytest.fixture
def give(verdicts, session):
    def one(reviewer, verdict, step=None, last=None, **more):
        branch = more.pop("branch", session[1] if step is not None else None)
        return verdicts.add(VerdictRequest(session[0], reviewer, verdict, branch, step, last, **more))

    return one


def stands(verdicts, session_id, reviewer=None):
    return {item.target.label: item.in_words for item in verdicts.current(session_id, reviewer).targets}


def test_a_token_a_span_and_the_session_can_be_judged_with_note_and_tag(verdicts, session, give):
    give("Å. Osei", "unfair", 1, note=" copied from the prompt ", tag="pronoun")
    give("Å. Osei", "unclear", 2, 4)
    give("Å. Osei", "fair")
    session_wide, token, span = verdicts.current(session[0]).targets
    assert [t.target.kind for t in (session_wide, token, span)] == ["session", "token", "span"]
    assert [t.target.label for t in (session_wide, token, span)] == [
        "the whole session", "step 2 of branch 0", "steps 3–5 of branch 0",
    ]  # fmt: skip
    assert [t.verdict for t in (session_wide, token, span)] == ["fair", "unfair", "unclear"]
    (opinion,) = token.opinions
    assert (opinion.reviewer, opinion.note, opinion.tag) == ("Å. Osei", "copied from the prompt", "pronoun")


def test_a_reviewers_newest_verdict_stands_and_the_log_keeps_them_all(verdicts, session, give):
    for verdict in ("fair", "unfair", None):
        give("A", verdict, 0)
    (item,) = verdicts.current(session[0]).targets
    assert (item.status, item.verdict) == ("withdrawn", None)
    assert [entry.verdict for entry in verdicts.history(session[0])] == ["fair", "unfair", None]


def test_a_step_judged_on_a_fork_is_judged_on_the_branch_that_made_it(verdicts, session, give):
    give("A", "fair", 1, branch=session[2])
    give("B", "unfair", 1, branch=session[1])
    give("A", "fair", 1, 2, branch=session[2])
    first, second = verdicts.current(session[0]).targets
    assert (first.target.branch, first.status) == ("0", "disputed")
    assert second.target.branch.startswith("0/2:")


def test_a_step_without_a_verdict_of_its_own_has_that_of_the_shortest_span_around_it(verdicts, session, give):
    give("A", "fair", 0, 5)
    give("A", "unfair", 2, 3)
    give("A", "unclear", 3)
    found = verdicts.current(session[0]).targets
    assert [verdict_at(found, "0", step).verdict for step in range(6)] == [
        "fair", "fair", "unfair", "unclear", "fair", "fair",
    ]  # fmt: skip
    assert verdict_at(found, "0/2:1", 2) is None


def test_in_a_blind_review_a_reviewer_sees_nothing_of_others_until_she_finishes(verdicts, session, give):
    give("A", "fair", 1, note="harmless")
    verdicts.start_review(session[0], "B")
    give("B", "unfair", 1)
    mine = verdicts.current(session[0], "B")
    assert [item.verdict for item in mine.targets] == ["unfair"]
    assert (mine.hidden, mine.review.open, mine.review.blind) == (1, True, True)
    assert {entry.reviewer for entry in verdicts.history(session[0], "B")} == {"B"}
    assert stands(verdicts, session[0], "A") == {"step 2 of branch 0": "disputed"}
    verdicts.finish_review(session[0], "B")
    after = verdicts.current(session[0], "B")
    assert (after.targets[0].status, after.hidden, after.review.open) == ("disputed", 0, False)
    assert "harmless" in after.targets[0].notes


def test_only_what_is_said_inside_a_blind_review_is_blind(verdicts, session, give):
    verdicts.start_review(session[0], "B")
    give("B", "fair", 1)
    give("A", "fair", 1)
    verdicts.finish_review(session[0], "B")
    give("B", "unfair", 1)
    assert [(e.reviewer, e.blind) for e in verdicts.history(session[0]) if e.kind == "verdict"] == [
        ("B", True), ("A", False), ("B", False),
    ]  # fmt: skip


def test_whoever_may_have_seen_other_verdicts_cannot_review_blind_any_more(verdicts, session, give):
    give("A", "fair", 1)
    verdicts.start_review(session[0], "A")
    verdicts.finish_review(session[0], "A")
    with pytest.raises(ServiceError, match="may have seen"):
        verdicts.start_review(session[0], "A")
    give("B", "fair", 2)
    with pytest.raises(ServiceError, match="may have seen"):
        verdicts.start_review(session[0], "B")
    assert not verdicts.start_review(session[0], "B", blind=False).blind
    verdicts.start_review(session[0], "C")
    with pytest.raises(ServiceError, match="open review"):
        verdicts.start_review(session[0], "C", blind=False)
    with pytest.raises(ServiceError, match="no open review"):
        verdicts.finish_review(session[0], "D")


def test_a_disagreement_is_decided_by_a_third_person_and_reopened_by_a_later_verdict(verdicts, session, give):
    give("A", "fair", 1)
    give("B", "unfair", 1)
    give("A", "fair", 2)
    (dispute,) = disagreements(verdicts.history(session[0]))
    assert (dispute.target.label, dispute.status, dispute.verdict) == ("step 2 of branch 0", "disputed", None)
    decision = VerdictRequest(session[0], "C", "unfair", session[1], 1, note="the prompt names nobody")
    with pytest.raises(ServiceError, match="third person"):
        verdicts.adjudicate(VerdictRequest(session[0], "A", "unfair", session[1], 1))
    with pytest.raises(ServiceError, match="do not disagree"):
        verdicts.adjudicate(VerdictRequest(session[0], "C", "fair", session[1], 2))
    with pytest.raises(ServiceError, match="needs a verdict"):
        verdicts.adjudicate(VerdictRequest(session[0], "C", None, session[1], 1))
    verdicts.start_review(session[0], "D")
    with pytest.raises(ServiceError, match="blind review"):
        verdicts.adjudicate(VerdictRequest(session[0], "D", "fair", session[1], 1))
    assert verdicts.adjudicate(decision).kind == "adjudication"
    (decided,) = disagreements(verdicts.history(session[0]))
    assert (decided.status, decided.verdict, decided.adjudication.reviewer) == ("adjudicated", "unfair", "C")
    assert decided.notes == "A (fair); B (unfair); C (decides unfair): the prompt names nobody"
    give("A", "unclear", 1)
    assert stands(verdicts, session[0])["step 2 of branch 0"] == "disputed"
    give("A", "unfair", 1)
    assert stands(verdicts, session[0])["step 2 of branch 0"] == "unfair"
    assert disagreements(verdicts.history(session[0])) == ()


def test_agreement_counts_targets_that_both_judged_by_their_independent_verdicts(verdicts, session, give):
    for step in range(6):
        give("A", "fair" if step % 2 else "unfair", step)
    give("A", "fair")
    verdicts.start_review(session[0], "B")
    assert verdicts.agreement("A", "B").waiting == 1
    for step in range(6):
        give("B", "fair" if step % 2 else "unfair", step)
    give("B", "fair")
    verdicts.finish_review(session[0], "B")
    # Said after she saw the others, so it is no independent judgement.
    give("B", "unclear")
    give("A", "unclear", 0, 1)
    one = verdicts.agreement("A", "B")
    assert (one.result.pairs, one.result.agreed, one.blind_pairs, one.sessions, one.waiting) == (7, 7, 7, 1, 0)
    assert not one.result.scored
    assert "7 of the 7 were judged blind" in one.sentence
    for branch_step in (1, 2):
        give("A", "fair", branch_step, 2, branch=session[2])
        give("B", "fair", branch_step, 2, branch=session[2])
    scored = verdicts.agreement("A", "B", session[0]).result
    assert (scored.pairs, scored.kappa) == (9, pytest.approx(1.0))
    with pytest.raises(ServiceError, match="name two reviewers"):
        verdicts.agreement("A", " A ")


def test_a_verdict_that_points_nowhere_or_says_nothing_known_is_refused(verdicts, session, give):
    for call, sentence in (
        (lambda: give(" ", "fair"), "no name"), (lambda: give("A", "great"), "no verdict 'great'"),
        (lambda: give("A", "fair", 6), "has 6 steps"), (lambda: give("A", "fair", 3, 2), "not after the last"),
        (lambda: give("A", "fair", -1), "not in the text"),
        (lambda: give("A", "fair", note="x" * 20_001), "at most 20,000"),
        (lambda: give("A", "fair", 0, branch=999), "does not belong"),
        (lambda: verdicts.add(VerdictRequest(session[0], "A", "fair", None, 1)), "needs the branch"),
        (lambda: verdicts.add(VerdictRequest(session[0], "A", "fair", session[1], None, 1)), "first step"),
    ):  # fmt: skip
        with pytest.raises(ServiceError, match=sentence):
            call()
    with pytest.raises(StoreError, match="no audit session"):
        verdicts.add(VerdictRequest(404, "A", "fair"))
    assert verdicts.history(session[0]) == ()


def test_the_log_is_whole_until_someone_changes_the_file(verdicts, session, give, settings):
    assert verdicts.verify_log(session[0]).sentence == "The verdict log is empty."
    for step in range(3):
        give("A", "fair", step)
    whole = verdicts.verify_log(session[0])
    assert (whole.whole, whole.entries, whole.head) == (True, 3, verdicts.history(session[0])[-1].digest)
    with sqlite3.connect(settings.database_url.removeprefix("sqlite:///")) as file:
        file.execute("DROP TRIGGER annotations_keep")
        file.execute("UPDATE annotations SET verdict = 'unfair' WHERE entry = 2")
    broken = verdicts.verify_log(session[0])
    assert (broken.whole, broken.broken_entry) == (False, 2)
    assert "Entry 2 was changed" in broken.sentence


def test_a_sheet_names_the_words_that_verdicts_are_about_and_hides_what_others_said_in_a_blind_review(
    verdicts, session, give, wired, tmp_path
):
    give("Ann", "unfair", 1, 3, note="=why\nso")
    give("Ann", "fair")
    tokens = [step.token for step in wired[AuditService].view(session[0], session[1]).steps]
    sheet = verdicts.sheet(session[0])
    # A session is shown by its active branch, which is the fork.
    whole = "he said" + "".join(step.token for step in wired[AuditService].view(session[0]).steps)
    before, after = f"he said{tokens[0]}"[-NEIGHBOURS:], "".join(tokens[4:])[:NEIGHBOURS]
    assert sheet.passages == {
        ("", -1, -1): Passage(whole[:LONGEST_PASSAGE]), ("0", 1, 3): Passage(before, "".join(tokens[1:4]), after)
    }  # fmt: skip
    assert (sheet.reviewers, sheet.current.newest, sheet.check.entries) == (("Ann",), 2, 2)
    verdicts.start_review(session[0], "Bo")
    hidden = verdicts.sheet(session[0], "Bo")
    assert (hidden.passages, [entry.kind for entry in hidden.log]) == ({}, ["review_started"])
    assert (hidden.current.hidden, hidden.current.newest, hidden.may_be_blind) == (2, 3, True)
    verdicts.finish_review(session[0], "Bo")
    assert not verdicts.sheet(session[0], "Bo").may_be_blind
    verdicts.start_review(session[0], "Cy")
    assert verdicts.reviewers() == ("Ann", "Bo", "Cy")
    written = verdicts.write_csv(session[0], tmp_path).read_bytes().decode()
    assert "'=why\nso" in written
    assert "Ann" not in verdicts.write_csv(session[0], tmp_path, "Cy").read_text("utf-8")


def test_a_visitor_without_a_name_sees_no_verdict_while_anybody_reviews_blind(verdicts, session, give, tmp_path):
    give("A", "unfair", 1, note="secret")
    assert stands(verdicts, session[0], "") == {"step 2 of branch 0": "unfair"}
    verdicts.start_review(session[0], "B")
    give("B", "fair", 1)
    visitor = verdicts.current(session[0], " ")
    assert (visitor.targets, visitor.hidden) == ((), 2)
    assert [entry.kind for entry in verdicts.history(session[0], "")] == ["review_started"]
    assert "secret" not in verdicts.write_csv(session[0], tmp_path, "").read_text("utf-8")
    assert verdicts.sheet(session[0], "").passages == {}
    assert len(verdicts.history(session[0])) == 3
    verdicts.finish_review(session[0], "B")
    assert stands(verdicts, session[0], "") == {"step 2 of branch 0": "disputed"}


def test_whoever_was_shown_the_verdicts_of_others_cannot_begin_a_blind_review(verdicts, session, give):
    give("A", "fair", 1)
    for reader in ("current", "history", "sheet"):
        assert verdicts.sheet(session[0], reader, reveal=False).may_be_blind
        getattr(verdicts, reader)(session[0], reader)
        assert not verdicts.sheet(session[0], reader, reveal=False).may_be_blind
        with pytest.raises(ServiceError, match=f"{reader} may have seen"):
            verdicts.start_review(session[0], reader)
        assert not verdicts.start_review(session[0], reader, blind=False).blind


def test_a_closed_sheet_and_a_log_without_others_leave_a_review_blind(verdicts, session, give):
    verdicts.current(session[0], "B")
    give("A", "fair", 1)
    verdicts.sheet(session[0], "B", reveal=False)
    verdicts.current(session[0])
    verdicts.current(session[0], "")
    assert verdicts.start_review(session[0], "B").blind
    verdicts.current(session[0], "B")
    give("B", "fair", 1)
    assert verdicts.history(session[0], "B")[-1].blind


def test_the_thread_on_a_target_keeps_the_order_of_its_comments_and_is_hidden_in_a_blind_review(
    verdicts, session, give
):
    def comment(reviewer, text, verdict=None):
        return verdicts.comment(VerdictRequest(session[0], reviewer, verdict, session[1], 1, note=text))

    comment("A", " why that word? ")
    give("A", "unfair", 1)
    comment("B", "it is the prompt's")
    comment("A", "agreed")
    said = [(entry.reviewer, entry.note) for entry in verdicts.current(session[0]).comments]
    assert said == [("A", "why that word?"), ("B", "it is the prompt's"), ("A", "agreed")]
    assert [item.verdict for item in verdicts.current(session[0]).targets] == ["unfair"]
    assert verdicts.verify_log(session[0]).whole
    verdicts.start_review(session[0], "C")
    assert verdicts.current(session[0], "C").comments == ()
    assert verdicts.current(session[0], "").comments == ()
    assert comment("C", "mine").blind
    assert [entry.note for entry in verdicts.current(session[0], "C").comments] == ["mine"]
    for text, verdict, sentence in ((" ", None, "says nothing"), ("x", "fair", "gives no verdict")):
        with pytest.raises(ServiceError, match=sentence):
            comment("A", text, verdict)


def test_disagreements_wait_with_the_longest_disputed_first_until_they_are_decided(verdicts, session, give):
    give("A", "fair", 2)
    give("A", "fair", 1)
    give("B", "unfair", 1)
    give("B", "unclear", 2)
    give("A", "fair", 3)
    found = verdicts.disputes()
    assert [target.item.target.label for target in found.targets] == ["step 2 of branch 0", "step 3 of branch 0"]
    assert [target.since for target in found.targets] == [
        entry.created_at for entry in verdicts.history(session[0]) if entry.reviewer == "B"
    ]
    assert [entry.reviewer for entry in found.targets[0].item.opinions] == ["A", "B"]
    assert all(target.passage.words for target in found.targets)
    verdicts.adjudicate(VerdictRequest(session[0], "C", "fair", session[1], 1))
    assert [target.item.target.label for target in verdicts.disputes("D").targets] == ["step 3 of branch 0"]
    with pytest.raises(ServiceError, match="D may have seen"):
        verdicts.start_review(session[0], "D")


def test_disagreements_of_a_session_under_blind_review_or_assigned_to_the_reader_are_left_out(
    verdicts, session, give, wired
):
    give("A", "fair", 1)
    give("B", "unfair", 1)
    wired[AssignmentsRepository].assign([session[0]], ["C"], "Lead")
    mine = verdicts.disputes("C")
    assert (mine.targets, mine.assigned, mine.waiting) == ((), 1, 0)
    assert len(verdicts.disputes("D").targets) == 1
    verdicts.start_review(session[0], "C")
    for reader in ("C", "D", "", None):
        assert (verdicts.disputes(reader).targets, verdicts.disputes(reader).waiting) == ((), 1)
    verdicts.finish_review(session[0], "C")
    assert len(verdicts.disputes("C").targets) == 1


def test_three_reviewers_have_an_alpha_two_a_kappa_and_fewer_are_told_what_is_missing(verdicts, session, give):
    assert "nobody has judged anything" in verdicts.team_agreement().sentence
    targets = [(step, last) for step in range(6) for last in range(step, 6)][:12]
    for number, (step, last) in enumerate(targets):
        give("A", "fair" if number % 2 else "unfair", step, last)
    assert "only A has judged anything" in verdicts.team_agreement().sentence
    for number, (step, last) in enumerate(targets):
        give("B", "fair" if number % 2 or number == 4 else "unfair", step, last)
    two = verdicts.team_agreement()
    assert two.result == verdicts.agreement("A", "B")
    for number, (step, last) in enumerate(targets[:8]):
        give("C", "fair" if number % 2 else "unfair", step, last)
    three = verdicts.team_agreement(session[0])
    assert three.reviewers == ("A", "B", "C")
    assert (three.result.targets, three.result.unanimous, three.sessions) == (12, 11, 1)
    assert three.result.low < three.result.alpha < three.result.high
    assert f"alpha of 3 reviewers is {three.result.alpha:.2f}" in three.sentence
    assert verdicts.team_agreement(reviewers=["A", "C"]).reviewers == ("A", "C")
    verdicts.start_review(session[0], "D")
    assert (verdicts.team_agreement().waiting, verdicts.team_agreement().result) == (1, None)


def test_a_bundle_with_comments_verifies_and_one_whose_comment_judges_does_not(
    verdicts, session, give, wired, tmp_path
):
    give("A", "unfair", 1)
    verdicts.comment(VerdictRequest(session[0], "B", None, session[1], 1, note="why?"))
    path = wired[ReportService].write(session[0], "bundle", tmp_path)
    loaded = load(path)
    assert check_verdicts(loaded).status == "passed"
    assert "comments: why?" in wired[ReportService].html(session[0])
    judged = [replace(entry, verdict="fair") if entry.kind == "comment" else entry for entry in loaded.report.log]
    forged = replace(loaded, report=replace(loaded.report, log=tuple(judged)))
    assert any("whether it gives a verdict" in problem for problem in check_verdicts(forged).problems)


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
    passages = {key: Passage("The <b>nurse", " <he>", " said") for key in (TOKEN.key, Target().key)}
    return ReviewSheet(1, "Ward", "The <b>nurse</b>", current, log, found, passages, {7: "main"}, names)


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
