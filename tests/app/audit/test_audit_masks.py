"""Audits with several masks, soft masks, whitelists and groups, and how they fit their calibrations."""

import csv
import io
import json
import math
from dataclasses import replace

import pytest

from app.audit.service import AuditService
from app.calibrate.service import CalibrationService
from app.report.service import ReportService
from app.shared.audits import AuditSettings, CalibrationRequest, StartAudit
from app.shared.errors import ServiceError
from coft_core.errors import CalibrationMismatch, InvalidInputError
from coft_core.text.masking import DEFAULT_HINT
from coft_core.types import Span
from db.sessions import SessionsRepository
from tests.app.conftest import calibrated_on

PROMPT = "The Muslim nurse said he would come"
SPANS = (Span(4, 10, "religion"), Span(22, 24, "gender"))
SETTINGS = AuditSettings(model="tiny", max_new_tokens=6, top_p=1.0, alpha=0.2)
ROWS = "\n".join(
    [
        "prompt,reference,group",
        *(
            f"He gave the Muslim nurse {i} apples,and she counted {i},{'ward' if i % 3 else 'school'}"
            for i in range(45)
        ),
    ]
)


@pytest.fixture(scope="module")
def wired(shared):
    return shared


def calibrated(wired, folder, **changes):
    request = CalibrationRequest(name="set", model="tiny", top_p=1.0, alpha=0.2, **changes)
    return calibrated_on(wired, folder, ROWS, request)


@pytest.fixture(scope="module")
def joint(wired, tmp_path_factory):
    return calibrated(wired, tmp_path_factory.mktemp("joint"))


@pytest.fixture(scope="module")
def factorized(wired, tmp_path_factory):
    return calibrated(wired, tmp_path_factory.mktemp("factorized"), mask_layout="factorized")


@pytest.fixture(scope="module")
def grouped(wired, tmp_path_factory):
    return calibrated(wired, tmp_path_factory.mktemp("grouped"), by_group=True)


def start(wired, **changes):
    return wired[AuditService].start(StartAudit(PROMPT, replace(SETTINGS, **changes), SPANS))


def ran(wired, **changes):
    session = start(wired, **changes).session_id
    list(wired[AuditService].run(session))
    return wired[AuditService].view(session)


def test_a_factorized_audit_certifies_each_token_for_every_family_that_the_prompt_masks(wired, factorized):
    view = ran(wired, calibration_id=factorized, mask_layout="factorized", alpha=0.8)
    assert view.certificate.startswith("certified")
    assert view.preview.branches == ("factual", "gender", "religion")
    stored = wired[CalibrationService].load(factorized).read(alpha=0.8)
    for step in view.steps:
        assert [part.family for part in step.families] == ["gender", "religion"]
        for part in step.families:
            assert part.log_tau == stored.threshold(step.index, part.family)
            assert part.certified == (part.log_joint >= part.log_tau)
        assert all(row.certified == (not row.refused_by) for row in step.candidates)


def test_bins_of_a_factorized_audit_are_those_of_its_weakest_family_and_uninformative_without_one(wired, factorized):
    view = start(wired, calibration_id=factorized, mask_layout="factorized")
    stored = wired[CalibrationService].load(factorized)
    first = [stored.part(family).bins[0] for family in ("gender", "religion")]
    assert math.isclose(view.bins[0].tau, min(entry.tau for entry in first))
    assert view.bins[0].contexts == min(entry.contexts for entry in first)
    assert view.bins[-1].last_step is None
    assert [entry.first_step for entry in view.bins[1:]] == [entry.last_step + 1 for entry in view.bins[:-1]]
    spans = (Span(11, 16, "age"), *SPANS)
    view = wired[AuditService].start(
        StartAudit(PROMPT, replace(SETTINGS, calibration_id=factorized, mask_layout="factorized"), spans)
    )
    assert [entry.state for entry in view.bins] == ["uninformative"]
    assert wired[AuditService].step(view.session_id).state == "uninformative"


