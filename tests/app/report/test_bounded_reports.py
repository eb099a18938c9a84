"""Audits on an engine that returns only the most likely tokens: what is stored, exported and verified of them."""

import csv
import io
import json
import math
from dataclasses import replace

import pytest

from app.audit.service import AuditService
from app.bootstrap import services
from app.report.bundle import REPORT
from app.report.service import ReportService
from app.shared.audits import StartAudit
from app.shared.step_words import step_card
from coft_core.errors import InvalidInputError
from coft_core.model.fake import tiny_model, with_most_likely_only
from db.sessions import SessionsRepository
from tests.app.report.conftest import PROMPT, SETTINGS, SPANS, audit, calibrate, failures, files_of
from tests.app.report.forging import forged
from tests.conftest import flat_sets_say_something, verifier


@pytest.fixture(scope="module", params=[60, 200])
def model(request):
    """With few of its 258 tokens no threshold says anything; with most of them some steps are undecided."""
    return with_most_likely_only(tiny_model(), request.param)


@pytest.fixture(scope="module")
def bounded(model, tmp_path_factory, audited):
    """A session under a calibration that was made with the same engine, with its services; logits are kept."""
    folder = tmp_path_factory.mktemp("bounded")
    settings = audited.settings.model_copy(
        update={"database_url": f"sqlite:///{folder / 'kept.sqlite3'}", "full_logits_kb": 512}
    )
    with flat_sets_say_something(), services(settings, loader=lambda *_, **__: model) as wired:
        number = calibrate(wired, folder)
        yield wired, settings, audit(wired, "bounded", calibration_id=number)


def test_what_is_known_of_a_step_is_stored_and_exported(bounded, model):
    wired, _, session = bounded
    files = files_of(wired[ReportService].bundle(session))
    view = wired[AuditService].view(session)
    (root, *_) = json.loads(files[REPORT])["branches"]
    rows = list(csv.DictReader(io.StringIO(files["steps.csv"].decode("utf-8-sig"), newline="")))
    chain = wired[SessionsRepository].chain(root["id"])
    for step, stored, row in zip(chain, root["steps"], rows, strict=False):
        assert step.bounds is not None
        assert step.bounds.seen == model.most_likely == stored["bounds"]["seen"] == int(row["seen"])
        assert int(row["undecided"]) == step.bounds.undecided == stored["bounds"]["undecided"]
        if step.log_tau > -math.inf:
            assert step_card(step)["d"].count("Undecided") == bool(step.bounds.undecided)
        listed = {item["token_id"]: item.get("at_most", []) for item in stored["candidates"]}
        assert listed == {item.token_id: list(item.at_most) for item in step.candidates}
    candidates = list(csv.DictReader(io.StringIO(files["candidates.csv"].decode("utf-8-sig"), newline="")))
    assert {row["at_most"] for row in candidates} >= ({"", "masked fused"} if model.most_likely == 60 else {""})
    assert any("most likely tokens" in warning for warning in view.warnings)


def test_a_bounded_session_verifies_from_its_logits_and_on_the_model_and_a_forged_one_does_not(
    bounded, model, tmp_path
):
    wired, settings, session = bounded
    path = tmp_path / "bundle.zip"
    path.write_bytes(wired[ReportService].bundle(session))
    check = verifier(settings, lambda *_, **__: model)
    assert failures(check.verify(path, replay=True)) == {}

    def narrower(report):
        report["branches"][0]["steps"][0]["bounds"]["slack"][2] = 0.0

    def open_to_more(report):
        for step in report["branches"][0]["steps"]:
            step["bounds"]["undecided"] += 1

    bundle = path.read_bytes()
    for change in (narrower, open_to_more):
        path.write_bytes(forged(bundle, change, tmp_path))
        assert failures(check.verify(path))


def test_methods_that_need_all_tokens_say_what_works(bounded):
    wired, _, _ = bounded
    for policy in ("gedi", "coft"):
        changes = {"mask_layout": "factorized"} if policy == "coft" else {}
        request = StartAudit(PROMPT, replace(SETTINGS, policy=policy, **changes), SPANS, policy)
        with pytest.raises(InvalidInputError, match=r"COFT with one mask, vanilla decoding"):
            wired[AuditService].start(request)
