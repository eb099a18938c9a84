"""Every suite can be found by its key, and says what it is."""

import subprocess
import sys

import pytest

from coft_core.errors import InvalidInputError
from coft_core.suites.files import DataError, DataFolder
from coft_core.suites.registry import SUITES, suite

SHIPPED = (suite("phantom_gaps"), suite("phantom_questions"))
"""Suites whose files come with the program."""


@pytest.mark.parametrize("known", SUITES, ids=lambda known: known.key)
def test_a_suite_says_what_it_is_and_is_found_by_its_key(known):
    assert suite(known.key) is known
    for text in (known.title, known.citation, known.licence, known.main):
        assert text.strip()
    for text in (known.card.measures, known.card.leaves_out, known.card.criticism, known.card.sizes):
        assert text.strip().endswith((".", ")."))
    assert known.kind in ("bias", "utility", "quality", "long form")


@pytest.mark.parametrize("known", [known for known in SUITES if known not in SHIPPED], ids=lambda known: known.key)
def test_a_suite_without_its_files_says_which_are_missing_and_what_to_do(known, tmp_path):
    with pytest.raises(DataError, match=r"There is no file .* in .*; download .* from .* publisher, or name"):
        known.items(DataFolder(tmp_path))


def test_keys_differ():
    assert len({known.key for known in SUITES}) == len(SUITES)


def test_an_unknown_key_is_an_error_that_lists_the_known_ones():
    with pytest.raises(InvalidInputError, match="There is no suite 'riddles'; choose ") as caught:
        suite("riddles")
    assert all(known.key in str(caught.value) for known in SUITES)


def test_the_list_of_suites_needs_no_package_beyond_those_of_the_program():
    script = (
        "import sys, coft_core.suites.registry; "
        "print({'datasets', 'rouge_score', 'faiss', 'mauve', 'statsmodels'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
