"""Stores, calibrations and bundles of earlier versions, whose digests were shortened, go on being used and verified."""

from dataclasses import dataclass, replace

import pytest

from app.audit.service import AuditService
from app.bootstrap import services
from app.report.service import ReportService
from app.settings import Settings
from app.shared.audits import StartAudit
from app.shared.wiring import Services
from coft_core.fingerprint import Fingerprint
from coft_core.text.detection import SpanDetector
from tests.app.report.conftest import PROMPT, SETTINGS, SPANS, audit, calibrate, check_named, failures
from tests.conftest import load_tiny, verifier


@dataclass(frozen=True)
class Earlier:
    """A store that an earlier version wrote, opened by this one, with what it held."""

    wired: Services
    settings: Settings
    calibration: int
    session: int
    bundle: bytes


def load_named(name, **named):
    return replace(load_tiny(name, **named), name=name)


def load_earlier(name, **named):
    model = load_named(name, **named)
    kind, _, digits = model.weights_digest.partition(":")
    tokenizer = model.tokenizer_digest.partition(":")[2]
    return replace(model, weights_digest=f"{kind}:{digits[:16]}", tokenizer_digest=f"sha256:{tokenizer[:16]}")


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("earlier")
    settings = Settings(database_url=f"sqlite:///{folder / 'audits.sqlite3'}", pipeline="none")
    whole, version = Fingerprint.digest.fget, SpanDetector.version.fget  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch, services(settings, loader=load_earlier) as wired:
        patch.setattr(Fingerprint, "digest", property(lambda self: whole(self)[:12]))
        patch.setattr(SpanDetector, "version", property(lambda self: _shortened(version(self))))
        calibration = calibrate(wired, folder)
        session = audit(wired, "earlier", calibration_id=calibration)
        bundle = wired[ReportService].bundle(session)
    with services(settings, loader=load_named) as wired:
        yield Earlier(wired, settings, calibration, session, bundle)


def _shortened(version):
    head, _, rest = version.partition("+")
    return f"{head}+{rest[:12]}{rest[64:]}"


def test_what_an_earlier_version_stored_is_verified_continued_and_certifies_a_new_audit(earlier, tmp_path):
    path = tmp_path / "evidence.zip"
    path.write_bytes(earlier.bundle)
    found = verifier(earlier.settings, loader=load_named).verify(path, replay=True)
    assert failures(found) == {}
    assert check_named(found, "Replay on the model").status == "passed"
    view = earlier.wired[AuditService].view(earlier.session)
    first = earlier.wired[AuditService].view(earlier.session, view.branches[0].id)
    other = next(row for row in first.steps[0].candidates if row.token_id != first.steps[0].token_id)
    fork = earlier.wired[AuditService].fork(earlier.session, view.branches[0].id, 0, other.token_id)
    assert earlier.wired[AuditService].step(earlier.session, fork.branch_id) is not None
    settings = replace(SETTINGS, calibration_id=earlier.calibration)
    assert earlier.wired[AuditService].fit(settings).differences == ()
    made = earlier.wired[AuditService].start(StartAudit(PROMPT, settings, SPANS, "new"))
    assert made.certificate.startswith("certified")
    assert len(made.fingerprint_digest) == 64
