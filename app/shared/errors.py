"""The services' own errors, and the list of those whose text may be shown as it is."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from app.shared.logs import FIELDS, fault
from coft_core.errors import CalibrationMismatch, CoftError
from db.types import StoreError

logger = logging.getLogger(__name__)


class ServiceError(Exception):
    """A request that a service cannot fulfil; its text is one sentence fit to be shown."""


class JobCancelled(Exception):  # noqa: N818 - cancelling is no error
    """Raised inside a job's function once the job was cancelled; let it pass."""


class ColumnMismatch(CalibrationMismatch):
    """One of several columns has a calibration of another policy; its text is one sentence fit to be shown."""

    def __init__(self, column: int, mismatch: CalibrationMismatch) -> None:
        super().__init__(mismatch.differences)
        self.column = column


USER_ERRORS: tuple[type[Exception], ...] = (ServiceError, CoftError, StoreError)
"""Errors of bad input or circumstances; everything else is a fault of the program."""

_AS_THEY_ARE: tuple[type[Exception], ...] = (*USER_ERRORS, JobCancelled)

LONGEST_REASON = 200
"""Characters of an unknown error's own words that are shown."""


def sentence_of(error: Exception) -> str:
    """What an error says to a user; a fault of the program is written to the log too, by its kind and place."""
    if isinstance(error, USER_ERRORS):
        return str(error)
    # Its own words may quote what was typed.
    told = fault(error)
    logger.error("A fault of the program: %s", told, extra={FIELDS: told})
    said = " ".join(str(error).split())[:LONGEST_REASON]
    return (
        f"The program met an error that it does not know ({type(error).__name__}{': ' if said else ''}{said}); nothing "
        "of it was kept. Try again, and report it with the log if it stays."
    )


@contextmanager
def in_one_sentence() -> Iterator[None]:
    """Turn a fault of the program into one sentence, so that it ends what was asked and nothing else."""
    try:
        yield
    except _AS_THEY_ARE:
        raise
    except Exception as error:
        raise ServiceError(sentence_of(error)) from error
