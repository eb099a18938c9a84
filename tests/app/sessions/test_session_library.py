"""The library of sessions through the service: counts are true, copies are the same, and pruning says what goes."""

import csv
import io
import zipfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.audit.finding import title
from app.audit.service import AuditService
from app.bootstrap import services
from app.calibrate.service import CalibrationService
from app.report.service import ReportService
from app.review.log import VerdictRequest
from app.review.service import VerdictService
from app.sessions.page import library_query
from app.sessions.service import LibraryQuery, Run, SessionLibrary
from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import ServiceError
from coft_core.errors import CalibrationMismatch
from coft_core.types import Span
from db.types import ConflictError, NotFoundError

PROMPT = "The nurse said he would come"
SETTINGS = AuditSettings(model="tiny", max_new_tokens=6, top_p=1.0)


def start(wired, name="session", steps=0, **changes):
    request = StartAudit(PROMPT, replace(SETTINGS, **changes), (Span(15, 17, "gender"),), name)
    view = wired[AuditService].start(request)
    for _ in range(steps):
        wired[AuditService].step(view.session_id)
    return view


def names(wired, **query):
    return [entry.name for entry in wired[SessionLibrary].search(LibraryQuery(**query)).entries]


def test_a_query_past_the_end_shows_the_last_page_and_the_true_total(wired):
    for index in range(5):
        start(wired, f"s{index}")
    page = wired[SessionLibrary].search(LibraryQuery(page=9, page_size=2, order="created", descending=False))
    assert ([entry.name for entry in page.entries], page.total, page.page, page.pages) == (["s4"], 5, 3, 3)
    assert wired[SessionLibrary].search(LibraryQuery(text="nothing")).pages == 1
    assert len(wired[SessionLibrary].ids(LibraryQuery(page_size=2))) == 5
    for change in ({"page": 0}, {"page_size": 0}, {"page_size": 10_000}):
        with pytest.raises(ServiceError, match="count pages from 1"):
            wired[SessionLibrary].search(LibraryQuery(**change))


