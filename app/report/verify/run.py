"""The verifier: runs every check on a report or an evidence bundle, and says what no check can tell.

A bundle carries its own digests, so whoever changes one can also write all of them again. Checks recompute; what
follows from nothing else in the file, and from nothing that the model computes, is listed in
``assets/reports/untold.yaml`` and in every verification.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import yaml

from app.hosting.model_host import ModelHost
from app.report.bundle import MANIFEST, PROMPTS_FILE, REPORT, unpack
from app.report.decided import DECISIONS
from app.report.results_bundle import RESULTS
from app.report.signing import Signer, key_file, trusted_keys
from app.report.verify import prompts, steps, structure
from app.report.verify.decided import verify_decided
from app.report.verify.findings import Check, Untold, Verification, failed
from app.report.verify.loaded import Loaded, load
from app.report.verify.published import verify_results
from app.report.verify.replay import (
    CALIBRATION_CHECK,
    LOGITS_CHECK,
    REPLAY_CHECK,
    check_calibration,
    check_logits,
    check_replay,
)
from app.shared.errors import ServiceError
from app.shared.planning import detector_of
from app.shared.wiring import Services
from coft_core.assets import assets_path
from coft_core.fingerprint import WHOLE, shortest_digest
from coft_core.text.detection import SpanDetector

CHECKS: tuple[Callable[[Loaded], Check], ...] = (
    prompts.check_settings,
    prompts.check_preview,
    structure.check_times,
    structure.check_verdicts,
    steps.check_certificate,
    steps.check_thresholds,
    steps.check_fusion,
    steps.check_certified,
    steps.check_derived,
    steps.check_choices,
    steps.check_ranges,
    steps.check_chains,
    steps.check_summary,
    steps.check_controls,
    check_logits,
)
"""What is checked of the content, in this order; digests and tables come before."""

OWN = "this server"
"""The name of this server's own key."""


class BundleVerifier:
    """Verifies evidence bundles and reports; needs the model only for a replay."""

    def __init__(self, host: ModelHost, detector: Callable[[], SpanDetector], own: Path | None = None) -> None:
        """Wire to the models."""
        self._host, self._detector, self._own = host, detector, own

    @classmethod
    def wired(cls, services: Services) -> BundleVerifier:
        """It opens no store, and loads a model only for a replay."""
        settings = services.settings
        return cls(ModelHost.of(services, faster_steps="off"), partial(detector_of, settings), key_file(settings))

    def verify(
        self,
        path: Path,
        replay: bool = False,
        key: Path | None = None,
        require_signature: bool = False,
        unsigned: bool = False,
    ) -> Verification:
        """Check a bundle or a report; see :meth:`examined`."""
        files = unpack(path) if zipfile.is_zipfile(path) else {}
        if verify_other := verify_decided if DECISIONS in files else verify_results if RESULTS in files else None:
            known = self._own_key() if key is None else trusted_keys(key)
            return verify_other(path, files, known, require_signature or key is not None, unsigned)
        return self.examined(path, replay, key, require_signature, unsigned)[1]

    def examined(
        self,
        path: Path,
        replay: bool = False,
        key: Path | None = None,
        require_signature: bool = False,
        unsigned: bool = False,
    ) -> tuple[Loaded, Verification]:
        """Check everything in a bundle, or in a report alone, that can be computed again, and give what was read."""
        known = self._own_key() if key is None else trusted_keys(key)
        loaded = load(path)
        signature = structure.check_signature(loaded, known, require_signature or key is not None, unsigned)
        checks = [structure.check_files(loaded), signature, structure.check_branches(loaded)]
        if checks[-1].status == "failed":
            checks.append(
                failed("Everything else", "Its branches do not hold together, so that nothing can be checked.")
            )
        else:
            checks += _of_content(loaded)
            host = self._host if replay else None
            checks += [check_replay(loaded, host), check_calibration(loaded, host, self._detector)]
        session = loaded.report.session
        return loaded, Verification(
            source=loaded.source,
            session=f"Session {session.id}: {session.name}",
            bundle_digest=loaded.bundle_digest,
            checks=tuple(checks),
            beyond=untold(loaded, checks),
        )

    def _own_key(self) -> dict[str, str]:
        """The key of this server; none where it has not made one, or where this user cannot read it."""
        if self._own is None or not os.access(self._own, os.R_OK):
            return {}
        return {Signer(self._own).fingerprint: OWN}


def _of_content(loaded: Loaded) -> list[Check]:
    try:
        tables = structure.check_tables(loaded)
        return [structure.check_digests(loaded), *tables, *(check(loaded) for check in CHECKS)]
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        # Settings are kept as the program had them, without a schema; a forged one can be of any shape.
        raise ServiceError(
            f"The report holds a value that no check can read ({type(error).__name__}: {error}); it is damaged, or was "
            "changed by hand."
        ) from error


@cache
def _listed(section: str) -> tuple[Untold, ...]:
    data = yaml.safe_load(assets_path("reports", "untold.yaml").read_text("utf-8"))
    return tuple(Untold(item["file"], tuple(item["fields"]), item["reason"]) for item in data[section])


def untold(loaded: Loaded, checks: list[Check]) -> tuple[Untold, ...]:
    """What no check of these can tell."""
    made = {check.name for check in checks if check.status != "skipped"}
    used, missing = bool(loaded.report.session.calibration_label), loaded.lacks_calibration
    believed = used and not missing and CALIBRATION_CHECK not in made
    sections = {
        "always": True,
        "calibration_missing": used and missing,
        "calibration_made_again": used and not missing and not believed,
        "calibration_believed": believed,
        "prompts_not_used": believed and PROMPTS_FILE in (loaded.files or {}),
        "without_vocabulary": loaded.vocabulary is None,
        "without_replay": REPLAY_CHECK not in made,
        "logits_without_replay": REPLAY_CHECK not in made and LOGITS_CHECK in made,
        "without_logits": REPLAY_CHECK not in made and LOGITS_CHECK not in made,
    }
    listed = [item for section, holds in sections.items() if holds for item in _listed(section)]
    unsigned = [_signed(loaded)] if any(check.status in ("unknown", "unsigned") for check in checks) else []
    return (*unsigned, *listed, *_shortened(loaded))


def _signed(loaded: Loaded) -> Untold:
    who = "Who made the bundle: it is not signed"
    if loaded.manifest is not None and loaded.manifest.get("signatures"):
        who = "Who made the bundle: anybody can sign with a key of their own. Give the auditor's with --key"
    file = REPORT if loaded.manifest is None else MANIFEST
    return Untold(file, ("signatures",), f"{who}. Compare its SHA-256 with the one that the auditor published.")


def _shortened(loaded: Loaded) -> Iterator[Untold]:
    session = loaded.report.session
    texts = {f"session.fingerprint.{name}": str(value) for name, value in session.fingerprint.items()}
    texts["session.fingerprint_digest"] = session.fingerprint_digest
    digits = {
        name: shortest for name, text in texts.items() if (shortest := shortest_digest(text)) not in (None, WHOLE)
    }
    if digits:
        least = min(filter(None, digits.values()))
        yield Untold(
            REPORT,
            tuple(digits),
            f"These digests are shortened, down to {least} of {WHOLE} digits, as earlier versions wrote them: "
            "something else with the same beginning can be made with effort.",
        )
