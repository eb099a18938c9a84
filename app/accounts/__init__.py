"""Accounts of a server that several people use: signing in, what each role may do, and the trail of who did what."""

from app.shared.wiring import FORMS, Feature, Page

FEATURE = Feature(
    __name__,
    {
        "accounts": "add, show or change accounts, and the tokens of programs",
        "projects": "add, show or rename projects, and say who sees them",
        "trail": "show, check or export the trail of who did what",
    },
    Page(
        "Accounts",
        "Accounts",
        "accounts",
        ("base/frame", "base/lists"),
        ("base/prompt", *FORMS, "pages/accounts"),
    ),
)
