from __future__ import annotations

import io
import math
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coft_core.conformal.values import UNKNOWN, CalibrationValues
from coft_core.errors import CalibrationFormatError, InvalidInputError

rows = st.lists(
    st.tuples(st.floats(-1000, 0, width=32) | st.just(-math.inf), st.integers(0, 9999), st.integers(0, 2**31 - 1)),
    max_size=50,
)


def from_rows(entries):
    return CalibrationValues(*([entry[column] for entry in entries] for column in range(3)))


@pytest.fixture
def values():
    return CalibrationValues(
        values=np.array([-1.0, -2.0, -3.0, -0.5]), steps=np.array([0, 1, 0, 0]), contexts=np.array([4, 4, 7, 9])
    )


@settings(derandomize=True, deadline=None, max_examples=60)
@given(entries=rows)
def test_bytes_give_back_equal_values(entries):
    original = from_rows(entries)
    copy = CalibrationValues.from_bytes(original.to_bytes())
    assert copy == original
    assert hash(copy) == hash(original)
    assert copy.to_bytes() == original.to_bytes()


def test_arrays_have_the_promised_types_are_copies_and_cannot_be_changed(values):
    assert [values.values.dtype, values.steps.dtype, values.contexts.dtype] == [np.float32, np.int32, np.int32]
    with pytest.raises(ValueError, match="read-only"):
        values.values[0] = -9.0
    source = np.array([-1.0], dtype=np.float32)
    kept = CalibrationValues(source, np.array([0]), np.array([0]))
    source[0] = -5.0
    assert kept.values[0] == -1.0
    assert len(values) == 4
    assert values.context_count == 3
    assert repr(values) == "CalibrationValues(4 values of 3 contexts)"


def test_selecting_keeps_whole_contexts_in_order_and_joining_loses_nothing(values):
    chosen = values.select([9, 4, 100])
    assert chosen.values.tolist() == [-1.0, -2.0, -0.5]
    assert chosen.contexts.tolist() == [4, 4, 9]
    assert len(values.select([])) == 0
    joined = CalibrationValues.concat([values.select([4]), values.select([7, 9])])
    assert joined == values
    assert CalibrationValues.concat([]) == CalibrationValues.empty()
    assert values != CalibrationValues(values.values, values.steps + 1, values.contexts)
    assert values != CalibrationValues(values.values - 1, values.steps, values.contexts)
    assert values != CalibrationValues(values.values, values.steps, values.contexts + 1)
    assert values != "values"


def test_what_cannot_be_a_calibration_is_refused():
    for values, steps, contexts, sentence in (
        ([-1.0, -2.0], [0], [0, 1], "2, 1 and 2 entries"), ([math.nan], [0], [0], r"values\[0\] is NaN"),
        ([0.7], [0], [0], r"values\[0\] is 0.7"), ([-1.0], [-1], [0], r"steps\[0\] is -1"),
        ([-1.0], [0.5], [0], "whole numbers"), ([-1.0], [0], [2**40], "must lie between"),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=sentence):
            CalibrationValues(np.array(values), np.array(steps), np.array(contexts))


