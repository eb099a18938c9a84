"""Sentinels from the settings to the session: chosen and told, named, missing, and kept with what is stored."""

import json
import sqlite3
from dataclasses import replace

import pytest

from app.audit.service import AuditService
from app.bootstrap import services
from app.calibrate.service import CalibrationService
from app.jobs.service import JobService
from app.prompts.words import preview_message
from app.report.service import ReportService
from app.settings import Settings
from app.shared.audits import AuditSettings, CalibrationRequest, StartAudit
from coft_core.errors import SentinelError
from coft_core.types import Span
from tests.conftest import load_tiny
from tests.vocabularies import WORDS, byte_level, random_model, words_alone

PROMPT = "The nurse said he would come"
SPANS = (Span(15, 17, "gender"),)
SETTINGS = AuditSettings(model="tiny", max_new_tokens=4, top_p=1.0)
ROWS = "\n".join(["prompt,reference", *(f"The nurse {a} he {b},home and {b}" for a in WORDS for b in WORDS)])


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """All services on a model whose vocabulary has nothing that could stand for a masked word."""
    model, store = random_model(words_alone()), tmp_path_factory.mktemp("without") / "audits.sqlite3"
    with services(
        Settings(database_url=f"sqlite:///{store}", pipeline="none"), loader=lambda *_, **__: model
    ) as opened:
        yield opened


@pytest.fixture(scope="module")
def tiny(shared):
    return shared


def ran(wired, **changes):
    session = wired[AuditService].start(StartAudit(PROMPT, replace(SETTINGS, **changes), SPANS)).session_id
    list(wired[AuditService].run(session))
    return wired[AuditService].view(session)


def numbers(view):
    """The tokens of a chain, and what the masked reading gave them."""
    return [number for step in view.steps for number in (step.token_id, step.log_p_masked)]


def test_a_method_that_masks_nothing_runs_on_a_model_without_a_sentinel_and_says_so(without):
    vanilla = replace(SETTINGS, policy="vanilla")
    preview = without[AuditService].preview(PROMPT, SPANS, vanilla)
    assert (preview.masked_count, preview.sentinel) == (0, "")
    assert "no token that could stand for a masked one" in preview.warnings[0]
    assert "No token of this vocabulary" in without[AuditService].model("tiny").sentinel
    view = ran(without, policy="vanilla")
    assert view.steps
    assert preview.warnings[0] in view.warnings
    assert without[ReportService].bundle(view.session_id)


def test_a_method_that_masks_is_refused_on_a_model_without_a_sentinel_unless_nothing_is_masked(without):
    with pytest.raises(SentinelError, match="no token that could stand"):
        without[AuditService].start(StartAudit(PROMPT, SETTINGS, SPANS))
    assert without[AuditService].start(StartAudit(PROMPT, SETTINGS, ()))


def test_calibrations_of_a_model_without_a_sentinel_need_a_named_one_unless_they_read_the_prompt_as_typed(
    without, tmp_path
):
    path = tmp_path / "set.csv"
    path.write_text(ROWS, "utf-8")
    parsed = without[CalibrationService].parse(path)
    plain = CalibrationRequest(name="set", model="tiny", top_p=1.0, alpha=0.5, max_new_tokens=3)
    for changes in (
        {"sentinel": "home", "source": "reference"},
        {"sentinel": "home", "source": "rollout"},
        {"certified_in": "factual"},
    ):
        request = replace(plain, **changes)
        job = without[JobService].wait(without[CalibrationService].submit(parsed, request))
        assert job.status == "done", job.error
        if request.sentinel:
            number = int(job.result["calibration_id"])
            view = ran(without, sentinel="home", calibration_id=number, alpha=0.5, max_new_tokens=1)
            assert view.certificate.startswith("certified")
            with pytest.raises(SentinelError, match="no token that could stand"):
                without[CalibrationService].submit(parsed, replace(request, sentinel=None))


def test_a_stored_session_goes_on_with_the_sentinel_that_it_began_with(tiny):
    settings = tiny.settings
    whole = ran(tiny, sentinel="#")
    begun = tiny[AuditService].start(StartAudit(PROMPT, replace(SETTINGS, sentinel="#"), SPANS)).session_id
    tiny[AuditService].step(begun)
    with sqlite3.connect(settings.database_url.removeprefix("sqlite:///")) as file:
        (stored,) = file.execute("SELECT policy_settings FROM audit_sessions WHERE id = ?", (begun,)).fetchone()
        # As an earlier version left it that would have chosen this one by itself.
        data = json.loads(stored)
        data["settings"]["sentinel"] = None
        file.execute("UPDATE audit_sessions SET policy_settings = ? WHERE id = ?", (json.dumps(data), begun))
    with services(settings, loader=load_tiny) as reopened:
        list(reopened[AuditService].run(begun))
        assert reopened[AuditService].view(begun).settings.sentinel is None
        assert numbers(reopened[AuditService].view(begun)) == pytest.approx(numbers(whole), abs=1e-4)
    assert numbers(ran(tiny)) != pytest.approx(numbers(whole), abs=1e-4)


def test_a_kept_word_that_shares_a_token_with_a_masked_one_is_a_warning_of_the_page_and_the_session(settings):
    model = random_model(byte_level(["<m>"], "<m>", [("h", "e"), ("he", "r"), ("her", "s")]))
    spans = (Span(7, 10, "gender"), Span(10, 11, "other", kept=True))
    with services(settings, loader=lambda name, **_: model) as wired:
        shown = preview_message(wired[AuditService].preview("it was hers", spans, SETTINGS))
        stored = wired[AuditService].start(StartAudit("it was hers", SETTINGS, spans)).warnings
    told = [found for found in (*shown["warnings"], *stored) if "“s” is kept, but shares a token with “her”" in found]
    assert len(told) == 2
