"""Word lists of reviewers."""

from app.shared.wiring import FORMS, Feature, Named, Page

FEATURE = Feature(
    __name__,
    {"lists": "add, show or remove word lists"},
    Page(
        "Setup",
        "Word lists",
        "lists",
        ("base/frame", "base/lists"),
        ("base/prompt", *FORMS),
        names=(Named("list", "word list", "db.user_lists.UserListsRepository", "lists"),),
    ),
)
