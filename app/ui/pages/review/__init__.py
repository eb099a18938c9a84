"""The review page."""

from app.ui.pages.review.page import review_page

__all__ = ["review_page"]
