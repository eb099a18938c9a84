"""Audits, calibrations and batches of models whose chat template prints the date, and prompts without the template."""

import functools
import json
from dataclasses import replace
from datetime import datetime

import pytest

from app.audit.service import AuditService
from app.batch.service import BatchRequest, BatchService
from app.bootstrap import services
from app.jobs.service import JobService
from app.report.service import ReportService
from app.settings import Settings
from app.shared.audits import AuditSettings, CalibrationRequest, StartAudit
from coft_core.errors import CalibrationMismatch, InvalidInputError
from coft_core.model.fake import tiny_model
from coft_core.types import Span
from tests.app.conftest import calibrated_on
from tests.conftest import verifier

TURN = "{% for message in messages %}[{{ message['content'] }}]{% endfor %}"
TEMPLATES = {
    "dated": "{{ strftime_now('%d %b %Y') }}" + TURN, "random": "{{ range(10000, 99999)|random }}" + TURN,
    "steady": TURN, "plain": None,
}  # fmt: skip
PROMPT = "The nurse said he would come"
SPANS = (Span(15, 17, "gender"),)
SETTINGS = AuditSettings(model="dated", max_new_tokens=4, top_p=1.0, alpha=0.2)
ROWS = "\n".join(["prompt,reference", *(f"He gave {i} apples,and she counted {i}" for i in range(20))])
MONDAY, TUESDAY = datetime(2026, 3, 2, 9), datetime(2026, 3, 3, 9)


class Clock(datetime):
    """What programs take for the time; a test sets the day."""

    now_is = MONDAY

    @classmethod
    def now(cls, tz=None):
        return cls.now_is


@pytest.fixture(autouse=True)
def today(monkeypatch):
    for module in ("coft_core.model.language_model", "coft_core.text.rendering"):
        monkeypatch.setattr(f"{module}.datetime", Clock)
    Clock.now_is = MONDAY
    return Clock


@functools.cache
def model(name):
    return replace(tiny_model(chat_template=TEMPLATES[name]), name=name)


def load(name, **_):
    return model(name)


@pytest.fixture(scope="module")
def wired(tmp_path_factory):
    settings = Settings(
        database_url=f"sqlite:///{tmp_path_factory.mktemp('store') / 'audits.sqlite3'}", pipeline="none"
    )
    with services(settings, loader=load) as opened:
        yield opened


def calibrated(wired, folder, **changes):
    """A calibration that is made on a Monday."""
    request = replace(CalibrationRequest(name="set", model="dated", top_p=1.0, alpha=0.2), **changes)
    return calibrated_on(wired, folder, ROWS, request)


def stepped(wired, session, count):
    for _ in range(count):
        wired[AuditService].step(session)
    return [step.token_id for step in wired[AuditService].view(session).steps]


def fresh(wired):
    """Forget every live rollout, so that sessions are rebuilt from the store."""
    while wired[AuditService]._live._pool.close_oldest():
        pass


@pytest.mark.parametrize("name", ["dated", "random"])
def test_an_audit_goes_on_tomorrow_with_the_prompt_that_it_was_begun_with(wired, today, name):
    settings = replace(SETTINGS, model=name, greedy=True)
    whole = wired[AuditService].start(StartAudit(PROMPT, settings, SPANS)).session_id
    record = wired[AuditService]._sessions.get(whole)
    cut = wired[AuditService].start(StartAudit(PROMPT, settings, SPANS, repeats=whole)).session_id
    tokens = stepped(wired, whole, 4)
    stepped(wired, cut, 2)
    today.now_is = TUESDAY
    fresh(wired)
    assert stepped(wired, cut, 2) == tokens
    plan = wired[AuditService]._live.plan(wired[AuditService]._sessions.get(cut))
    assert record.rendering is not None
    assert list(plan.prompt.factual_ids) == record.rendering["texts"][0]["ids"]


