"""What the calibrate page says: of prompt sets, runs, results, drift, and two runs side by side."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.calibrate.result_page import AS_CALIBRATED, READING_FIELDS, reading_from, reading_note
from app.calibrate.service import CalibrationService
from app.calibrate.words import (
    alphas,
    comparison_settings,
    comparison_thresholds,
    fingerprint,
    result_checks,
    result_head,
    runs_list,
)  # fmt: skip
from app.jobs.watch import resumable_jobs
from app.prompts.form import marked_text, preview_rows, prompt_set, row_errors
from app.prompts.sets import PromptPreview, RowError
from app.shared.audits import CalibrationView, ReadingRequest
from app.shared.wiring import Services
from coft_core.types import FAMILIES, Span
from tests.browser import Seeded
from tests.records import job_view
from tests.story.seed import KINDS, with_every_kind

NASTY = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def services(program: Seeded, tmp_path_factory: pytest.TempPathFactory) -> Services:
    return with_every_kind(program.restore(), tmp_path_factory.mktemp("kinds"))


def view(services: Services, kind: str = "reference", **reading: object) -> CalibrationView:
    number = ("reference", *KINDS).index(kind) + 1
    return services[CalibrationService].view(number, ReadingRequest(**reading))  # type: ignore[arg-type]


def test_markup_from_the_outside_is_shown_and_never_run(services, tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text(f"prompt,reference,{NASTY}\n{NASTY},{NASTY},\n{NASTY},,\n", "utf-8")
    parsed = services[CalibrationService].parse(path, NASTY + ".csv")
    shown = view(services, "grouped")
    shown = replace(
        shown, summary=replace(shown.summary, name=NASTY, model=NASTY), fingerprint=((NASTY, NASTY),), notes=(NASTY,),
        groups=(replace(shown.groups[0], name=NASTY),),
    )  # fmt: skip
    job = job_view(1, "calibration", NASTY, "interrupted", 0.1, "", resumable=True)
    rows = (PromptPreview(2, NASTY, NASTY, (Span(0, 4, NASTY, "user"),), True, NASTY, NASTY),)
    pieces = [
        prompt_set(parsed), row_errors((RowError(2, NASTY, NASTY),), 2), preview_rows(rows, 1), result_head(shown),
        fingerprint(shown), result_checks(shown), runs_list([shown.summary], 1), resumable_jobs([job]),
        comparison_settings(shown, shown), comparison_thresholds(shown, shown), alphas([(0.1, NASTY)], 0.1),
    ]  # fmt: skip
    assert all("<img" not in piece for piece in pieces)
    assert all("&lt;img" in piece for piece in pieces)


@given(
    text=st.text(max_size=40),
    spans=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8), st.sampled_from(FAMILIES)), max_size=5),
)
def test_marking_keeps_the_text_whatever_the_spans(text, spans):
    marks = [Span(min(a, len(text)), min(a + n, len(text)), kind, "user") for a, n, kind in spans]
    label = r'<span class="vh" dir="ltr">, </span><span class="fam" dir="ltr">[^<]*</span>'
    without_labels = re.sub(label, "", marked_text(text, marks))
    assert unescape(re.sub(r"</?span[^>]*>", "", without_labels)) == text


def values(shown: CalibrationView, **changed: object) -> list[object]:
    own = shown.reading
    usual = {name: getattr(own, name) for name in READING_FIELDS if hasattr(own, name)}
    return [{**usual, "group": "", "family": shown.family, **changed}[name] for name in READING_FIELDS]


def test_only_what_was_changed_is_asked_for_and_the_note_names_it(services):
    for kind in ("reference", *KINDS):
        shown = view(services, kind)
        assert reading_from(values(shown), shown) == ReadingRequest(), kind
    shown = view(services, "grouped")
    assert reading_from(values(shown, alpha=0.05, group="ward"), shown) == ReadingRequest(alpha=0.05, group="ward")
    assert reading_from(values(shown, draws=9), shown) == ReadingRequest()
    averaged = reading_from(values(shown, draws=9, estimator="one_per_context"), shown)
    assert averaged == ReadingRequest(estimator="one_per_context", draws=9)
    base, other = view(services, "weighted"), view(services, "weighted", alpha=0.05, bin_width=4)
    assert "alpha 0.05 instead of 0.10, bins of 4 instead of 8" in reading_note(other, base)
    assert "ρ in place of the weights" in reading_note(replace(view(services, rho=2.0), effective_contexts=None), base)
    assert reading_note(base, base) == AS_CALIBRATED
