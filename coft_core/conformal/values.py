"""The calibration's raw material: one log joint support per true token, with its step and its context."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from coft_core.errors import CalibrationFormatError, InvalidInputError

ROUNDING = 1e-4
"""How far above 0 a log-probability may lie by floating-point rounding (nats)."""


BELOW = 1e-4
"""Nats by which thresholds in force lie under those that were read off: twice the rounding of float32."""


def as_log_support(values: npt.ArrayLike, what: str = "values") -> npt.NDArray[np.float64]:
    """Read ``(n,)`` log joint supports as float64: at most 0 up to rounding, ``-inf`` is allowed."""
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


def as_vector(values: npt.ArrayLike, what: str) -> npt.NDArray[np.generic]:
    """Read a one-dimensional array from an array, a list, or whatever else can be an array, such as a tensor."""
    if callable(detach := getattr(values, "detach", None)):
        tensor = detach().cpu()
        # NumPy has no bfloat16; float64 holds every floating type of torch exactly.
        values = (tensor.double() if tensor.is_floating_point() else tensor).numpy()
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{what} must be a list of numbers ({error}).") from error
    if array.ndim != 1:
        raise InvalidInputError(f"{what} must have one dimension, not {array.ndim}.")
    return array


def context_codes(groups: Sequence[Hashable] | npt.NDArray[Any] | None, n: int) -> npt.NDArray[np.intp]:
    """Number the contexts 0..K-1 in the order of their ids, whatever the order of the rows."""
    if groups is None:
        return np.arange(n)
    if not isinstance(groups, Sequence):
        array = as_vector(groups, "groups")
        _check_length(array.size, n)
        if array.dtype.kind in "iu":
            codes: npt.NDArray[np.intp] = np.unique(array, return_inverse=True)[1]
            return codes
        return _codes_of_list(array.tolist())
    _check_length(len(groups), n)
    return _codes_of_list(groups)


def draw_one_per_context(
    codes: npt.NDArray[np.intp],
    keys: tuple[npt.NDArray[Any], ...],
    generator: np.random.Generator,
    draws: int = 1,
) -> npt.NDArray[np.intp]:
    """Draw one row of each context, uniformly and independently; several times over, with replacement, if asked."""
    order = np.arange(codes.size) if _in_order(codes, keys[0]) else np.lexsort((*reversed(keys), codes))  # (n,)
    sizes = np.bincount(codes)  # (K,)
    first = np.cumsum(sizes) - sizes  # (K,)
    drawn: npt.NDArray[np.intp] = order[first + generator.integers(sizes, size=(draws, sizes.size))].ravel()
    return drawn


def _in_order(codes: npt.NDArray[np.intp], key: npt.NDArray[Any]) -> bool:
    """Whether rows stand by context and strictly by a key within it, as calibration writes them; saves the sort."""
    same, rises = codes[1:] == codes[:-1], key[1:] > key[:-1]  # (n - 1,)
    return bool(np.all((codes[1:] > codes[:-1]) | (same & rises)))


def _check_length(length: int, n: int) -> None:
    if length != n:
        raise InvalidInputError(f"groups has {length} entries for {n} values; give one context id per value.")


def _codes_of_list(groups: Sequence[Hashable]) -> npt.NDArray[np.intp]:
    for index, group in enumerate(groups):
        if not isinstance(group, Hashable) or hasattr(group, "ndim"):
            raise InvalidInputError(
                f"groups[{index}] is a {type(group).__name__}; use a text or a number as context id."
            )
        if group is None or group != group:
            raise InvalidInputError(f"groups[{index}] is {group}; give every value a context id.")
    distinct: set[Any] = set(groups)
    # Ids of mixed types have no order of their own; the printed form gives them one that no hash seed
    # changes.
    ordered: list[Any] = (
        sorted(distinct)
        if all(type(group) is int for group in distinct)
        else sorted(distinct, key=lambda group: (type(group).__name__, repr(group)))
    )
    code_of = {group: code for code, group in enumerate(ordered)}
    return np.fromiter((code_of[group] for group in groups), dtype=np.intp, count=len(groups))


UNKNOWN = -1
"""Stands in ``ends`` where an earlier version did not note how a chain ended."""

_ADDED = ("rows", "ends")
"""Arrays that data of older versions may lack."""

_DAMAGE = (ValueError, TypeError, EOFError, OSError, MemoryError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CalibrationValues:
    """Values of a calibration, from which any threshold can be read again without the model; copied and read-only."""

    values: npt.NDArray[np.float32]  # (n,) each; natural logarithms
    steps: npt.NDArray[np.int32]  # from 0
    contexts: npt.NDArray[np.int32]
    # Row of the prompt set, of which a context can have several; without rows a context is one row of its number.
    rows: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    # 1 where the token is the model's end of text: a chain whose last value has 0 was cut short there.
    ends: npt.NDArray[np.int8] = field(default_factory=lambda: np.empty(0, dtype=np.int8))

    def __post_init__(self) -> None:
        """Copy and check the arrays."""
        values = as_log_support(self.values).astype(np.float32)
        steps, contexts = _as_int32(self.steps, "steps"), _as_int32(self.contexts, "contexts")
        if not values.size == steps.size == contexts.size:
            raise InvalidInputError(
                f"values, steps and contexts have {values.size}, {steps.size} and {contexts.size} entries; "
                "give one step and one context per value."
            )
        if steps.size and steps.min() < 0:
            raise InvalidInputError(f"steps[{int(np.argmin(steps))}] is {steps.min()}; steps are counted from 0.")
        rows = _as_int32(self.rows, "rows")
        rows = rows if rows.size else contexts.copy()
        if rows.size != values.size:
            raise InvalidInputError(f"rows has {rows.size} entries for {values.size} values; give one per value.")
        ends = _as_int32(self.ends, "ends").astype(np.int8)
        ends = ends if ends.size else np.zeros(values.size, dtype=np.int8)
        if ends.size != values.size or not np.isin(ends, (UNKNOWN, 0, 1)).all():
            raise InvalidInputError(f"ends has {ends.size} entries for {values.size} values; give 0 or 1 per value.")
        arrays = (("values", values), ("steps", steps), ("contexts", contexts), ("rows", rows), ("ends", ends))
        for name, array in arrays:
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @classmethod
    def empty(cls) -> CalibrationValues:
        """No values at all, for example of a verification split that was not asked for."""
        nothing: npt.NDArray[Any] = np.empty(0, dtype=np.int32)
        return cls(nothing.astype(np.float32), nothing, nothing)

    @classmethod
    def of_chains(
        cls,
        chains: Sequence[npt.NDArray[Any]],
        contexts: Sequence[int],
        rows: Sequence[int],
        ended: Sequence[bool] = (),
    ) -> CalibrationValues:
        """Lay the values of chains end to end."""
        lengths = [len(chain) for chain in chains]
        ends = np.zeros(sum(lengths), dtype=np.int8)
        last = np.cumsum(lengths, dtype=np.intp)[np.array(lengths, dtype=np.intp) > 0] - 1  # of the chains with values
        ends[last] = [
            has_ended for has_ended, length in zip(ended or [False] * len(lengths), lengths, strict=True) if length
        ]
        return cls(
            values=np.concatenate([np.empty(0, dtype=np.float32), *chains]),
            steps=np.concatenate([np.empty(0, dtype=np.int32), *(np.arange(n, dtype=np.int32) for n in lengths)]),
            contexts=np.repeat(np.array(contexts, dtype=np.int32), lengths),
            rows=np.repeat(np.array(rows, dtype=np.int32), lengths),
            ends=ends,
        )

    @classmethod
    def concat(cls, parts: Iterable[CalibrationValues]) -> CalibrationValues:
        """Join values; equal context numbers in two parts mean the same context."""
        listed = [cls.empty(), *parts]
        return cls(*(np.concatenate([getattr(part, f.name) for part in listed]) for f in fields(cls)))

    def select(self, contexts: Iterable[int]) -> CalibrationValues:
        """The values of some contexts, in their present order; unknown contexts have none."""
        chosen = np.isin(self.contexts, np.fromiter(contexts, dtype=np.int64))  # (n,)
        return CalibrationValues(*(getattr(self, f.name)[chosen] for f in fields(self)))

    def lowered(self) -> CalibrationValues:
        """The values by :data:`BELOW` lower, for thresholds that are in force.

        A copy of the prompt that made a threshold has the same support up to the rounding of its batch, and must not
        fall below.
        """
        return replace(self, values=self.values - np.float32(BELOW))

    @property
    def sequences(self) -> npt.NDArray[np.intp]:
        """Chain of each value, ``(n,)``, from 0: a new one begins where context or row changes or the step falls."""
        if not len(self):
            return np.empty(0, dtype=np.intp)
        begins = (np.diff(self.contexts) != 0) | (np.diff(self.rows) != 0) | (np.diff(self.steps) <= 0)  # (n - 1,)
        numbers: npt.NDArray[np.intp] = np.concatenate([[0], np.cumsum(begins)]).astype(np.intp)
        return numbers

    @property
    def context_count(self) -> int:
        """Number of contexts that have a value."""
        return int(np.unique(self.contexts).size)

    def to_bytes(self) -> bytes:
        """Compressed NumPy archive; equal values give equal bytes."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **{f.name: getattr(self, f.name) for f in fields(self)})
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> CalibrationValues:
        """Rebuild from :meth:`to_bytes`, also of an older version without rows or ends; nothing is executed."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                arrays = {f.name: archive[f.name] for f in fields(cls) if f.name in archive or f.name not in _ADDED}
                return cls(**{"ends": np.full(arrays["values"].shape, UNKNOWN, dtype=np.int8), **arrays})
        except InvalidInputError as error:
            raise CalibrationFormatError(f"The stored calibration values are not usable: {error}") from error
        except KeyError as error:
            raise CalibrationFormatError(f"The stored calibration values lack an array ({error.args[0]}).") from error
        except _DAMAGE as error:
            raise CalibrationFormatError(
                "The stored calibration values are damaged; load another copy or calibrate again."
            ) from error

    def __len__(self) -> int:
        """Number of values."""
        return int(self.values.size)

    def __eq__(self, other: object) -> bool:
        """Equal rows in equal order."""
        if not isinstance(other, CalibrationValues):
            return NotImplemented
        return all(np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    def __hash__(self) -> int:
        """Hash of the rows; rounding -0.0 to 0.0 keeps equal values equal."""
        return hash(((self.values + 0.0).tobytes(), self.steps.tobytes(), self.contexts.tobytes()))

    def __repr__(self) -> str:
        """Sizes only; the arrays are long."""
        return f"CalibrationValues({len(self)} values of {self.context_count} contexts)"


def _as_int32(numbers: npt.ArrayLike, what: str) -> npt.NDArray[np.int32]:
    array = as_vector(numbers, what)
    if array.size and array.dtype.kind not in "iu":
        raise InvalidInputError(f"{what} must be whole numbers, not {array.dtype}.")
    limits = np.iinfo(np.int32)
    if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
        raise InvalidInputError(f"{what} must lie between {limits.min} and {limits.max}.")
    return array.astype(np.int32)
