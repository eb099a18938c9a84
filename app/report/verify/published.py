"""The verifier of signed results: what they say was computed elsewhere, so only files and signature are checked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from app.report.bundle import MANIFEST, read_manifest
from app.report.results_bundle import RESULTS
from app.report.verify.findings import Untold, Verification
from app.report.verify.structure import check_files, check_signature
from app.shared.errors import ServiceError


@dataclass(frozen=True)
class LoadedResults:
    """The files of signed results, and their manifest."""

    files: Mapping[str, bytes] | None
    manifest: Mapping[str, object] | None


def verify_results(
    path: Path, files: Mapping[str, bytes], known: Mapping[str, str], required: bool, unsigned: bool = False
) -> Verification:
    """Check that nothing was changed since the results were signed, and by whom they were."""
    if MANIFEST not in files:
        raise ServiceError(f"{path.name} has no {MANIFEST}, so these results are not signed; choose what was exported.")
    manifest = read_manifest(files[MANIFEST])
    loaded, told = LoadedResults(files, manifest), cast("Mapping[str, object]", manifest.get("results") or {})
    return Verification(
        source=path.name,
        session=f"Results of the {told.get('kind')} “{told.get('name')}”",
        bundle_digest=hashlib.sha256(files[MANIFEST]).hexdigest(),
        checks=(check_files(loaded), check_signature(loaded, known, required, unsigned)),
        beyond=(
            Untold(RESULTS, ("results", "samples"), "Whether the figures are right: whoever signed them says so."),
        ),
    )