def test_runs_have_their_place_by_time_on_every_page_of_the_list(wired):
    now = datetime.now(UTC)
    for index in range(5):
        start(wired, f"s{index}")
    runs = [Run("Tuning", f"r{n}", "", "", now + timedelta(days=n)) for n in (2, 1, -1, -2)]
    for down, order in ((True, "r2 r1 s4 s3 s2 s1 s0 r-1 r-2"), (False, "r-2 r-1 s0 s1 s2 s3 s4 r1 r2")):
        for size in (1, 2, 4, 9):
            query, shown = LibraryQuery(page_size=size, descending=down), []
            for page in range(1, -(-9 // size) + 1):
                found = wired[SessionLibrary].folded(replace(query, page=page), (), runs)
                shown += [row.name for row in found.rows]
                assert (found.total, found.row_total, found.pages) == (5, 9, -(-9 // size))
            assert shown == order.split(), size
    newest = [replace(run, updated_at=now + timedelta(days=9)) for run in runs]
    for page, order in ((3, "s4 s3"), (4, "s2 s1"), (5, "s0")):
        found = wired[SessionLibrary].folded(LibraryQuery(page_size=2, page=page), (), newest)
        assert [row.name for row in found.rows] == order.split()
    found = wired[SessionLibrary].folded(LibraryQuery(order="name", descending=False, page_size=6, page=2), (), runs)
    assert [row.name for row in found.rows] == ["r1", "r-1", "r-2"]


def test_an_audit_is_listed_with_what_it_found_as_far_as_it_has_been_written(wired):
    view = start(wired)
    assert wired[AuditService].finding(view.session_id) == ""
    wired[AuditService].step(view.session_id)
    page = wired[SessionLibrary].folded(LibraryQuery())
    found, refers = wired[SessionLibrary].findings(page)[view.session_id], wired[AuditService].refers(view.session_id)
    assert (refers(" he"), refers(" nurse")) == (True, False)
    assert found == title(["he"], wired[AuditService].view(view.session_id).steps, refers)
    assert "he" in found


def test_days_are_inclusive(wired):
    start(wired, "now")
    today = datetime.now(UTC).date()
    before, after = today - timedelta(days=1), today + timedelta(days=1)
    for days, total in (({"since": today, "until": today}, 1), ({"until": before}, 0), ({"since": after}, 0)):
        assert wired[SessionLibrary].search(library_query(days)).total == total


def test_an_action_on_many_sessions_counts_what_it_changed_and_what_is_gone(wired):
    first, second = start(wired, "a").session_id, start(wired, "b").session_id
    tagged = wired[SessionLibrary].tag([first, second, first, 999], "  to   check ")
    assert (tagged.asked, tagged.changed, tagged.unchanged, tagged.missing) == (3, 2, 0, 1)
    assert tagged.sentence == "2 sessions tagged; 1 no longer exists."
    again = wired[SessionLibrary].tag([first, second], "TO CHECK")
    assert (again.changed, again.unchanged) == (0, 2)
    assert wired[SessionLibrary].choices().tags == (("to check", 2),)
    assert names(wired, tag="to check", order="name", descending=False) == ["a", "b"]
    assert wired[SessionLibrary].untag([first], "to check").changed == 1
    archived = wired[SessionLibrary].archive([first])
    assert archived.sentence == "1 session archived."
    assert names(wired) == ["b"]
    assert wired[SessionLibrary].archive([first], archived=False).action == "unarchived"
    deleted = wired[SessionLibrary].delete([first, 999, second])
    assert (deleted.asked, deleted.changed, deleted.missing) == (3, 2, 1)
    assert names(wired, archived=None) == []


def test_a_renamed_session_is_found_by_its_new_name_and_empty_and_endless_names_are_refused(wired):
    view = start(wired, "old")
    for bad in ("", "  ", "x" * 500):
        for act in (
            lambda name: wired[SessionLibrary].rename(view.session_id, name),
            lambda name: wired[SessionLibrary].tag([view.session_id], name),
            lambda name: wired[SessionLibrary].rename_branch(view.session_id, view.branch_id, name),
        ):
            with pytest.raises(ServiceError):
                act(bad)
    wired[SessionLibrary].rename(view.session_id, " New  name ")
    assert wired[AuditService].view(view.session_id).name == "New name"
    assert names(wired, text="new NAME") == ["New name"]


def test_a_copy_writes_the_same_tokens_or_takes_other_settings_and_a_name(wired):
    original = start(wired, steps=3)
    made = wired[SessionLibrary].prefill(original.session_id)
    assert made.notes == ()
    copy = wired[AuditService].start(made.request)
    assert (copy.name, copy.prompt, copy.spans) == ("Copy of session", original.prompt, original.spans)
    for _ in range(3):
        wired[AuditService].step(copy.session_id)
    tokens = [[s.token_id for s in wired[AuditService].view(v.session_id).steps] for v in (original, copy)]
    assert tokens[0] == tokens[1]
    settings = replace(made.request.settings, policy="vanilla")
    copy = wired[AuditService].start(replace(made.request, settings=settings, name="other"))
    assert (copy.settings.policy, copy.name, copy.spans) == ("vanilla", "other", original.spans)


def test_a_copy_is_checked_against_its_calibration_and_never_drops_a_deleted_one_silently(wired, calibrated):
    view = start(wired, calibration_id=calibrated)
    request = wired[SessionLibrary].prefill(view.session_id).request
    with pytest.raises(CalibrationMismatch):
        wired[AuditService].start(replace(request, settings=replace(view.settings, lam=0.1)))
    assert wired[SessionLibrary].ids(LibraryQuery()) == (view.session_id,)
    wired[CalibrationService].delete(calibrated)
    made = wired[SessionLibrary].prefill(view.session_id)
    assert made.request.settings.calibration_id is None
    assert "has been deleted" in made.notes[0]
    copy = wired[AuditService].start(made.request)
    assert copy.certificate == "uncertified: no calibration"


def test_the_archive_holds_each_report_as_it_is_exported_alone_and_an_index(wired, tmp_path):
    first, second = start(wired, "=cmd()", steps=2), start(wired, "b", steps=1)
    ids = [first.session_id, 999, second.session_id]
    wired[SessionLibrary].tag([first.session_id], "x")
    made = wired[SessionLibrary].export(ids, tmp_path / "out")
    assert (made.sessions, made.missing) == (2, 1)
    with zipfile.ZipFile(made.path) as archive:
        assert archive.testzip() is None
        for view in (first, second):
            report = archive.read(f"coft-audit-session-{view.session_id}.csv").decode()
            assert report == wired[ReportService].csv(view.session_id)
        index = list(csv.DictReader(io.StringIO(archive.read("sessions.csv").decode())))
    assert [row["name"] for row in index] == ["'=cmd()", "b"]
    assert [row["steps"] for row in index] == ["2", "1"]
    assert [row["tags"] for row in index] == ["x", ""]
    assert [path.name for path in (tmp_path / "out").iterdir()] == [made.path.name]
    again = wired[SessionLibrary].export(ids, tmp_path / "again")
    assert again.path.read_bytes() == made.path.read_bytes()
    with pytest.raises(ServiceError, match="nothing to export"):
        wired[SessionLibrary].export([999], tmp_path / "none")


def fork(wired, view, index, token):
    return wired[AuditService].fork(view.session_id, view.branch_id, index, token)


def test_pruning_says_before_what_goes_and_then_takes_exactly_that(wired):
    view = start(wired, steps=4)
    first = fork(wired, view, 1, "x")
    wired[AuditService].step(view.session_id, first.branch_id)
    inner = fork(wired, first, 2, "y")
    kept = fork(wired, view, 3, "z")
    wired[SessionLibrary].rename_branch(view.session_id, first.branch_id, "a man")
    preview = wired[SessionLibrary].prune_preview(view.session_id, first.branch_id)
    assert (preview.branches, preview.steps, preview.verdicts, preview.allowed) == (("a man", "y"), 3, 0, True)
    assert all(told in preview.sentence for told in ("“a man”", "1 branch", "3 steps"))
    wired[AuditService].view(view.session_id, inner.branch_id)
    after = wired[SessionLibrary].prune(view.session_id, first.branch_id)
    assert [branch.id for branch in after.branches] == [view.branch_id, kept.branch_id]
    assert after.branch_id == kept.branch_id
    with pytest.raises(NotFoundError):
        wired[AuditService].view(view.session_id, inner.branch_id)
    again = fork(wired, view, 1, "x")
    assert again.branch_id not in {first.branch_id, inner.branch_id}
    assert wired[AuditService].step(view.session_id, view.branch_id) is not None


def test_the_main_branch_a_running_session_and_a_judged_branch_are_not_pruned(wired):
    view = start(wired, steps=3)
    judged, free = fork(wired, view, 1, "x"), fork(wired, view, 2, "y")
    wired[VerdictService].add(
        VerdictRequest(session_id=view.session_id, reviewer="A", verdict="unfair", branch_id=judged.branch_id)
    )
    running = wired[AuditService].run(view.session_id, view.branch_id)
    next(running)
    for branch_id, reason in ((view.branch_id, "main branch"), (free.branch_id, "is running")):
        assert reason in wired[SessionLibrary].prune_preview(view.session_id, branch_id).refusal
        with pytest.raises(ServiceError, match=reason):
            wired[SessionLibrary].prune(view.session_id, branch_id)
    running.close()
    preview = wired[SessionLibrary].prune_preview(view.session_id, judged.branch_id)
    assert (preview.verdicts, preview.allowed) == (1, False)
    with pytest.raises(ServiceError, match="taken out of the log"):
        wired[SessionLibrary].prune(view.session_id, judged.branch_id)
    assert len(wired[AuditService].view(view.session_id).branches) == 3
    wired[SessionLibrary].prune(view.session_id, free.branch_id)
    assert len(wired[AuditService].view(view.session_id).branches) == 2
    other = start(wired)
    for act in (wired[SessionLibrary].prune_preview, wired[SessionLibrary].prune):
        with pytest.raises(ConflictError, match="not a branch"):
            act(other.session_id, judged.branch_id)


def test_the_library_needs_no_model(wired, settings, tmp_path):
    view = start(wired, steps=2)

    def none(name, **_):
        raise AssertionError("a model was loaded")

    with services(settings, loader=none) as reopened:
        assert reopened[SessionLibrary].search(LibraryQuery()).total == 1
        reopened[SessionLibrary].prefill(view.session_id)
        assert reopened[SessionLibrary].export([view.session_id], tmp_path).sessions == 1
