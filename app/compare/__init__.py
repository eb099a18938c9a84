"""Comparisons: chains beside each other, and several policies over a prompt set."""

from app.shared.wiring import CHAINS, SESSION, Feature, JobPlace, Named, Page

FEATURE = Feature(
    __name__,
    {
        "audit": "audit one prompt and write its report",
        "compare": "put stored audits, or branches of one, beside each other",
        "compare-set": "run every prompt of a file under several policies, and compare",
    },
    Page(
        "Audit",
        "Other methods",
        "compare",
        ("pages/compare",),
        (*CHAINS, "pages/compare", "pages/compare_lanes"),
        names=(
            Named("session", *SESSION),
            Named("sessions", *SESSION),
            Named("branches", "branch", "db.sessions.SessionsRepository", "sessions", method="branch"),
            Named("set", "comparison", "db.comparisons.ComparisonsRepository", "compare"),
        ),
    ),
    jobs=(JobPlace("batch", "Comparison", "compare?set={comparison_id}", about="comparison_id"),),
)
