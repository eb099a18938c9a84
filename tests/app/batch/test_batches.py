"""Batch audits: one session a prompt, true summaries, outcomes and exports."""

import csv
from dataclasses import asdict, replace

import pytest

from app.audit.service import AuditService
from app.batch.formal import RatesRule, audited_batch
from app.batch.impact import outcomes_of
from app.batch.operations import formal_batch_report
from app.batch.service import BatchRequest, BatchService
from app.jobs.service import JobService
from app.review.log import VerdictRequest
from app.review.service import VerdictService
from app.sessions.service import LibraryQuery, SessionLibrary
from app.shared.audits import CalibrationRequest, StartAudit
from app.shared.errors import ServiceError
from app.shared.impact import OutcomeRule, impact_table
from app.shared.step_words import fused_overruled
from app.shared.thinking import divided_text
from coft_core.errors import CalibrationMismatch, InvalidInputError
from db.types import NotFoundError
from tests.app.batch.small_batch import REQUEST, SET, SETTINGS, parsed, run
from tests.app.conftest import calibrated_on
from tests.conftest import prompt_set_csv


@pytest.fixture(scope="module")
def wired(shared):
    return shared


@pytest.fixture(scope="module")
def calibrated(wired, tmp_path_factory):
    request = CalibrationRequest(name="set", model="tiny", top_p=1.0)
    return calibrated_on(wired, tmp_path_factory.mktemp("set"), prompt_set_csv(), request)


@pytest.fixture(scope="module")
def done(wired, tmp_path_factory):
    """The number of a batch that has run, and that tests leave as it is but for verdicts."""
    return run(wired, tmp_path_factory.mktemp("done"))


def test_every_prompt_becomes_a_session_of_its_own_with_its_spans_group_and_seed(wired, done):
    batch_id = done
    view = wired[BatchService].view(batch_id)
    assert [row.line for row in view.rows] == [2, 3, 4, 5]
    assert [row.state for row in view.rows] == ["finished"] * 4
    assert (view.counts, view.resumable, view.filename) == ({"finished": 4}, False, "prompts.csv")
    assert view.request == replace(REQUEST, settings=replace(SETTINGS, shared_noise=True))
    sessions = [wired[AuditService].view(row.session_id) for row in view.rows]
    assert [s.prompt for s in sessions] == ["He is a nurse", "She is a nurse", "=He left", "Nobody left"]
    assert [(x.start, x.end, x.source) for x in sessions[0].spans] == [(0, 2, "user")]
    assert [(x.start, x.end, x.source) for x in sessions[1].spans] == [(0, 3, "lexicon")]
    assert [s.settings.seed for s in sessions] == [5, 5, 6, 7]
    assert sessions[0].name == "hiring, line 2"
    for row, session in zip(view.rows, sessions, strict=True):
        assert row.text == "".join(step.token for step in session.steps)
        assert row.steps == len(session.steps) == 4
    row = view.rows[0]
    # Nothing is claimed of thresholds where there are none.
    assert row.certificate == "uncertified: no calibration"
    assert (row.certified_share, row.fallbacks, row.overruled, row.min_margin) == (None, None, None, None)
    assert row.mean_log_ratio > 0
    found = wired[SessionLibrary].search(LibraryQuery(batch_id=batch_id))
    assert found.total == 4
    assert {entry.batch_id for entry in found.entries} == {batch_id}


def test_a_batch_writes_the_tokens_of_a_session_of_its_own_and_keeps_its_request_until_it_is_deleted(wired, tmp_path):
    settings = replace(SETTINGS, masked_families=("gender", "race"), whitelist=("nurse",))
    request = BatchRequest("b", settings, accept_errors=True, same_seed=True)
    batch_id = run(wired, tmp_path, request)
    view = wired[BatchService].view(batch_id)
    shared = replace(settings, shared_noise=True)
    assert asdict(view.request) == asdict(replace(request, settings=shared))
    alone = wired[AuditService].start(StartAudit("She is a nurse", shared))
    list(wired[AuditService].run(alone.session_id))
    sessions = (view.rows[1].session_id, alone.session_id)
    tokens = [[step.token_id for step in wired[AuditService].view(number).steps] for number in sessions]
    assert tokens[0] == tokens[1]
    listed, *_ = wired[BatchService].list()
    assert (listed.id, listed.name, listed.rows, listed.job.status) == (batch_id, "b", 4, "done")
    total = wired[SessionLibrary].search(LibraryQuery()).total
    wired[BatchService].delete(batch_id)
    assert batch_id not in [batch.id for batch in wired[BatchService].list()]
    left = wired[SessionLibrary].search(LibraryQuery())
    assert left.total == total
    ours = {row.session_id for row in view.rows}
    assert [entry.batch_id for entry in left.entries if entry.id in ours] == [None] * 4


