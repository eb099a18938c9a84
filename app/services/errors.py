"""The services' own errors, and the list of those whose text may be shown as it is."""

from coft_core.errors import CalibrationMismatch, CoftError
from db.errors import StoreError

__all__ = ["USER_ERRORS", "CalibrationMismatch", "CoftError", "ServiceError", "StoreError"]


class ServiceError(Exception):
    """A request that a service cannot fulfil; its text is one sentence fit to be shown."""


USER_ERRORS: tuple[type[Exception], ...] = (ServiceError, CoftError, StoreError)
"""Errors of bad input or circumstances; everything else is a fault of the program."""
