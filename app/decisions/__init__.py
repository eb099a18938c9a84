"""Decisions that were made elsewhere, read from a file and compared by group."""

from app.shared.wiring import FORMS, Feature, Named, Page

FEATURE = Feature(
    __name__,
    {"decisions": "compare outcomes of other models by group"},
    Page(
        "Measure",
        "Decisions",
        "decisions",
        ("base/frame", "base/lists"),
        ("base/prompt", *FORMS, "pages/decisions"),
        names=(Named("run", "decision run", "db.decisions.DecisionRunsRepository", "decisions"),),
    ),
)
