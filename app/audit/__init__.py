"""Audits: a prompt continued token by token, each token with its three readings and its certified set."""

from app.shared.wiring import CALIBRATION, CHAINS, SESSION, Feature, Named, Page

FEATURE = Feature(
    __name__,
    {
        "audit": "audit one prompt and write its report",
        "policies": "list the decoding methods and their parameters",
        "reread": "read a stored audit at another lambda or alpha",
    },
    Page(
        "Audit",
        "Audit",
        "",
        ("pages/audit",),
        (*CHAINS, "pages/audit", "pages/audit_branches", "pages/audit_finding"),
        views=(("Finding", ""), ("Word by word", "?tab=words")),
        names=(
            Named("session", *SESSION),
            Named("duplicate", *SESSION),
            Named("branch", "branch", "db.sessions.SessionsRepository", "sessions", method="branch"),
            Named("calibration", *CALIBRATION),
        ),
    ),
    serves=("app.audit.handlers.FirstChain",),
)
