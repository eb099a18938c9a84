"""The library of past audits."""

from app.shared.wiring import BATCH, FORMS, Feature, Named, Page

FEATURE = Feature(
    __name__,
    {"sessions": "list or delete past audits", "move": "move past audits to another project"},
    Page(
        "Library",
        "Audits",
        "sessions",
        ("pages/sessions",),
        FORMS,
        names=(Named("batch", *BATCH),),
    ),
)
