"""The library of past audits."""

from app.shared.wiring import FORMS, Feature, Page

FEATURE = Feature(
    __name__,
    {"sessions": "list or delete past audits"},
    Page("Sessions", "sessions", ("pages/sessions",), FORMS),
)
