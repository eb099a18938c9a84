"""Whether a bundle is signed, and by whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.report.bundle import MANIFEST
from app.report.signing import SIGNATURES, fingerprint_of, signature_holds
from app.report.verify.findings import Check, Findings
from app.report.verify.loaded import Loaded
from app.shared.files import plain_json

SIGNATURE_CHECK = "Signature"


def check_signature(loaded: Loaded, known: Mapping[str, str], required: bool = False) -> Check:
    """Every signature is of this manifest, and one is by a known key.

    A bundle that nobody signed, or that an unknown key signed, can have been made by anybody: its status is
    ``"unknown"``.
    """
    listed: list[Any] = []
    manifest: dict[str, Any] = {}
    if loaded.files is not None:
        manifest = plain_json(loaded.files[MANIFEST])
        found = manifest.get(SIGNATURES) or []
        listed = found if isinstance(found, list) else [found]
    findings = Findings(SIGNATURE_CHECK)
    signers: list[str] = []
    for number, item in enumerate(listed, 1):
        signer = signature_holds(manifest, item)
        if findings.expect(signer is not None, f"Signature {number} is not one of this manifest.") and signer:
            signers.append(fingerprint_of(signer))
    keys = (f"“{known[own]}” ({own})" if own in known else f"an unknown key ({own})" for own in signers)
    told = f"signed by {', '.join(keys)}" if signers else "not signed"
    trusted = not known.keys().isdisjoint(signers)
    if required:
        wanted = ", ".join(f"“{name}” ({own})" for own, name in known.items()) or "no key is known here"
        findings.expect(trusted, f"It is {told}. A signature by one of these keys is required: {wanted}.")
    return findings.check(told, otherwise="passed" if trusted else "unknown")
