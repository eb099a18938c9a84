"""Served models in the program: listed by settings, chosen by name, stopped and resumed, and their keys kept out."""

import io
import json
import logging
import zipfile
from datetime import date
from threading import Event, Thread

import pytest

from app.audit.service import AuditService
from app.batch.service import BatchRequest, BatchService
from app.bootstrap import services
from app.cli import main
from app.hosting.model_host import ModelHost
from app.jobs.service import JobService
from app.models.service import ModelShelf
from app.report.service import ReportService
from app.settings import Settings, WrongSettingsError
from app.shared.audits import AuditSettings, StartAudit
from app.shared.formal_reports import Statement
from coft_core.errors import EngineError, ModelLoadError
from tests.app.batch.small_batch import parsed
from tests.conftest import load_tiny, the_tiny_model
from tests.serving import KEY, KEY_ENV, LocalServer

LAB = AuditSettings(model="served:lab", max_new_tokens=6, top_p=1.0, seed=5, controls=0)
TEXT = "He is a nurse"


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr("coft_core.model.server_client.PAUSE", 0.0)
    monkeypatch.setenv(KEY_ENV, KEY)
    with LocalServer(the_tiny_model()).running() as running:
        yield running


@pytest.fixture
def wired(server, tmp_path):
    listed = json.dumps([server.served(tmp_path / "tokenizer").model_dump()])
    database = f"sqlite:///{tmp_path / 'audits.sqlite3'}"
    with services(Settings(database_url=database, pipeline="none", served=listed), loader=load_tiny) as opened:
        yield opened


def tokens(wired, audit):
    return [step.token_id for step in wired[AuditService].run(audit.session_id)]


def test_reviewers_choose_a_served_model_by_name_and_get_the_steps_of_the_model_itself(wired):
    audits = wired[AuditService]
    assert wired.settings.model_names == ("demo", "served:lab")
    assert {known.name: known.source for known in wired[ModelShelf].list().models}["served:lab"] == "COFT_SERVED"
    served = tokens(wired, audits.start(StartAudit(TEXT, LAB)))
    assert served == tokens(wired, audits.start(StartAudit(TEXT, AuditSettings(**{**vars_of(LAB), "model": "tiny"}))))
    view = wired[ModelHost].describe("served:lab")
    assert (view.note, view.label) == ("Ready on a server", "served:lab")
    assert "weights were not seen" in view.details
    with pytest.raises(ModelLoadError, match="it lists: served:lab"):
        wired[ModelHost].get("served:other")


def vars_of(settings):
    return {name: getattr(settings, name) for name in settings.__dataclass_fields__}


def test_reports_say_that_the_weights_were_not_seen_and_nothing_that_leaves_has_the_key(wired, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    audit = wired[AuditService].start(StartAudit(TEXT, LAB))
    list(wired[AuditService].run(audit.session_id))
    reports = wired[ReportService]
    shown = reports.html(audit.session_id)
    formal = reports.formal(audit.session_id, Statement("Dr. R. Osei", "Does it?", "en", date(2026, 1, 2)))
    assert all("weights were not seen" in each for each in (shown, formal))
    with zipfile.ZipFile(io.BytesIO(reports.bundle(audit.session_id))) as bundle:
        left = [bundle.read(name) for name in bundle.namelist()]
    left += [shown.encode(), formal.encode(), *(file.read_bytes() for file in tmp_path.glob("audits.sqlite3*"))]
    left += [caplog.text.encode(), repr(wired.settings).encode(), repr(wired[ModelHost].get("served:lab")).encode()]
    assert all(KEY.encode() not in each for each in left)


def test_pausing_an_audit_does_not_wait_for_a_server_and_the_chain_goes_on_where_it_stopped(wired, server):
    audits, asked, release = wired[AuditService], Event(), Event()
    whole = tokens(wired, audits.start(StartAudit(TEXT, LAB)))
    audit = audits.start(StartAudit(TEXT, LAB))
    running = audits.run(audit.session_id)
    begun = [next(running).token_id, next(running).token_id]

    def hanging(right):
        asked.set()
        release.wait()
        return right

    server.faults.append(hanging)
    pausing = Thread(target=lambda: asked.wait() and audits.pause(audit.session_id))
    pausing.start()
    assert list(running) == []
    pausing.join()
    release.set()
    assert begun + tokens(wired, audit) == whole


def test_an_audit_whose_server_went_away_goes_on_where_it_stopped(wired, server):
    audits = wired[AuditService]
    whole = tokens(wired, audits.start(StartAudit(TEXT, LAB)))
    audit = audits.start(StartAudit(TEXT, LAB))
    running = audits.run(audit.session_id)
    begun = [next(running).token_id]
    server.faults.extend([lambda right: 503] * 4)
    with pytest.raises(EngineError, match="served:lab"):
        next(running)
    assert begun + tokens(wired, audit) == whole


def test_a_batch_is_cancelled_while_its_server_hangs_and_resumed_after_that_and_an_error(wired, server, tmp_path):
    batches, jobs, asked, release = wired[BatchService], wired[JobService], Event(), Event()
    prompts = parsed(wired, tmp_path)

    def texts(batch_id):
        return [row.text for row in batches.view(batch_id).rows]

    whole = batches.submit(prompts, BatchRequest("whole", LAB))
    assert jobs.wait(batches.view(whole).job.id).status == "done"

    def hanging(right):
        asked.set()
        release.wait()
        return right

    server.faults.extend([*[lambda right: right] * 8, hanging])
    batch = batches.submit(parsed(wired, tmp_path), BatchRequest("cut", LAB))
    assert asked.wait(60)
    batches.cancel(batch)
    assert jobs.wait(batches.view(batch).job.id).status == "cancelled"
    release.set()
    server.faults.extend([*[lambda right: right] * 5, *[lambda right: 500] * 4])
    job = jobs.wait(batches.resume(batch))
    assert (job.status, "served:lab" in job.error) == ("failed", True)
    assert all(not row.error for row in batches.view(batch).rows)
    assert jobs.wait(batches.resume(batch)).status == "done"
    assert texts(batch) == texts(whole)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a", "neither YAML nor JSON"),
        ("/no/such/file", "cannot be read"),
        ("{a: b}", "must be a list"),
        ("[{name: a, url: 'http://x', kind: vllm}]", "has no tokenizer"),
        ("[{name: a, url: 'http://x', kind: vllm, tokenizer: demo, key: secret}]", "'key', which is not a setting"),
        ("[{name: a, url: 'http://me:secret@x', kind: vllm, tokenizer: demo}]", "The url of model 1"),
        ("[{name: a, url: 'http://x', kind: other, tokenizer: demo}]", "vllm or llama-server"),
        ("[" + "{name: a, url: 'http://x', kind: vllm, tokenizer: demo}," * 2 + "]", "lists 'a' twice"),
    ],
)
def test_wrong_lists_are_one_sentence_each_without_what_may_be_a_key_and_exit_code_2(text, said, monkeypatch, capsys):
    with pytest.raises(WrongSettingsError) as told:
        Settings(served=text)
    assert said in str(told.value)
    assert "secret" not in str(told.value)
    monkeypatch.setenv("COFT_SERVED", text)
    assert main(["models"]) == 2
    assert said in capsys.readouterr().err


def test_a_file_may_hold_the_list(tmp_path):
    place = tmp_path / "served.yaml"
    place.write_text("- {name: lab, url: 'http://gpu1:8000/v1', kind: vllm, tokenizer: demo}\n")
    assert Settings(served=str(place)).served_models["served:lab"].url == "http://gpu1:8000"