def test_the_summary_is_what_the_steps_of_the_sessions_say(wired, tmp_path, calibrated):
    settings = replace(SETTINGS, calibration_id=calibrated, max_new_tokens=8, alpha=0.9)
    batch_id = run(wired, tmp_path, replace(REQUEST, settings=settings))
    rows = wired[BatchService].view(batch_id).rows
    for row in rows:
        steps = wired[AuditService].view(row.session_id).steps
        ratios = [abs(step.diagnostics.log_ratio) for step in steps]
        assert row.certificate.startswith("certified")
        assert row.certified_share == pytest.approx(sum(s.certified for s in steps) / len(steps))
        assert row.fallbacks == sum(s.fallback for s in steps)
        assert row.overruled == sum(fused_overruled(s) for s in steps)
        assert row.mean_log_ratio == pytest.approx(sum(ratios) / len(ratios))
        assert row.max_log_ratio == pytest.approx(max(ratios))
        assert row.min_margin == pytest.approx(min(s.diagnostics.margin for s in steps))


def test_verdicts_stand_beside_the_rows(wired, done):
    batch_id = done
    first, second, *_ = wired[BatchService].view(batch_id).rows
    for reviewer, verdict in (("A", "fair"), ("B", "unfair")):
        wired[VerdictService].add(VerdictRequest(session_id=first.session_id, reviewer=reviewer, verdict=verdict))
    wired[VerdictService].add(VerdictRequest(session_id=second.session_id, reviewer="A", verdict="unclear"))
    branch = wired[AuditService].view(second.session_id).branch_id
    token = VerdictRequest(
        session_id=second.session_id, reviewer="A", verdict="fair", branch_id=branch, first_step=1, last_step=1
    )
    wired[VerdictService].add(token)
    rows = wired[BatchService].view(batch_id, "verdict").rows
    shown = [(row.line, row.verdict, row.verdicts) for row in rows]
    assert shown == [(2, "disputed", 1), (3, "unclear", 2), (4, "", 0), (5, "", 0)]
    assert [row.line for row in wired[BatchService].view(batch_id, "verdict", descending=True).rows] == [3, 2, 4, 5]


