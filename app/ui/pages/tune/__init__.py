"""The tuning page: methods swept on one set, and the best point of each."""

from app.ui.pages.tune.page import tune_page

__all__ = ["tune_page"]
