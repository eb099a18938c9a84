"""Symmetric tuning: methods swept alike, each judged at its best point."""

from app.shared.wiring import FORMS, Feature, JobPlace, Page

FEATURE = Feature(
    __name__,
    {
        "tune": "sweep the strength of methods and keep each one's best point",
        "tunings": "list finished tunings, or show one",
    },
    Page("Tune", "tune", ("base/charts", "base/frame", "base/lists"), FORMS),
    jobs=(JobPlace("tuning", "Tuning", "tune?run={id}"),),
)
