"""Audited sessions of every kind, exported once for all tests of reports, and ways to forge what was exported."""

import io
import zipfile
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest

from app.audit.service import AuditService
from app.bootstrap import services
from app.calibrate.service import CalibrationService
from app.jobs.service import JobService
from app.report.bundle import pack
from app.report.service import ReportService
from app.review.log import VerdictRequest
from app.review.service import VerdictService
from app.settings import Settings
from app.shared.audits import AuditSettings, CalibrationRequest, StartAudit
from app.shared.calibrations import CalibrationStore
from app.shared.wiring import Services
from coft_core.controls.measure import ended
from coft_core.types import Span
from tests.conftest import flat_sets_say_something, load_tiny, prompt_set_csv, verifier

PROMPT = "=The old nurse said he would come"
SPANS = (Span(5, 8, "age"), Span(9, 14, "family", kept=True), Span(20, 22, "gender"))
SETTINGS = AuditSettings(model="tiny", max_new_tokens=7, top_p=1.0, alpha=0.3)


@dataclass(frozen=True)
class Audited:
    """The open services, where they store, and the exported bundle of each session by name."""

    wired: Services
    settings: Settings
    sessions: dict[str, int]
    bundles: dict[str, bytes]
    calibrations: dict[str, int]


def calibrate(wired, folder, **changes):
    """A calibration of SETTINGS; its number."""
    path = folder / "set.csv"
    path.write_text(prompt_set_csv())
    request = replace(CalibrationRequest(name="set", model="tiny", top_p=1.0, alpha=0.3), **changes)
    job = wired[JobService].wait(wired[CalibrationService].submit(wired[CalibrationService].parse(path), request))
    assert job.status == "done", job.error
    return int(job.result["calibration_id"])


def audit(wired, name, **changes):
    """A session with a chain and a fork at the third step; its number."""
    view = wired[AuditService].start(StartAudit(PROMPT, replace(SETTINGS, **changes), SPANS, name))
    list(wired[AuditService].run(view.session_id))
    view = wired[AuditService].view(view.session_id)
    if len(view.steps) > 2:
        other = next(row for row in view.steps[2].candidates if row.token_id != view.steps[2].token_id)
        fork = wired[AuditService].fork(view.session_id, view.branch_id, 2, other.token_id)
        list(wired[AuditService].run(view.session_id, fork.branch_id))
    return view.session_id


def judge(wired, session_id, last=5):
    """A disagreement, its decision, and a blind review that is still open; the longest span ends at the last step."""
    branch = wired[AuditService].view(session_id).branches[0].id
    one = VerdictRequest(session_id, "R. Osei", "unfair", branch, 1, None, "=copied <b>from</b> the prompt", "pronoun")
    wired[VerdictService].add(one)
    wired[VerdictService].start_review(session_id, "M. Lind")
    wired[VerdictService].add(VerdictRequest(session_id, "M. Lind", "fair", branch, 1))
    wired[VerdictService].add(VerdictRequest(session_id, "M. Lind", "fair", branch, min(3, last), last, "plain"))
    wired[VerdictService].adjudicate(VerdictRequest(session_id, "K. Abe", "unfair", branch, 1, None, "nobody is named"))


@pytest.fixture(scope="session")
def audited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audited")
    # Without stored logits, so that everything is checked that can be recomputed from a report alone.
    address = f"sqlite:///{folder / 'audits.sqlite3'}"
    settings = Settings(database_url=address, pipeline="none", full_logits_kb=0)
    with ExitStack() as making, services(settings, loader=load_tiny) as wired:
        making.enter_context(flat_sets_say_something())
        joint = calibrate(wired, folder)
        factorized = calibrate(wired, folder, mask_layout="factorized")
        store = wired[CalibrationStore]
        gone = store.add(replace(store.load(joint), name="gone")).id
        sessions = {
            "joint": audit(wired, "joint", calibration_id=joint),
            "greedy": audit(wired, "greedy", calibration_id=joint, greedy=True, alpha=0.6),
            "factorized": audit(
                wired, "factorized", calibration_id=factorized, mask_layout="factorized", alpha=0.9, max_new_tokens=10
            ),
            "uninformative": audit(wired, "uninformative", calibration_id=joint, alpha=0.001),
            "mismatch": audit(wired, "mismatch", calibration_id=joint, lam=0.2, proceed_uncertified=True),
            "other layout": audit(wired, "other layout", calibration_id=factorized, proceed_uncertified=True),
            "uncalibrated": audit(wired, "uncalibrated"),
            "vanilla": audit(wired, "vanilla", policy="vanilla"),
            "named sentinel": audit(wired, "named sentinel", sentinel="#"),
            "deleted": audit(wired, "deleted", calibration_id=gone),
            "empty": wired[AuditService].start(StartAudit(PROMPT, SETTINGS, SPANS, "empty")).session_id,
        }
        wired[CalibrationService].delete(gone)
        ended(wired[AuditService].comparing(sessions["joint"]))
        judge(wired, sessions["joint"])
        bundles = {name: wired[ReportService].bundle(number) for name, number in sessions.items()}
        making.close()
        yield Audited(wired, settings, sessions, bundles, {"joint": joint, "factorized": factorized})


@pytest.fixture(scope="session")
def checker(audited):
    return verifier(audited.settings, loader=load_tiny)


@pytest.fixture
def verify(checker, tmp_path):
    """Verifies the bytes of a bundle."""

    def one(bundle, replay=False, name="evidence.zip"):
        path = tmp_path / name
        path.write_bytes(bundle)
        return checker.verify(path, replay)

    return one


def files_of(bundle):
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def with_file(bundle, name, data):
    """A bundle in which one file was exchanged, and nothing else."""
    return pack({**files_of(bundle), name: data})


def check_named(found, name):
    return next(check for check in found.checks if check.name == name)


def failures(found):
    return {check.name: check.problems for check in found.checks if check.status == "failed"}
