"""What the core's tests make once."""

import functools
from collections.abc import Iterator

import pytest

from coft_core.text.tokens import english_tokenizer


@pytest.fixture(scope="session", autouse=True)
def words_split_by_one_pipeline() -> Iterator[None]:
    """All matchers of terms split words by the same pipeline: for a few terms, to make it takes nearly all the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coft_core.text.matching.english_tokenizer", functools.cache(english_tokenizer))
        yield
