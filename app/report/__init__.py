"""Reports that leave the program: tables, JSON, HTML and evidence bundles."""

from app.shared.wiring import Feature

FEATURE = Feature(
    __name__,
    {
        "report": "export a past audit",
        "import": "bring in the session of another server's evidence bundle, read-only",
        "key": "print the public key by which evidence bundles are signed",
        "verify": "check an evidence bundle (.zip) or a report (.json): recompute what it says",
    },
    serves=("app.report.signing.Signer",),
)
