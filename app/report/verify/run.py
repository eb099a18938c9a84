"""The verifier: runs every check on a report or an evidence bundle, and says what lies beyond them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from app.report.signing import Signer, key_file, trusted_keys
from app.report.verify import numbers, prompts, structure, thresholds
from app.report.verify.findings import Check, Verification, failed
from app.report.verify.loaded import Loaded, load
from app.report.verify.replay import check_calibration, check_logits, check_replay
from app.report.verify.untold import untold
from app.shared.errors import ServiceError
from app.shared.model_host import ModelHost
from app.shared.planning import detector_of
from app.shared.wiring import Services
from coft_core.text.detection import SpanDetector

CHECKS: tuple[Callable[[Loaded], Check], ...] = (
    prompts.check_settings,
    prompts.check_preview,
    structure.check_times,
    structure.check_verdicts,
    thresholds.check_certificate,
    thresholds.check_thresholds,
    numbers.check_fusion,
    numbers.check_certified,
    numbers.check_derived,
    numbers.check_choices,
    numbers.check_ranges,
    thresholds.check_chains,
    numbers.check_summary,
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
        self, path: Path, replay: bool = False, key: Path | None = None, require_signature: bool = False
    ) -> Verification:
        """Check a bundle or a report; see :meth:`examined`."""
        return self.examined(path, replay, key, require_signature)[1]

    def examined(
        self, path: Path, replay: bool = False, key: Path | None = None, require_signature: bool = False
    ) -> tuple[Loaded, Verification]:
        """Check everything in a bundle, or in a report alone, that can be computed again, and give what was read."""
        known = self._own_key() if key is None else trusted_keys(key)
        loaded = load(path)
        signature = structure.check_signature(loaded, known, require_signature or key is not None)
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
