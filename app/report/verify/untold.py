"""What the checks of a file cannot tell, file by file and field by field.

A bundle carries its own digests, so whoever changes one can also write all of them anew. Checks recompute; what follows
from nothing else in the file, and from nothing that the model computes, is listed in ``assets/reports/untold.yaml`` and
in every verification.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import yaml

from app.report.bundle import MANIFEST, PROMPTS_FILE, REPORT
from app.report.verify.findings import Check, Untold
from app.report.verify.loaded import Loaded
from app.report.verify.replay import CALIBRATION_CHECK, LOGITS_CHECK, REPLAY_CHECK
from coft_core.assets import assets_path
from coft_core.fingerprint import WHOLE, shortest_digest


@cache
def _listed(section: str) -> tuple[Untold, ...]:
    data = yaml.safe_load(assets_path("reports", "untold.yaml").read_text("utf-8"))
    return tuple(Untold(item["file"], tuple(item["fields"]), item["reason"]) for item in data[section])


def untold(loaded: Loaded, checks: list[Check]) -> tuple[Untold, ...]:
    """What no check of these can tell."""
    carried_out = {check.name for check in checks if check.status != "skipped"}
    unknown = any(check.status == "unknown" for check in checks)
    gaps = [_signed(loaded)] if unknown else []
    for section in _sections(loaded, carried_out):
        gaps += _listed(section)
    return (*gaps, *_shortened(loaded))


def _sections(loaded: Loaded, carried_out: set[str]) -> Iterator[str]:
    """What could not be told, by the sections of the list."""
    yield "always"
    if loaded.report.session.calibration_label:
        if loaded.lacks_calibration:
            yield "calibration_missing"
        elif CALIBRATION_CHECK in carried_out:
            yield "calibration_made_again"
        else:
            yield "calibration_believed"
            if PROMPTS_FILE in (loaded.files or {}):
                yield "prompts_not_used"
    if loaded.vocabulary is None:
        yield "without_vocabulary"
    if REPLAY_CHECK not in carried_out:
        yield "without_replay"
        yield "logits_without_replay" if LOGITS_CHECK in carried_out else "without_logits"


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
