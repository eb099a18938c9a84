"""The JSON report and the tables: complete, exact, and the same after a journey through text."""

import csv
import io
import json
import math
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from app.report import document as program
from app.report.bundle import REPORT, digests_of
from app.report.document import (
    branch_records,
    canonical,
    chains_in,
    report_from,
    report_text,
)
from app.report.service import ReportService
from app.report.tables import annotations_csv, candidates_csv
from app.shared.errors import ServiceError
from tests.app.report.conftest import files_of

ROOT = Path(__file__).resolve().parents[3]


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_a_report_comes_back_exactly_and_holds_all_that_is_stored(audited):
    for kind in ("joint", "factorized", "uninformative", "vanilla", "empty"):
        data = audited.wired[ReportService].data(audited.sessions[kind])
        report = report_from(audited.wired[ReportService].json(audited.sessions[kind]))
        assert report_from(report_text(report)) == report
        # What a chain took of time and memory is the machine's affair and not part of an audit's report.
        assert replace(report.session, batch=data.record.batch) == replace(data.record, footprint=None)
        assert branch_records(report) == tuple(data.branches)
        assert chains_in(report) == {branch: tuple(chain) for branch, chain in data.chains.items()}
        assert report.log == tuple(replace(record, id=record.entry) for record in data.log)
        assert report.drift == data.drift


def test_a_report_keeps_text_that_no_encoding_takes_and_infinite_numbers_but_no_nan(audited):
    report = report_from(audited.wired[ReportService].json(audited.sessions["joint"]))
    odd = "\ud83d \x00 \u202e é"
    changed = replace(report, session=replace(report.session, name=odd))
    text = report_text(changed)
    assert text.isascii()
    assert report_from(text).session.name == odd
    report = report_from(audited.wired[ReportService].json(audited.sessions["uninformative"]))
    assert report.branches[0].steps[0].log_tau == -math.inf
    assert '"log_tau": "-Infinity"' in report_text(report)
    with pytest.raises(ValueError, match="Out of range"):
        canonical(math.nan)
    plain = json.loads(report_text(report))
    plain["branches"][0]["steps"][0]["candidates"][0]["log_p_fused"] = math.nan
    with pytest.raises(ServiceError, match="log_p_fused: it should be a number"):
        report_from(json.dumps(plain))


def test_what_is_no_report_or_has_a_key_twice_is_refused(audited):
    for text in ("", "[]", "{", '{"kind": "coft-audit-report", "version": 1}', "[" * 100_000):
        with pytest.raises(ServiceError):
            report_from(text)
    # Programs differ in which of the two values they take: people could read another report than is verified.
    text = audited.wired[ReportService].json(audited.sessions["joint"])
    doubled = text.replace('"model": ', '"model": "another", "model": ', 1)
    assert doubled != text
    with pytest.raises(ServiceError, match="the key 'model' appears twice"):
        report_from(doubled)


def names_in(part):
    """Names of all fields of a report, but for what the program keeps without a form."""
    if isinstance(part, list):
        return {name for item in part for name in names_in(item)}
    if not isinstance(part, dict):
        return set()
    free = ("policy_settings", "fingerprint", "rendering", "chain", "thinking")
    return set(part) | {name for key, item in part.items() if key not in free for name in names_in(item)}


def test_every_part_of_the_document_is_described_for_readers_and_the_program_names_its_version(audited):
    described = (ROOT / "docs/report_format.md").read_text(encoding="utf-8")
    for kind in ("joint", "factorized"):
        names = names_in(json.loads(files_of(audited.bundles[kind])[REPORT]))
        assert {name for name in names if f"`{name}`" not in described} == set()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == program.VERSION


def test_candidates_are_listed_once_each_with_exact_logarithms_and_the_families_that_refuse_them(audited):
    data = audited.wired[ReportService].data(audited.sessions["joint"])
    rows = rows_of(candidates_csv(data))
    report = report_from(audited.wired[ReportService].json(audited.sessions["joint"]))
    steps = [(branch.path, step) for branch in report.branches for step in branch.steps]
    assert len(rows) == sum(len(step.candidates) for _, step in steps)
    expected = [(path, step.index + 1, row.token_id) for path, step in steps for row in step.candidates]
    assert [(row["branch"], int(row["step"]), int(row["token_id"])) for row in rows] == expected
    assert float(rows[0]["log_p_factual"]) == steps[0][1].candidates[0].log_p_factual
    assert float(rows[0]["p_factual"]) == math.exp(steps[0][1].candidates[0].log_p_factual)
    for path, step in steps:
        own = [row for row in rows if (row["branch"], int(row["step"])) == (path, step.index + 1)]
        assert [int(row["token_id"]) for row in own if row["emitted"] == "true"] == [step.token_id]
        assert [int(row["token_id"]) for row in own if row["policy_choice"] == "true"] == [step.policy_token_id]
    rows = rows_of(candidates_csv(audited.wired[ReportService].data(audited.sessions["factorized"])))
    assert {row["refused_by"] for row in rows if row["certified"] == "true"} == {""}
    assert {row["refused_by"] for row in rows if row["certified"] == "false"} == {"gender"}


def test_the_log_is_listed_entry_by_entry_and_the_steps_table_says_what_was_said_of_each_step(audited):
    rows = rows_of(annotations_csv(audited.wired[ReportService].data(audited.sessions["joint"])))
    assert [row["kind"] for row in rows] == ["verdict", "review_started", "verdict", "verdict", "adjudication"]
    assert rows[0]["note"] == "'=copied <b>from</b> the prompt"
    assert (rows[3]["target"], rows[3]["first_step"], rows[3]["last_step"]) == ("steps 4–6 of branch 0", "4", "6")
    assert [row["blind"] for row in rows] == ["false", "true", "true", "true", "false"]
    assert rows[1]["previous"] == rows[0]["digest"]
    rows = [row for row in rows_of(audited.wired[ReportService].csv(audited.sessions["joint"])) if row["branch"] == "0"]
    assert [row["verdict"] for row in rows[:6]] == ["", "unfair", "", "fair", "fair", "fair"]
    assert rows[1]["note"].startswith("R. Osei (unfair): =copied")
    assert "K. Abe (decides unfair): nobody is named" in rows[1]["note"]
    assert rows[4]["note"] == "steps 4–6 of branch 0: plain"


def test_a_bundle_names_the_digests_of_all_that_the_audit_rests_on_and_has_a_calibration_only_if_there_is_one(audited):
    files = files_of(audited.bundles["joint"])
    manifest = json.loads(files["manifest.json"])
    assert set(manifest["files"]) == set(files) - {"manifest.json"}
    digests = manifest["digests"]
    assert digests == digests_of(report_from(files[REPORT]))
    for name in ("calibration", "thresholds", "steps", "prompt", "log_head"):
        assert re.fullmatch("[0-9a-f]{64}", digests[name]), name
    assert all(digests[name] for name in ("model_weights", "tokenizer", "fingerprint"))
    assert digests["log_entries"] == 5
    assert manifest["program"] == {"name": program.NAME, "version": program.VERSION}
    assert "calibration.zip" in files_of(audited.bundles["factorized"])
    for kind in ("uncalibrated", "vanilla", "deleted", "empty"):
        assert "calibration.zip" not in files_of(audited.bundles[kind])
