"""The audit page."""

from app.ui.pages.audit.page import audit_page

__all__ = ["audit_page"]