class TestRows:
    """A context can have several rows of a prompt set, each with a chain of its own."""

    @pytest.fixture
    def two_rows(self):
        chains = [np.array([-1.0, -2.0]), np.array([-3.0]), np.array([-4.0, -5.0, -6.0])]
        return CalibrationValues.of_chains(chains, contexts=[4, 4, 7], rows=[1, 2, 5])

    def test_chains_are_laid_end_to_end_and_their_rows_and_ends_noted(self, two_rows):
        assert two_rows.values.tolist() == [-1, -2, -3, -4, -5, -6]
        assert two_rows.steps.tolist() == [0, 1, 0, 0, 1, 2]
        assert two_rows.contexts.tolist() == [4, 4, 4, 7, 7, 7]
        assert two_rows.rows.tolist() == [1, 1, 2, 5, 5, 5]
        assert two_rows.sequences.tolist() == [0, 0, 1, 2, 2, 2]
        assert len(CalibrationValues.of_chains([], [], [])) == 0
        assert two_rows.select([7]).rows.tolist() == [5, 5, 5]
        assert CalibrationValues.concat([two_rows.select([4]), two_rows.select([7])]) == two_rows
        copy = CalibrationValues.from_bytes(two_rows.to_bytes())
        assert copy == two_rows
        assert copy != CalibrationValues(two_rows.values, two_rows.steps, two_rows.contexts)
        chains = [np.array([-1.0, -2.0]), np.empty(0), np.array([-3.0]), np.array([-4.0])]
        values = CalibrationValues.of_chains(chains, [0, 1, 2, 3], [0, 1, 2, 3], [True, True, False, True])
        assert values.ends.tolist() == [0, 1, 0, 1]
        assert CalibrationValues.from_bytes(values.to_bytes()) == values
        assert values.select([3]).ends.tolist() == [1]
        with pytest.raises(InvalidInputError, match="give 0 or 1 per value"):
            CalibrationValues(values.values, values.steps, values.contexts, values.rows, np.full(4, 7))
        with pytest.raises(InvalidInputError, match="rows has 1 entries for 2 values"):
            CalibrationValues(np.full(2, -1.0), np.zeros(2, dtype=int), np.arange(2), np.array([1]))
        # The first row's chain has lost its later steps, the second its first one.
        values = CalibrationValues(np.full(2, -1.0), np.array([0, 1]), np.array([3, 3]), np.array([1, 2]))
        assert values.sequences.tolist() == [0, 1]

    def test_data_of_an_older_version_has_one_row_a_context_and_knows_no_ends(self, two_rows):
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer, values=two_rows.values, steps=two_rows.steps, contexts=two_rows.contexts, rows=two_rows.rows
        )
        older = CalibrationValues.from_bytes(buffer.getvalue())
        assert UNKNOWN not in two_rows.ends
        assert set(older.ends) == {UNKNOWN}
        assert set(CalibrationValues.from_bytes(older.to_bytes()).ends) == {UNKNOWN}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, values=two_rows.values, steps=two_rows.steps, contexts=two_rows.contexts)
        assert CalibrationValues.from_bytes(buffer.getvalue()).rows.tolist() == [4, 4, 4, 7, 7, 7]


class TestDamagedBytes:
    def test_other_truncated_flipped_or_unusable_data_is_refused(self, values):
        for data in (b"", b"no archive", b"PK\x03\x04 but no more"):
            with pytest.raises(CalibrationFormatError, match="damaged"):
                CalibrationValues.from_bytes(data)
        data = values.to_bytes()
        for length in range(0, len(data), 13):
            with pytest.raises(CalibrationFormatError):
                CalibrationValues.from_bytes(data[:length])
        data = bytearray(values.to_bytes())
        start = data.index(b"values.npy") + 60
        data[start] ^= 0xFF
        with pytest.raises(CalibrationFormatError):
            CalibrationValues.from_bytes(bytes(data))
        buffer = io.BytesIO()
        np.savez_compressed(buffer, values=values.values, steps=values.steps)
        with pytest.raises(CalibrationFormatError, match="contexts"):
            CalibrationValues.from_bytes(buffer.getvalue())
        buffer = io.BytesIO()
        np.savez_compressed(buffer, values=np.array([np.nan]), steps=np.array([0]), contexts=np.array([0]))
        with pytest.raises(CalibrationFormatError, match=r"values\[0\] is NaN"):
            CalibrationValues.from_bytes(buffer.getvalue())
        buffer = io.BytesIO()
        np.savez_compressed(buffer, values=np.array([print], dtype=object), steps=[0], contexts=[0])
        with pytest.raises(CalibrationFormatError):
            CalibrationValues.from_bytes(buffer.getvalue())
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("values.npy", b"text")
        with pytest.raises(CalibrationFormatError):
            CalibrationValues.from_bytes(buffer.getvalue())