def test_a_calibration_of_yesterday_is_named_and_adopted_with_its_day(wired, today, tmp_path):
    number = calibrated(wired, tmp_path)
    job = max(wired[JobService].list(), key=lambda one: one.id)
    assert job.payload["request"]["chat_date"] == "2026-03-02"
    settings = replace(SETTINGS, calibration_id=number)
    assert wired[AuditService].fit(settings).differences == ()
    assert wired[AuditService].start(StartAudit(PROMPT, settings, SPANS)).certificate.startswith("certified")
    today.now_is = TUESDAY
    ((name, made, used),) = wired[AuditService].fit(settings).differences
    assert (name, made.rpartition(" ")[2], used.rpartition(" ")[2]) == ("rendering", "2026-03-02", "2026-03-03")
    with pytest.raises(CalibrationMismatch, match="as of 2026-03-02"):
        wired[AuditService].start(StartAudit(PROMPT, settings, SPANS))
    adopted = wired[AuditService].adopt(settings)
    assert adopted.chat_date == "2026-03-02"
    assert wired[AuditService].fit(adopted).differences == ()
    view = wired[AuditService].start(StartAudit(PROMPT, adopted, SPANS))
    assert view.certificate.startswith("certified")
    assert any("as of 2026-03-02" in warning for warning in view.warnings)


def test_a_model_with_a_template_is_prompted_without_it_and_its_calibrations_are_told_apart(wired, tmp_path):
    number = calibrated(wired, tmp_path, prompt_format="plain")
    settings = replace(SETTINGS, calibration_id=number)
    assert [name for name, _, _ in wired[AuditService].fit(settings).differences] == ["chat_template"]
    adopted = wired[AuditService].adopt(settings)
    assert adopted.prompt_format == "plain"
    session = wired[AuditService].start(StartAudit(PROMPT, adopted, SPANS)).session_id
    record = wired[AuditService]._sessions.get(session)
    assert record.fingerprint["chat_template"] == "none"
    assert record.rendering is not None
    assert (record.rendering["chat"], record.rendering["at"]) == (False, None)
    assert len(record.rendering["texts"][0]["ids"]) == len(PROMPT.encode())
    with pytest.raises(InvalidInputError, match="no chat template"):
        wired[AuditService].start(StartAudit(PROMPT, replace(SETTINGS, model="plain", prompt_format="chat"), SPANS))


@pytest.mark.parametrize("name", ["dated", "random", "plain"])
def test_a_report_is_replayed_tomorrow_and_a_forged_reading_is_found(wired, today, tmp_path, name):
    session = wired[AuditService].start(StartAudit(PROMPT, replace(SETTINGS, model=name), SPANS)).session_id
    assert ("rendering" in wired[AuditService]._sessions.get(session).fingerprint) == (name != "plain")
    stepped(wired, session, 2)
    today.now_is = TUESDAY
    fresh(wired)
    path = wired[ReportService].write(session, "json", tmp_path)
    checker = verifier(Settings(pipeline="none"), loader=load)
    found = checker.verify(path, True)
    assert not [check for check in found.checks if check.status == "failed"], found.checks
    document = json.loads(path.read_text("utf-8"))
    read = document["session"]["rendering"]["texts"][0]
    read["ids"][-2] = (read["ids"][-2] + 1) % 200
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps(document), "utf-8")
    names = {check.name for check in checker.verify(forged, True).checks if check.status == "failed"}
    assert "Replay on the model" in names
    read["offsets"][0] = [0, 9999]
    forged.write_text(json.dumps(document), "utf-8")
    names = {check.name for check in checker.verify(forged, False).checks if check.status == "failed"}
    assert "Prompt, spans and settings" in names


def test_a_batch_is_begun_and_resumed_as_of_the_day_on_which_it_was_asked_for(wired, tmp_path):
    path = tmp_path / "prompts.csv"
    path.write_text("prompt\nThe nurse said he\nThe doctor said she\n", "utf-8")
    settings = replace(SETTINGS, policy="vanilla", max_new_tokens=1)
    number = wired[BatchService].submit(wired[BatchService].parse(path), BatchRequest("two", settings))
    assert wired[BatchService].view(number).request.settings.chat_date == "2026-03-02"