def test_a_set_or_settings_that_cannot_be_used_leave_nothing_behind(wired, tmp_path, calibrated):
    before = [batch.id for batch in wired[BatchService].list()]
    good = parsed(wired, tmp_path)
    long = parsed(wired, tmp_path, SET + "x" * 300 + ",,,,\n,,,,y\n")
    for prompts, changes, error, words in (
        (good, {"name": "  "}, ServiceError, "no name"),
        (long, {}, ServiceError, r"2 of 6 .* line 6 .*300"),
        (good, {"settings": replace(SETTINGS, lam=3.0)}, InvalidInputError, "3.0"),
        (good, {"settings": replace(SETTINGS, policy="none")}, ServiceError, "no policy"),
        (good, {"settings": replace(SETTINGS, calibration_id=99)}, NotFoundError, "99"),
        (good, {"settings": replace(SETTINGS, calibration_id=calibrated, lam=0.1)}, CalibrationMismatch, "lam"),
        (good, {"group_thresholds": True, "settings": replace(SETTINGS, calibration_id=calibrated)}, ServiceError,
         r"4 rows .* line 2 \(group has no thresholds"),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            wired[BatchService].submit(prompts, replace(REQUEST, **changes))
    assert [batch.id for batch in wired[BatchService].list()] == before
    accepted = wired[BatchService].submit(long, replace(REQUEST, accept_errors=True))
    wired[JobService].wait(wired[BatchService].view(accepted).job.id)
    assert wired[BatchService].view(accepted).counts == {"finished": 4}


def test_outcomes_feed_the_impact_table_and_say_what_they_leave_out(wired, done):
    batch_id = done
    rows = wired[BatchService].view(batch_id).rows
    rule = OutcomeRule(".", regex=True)
    table, found = wired[BatchService].impact(batch_id, rule)
    assert found.pairs == (("men", True), ("women", True), ("men", True), (None, True))
    assert table == impact_table(found.pairs)
    assert table.unknown == 1
    nobody = outcomes_of(rows, OutcomeRule("nowhere to be found", "neither is this"))
    assert nobody.pairs == ()
    assert nobody.undecided == tuple(row.line for row in rows)
    assert [note.startswith("4 rows with neither") for note in nobody.notes] == [True]


def test_exports_hold_every_row_and_no_formula(wired, done, tmp_path):
    rows_file, groups_file, _ = wired[BatchService].write_csv(done, tmp_path / "out")
    rows = list(csv.DictReader(rows_file.open(newline="")))
    assert [row["prompt"] for row in rows] == ["He is a nurse", "She is a nurse", "'=He left", "Nobody left"]
    assert [row["reference"] for row in rows] == ["", "", "x", ""]
    groups = list(csv.DictReader(groups_file.open(newline="")))
    assert [row["group"] for row in groups[::7]] == ["men", "women", ""]
    assert groups[0]["measure"] == "steps"
    assert (groups[0]["mean"], groups[0]["contexts"], groups[0]["rows"]) == ("4.0", "2", "2")
    assert ["95 % t interval" in kind for kind in {row["interval"] for row in groups}] == [True]


def test_an_estimate_counts_what_can_be_used_and_grows_with_the_length_of_chains(wired, tmp_path):
    prompts, total = parsed(wired, tmp_path), wired[SessionLibrary].search(LibraryQuery()).total
    found = wired[BatchService].estimate(prompts, REQUEST)
    assert (found.prompts, found.contexts, found.groups, found.tokens) == (4, 3, 2, 16)
    longer = wired[BatchService].estimate(prompts, replace(REQUEST, settings=replace(SETTINGS, max_new_tokens=4000)))
    assert longer.seconds > found.seconds > 0
    assert wired[SessionLibrary].search(LibraryQuery()).total == total
    with pytest.raises(ServiceError, match="No row"):
        wired[BatchService].estimate(parsed(wired, tmp_path, "prompt,group\n,a\n"), REQUEST)


def test_the_samples_to_audit_begin_with_one_that_has_groups(wired):
    first, *_ = wired[BatchService].samples()
    read = wired[BatchService].parse(first.path)
    assert read.errors == ()
    assert len({example.group for _, example in read.rows}) == 6


def test_a_batch_is_reported_with_its_groups_sessions_and_rates(wired, done, tmp_path):
    view = wired[BatchService].view(done)
    audited = audited_batch(view, RatesRule(selected=".", regex=True))
    assert audited.groups == ("men", "women")
    assert audited.sessions == tuple(row.session_id for row in view.rows)
    assert [(row.group, row.total) for row in audited.selection.rows] == [("men", 2), ("women", 1)]
    assert (audited.selection.rows[0].selected, audited.scoring) == (2, None)
    marks = {"opens": "<think>", "closes": "</think>", "inside": True}
    thinking = replace(view, rows=(replace(view.rows[0], divided=divided_text("hm", marks)), *view.rows[1:]))
    assert audited_batch(thinking, RatesRule(selected=".", regex=True)).selection.undecided == 1
    path = formal_batch_report.call(wired, done, "R. Osei", "Who is hired?", kind="formal", folder=tmp_path)
    text = path.read_text("utf-8")
    assert path.name == f"coft-audit-batch-{done}-formal.html"
    assert "R. Osei" in text
    assert "4 of 4 prompts of prompts.csv audited" in text
