"""What the calibrate page says: of prompt sets, runs, results, drift, and two runs side by side."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.audit.words import bin_verdict
from app.calibrate.result_page import AS_CALIBRATED, READING_FIELDS, reading_from, reading_note
from app.calibrate.service import CalibrationService
from app.calibrate.words import (
    alphas,
    comparison_settings,
    comparison_thresholds,
    fingerprint,
    prompts_needed,
    ranges_by_reason,
    result_checks,
    result_head,
    runs_list,
    silent_because,
    steps_named,
)  # fmt: skip
from app.shared.audits import CalibrationView, ReadingRequest
from app.shared.calibration_words import calibration_status
from app.shared.job_watch import resumable_jobs
from app.shared.prompt_form import marked_text, preview_rows, prompt_set, row_errors
from app.shared.prompt_sets import PromptPreview, RowError
from app.shared.wiring import Services
from coft_core.conformal.informative import TOO_FEW, TOO_WEAK
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


def with_states(services: Services, *states: tuple[str, float]) -> CalibrationView:
    """The first calibration with bins of these states and thresholds, one for each step."""
    shown = view(services)
    bins = tuple(
        replace(shown.bins[0], first_step=step, last_step=step, state=state, log_tau=log_tau)
        for step, (state, log_tau) in enumerate(states)
    )
    return replace(shown, bins=bins)


WEAK, OPEN = ("uninformative", math.log(7e-8)), ("uninformative", -math.inf)
OWN = ("calibrated", math.log(0.02))


def test_each_range_of_steps_is_usable_or_has_a_reason_and_none_is_both(services):
    shown = with_states(services, WEAK, WEAK, OWN, ("calibrated", math.log(0.01)), OPEN, WEAK)
    assert ranges_by_reason(shown) == {"": ["3–4"], TOO_WEAK: ["1–2", "6"], TOO_FEW: ["5"]}
    assert ranges_by_reason(view(services)) == {
        "": ["1–24"],
        TOO_FEW: ["25–32"],
        "the threshold is borrowed from 17–24 and was not tested": ["33 and later"],
    }
    assert not ranges_by_reason(view(services, alpha=0.002))[""]
    assert [steps_named(labels) for labels in ("1", "3–4", "1, 6")] == ["step 1", "steps 3–4", "steps 1, 6"]


def test_what_certifies_nothing_says_how_many_prompts_would_help(services):
    assert silent_because(view(services)) == ""
    few = view(services, alpha=0.002)
    assert prompts_needed(few) == math.ceil(499 * (413 + few.coverage[0].contexts) / 413)
    assert f"{prompts_needed(few):,}" in silent_because(few)
    (weak,) = with_states(services, WEAK).bins
    assert (weak.silence, bin_verdict(weak)[1]) == (TOO_WEAK, f"{TOO_WEAK}.")
    assert calibration_status(with_states(services, WEAK))[0] == "uninformative"
    assert calibration_status(with_states(services, WEAK, OWN))[0] == "calibrated"


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
