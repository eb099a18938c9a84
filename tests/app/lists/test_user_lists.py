"""Word lists and masked families through the services: files, refusals, and what they do to audits."""

import json
from dataclasses import replace

import pytest

from app.audit.service import AuditService
from app.batch.service import BatchService
from app.bootstrap import services
from app.calibrate.service import CalibrationService
from app.jobs.service import JobService
from app.lists.service import UserListService
from app.lists.upload import parse_user_list, user_list_csv
from app.report.service import ReportService
from app.shared.audits import AuditSettings, CalibrationRequest, StartAudit
from app.shared.errors import ServiceError
from app.shared.planning import families_from_text
from app.tune.runs import TuningRequest
from app.tune.service import TuningService
from coft_core.errors import CalibrationMismatch, InvalidInputError
from coft_core.text.user_list import LONGEST_TERM, folded
from coft_core.types import FAMILIES, PROXY_FAMILIES, UserTerm
from tests.app.batch.small_batch import REQUEST, parsed
from tests.app.conftest import calibrated_on
from tests.conftest import load_tiny, prompt_set_csv

PROMPT = "The nurse said his cousin would come"
SETTINGS = AuditSettings(model="tiny", max_new_tokens=4, top_p=1.0)
TERMS = "term,family,action\nnurse,,keep\ncome,race,mask\n"


