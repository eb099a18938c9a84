"""The formal report of a batch: from the command line and as programs call it."""

from __future__ import annotations

import json

import pytest

from app.batch.formal import RatesRule, audited_batch
from app.batch.operations import formal_batch_report
from app.batch.service import BatchRequest, BatchService
from app.shared.audits import AuditSettings
from app.shared.jobs import JobService

SET = "prompt,group\nHe is a nurse,men\nHe is a doctor,men\nShe is a nurse,women\n"


@pytest.fixture(scope="module")
def wired(shared):
    return shared


@pytest.fixture(scope="module")
def batch(wired, tmp_path_factory):
    path = tmp_path_factory.mktemp("set") / "people.csv"
    path.write_text(SET)
    settings = AuditSettings(model="tiny", max_new_tokens=3)
    number = wired[BatchService].submit(wired[BatchService].parse(path), BatchRequest("people", settings))
    wired[JobService].wait(wired[BatchService].view(number).job.id)
    return number


def test_a_batch_is_reported_with_its_groups_sessions_and_rates(wired, batch):
    view = wired[BatchService].view(batch)
    letter = view.rows[0].text.strip()[0]
    audited = audited_batch(view, RatesRule(selected=f"[{letter}]", regex=True))
    assert audited.groups == ("men", "women")
    assert audited.sessions == tuple(row.session_id for row in view.rows)
    assert audited.selection is not None
    assert [(row.group, row.total) for row in audited.selection.rows] == [("men", 2), ("women", 1)]
    assert audited.selection.rows[0].counted >= 1
    assert audited.scoring is None


def test_programs_get_the_formal_report_of_a_batch_as_a_file(wired, batch, tmp_path):
    path = formal_batch_report.call(wired, batch, "R. Osei", "Who is hired?", kind="formal", folder=tmp_path)
    text = path.read_text("utf-8")
    assert path.name == f"coft-audit-batch-{batch}-formal.html"
    assert "R. Osei" in text
    assert "Batch" in text
    assert "3 of 3 prompts of people.csv audited" in text


def test_the_formal_report_of_a_batch_is_written_from_the_command_line(command, tmp_path, monkeypatch):
    # To lay out pages takes long, and has tests of its own.
    monkeypatch.setattr("app.report.service.pdf_of", lambda *_: b"%PDF")
    (tmp_path / "people.csv").write_text(SET)
    options = ("--model", "tiny", "--top-p", "1", "--steps", "3", "--calibration", "none", "--json")
    made = json.loads(command("batch", "run", "--prompts", tmp_path / "people.csv", *options)[1])
    out = tmp_path / "report.pdf"
    code, _, error = command("batch", "report", made["batch_id"], "--auditor", "A", "--selected", "hired", "--out", out)
    assert (code, error) == (0, "")
    assert out.read_bytes().startswith(b"%PDF")
    code, _, error = command("batch", "report", made["batch_id"], "--score", "number(", "--out", out)
    assert (code, "is not a regular expression" in error) == (1, True)
