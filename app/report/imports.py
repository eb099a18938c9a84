"""Evidence bundles of other servers, brought in as sessions that can be read and handed on, and never changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from app.hosting.limits import DiskRoom
from app.report.bundle import CALIBRATION, LOGITS_FILE, MANIFEST, logits_from
from app.report.document import branch_records
from app.report.signing import SIGNATURES, fingerprint_of, signature_holds
from app.report.verify.findings import Check, Verification
from app.report.verify.loaded import Loaded
from app.report.verify.run import BundleVerifier
from app.report.verify.structure import SIGNATURE_CHECK
from app.shared.audits import preview_from_json
from app.shared.calibrations import bins_of, fields_of
from app.shared.errors import ServiceError
from app.shared.files import plain_json
from app.shared.kept_controls import controls_row
from app.shared.kept_steps import computations_of, session_noise
from app.shared.wiring import Services
from coft_core.errors import CoftError
from db.audits import SessionOrigin
from db.imports import ImportsRepository, PastCalibration, PastSession
from db.types import utc_now

LARGEST_BUNDLE = 256 * 2**20
"""Bytes of a bundle that is kept: it is one value in the store."""


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """An imported session."""

    session_id: int
    name: str
    already: bool
    origin: str
    checks: int
    signature: Check


class BundleImports:
    """Brings sessions in; a bundle that does not verify is refused, and nothing of it is kept."""

    def __init__(self, services: Services) -> None:
        self._imports = services[ImportsRepository]
        self._verifier = services[BundleVerifier]
        self._room = services[DiskRoom]

    def add(self, path: Path, key: Path | None = None) -> ImportedSession:
        """Bring in the session of a bundle; one that stands here already is named, and not stored again."""
        bundle = _content(path)
        loaded, found = self._verifier.examined(path, key=key)
        if loaded.files is None or loaded.manifest is None or loaded.bundle_digest is None:
            raise ServiceError(f"{path.name} is only a report; import the evidence bundle (.zip) of the session.")
        _require_whole(path.name, found)
        origin = _origin(path.name, loaded, loaded.bundle_digest)
        name, said = loaded.report.session.name, origin_words(origin)
        known, passed = self._imports.known(loaded.bundle_digest), found.count("passed")
        signature = next(check for check in found.checks if check.name == SIGNATURE_CHECK)
        if known is not None:
            return ImportedSession(known, name, True, said, passed, signature)
        self._room.require()
        try:
            past = _past(loaded, said)
            number = self._imports.add(past, _calibration(loaded), origin, bundle)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError, CoftError) as error:
            # Settings have no schema of their own, so that a forged one can be of any shape.
            raise ServiceError(
                f"{path.name} holds a value that no session has ({type(error).__name__}: {error}); it was not imported."
            ) from error
        return ImportedSession(number, name, False, said, passed, signature)


def origin_words(origin: SessionOrigin) -> str:
    """Where a session came from, in one sentence."""
    signed = "is not signed"
    if origin.signers:
        signed = f"is signed by the key with SHA-256 {', '.join(origin.signers)}"
    return (
        f"Imported read-only on {origin.imported_at:%Y-%m-%d} from “{origin.source_file}”: session "
        f"{origin.source_session_id} of another server ({origin.program}); the bundle, SHA-256 {origin.bundle_digest}, "
        f"{signed}."
    )


def _content(path: Path) -> bytes:
    try:
        if path.stat().st_size > LARGEST_BUNDLE:
            raise ServiceError(f"{path.name} is larger than the {LARGEST_BUNDLE // 2**20} MB that can be imported.")
        return path.read_bytes()
    except OSError as error:
        raise ServiceError(f"{path.name} cannot be read ({error.strerror}); check the path.") from error


def _require_whole(name: str, found: Verification) -> None:
    failed = [check for check in found.checks if check.status == "failed"]
    if failed:
        first = failed[0].problems[0] if failed[0].problems else failed[0].detail
        raise ServiceError(f"{name} does not hold together, and was not imported: {failed[0].name}: {first}")


def _origin(name: str, loaded: Loaded, digest: str) -> SessionOrigin:
    assert loaded.files is not None
    manifest = plain_json(loaded.files[MANIFEST])
    keys = (signature_holds(manifest, item) for item in manifest.get(SIGNATURES) or [])
    program = loaded.report.program
    return SessionOrigin(
        source_session_id=loaded.report.session.id,
        source_file=name,
        bundle_digest=digest,
        signers=tuple(dict.fromkeys(fingerprint_of(key) for key in keys if key is not None)),
        program=f"{program.name} {program.version}",
        imported_at=utc_now(),
    )


def _past(loaded: Loaded, said: str) -> PastSession:
    """The session as the store takes it, with the sentence that says where it came from among its warnings."""
    report, record = loaded.report, loaded.report.session
    # What pages read of a session without asking whether it is there.
    str(record.policy_settings["model_label"]), preview_from_json(record.policy_settings["preview"])
    computations_of(record), session_noise(record)
    ids = {branch.path: branch.id for branch in report.branches}
    kept = {} if loaded.files is None or LOGITS_FILE not in loaded.files else logits_from(loaded.files[LOGITS_FILE])
    return PastSession(
        record=replace(record, warnings=(*record.warnings, said)),
        branches=branch_records(report),
        steps={branch.id: branch.steps for branch in report.branches},
        times={
            (branch.id, step.index): at
            for branch in report.branches
            for step, at in zip(branch.steps, branch.times, strict=True)
        },
        logits={place: logits.to_bytes() for place, logits in kept.items()},
        log=report.log,
        controls={ids[part.branch]: controls_row(part.controls) for part in report.controls},
    )


def _calibration(loaded: Loaded) -> PastCalibration | None:
    """The calibration of the bundle as the store lists it; None where the bundle has none."""
    if loaded.files is None or CALIBRATION not in loaded.files or loaded.stated is None:
        return None
    return PastCalibration(fields_of(loaded.stated), bins_of(loaded.stated), loaded.files[CALIBRATION])
