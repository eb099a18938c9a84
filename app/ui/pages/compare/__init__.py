"""The compare page."""

from app.ui.pages.compare.page import compare_page

__all__ = ["compare_page"]
