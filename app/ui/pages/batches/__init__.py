"""The batches page."""

from app.ui.pages.batches.page import batches_page

__all__ = ["batches_page"]
