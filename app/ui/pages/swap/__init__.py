"""The swap page."""

from app.ui.pages.swap.page import swap_page

__all__ = ["swap_page"]
