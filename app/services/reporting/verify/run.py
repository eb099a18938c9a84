"""Verifying a file: all checks in order, and what lies beyond them."""

from __future__ import annotations

from pathlib import Path

from app.services.errors import ServiceError
from app.services.model_host import ModelHost
from app.services.reporting.verify.files import check_digests, check_files, check_tables
from app.services.reporting.verify.findings import failed
from app.services.reporting.verify.loaded import Loaded, load
from app.services.reporting.verify.logits import check_logits
from app.services.reporting.verify.numbers import (
    check_certified,
    check_choices,
    check_derived,
    check_fusion,
    check_summary,
)
from app.services.reporting.verify.replay import check_replay
from app.services.reporting.verify.structure import check_branches, check_prompt, check_verdicts
from app.services.reporting.verify.thresholds import check_certificate, check_chains, check_thresholds
from app.services.views.verification import Check, Verification

ALWAYS_BEYOND = (
    "Who made the bundle: it is not signed. Compare its SHA-256 with the one that the auditor published.",
    "Whether the newest entries of the verdict log were removed: compare its head with an earlier report.",
    "Whether later audits still look like the calibration (the column “drift”): that depends on other sessions.",
    "Whether the spans are all that is sensitive in the prompt: a person decides that.",
)
WITHOUT_MODEL = (
    "That the probabilities are those of the named model: only a replay shows that (--replay).",
    "Which tokens the prompt and its masked reading have: that needs the model's tokenizer.",
)
WITHOUT_LOGITS = (
    "Size and mass of the certified set beyond the candidates listed, entropies, divergences and total variation: "
    "without all logits they are only checked against what the candidates imply.",
    "The sensitivity in logits: candidates keep probabilities, which leave the logits' offset open.",
    "The draws of the sampled tokens: they need the whole distribution.",
)


class BundleVerifier:
    """Verifies evidence bundles and reports; needs the model only for a replay."""

    def __init__(self, host: ModelHost) -> None:
        """Wire to the models.

        Args:
            host: Loads the model of a report that is replayed.
        """
        self._host = host

    def verify(self, path: Path, replay: bool = False) -> Verification:
        """Check everything in a bundle, or in a report alone, that can be computed again.

        Args:
            path: The bundle (``.zip``) or report (``.json``).
            replay: Load the model and write every branch again.

        Raises:
            ServiceError: The file is no bundle or report, is damaged, or is too large.
        """
        loaded = load(path)
        checks = [check_files(loaded), check_branches(loaded)]
        if checks[-1].status == "failed":
            checks.append(
                failed("Everything else", "Its branches do not hold together, so that nothing can be checked.")
            )
        else:
            checks += _of_content(loaded)
            checks.append(check_replay(loaded, self._host if replay else None))
        session = loaded.report.session
        return Verification(
            source=loaded.source,
            session=f"Session {session.id}: {session.name}",
            bundle_digest=loaded.bundle_digest,
            checks=tuple(checks),
            beyond=_beyond(checks),
        )


def _of_content(loaded: Loaded) -> list[Check]:
    try:
        return [
            check_digests(loaded),
            *check_tables(loaded),
            check_prompt(loaded),
            check_verdicts(loaded),
            check_certificate(loaded),
            check_thresholds(loaded),
            check_fusion(loaded),
            check_certified(loaded),
            check_derived(loaded),
            check_choices(loaded),
            check_chains(loaded),
            check_summary(loaded),
            check_logits(loaded),
        ]
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        # Settings are kept as the program had them, without a schema; a forged one can be of any shape.
        raise ServiceError(
            f"The report holds a value that no check can read ({type(error).__name__}: {error}); it is damaged, or was "
            "changed by hand."
        ) from error


def _beyond(checks: list[Check]) -> tuple[str, ...]:
    """What no check of these can tell."""
    status = {check.name: check.status for check in checks}
    replayed = status.get("Replay on the model") not in (None, "skipped")
    from_logits = status.get("Steps from stored logits") not in (None, "skipped")
    beyond: tuple[str, ...] = ALWAYS_BEYOND
    if not replayed:
        beyond += WITHOUT_MODEL
        if not from_logits:
            beyond += WITHOUT_LOGITS
    return beyond
