"""What the store raises: one tree, every message one sentence that can be shown to a user."""


class StoreError(Exception):
    """The store could not do what was asked; the message says why and what to do."""


class NotFoundError(StoreError):
    """No row has the id that was asked for."""


class UnstorableValueError(StoreError, ValueError):
    """A value that no column can keep: NaN, a time without a zone, half of a character, or what JSON does not know."""


class ConflictError(StoreError):
    """The change contradicts what is already stored (a repeated step, branch or reference)."""


class CalibrationDeletedError(ConflictError):
    """A session cannot go on, because the calibration that its thresholds came from is no longer stored."""

    def __init__(self, label: str) -> None:
        """Name the calibration by what it was called."""
        super().__init__(
            f"The calibration “{label}” has been deleted, so this session cannot be continued; start a new one with "
            "another calibration."
        )
