"""Checked conversion of calibration values: what may stand for a log joint support."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from coft_core.errors import InvalidInputError

ROUNDING = 1e-4
"""How far above 0 a log-probability may lie by floating-point rounding (nats)."""


def as_log_support(values: Tensor | npt.ArrayLike, what: str = "values") -> npt.NDArray[np.float64]:
    """Read a list of log joint supports.

    Args:
        values: ``(n,)`` numbers, at most 0 up to rounding; ``-inf`` is allowed.
        what: The list's name, for error texts.

    Returns:
        ``(n,)`` float64.

    Raises:
        InvalidInputError: It is no one-dimensional list of numbers, or an entry is NaN or positive.
    """
    array = as_vector(values, what)
    if array.dtype.kind not in "fiu":
        raise InvalidInputError(f"{what} must be real numbers, not {array.dtype}.")
    support = array.astype(np.float64)
    if (bad := np.flatnonzero(np.isnan(support) | (support > ROUNDING))).size:
        index = int(bad[0])
        problem = "is NaN" if np.isnan(support[index]) else f"is {support[index]:g}, above 0"
        raise InvalidInputError(
            f"{what}[{index}] {problem}; give natural logarithms of the true next tokens' probabilities."
        )
    return support


def as_vector(values: Tensor | npt.ArrayLike, what: str) -> npt.NDArray[np.generic]:
    """Read a one-dimensional array from a tensor, an array or a list.

    Raises:
        InvalidInputError: It is ragged or has another number of dimensions than one.
    """
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        # NumPy has no bfloat16; float64 holds every floating type of torch exactly.
        values = (values.to(torch.float64) if values.is_floating_point() else values).numpy()
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{what} must be a list of numbers ({error}).") from error
    if array.ndim != 1:
        raise InvalidInputError(f"{what} must have one dimension, not {array.ndim}.")
    return array
