"""The calibrate page: a prompt set, a run, what it can certify, and two runs side by side."""

from app.ui.pages.calibrate.page import calibrate_page

__all__ = ["calibrate_page"]
