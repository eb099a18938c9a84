"""Every suite can be found by its key, and says what it is."""

import ast
from pathlib import Path

import pytest

from coft_core.errors import InvalidInputError
from coft_core.suites import registry
from coft_core.suites.files import DataError, DataFolder
from coft_core.suites.registry import SUITES, suite

SHIPPED = (suite("phantom_gaps"), suite("phantom_questions"))
"""Suites whose files come with the program."""


def test_every_suite_says_what_it_is_and_is_found_by_its_own_key():
    for known in SUITES:
        assert suite(known.key) is known
        for text in (known.title, known.citation, known.licence, known.main):
            assert text.strip(), known.key
        for text in (known.card.measures, known.card.leaves_out, known.card.criticism, known.card.sizes):
            assert text.strip().endswith((".", ").")), known.key
        assert known.kind in ("bias", "utility", "quality", "long form")
    assert len({known.key for known in SUITES}) == len(SUITES)
    with pytest.raises(InvalidInputError, match="There is no suite 'riddles'; choose ") as caught:
        suite("riddles")
    assert all(known.key in str(caught.value) for known in SUITES)


def test_a_suite_without_its_files_says_which_are_missing_and_what_to_do(tmp_path):
    for known in SUITES:
        if known not in SHIPPED:
            with pytest.raises(DataError, match=r"There is no file .* in .*; download .* from .* publisher, or name"):
                known.items(DataFolder(tmp_path))


def test_the_list_of_suites_needs_no_package_beyond_those_of_the_program():
    for file in Path(registry.__file__).parent.glob("*.py"):
        # What is imported within a function is needed only when that is called.
        nodes = ast.parse(file.read_text("utf-8")).body
        names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
        assert not {name.partition(".")[0] for name in names} & {"datasets", "rouge_score", "faiss", "mauve"}, file
