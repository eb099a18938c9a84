"""Verdicts of reviewers: the log, second opinions, and agreement."""

from app.shared.wiring import FORMS, SESSION, Feature, Named, Page

FEATURE = Feature(
    __name__,
    {"verdicts": "give, show, compare and check verdicts"},
    page=Page(
        "Library",
        "Reviews",
        "review",
        ("pages/review",),
        (*FORMS, "pages/review"),
        names=(Named("session", *SESSION),),
    ),
    on_audit=True,
)
