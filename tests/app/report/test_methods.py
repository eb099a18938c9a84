"""Reports of audits that were decoded with other methods than COFT: what they say, and how they are verified."""

import csv
import io
import json
import math
from typing import Any

import pytest

from app.audit.reread import RereadService
from app.audit.rereading import RereadRequest
from app.bootstrap import services
from app.calibrate.service import CalibrationService
from app.hosting.model_host import ModelHost
from app.report.bundle import REPORT
from app.report.service import ReportService
from app.shared.policies import policy_info
from db.sessions import SessionsRepository
from tests.app.report.conftest import audit, calibrate, check_named, failures, files_of, load_tiny
from tests.app.report.forging import forged

METHODS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("coft-no-fusion", {}), ("coft-no-certification", {}), ("coft-single-branch", {}),
    ("sdd", {"descriptions": ("one", "two"), "decay": 20.0}), ("dexperts", {"weight": 1.5}), ("gedi", {}),
    ("contrastive", {"guidance": 1.0}), ("safety_template", {"template": "individual"}),
    ("cda", {"checkpoint": "another"}), ("dtcd", {"cap": 0.3}), ("detox", {"cap": 0.4}),
)  # fmt: skip


class LengthScorer:
    """Calls a text the more toxic the longer its last word is."""

    name = "length"

    def score(self, texts):
        return [min(1.0, len((text.split() or [""])[-1]) / 10) for text in texts]


@pytest.fixture
def methods(audited, monkeypatch):
    """The bundle of a session under a method."""
    monkeypatch.setattr("app.hosting.model_host.load_scorer", lambda *_: LengthScorer())
    # Other tests may have loaded the included scorer.
    monkeypatch.setattr(audited.wired[ModelHost], "_scorers", {})

    def bundle(policy, parameters, **changes):
        own = tuple(parameters.items())
        number = audit(audited.wired, policy, policy=policy, parameters=own, max_new_tokens=3, **changes)
        return audited.wired[ReportService].bundle(number)

    return bundle


def test_an_audit_with_any_method_verifies_and_replays(methods, verify):
    for policy, parameters in METHODS:
        found = verify(methods(policy, parameters), replay=True)
        assert failures(found) == {}
        assert check_named(found, "Replay on the model").status == "passed"


def test_a_report_says_the_method_and_a_method_that_was_changed_afterwards_no_longer_fits(
    methods, verify, tmp_path, audited
):
    bundle = methods("sdd", {"decay": 20.0})

    def stronger(report):
        report["session"]["policy_settings"]["settings"]["parameters"] = [["decay", 30.0]]

    def outside(report):
        report["session"]["policy_settings"]["settings"]["parameters"] = [["decay", -1.0]]

    (problem,) = failures(verify(forged(bundle, stronger, tmp_path)))["Prompt, spans and settings"]
    assert '"decay": 20' in problem
    assert "method with its parameters" in problem
    (problem,) = failures(verify(forged(bundle, outside, tmp_path)))["Prompt, spans and settings"]
    assert "Decay is -1.0; give a number from 0 to 500." in problem
    methods("sdd", {"decay": 20.0})
    number = max(item.id for item in audited.wired[SessionsRepository].list())
    page = audited.wired[ReportService].content(number, "html").decode()
    assert "Self-debiasing, Decay 20" in page
    assert policy_info("sdd").source in page
    assert "0.01 (default)" in page
    table = audited.wired[ReportService].csv(number)
    assert "parameters" in table.splitlines()[0].split(",")
    assert '{""decay"": 20.0}' in table


def test_a_single_branch_audit_is_checked_and_exported_by_the_factual_reading_that_certifies_it(
    audited, methods, verify, tmp_path
):
    number = calibrate(audited.wired, tmp_path, name="factual", certified_in="factual")
    bundle = methods("coft-single-branch", {}, calibration_id=number)
    assert failures(verify(bundle, replay=True)) == {}
    files = files_of(bundle)
    report = json.loads(files[REPORT])
    (root, *_), (summary, *_) = report["branches"], report["summary"]
    for step in root["steps"]:
        assert step["certified_in"] == "factual"
        assert step["margin"] == pytest.approx(step["log_p_factual"] - step["log_tau"])
        assert step["tv_bound"] is None
        for row in step["candidates"]:
            assert row["certified"] is (row["log_p_factual"] >= step["log_tau"])
    least = min(step["log_p_factual"] for step in root["steps"])
    assert (summary["least_log_joint"], summary["least_log_factual"]) == (None, pytest.approx(least))
    assert summary["chain"]["least_factual"] == pytest.approx(math.exp(least))
    assert summary["chain"]["union"]["certified"] in (None, all(step["certified"] for step in root["steps"]))
    for name in ("steps.csv", "candidates.csv"):
        rows = list(csv.DictReader(io.StringIO(files[name].decode("utf-8-sig"), newline="")))
        assert {row["certified_in"] for row in rows} == {"factual"}
    session = max(item.id for item in audited.wired[SessionsRepository].list())
    page = audited.wired[ReportService].content(session, "html").decode()
    assert "likely enough in the prompt as typed" in page
    assert "lower probability" not in page

    def likelier(changed):
        row = next(row for row in changed["branches"][0]["steps"][0]["candidates"] if row["certified"])
        row["log_p_factual"] = changed["branches"][0]["steps"][0]["log_tau"] - 1

    assert "Certified tokens" in failures(verify(forged(bundle, likelier, tmp_path)))

    def joint_margin(changed):
        step = changed["branches"][0]["steps"][0]
        step["margin"] = min(step["log_p_fused"], step["log_p_masked"]) - step["log_tau"]

    assert "Margins, ratios and bounds" in failures(verify(forged(bundle, joint_margin, tmp_path)))


def test_a_single_branch_audit_is_read_again_and_verified_from_its_stored_logits(audited, verify, tmp_path):
    settings = audited.settings.model_copy(
        update={"database_url": f"sqlite:///{tmp_path / 'kept.sqlite3'}", "full_logits_kb": 512}
    )
    with services(settings, loader=load_tiny) as wired:
        number = calibrate(wired, tmp_path, certified_in="factual")
        session = audit(wired, "kept", policy="coft-single-branch", calibration_id=number, max_new_tokens=5)
        found = verify(wired[ReportService].bundle(session))
        assert failures(found) == {}
        assert check_named(found, "Steps from stored logits").status == "passed"
        read = wired[RereadService].read(RereadRequest(session, 0.1, 0.5))
        assert read.thresholds.kind == "own"
        thresholds = wired[CalibrationService].load(number).read(alpha=0.5)
        for row in read.rows:
            says = row.now.state == "calibrated"
            assert row.now.certified is (says and row.then.log_p_factual >= thresholds.threshold(row.index))
