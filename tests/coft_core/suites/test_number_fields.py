"""Fields that have to be numbers: what is read as one, and how others are refused."""

from __future__ import annotations

import pytest

from coft_core.suites.files import DataError, Line


def line(value):
    return Line("some.csv", 7, {"age": value})


def test_texts_and_numbers_are_read_alike():
    for value, number in (("4", 4), ("4.0", 4), (4, 4), (-1.0, -1)):
        assert line(value).amount("age") == number
        assert line(value).whole("age") == number


def test_what_is_no_number_is_refused_with_its_place():
    for value in ("", "old", "nan", "inf", True, [4]):
        with pytest.raises(DataError, match=r"some.csv, line 7: the field 'age' is .* and has to be a number; take"):
            line(value).whole("age")


def test_a_fraction_is_no_whole_number():
    assert line("4.5").amount("age") == 4.5
    with pytest.raises(DataError, match=r"the field 'age' is 4.5 and has to be a whole number"):
        line("4.5").whole("age")
