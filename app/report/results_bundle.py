"""Results as a signed bundle, by whose digest publications name their source."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from app.report.bundle import KIND, MANIFEST, VERSION, pack
from app.report.document import NAME, canonical
from app.report.document import VERSION as PROGRAM_VERSION
from app.shared.results.record import Results

RESULTS = "results.json"


def results_bundle(results: Results, sign: Callable[[dict[str, object]], object]) -> bytes:
    """The bundle; the same results and key give the same bytes."""
    content = (canonical(results.json(), indent=1) + "\n").encode("ascii")
    stated: dict[str, object] = {
        "kind": KIND,
        "version": VERSION,
        "program": {"name": NAME, "version": PROGRAM_VERSION},
        "results": {"kind": results.kind, "name": results.name, "model": results.model},
        "files": {RESULTS: {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}},
        "signatures": [],
    }
    manifest = canonical({**stated, "signatures": [sign(stated)]}, indent=1) + "\n"
    return pack({MANIFEST: manifest.encode("ascii"), RESULTS: content})
