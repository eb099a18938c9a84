"""Reports: complete, truthful, and harmless in a spreadsheet."""

import csv
import io
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.audit.service import AuditService
from app.report.service import ReportService
from app.shared.audits import AuditSettings, StartAudit
from app.shared.files import FORMULA_STARTS, to_csv
from coft_core.types import Span

DESIGNED = [
    "session_id", "step", "branch", "token_id", "token", "p_factual",
    "p_masked", "p_fused", "tau", "certified", "set_size", "certified_mass",
    "fallback", "chosen_by", "kl_fused_masked", "tv_bound", "verdict", "note",
    "model", "model_revision", "calibration_id", "fingerprint", "lam", "alpha",
    "temperature", "top_p", "seed", "spans",
]  # fmt: skip


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.fixture
def session(wired):
    settings = AuditSettings(model="tiny", max_new_tokens=4)
    view = wired[AuditService].start(
        StartAudit("=SUM(he)", settings, (Span(5, 7, "gender"), Span(1, 4, "other", kept=True)))
    )
    list(wired[AuditService].run(view.session_id))
    wired[AuditService].fork(view.session_id, view.branch_id, 2, "x")
    return view


def test_the_report_has_a_row_for_each_stored_step_and_says_what_the_session_says(wired, session):
    text = wired[ReportService].csv(session.session_id)
    assert text.startswith(",".join(DESIGNED))
    rows = rows_of(text)
    assert text.count("\r\n") >= len(rows) + 1
    steps = wired[AuditService].view(session.session_id, session.branch_id).steps
    root = [r for r in rows if r["branch"] == "0"]
    assert [int(r["step"]) for r in root] == list(range(1, len(steps) + 1))
    assert next(r for r in rows if r["branch"] != "0")["chosen_by"] == "reviewer"
    assert len(rows) == len(steps) + 1
    steps = wired[AuditService].view(session.session_id, session.branch_id).steps
    for row, step in zip(rows_of(wired[ReportService].csv(session.session_id)), steps, strict=False):
        assert int(row["token_id"]) == step.token_id
        assert float(row["p_factual"]) == math.exp(step.log_p_factual)
        assert float(row["p_masked"]) == math.exp(step.log_p_masked)
        assert float(row["p_fused"]) == math.exp(step.log_p_fused)
        assert row["certified"] == str(step.certified).lower()
        assert row["certificate"] == "uncertified: no calibration"
        assert json.loads(row["spans"]) == [
            [1, 4, "other", "kept", "user", None],
            [5, 7, "gender", "masked", "user", None],
        ]
    assert rows_of(wired[ReportService].csv(session.session_id))[0]["prompt"] == "'=SUM(he)"
    fork = wired[AuditService].view(session.session_id)
    rows = rows_of(wired[ReportService].csv(session.session_id, fork.branch_id))
    assert [int(r["step"]) for r in rows] == [1, 2, 3]
    assert {r["branch"] for r in rows[:2]} == {"0"}


@settings(max_examples=40)
@given(st.text())
def test_no_text_cell_begins_like_a_formula_and_every_cell_survives_the_csv_reader(text):
    written = to_csv(["cell"], [{"cell": text}])
    (row,) = list(csv.reader(io.StringIO(written, newline="")))[1:] or [[""]]
    cell = row[0] if row else ""
    assert not cell.startswith(FORMULA_STARTS)
    assert cell in (text, f"'{text}")