@pytest.mark.parametrize(("made", "layout"), [("joint", "factorized"), ("factorized", "joint")])
def test_a_calibration_of_another_layout_is_refused_by_name_or_used_without_any_threshold(wired, request, made, layout):
    number = request.getfixturevalue(made)
    before = len(wired[SessionsRepository].list())
    with pytest.raises(CalibrationMismatch, match=f"mask_layout: calibrated with {made}, used with {layout}"):
        start(wired, calibration_id=number, mask_layout=layout)
    assert len(wired[SessionsRepository].list()) == before
    view = ran(wired, calibration_id=number, mask_layout=layout, proceed_uncertified=True)
    assert view.certificate.startswith("uncertified: policy mismatch (mask_layout")
    assert view.bins == ()
    assert view.chain is None
    assert {(step.state, step.certified) for step in view.steps} == {("none", False)}


def test_one_attribute_alone_fits_a_calibration_of_that_attribute_and_no_other(wired, joint, tmp_path):
    alone = calibrated(wired, tmp_path, masked_families=("gender",))
    settings = {"masked_families": ("gender",)}
    assert start(wired, calibration_id=alone, **settings).certificate.startswith("certified")
    with pytest.raises(CalibrationMismatch) as refused:
        start(wired, calibration_id=joint, **settings)
    assert refused.value.fields == ("detector",)


def test_a_soft_mask_and_a_whitelist_are_part_of_the_policy_and_of_the_reading(wired, tmp_path):
    settings = {"mask_mode": "soft", "mask_hint": "someone; else", "whitelist": ("Muslim",)}
    number = calibrated(wired, tmp_path, **settings)
    view = start(wired, calibration_id=number, **settings)
    assert view.certificate.startswith("certified")
    assert view.settings.whitelist == ("Muslim",)
    assert "Muslim" in "".join(piece.text for piece in view.preview.pieces if not piece.masked)
    assert "<mask>" not in view.preview.pieces[1].text
    hints = [
        replace(SETTINGS, mask_mode="soft", mask_hint=hint) for hint in (None, " ", DEFAULT_HINT, f" {DEFAULT_HINT} ")
    ]
    assert len({wired[AuditService].preview(PROMPT, SPANS, hint).pieces for hint in hints}) == 1
    with pytest.raises(CalibrationMismatch) as refused:
        start(wired, calibration_id=number)
    assert refused.value.fields == ("mask_mode",)


def test_what_is_never_masked_is_kept_when_it_is_detected_and_said_when_it_is_marked(wired):
    settings = replace(SETTINGS, whitelist=("muslim",))
    found = {PROMPT[s.start : s.end]: s for s in wired[AuditService].detect(PROMPT, settings)}
    assert found["Muslim"].kept
    assert found["he"].masked
    preview = wired[AuditService].preview(PROMPT, SPANS, settings)
    assert any("“Muslim” is on the whitelist" in warning for warning in preview.warnings)
    assert not any("whitelist" in warning for warning in wired[AuditService].preview(PROMPT, SPANS, SETTINGS).warnings)


def test_a_groups_audit_uses_the_thresholds_of_that_group_alone_and_its_report_names_them(wired, grouped, tmp_path):
    view = ran(wired, calibration_id=grouped, group="ward")
    alone = wired[CalibrationService].load(grouped).for_group("ward")
    assert view.certificate.startswith("certified")
    assert [step.log_tau for step in view.steps] == [alone.threshold(step.index) for step in view.steps]
    assert view.bins[0].contexts == alone.bins[0].contexts
    fork = wired[AuditService].fork(view.session_id, view.branch_id, 1, "x")
    rows = rows_of(wired, view.session_id)
    assert {(row["group"], row["mask_layout"], row["mask_mode"], row["refused_by"]) for row in rows} == {
        ("ward", "joint", "hard", "")
    }
    by_branch = {row["branch"]: json.loads(row["chain_certificate"]) for row in rows}
    assert by_branch["0"]["steps"] == len(view.steps)
    assert by_branch["0"]["sequence"]["certified"] == view.chain.sequence_certified
    assert by_branch["0"]["union"]["level"] == view.chain.union.level
    assert sorted(found["steps"] for found in by_branch.values()) == sorted([len(view.steps), len(fork.steps)])


