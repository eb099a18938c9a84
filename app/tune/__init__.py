"""Symmetric tuning: methods swept alike, each judged at its best point."""

from app.shared.wiring import FORMS, Feature, JobPlace, Named, Page

FEATURE = Feature(
    __name__,
    {
        "tune": "sweep the strength of methods and keep each one's best point",
        "tunings": "list finished tunings, or show one",
    },
    Page(
        "Setup",
        "Strength",
        "tune",
        ("base/charts", "base/frame", "base/lists"),
        FORMS,
        names=(Named("run", "tuning", "db.jobs.JobsRepository", "tune", job="tuning"),),
    ),
    jobs=(JobPlace("tuning", "Tuning", "tune?run={id}"),),
)
