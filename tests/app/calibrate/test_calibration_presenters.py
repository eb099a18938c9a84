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
from app.calibrate.result_page import AS_CALIBRATED, READING_FIELDS, ResultHandlers, reading_from, reading_note
from app.calibrate.service import CalibrationService
from app.calibrate.trial import CalibrationEstimate
from app.calibrate.words import (
    alphas,
    comparison_choices,
    comparison_settings,
    comparison_thresholds,
    drift_foot,
    drift_head,
    estimate_panel,
    fingerprint,
    prompts_needed,
    ranges_by_reason,
    result_checks,
    result_head,
    risk,
    runs_list,
    silent_because,
    steps_named,
)  # fmt: skip
from app.shared.audits import CalibrationView, ReadingRequest
from app.shared.calibration_words import calibration_status
from app.shared.job_watch import job_said, job_status, resumable_jobs
from app.shared.prompt_form import accept_box, marked_text, needs_mapping, preview_rows, prompt_set, row_errors
from app.shared.prompt_sets import ParsedPromptSet, PromptPreview, RowError
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


def test_everything_of_a_run_is_replaced_at_once(services):
    handlers = ResultHandlers(services)
    first, second = handlers.show(1), handlers.show(2)
    assert len(first) == len(second) == len(handlers.show(None))
    *_, others, head, _, foot = second
    base = view(services, next(iter(KINDS)))
    assert others == handlers.others(2, *values(base))
    assert (head, foot) == (drift_head(report := services[CalibrationService].drift(2)), drift_foot(report))


def test_coverage_is_held_against_the_level_of_the_shown_family(services):
    shown = view(services, "factorized")
    assert (risk(shown), shown.alpha) == (0.05, 0.1)
    assert "agrees with 0.95" in result_checks(shown)


def test_a_comparison_gives_no_difference_where_a_threshold_is_missing(services):
    rows = comparison_thresholds(view(services), view(services, alpha=0.05)).split("<tr>")[2:]
    assert ["−0.025" in rows[0], "–</td>" in rows[3], "inherited" in rows[4]] == [True] * 3
    differ, equal = comparison_settings(view(services), view(services, "rollout")).split("<details>")
    assert (">references<" in differ, "tokenizer" in equal) == (True, True)


def test_the_shown_run_is_not_offered_for_comparison(services):
    runs = services[CalibrationService].list()
    assert [value for _, value in comparison_choices(runs, 1)] == [0, *(run.id for run in runs if run.id != 1)]
    assert comparison_choices((), None)[0][0] == "There is no other run yet"


@given(
    text=st.text(max_size=40),
    spans=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8), st.sampled_from(FAMILIES)), max_size=5),
)
def test_marking_keeps_the_text_whatever_the_spans(text, spans):
    marks = [Span(min(a, len(text)), min(a + n, len(text)), kind, "user") for a, n, kind in spans]
    label = r'<span class="vh" dir="ltr">, </span><span class="fam" dir="ltr">[^<]*</span>'
    without_labels = re.sub(label, "", marked_text(text, marks))
    assert unescape(re.sub(r"</?span[^>]*>", "", without_labels)) == text


def test_a_column_that_matters_and_is_missing_opens_the_columns():
    def parsed(mapping: dict[str, str], ignored: tuple[str, ...]) -> ParsedPromptSet:
        return ParsedPromptSet("a.csv", 1, "CSV", (), (), 1, ignored, "", (), (), tuple(mapping.items()))

    assert needs_mapping(parsed({}, ("note",)))
    assert needs_mapping(parsed({"prompt": "prompt"}, ("what came next",)))
    assert not needs_mapping(parsed({"prompt": "prompt"}, ()))
    assert not needs_mapping(parsed({"prompt": "prompt", "reference": "reference"}, ("id",)))


def test_who_agreed_to_leave_rows_out_is_asked_again_when_more_are_bad():
    few, more = ([RowError(line, "prompt", "a") for line in range(2, 2 + count)] for count in (1, 3))
    assert accept_box(9, more, few).constructor_args["value"] is False
    assert "value" not in accept_box(9, few, few).constructor_args
    assert accept_box(9, few).constructor_args["value"] is False
    assert "1 of 9" in row_errors((*few, RowError(2, "spans", "b")), 9), "a row with two errors counts once"


def test_the_estimate_warns_when_the_contexts_that_are_left_do_not_suffice():
    found = CalibrationEstimate(prompts=12, contexts=12, needed=9, tried=4, seconds=5400, unmasked=0)
    assert "Too weak to say anything" not in estimate_panel(found, 0.1, 0.25)
    assert "Too weak to say anything" in estimate_panel(found, 0.1, 0.5)
    assert "about 1 h 30 min" in estimate_panel(found, 0.1, 0.25)
    assert "2 prompts mask nothing" in estimate_panel(replace(found, unmasked=2), 0.1, 0.25)


def test_a_screen_reader_is_told_of_quarters_only():
    job = job_view(1, "calibration", "Calibration of notes", "running", 0.1, "12 of 120 contexts", seconds_left=140.0)
    told = {job_said(replace(job, progress=n / 100)) for n in range(100)}
    assert len(told) == 4
    assert "about 2 min left" in job_status(job)


def test_only_what_was_kept_and_is_over_can_be_resumed():
    jobs = (("going on", "running", True), ("lost", "failed", False), ("kept", "interrupted", True))
    shown = resumable_jobs([job_view(1, "calibration", title, status, 0.1, "", resumable=kept)
                            for title, status, kept in jobs])  # fmt: skip
    assert ("kept" in shown, "lost" in shown, "going on" in shown) == (True, False, False)


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