def write(tmp_path, content, name="hiring.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def problems(tmp_path, content, name="hiring.csv"):
    return [(e.line, e.column, e.message) for e in parse_user_list(write(tmp_path, content, name)).errors]


@pytest.fixture
def stored(wired, tmp_path):
    """A stored word list."""
    return wired[UserListService].add("hiring", wired[UserListService].parse(write(tmp_path, TERMS)))


def test_csv_columns_may_come_in_any_order_with_any_delimiter_and_be_left_out(tmp_path):
    text = "\ufeffAction;Term;note\r\nKEEP;Black Friday;x\r\n;sorority;\r\n"
    parsed = parse_user_list(write(tmp_path, text), family="gender")
    expected = [UserTerm("Black Friday", "gender", True), UserTerm("sorority", "gender")]
    assert [term for _, term in parsed.terms] == expected
    assert (parsed.total, parsed.ignored_columns) == (2, ("note",))
    # Families are known by their key and by what pages call them.
    parsed = parse_user_list(write(tmp_path, "term,family\na,race\nb,Race and Ethnicity\nc,sexual orientation\n"))
    assert [term.family for _, term in parsed.terms] == ["race", "race", "orientation"]


def test_plain_text_has_one_term_a_line_with_the_chosen_action(tmp_path):
    parsed = parse_user_list(write(tmp_path, "nurse\n\n  New York \r\na,b\n", "x.TXT"), action="keep")
    assert parsed.terms == (
        (1, UserTerm("nurse", keep=True)), (3, UserTerm("New York", keep=True)), (4, UserTerm("a,b", keep=True)),
    )  # fmt: skip


def test_problems_name_line_and_column(tmp_path):
    text = 'term,family,action\nok,,\n,race,\nx,colour,\ny,,drop\nOK,age,\nz,,,\n"a\nb",race,\n' + "w" * 201 + ",,\n"
    found = problems(tmp_path, text)
    assert [(line, column) for line, column, _ in found] == [
        (3, "term"), (4, "family"), (5, "action"), (6, "term"), (7, "row"), (10, "term"),
    ]  # fmt: skip
    for place, words in ((1, ("“colour”", "gender, race")), (2, ("“drop”",)), (3, ("“OK”", "line 2"))):
        assert all(word in found[place][2] for word in words)
    for name, head in (("list.csv", "term"), ("list.txt", "first")):
        ((line, column, told),) = problems(tmp_path, f"{head}\nnur\x1bse\n", name)
        assert (line, column, "U+001B at character 4" in told) == (2, "term", True)


def test_a_line_that_is_longer_than_any_term_is_refused_before_it_is_compared(tmp_path, monkeypatch):
    def compared(term):
        assert len(term) <= LONGEST_TERM
        return folded(term)

    for module in ("app.lists.upload", "coft_core.text.user_list"):
        monkeypatch.setattr(f"{module}.folded", compared)
    for name in ("a.txt", "a.csv"):
        (problem,) = problems(tmp_path, "term\n" + "w" * 900_000, name)
        assert problem[:2] == (2, "term")


def test_an_unusable_file_is_refused_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("app.lists.upload.LARGEST", 40)
    for content, name, said in (
        (b"\xff\xfe", "a.txt", "not UTF-8"), ("word\nx\n", "a.csv", "no column “term”"),
        ("term\n", "a.csv", "has no terms"), ("\n \n", "a.txt", "has no terms"),
        ("x", "a.docx", "neither CSV nor plain text"),
        ("\n".join(f"t{i}" for i in range(41)), "a.txt", "more than 40 terms"),
    ):  # fmt: skip
        with pytest.raises(ServiceError, match=said):
            parse_user_list(write(tmp_path, content, name))
    assert parse_user_list(write(tmp_path, "\n".join(f"t{i}" for i in range(40)), "a.txt")).total == 40


def test_a_downloaded_list_can_be_uploaded_again(tmp_path):
    terms = (
        UserTerm("=cmd", "age"), UserTerm('say "hi", you', "race", True), UserTerm("-a", "other"), UserTerm("'x"),
        UserTerm("\uff1dSUM", "race"),
    )  # fmt: skip
    parsed = parse_user_list(write(tmp_path, user_list_csv(terms)))
    assert tuple(term for _, term in parsed.terms) == terms
    # Spreadsheets take neither sign, the wide one included, for the beginning of a formula.
    assert "'=cmd" in user_list_csv(terms)
    assert "'\uff1dSUM" in user_list_csv(terms)


def test_a_file_with_a_bad_line_stores_nothing(wired, tmp_path):
    parsed = wired[UserListService].parse(write(tmp_path, "term,family\na,race\nb,colour\n"))
    with pytest.raises(ServiceError, match=r"1 of 2 terms .* line 3 \(family: .*nothing was stored"):
        wired[UserListService].add("x", parsed)
    assert wired[UserListService].list() == ()


def test_a_taken_name_is_refused_unless_it_replaces(wired, stored, tmp_path):
    other = wired[UserListService].parse(write(tmp_path, "term\nonly\n"))
    with pytest.raises(ServiceError, match="already"):
        wired[UserListService].add(" hiring ", other)
    made = wired[UserListService].add("hiring", other, replace=True)
    assert made.summary.id != stored.summary.id
    assert wired[UserListService].named("hiring").terms == (UserTerm("only"),)
    with pytest.raises(ServiceError, match=r"“lending”.*“hiring”"):
        wired[UserListService].named("lending")


def start(wired, **changes):
    return wired[AuditService].start(StartAudit(PROMPT, replace(SETTINGS, **changes)))


def test_an_audit_with_a_list_keeps_and_masks_its_terms_and_names_it(wired, stored):
    view = start(wired, user_list_id=stored.summary.id, masked_families=("gender",))
    found = {(PROMPT[s.start : s.end], s.source, s.kept, s.suggested) for s in view.spans}
    assert found == {
        ("nurse", "list", True, False), ("his", "lexicon", False, False), ("cousin", "lexicon", False, True),
        ("come", "list", False, False),
    }  # fmt: skip
    masked = "".join("_" if piece.masked else piece.text for piece in view.preview.pieces)
    assert "nurse" in masked
    assert "cousin" in masked
    assert "come" not in masked
    assert view.user_list == "hiring"
    wired[AuditService].step(view.session_id)
    report = wired[ReportService].csv(view.session_id)
    assert "hiring" in report
    assert json.dumps("suggested") in report.replace('""', '"')


def calibrate(wired, tmp_path, **changes):
    request = replace(CalibrationRequest(name="set", model="tiny", top_p=1.0), **changes)
    return calibrated_on(wired, tmp_path, prompt_set_csv(), request)


def test_a_calibration_without_the_list_or_with_other_families_mismatches_and_says_so(wired, stored, tmp_path):
    plain = calibrate(wired, tmp_path)
    listed = calibrate(wired, tmp_path, user_list_id=stored.summary.id)
    with pytest.raises(CalibrationMismatch, match="used with list 'hiring'") as caught:
        start(wired, calibration_id=plain, user_list_id=stored.summary.id)
    assert caught.value.fields == ("detector",)
    with pytest.raises(CalibrationMismatch, match="calibrated with list 'hiring'"):
        start(wired, calibration_id=listed)
    with pytest.raises(CalibrationMismatch, match="used with no suggestions"):
        start(wired, calibration_id=plain, masked_families=FAMILIES)
    assert start(wired, calibration_id=listed, user_list_id=stored.summary.id).certificate.startswith("certified")
    assert start(wired, calibration_id=plain).certificate.startswith("certified")
    # What a calibration uses is neither deleted nor replaced.
    with pytest.raises(ServiceError, match=r"calibration “set”.*“hiring”"):
        wired[UserListService].delete(stored.summary.id)
    with pytest.raises(ServiceError, match="calibration “set”"):
        wired[UserListService].add("hiring", wired[UserListService].parse(write(tmp_path, "term\nx\n")), replace=True)
    wired[CalibrationService].delete(listed)
    wired[UserListService].delete(stored.summary.id)
    assert wired[UserListService].list() == ()


def submit_calibration(wired, tmp_path, user_list_id):
    path = tmp_path / "set.csv"
    path.write_text(prompt_set_csv())
    request = CalibrationRequest(name="job", model="tiny", top_p=1.0, user_list_id=user_list_id)
    return wired[CalibrationService].submit(wired[CalibrationService].parse(path), request)


def submit_tuning(wired, tmp_path, user_list_id):
    path = tmp_path / "tuning.csv"
    rows = [f"{who} said {number}, yes, no,{number}" for number in range(10) for who in ("She", "He")]
    path.write_text("\n".join(["prompt,answer,others,pair", *rows]))
    settings = AuditSettings(model="tiny", top_p=1.0, user_list_id=user_list_id)
    return wired[TuningService].submit(wired[TuningService].read(path), TuningRequest("job", ("coft",), settings))


def test_a_list_that_an_unfinished_job_uses_is_not_deleted(wired, stored, tmp_path):
    for submit in (submit_calibration, submit_tuning):
        with wired[CalibrationService].host.turn():
            job = submit(wired, tmp_path, stored.summary.id)
            with pytest.raises(ServiceError, match=r"“job”.*“hiring” and has not ended"):
                wired[UserListService].delete(stored.summary.id)
            wired[JobService].cancel(job)
        wired[JobService].wait(job)


def test_a_list_that_a_batch_needs_to_go_on_is_not_deleted(wired, stored, tmp_path):
    request = replace(REQUEST, settings=replace(SETTINGS, user_list_id=stored.summary.id))
    with wired[CalibrationService].host.turn():
        batch_id = wired[BatchService].submit(parsed(wired, tmp_path), request)
        wired[BatchService].cancel(batch_id)
    wired[JobService].wait(wired[BatchService].view(batch_id).job.id)
    with pytest.raises(ServiceError, match=r"batch “hiring”.*“hiring” and has rows"):
        wired[UserListService].delete(stored.summary.id)
    wired[JobService].wait(wired[BatchService].resume(batch_id))
    wired[UserListService].delete(stored.summary.id)
    assert wired[BatchService].view(batch_id).counts == {"finished": 4}


def test_a_session_with_a_list_goes_on_after_a_restart_and_no_longer_once_it_is_gone(wired, stored, settings):
    view = start(wired, user_list_id=stored.summary.id)
    with services(settings, loader=load_tiny) as restarted:
        assert restarted[AuditService].step(view.session_id) is not None
    wired[UserListService].delete(stored.summary.id)
    shown = wired[AuditService].view(view.session_id)
    assert shown.user_list == "hiring"
    assert "“hiring” has been deleted" in shown.warnings[-1]
    with (
        services(settings, loader=load_tiny) as restarted,
        pytest.raises(ServiceError, match="“hiring” has been deleted"),
    ):
        restarted[AuditService].step(view.session_id)


def test_the_programs_own_families_come_from_its_settings_and_a_session_keeps_those_it_was_made_with(settings):
    everything = settings.model_copy(update={"mask_families": "all"})
    with services(everything, loader=load_tiny) as wired:
        assert wired[AuditService].masked_families == FAMILIES
        view = start(wired)
        assert not any(span.suggested for span in view.spans)
    with services(settings, loader=load_tiny) as usual:
        assert usual[AuditService].view(view.session_id).settings.masked_families == FAMILIES
        assert usual[AuditService].step(view.session_id) is not None


def test_families_are_read_from_names_and_groups():
    for text, expected in (
        ("all", FAMILIES), ("protected", tuple(f for f in FAMILIES if f not in PROXY_FAMILIES)),
        ("Name, age", ("age", "name")), ("none", ()), ("", ()),
    ):  # fmt: skip
        assert families_from_text(text) == expected
    with pytest.raises(InvalidInputError, match=r"'colour'.*all, protected, none, gender"):
        families_from_text("race,colour")
