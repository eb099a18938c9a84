"""The errors of the core: one clear sentence each, saying what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Sequence


class CoftError(Exception):
    """Base of every error that the core raises for bad input; its text is fit to be shown to a user."""


class InvalidInputError(CoftError, ValueError):
    """A value is outside its domain (lambda, alpha, temperature, a span, an empty prompt, NaN)."""


class PromptTooLongError(InvalidInputError):
    """A prompt, or a prompt with its continuation, does not fit into the model's context."""


class ModelLoadError(CoftError):
    """A model or its tokenizer cannot be loaded, or is not usable for two-branch decoding."""


class EngineError(CoftError):
    """A server that computes a model's logits does not answer, or not as it should; nothing of the step is kept."""


class SentinelError(CoftError, ValueError):
    """The chosen sentinel is not exactly one token that round-trips in the model's tokenizer."""


class LexiconError(CoftError, ValueError):
    """A lexicon file is malformed; the text names the file, the line and the field."""


class CalibrationFormatError(CoftError, ValueError):
    """A saved calibration cannot be read."""


class LedgerMismatchError(CoftError, ValueError):
    """What a calibration has worked out so far belongs to other inputs or settings, or is damaged."""


class StoredLogitsError(CoftError, ValueError):
    """The kept logits of a step cannot be read, or are not those that a reading needs."""


class RolloutClosedError(CoftError, RuntimeError):
    """A step was asked of a rollout whose key-value memory has been released."""


class DeviceMemoryError(CoftError):
    """The device's memory ran out in a step or a batch; nothing of it has been kept."""


class CalibrationMismatch(CoftError):  # noqa: N818 - the public name of the design
    """A calibration belongs to another policy than the one that would use it.

    Attributes:
        fields: Names of the fingerprint fields that differ, in the fingerprint's order.
    """

    def __init__(self, differences: Sequence[tuple[str, str, str]]) -> None:
        """Describe the mismatch."""
        self.fields = tuple(name for name, _, _ in differences)
        self.differences = tuple(differences)
        detail = "; ".join(f"{name}: calibrated {_apart(a, b)}, used {_apart(b, a)}" for name, a, b in differences)
        dated = next(
            (calibrated for name, calibrated, _ in differences if name == "rendering" and " as of " in calibrated), ""
        )
        same_day = f"render the chat template as of {dated.rpartition(' ')[2]} as it was, " if dated else ""
        super().__init__(
            f"This calibration belongs to another policy ({detail}). "
            f"Calibrate again with these settings, {same_day}or proceed uncertified."
        )


def _apart(value: str, other: str) -> str:
    """What one value has that the other lacks, where both are lists such as a detector's version."""
    parts, others = value.split(", "), other.split(", ")
    if len(parts) == len(others) == 1:
        return f"with {value or 'none recorded'}"
    return f"with {', '.join(missing)}" if (missing := [part for part in parts if part not in others]) else "without it"
