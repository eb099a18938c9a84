"""The services' own errors, and the list of those whose text may be shown as it is."""

from coft_core.errors import CalibrationMismatch, CoftError
from db.errors import StoreError

__all__ = ["USER_ERRORS", "CalibrationMismatch", "CoftError", "ColumnMismatch", "ServiceError", "StoreError"]


class ServiceError(Exception):
    """A request that a service cannot fulfil; its text is one sentence fit to be shown."""


class ColumnMismatch(CalibrationMismatch):
    """One of several columns has a calibration of another policy; its text is one sentence fit to be shown.

    Attributes:
        column: The column, 0-based.
    """

    def __init__(self, column: int, mismatch: CalibrationMismatch) -> None:
        """Name the column of a mismatch."""
        super().__init__(mismatch.differences)
        self.column = column


USER_ERRORS: tuple[type[Exception], ...] = (ServiceError, CoftError, StoreError)
"""Errors of bad input or circumstances; everything else is a fault of the program."""
