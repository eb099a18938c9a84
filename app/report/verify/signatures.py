"""Whether a bundle is signed, and by whom."""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from app.report.bundle import MANIFEST
from app.report.signing import SIGNATURES, fingerprint_of, signature_holds
from app.report.verify.findings import Check, Findings, skipped
from app.report.verify.loaded import Loaded
from app.shared.files import plain_json

SIGNATURE_CHECK = "Signature"


def check_signature(loaded: Loaded, key: Ed25519PublicKey | None = None) -> Check:
    """Every signature is of this manifest; with a key given, one of them is by it.

    Without a key nothing is known of who signed: a forger can sign with a key of her own.
    """
    listed: list[Any] = []
    manifest: dict[str, Any] = {}
    if loaded.files is not None:
        manifest = plain_json(loaded.files[MANIFEST])
        found = manifest.get(SIGNATURES) or []
        listed = found if isinstance(found, list) else [found]
    if not listed and key is None:
        return skipped(SIGNATURE_CHECK, "it is unsigned")
    findings = Findings(SIGNATURE_CHECK)
    signers: list[str] = []
    for number, item in enumerate(listed, 1):
        signer = signature_holds(manifest, item)
        if findings.expect(signer is not None, f"Signature {number} is not one of this manifest.") and signer:
            signers.append(fingerprint_of(signer))
    if key is not None:
        wanted = fingerprint_of(key)
        findings.expect(wanted in signers, f"It is not signed by the key that was given, whose SHA-256 is {wanted}.")
    told = "" if key is not None else "; whose key that is, --key tells"
    return findings.check(f"by the key with SHA-256 {', '.join(signers)}{told}")
