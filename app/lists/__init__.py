"""Word lists of reviewers."""

from app.shared.wiring import FORMS, Feature, Page

FEATURE = Feature(
    __name__,
    {"lists": "add, show or remove word lists"},
    Page("Word lists", "lists", ("base/frame", "base/lists"), ("base/prompt", *FORMS)),
)