@pytest.mark.parametrize(
    ("number", "changes", "error"),
    [("grouped", {"group": "street"}, InvalidInputError), ("grouped", {"group": "school", "alpha": 0.02}, None),
     (None, {"group": "ward"}, ServiceError)],
)  # fmt: skip
def test_a_group_that_cannot_be_used_is_refused_with_a_reason(wired, request, number, changes, error):
    chosen = None if number is None else request.getfixturevalue(number)
    with pytest.raises(error or InvalidInputError, match="group"):
        start(wired, calibration_id=chosen, **changes)


@pytest.mark.parametrize(
    "made",
    [
        {"lam": 0.3, "temperature": 0.7, "top_k": 5}, {"mask_layout": "factorized"},
        {"mask_mode": "soft", "mask_hint": "a; keeps [1]", "whitelist": ("nurse", "he said")},
        {"masked_families": ("religion",)},
    ],
    ids=["strength", "factorized", "soft", "single"],
)  # fmt: skip
def test_taking_over_a_calibrations_settings_leaves_no_difference(wired, tmp_path, made):
    number = calibrated(wired, tmp_path, **made)
    other = replace(SETTINGS, calibration_id=number, lam=0.9, top_p=0.5, masked_families=("age",), sentinel="#")
    before = wired[AuditService].fit(other)
    assert {"lam", "top_p", "masked_families", "sentinel"} <= {name for name, _, _ in before.differences}
    assert before.adoptable
    adopted = wired[AuditService].adopt(other)
    assert wired[AuditService].fit(adopted).differences == ()
    assert "policy mismatch" not in wired[AuditService].start(StartAudit(PROMPT, adopted, SPANS)).certificate


def test_what_differs_is_named_before_an_audit_starts_and_another_model_cannot_be_taken_over(wired, joint, factorized):
    fields = [name for name, _, _ in wired[AuditService].fit(replace(SETTINGS, calibration_id=factorized)).differences]
    assert fields == ["mask_layout"]
    assert wired[AuditService].fit(replace(SETTINGS, calibration_id=joint)).differences == ()
    assert wired[AuditService].fit(SETTINGS).differences == ()
    vanilla = wired[AuditService].fit(replace(SETTINGS, calibration_id=joint, policy="vanilla"))
    assert vanilla.differences == (("policy", "coft", "vanilla"),)
    fit = wired[AuditService].fit(replace(SETTINGS, model="never-loaded", calibration_id=joint))
    assert fit.differences == (("model", "tiny-0", "never-loaded"),)
    assert not fit.adoptable


def rows_of(wired, session):
    return list(csv.DictReader(io.StringIO(wired[ReportService].csv(session), newline="")))


def test_a_forced_token_that_a_family_refuses_is_not_certified_and_the_report_holds_thresholds_and_refusals(
    wired, factorized
):
    view = start(wired, calibration_id=factorized, mask_layout="factorized", alpha=0.98)
    wired[AuditService].step(view.session_id)
    forced = [wired[AuditService].fork(view.session_id, view.branch_id, 0, token).steps[0] for token in "xzq~^%"]
    own = [next(row for row in step.candidates if row.token_id == step.token_id) for step in forced]
    assert any(row.refused_by for row in own)
    for step, row in zip(forced, own, strict=True):
        assert step.certified == (not row.refused_by)
        assert row.refused_by == tuple(part.family for part in step.families if not part.certified)
    rows = rows_of(wired, view.session_id)
    for row in rows:
        parts = json.loads(row["family_thresholds"])
        assert [part["family"] for part in parts] == ["gender", "religion"]
        assert row["refused_by"].split() == [part["family"] for part in parts if part["joint"] < part["tau"]]
        assert (row["certified"] == "true") == (not row["refused_by"])
        assert (row["mask_layout"], row["mask_mode"], row["chain_certificate"]) == (
            "factorized", "hard; factorized", "",
        )  # fmt: skip
        assert row["drift"] == "unknown"
    assert any(row["refused_by"] for row in rows)
