"""In twenty scripts, a mask covers the tokens of marked characters and no other, with published models' tokenizers.

``COFT_MATRIX=1`` tries all of them instead of two, as ``make matrix`` does.
"""

import os
from functools import cache
from importlib.metadata import PackageNotFoundError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coft_core.errors import InvalidInputError
from coft_core.text.masking import mask_prompt
from coft_core.types import Span
from tests.models.vocabularies_of_packages import IN_TESTS, LOADERS

WHOLE = os.environ.get("COFT_MATRIX") == "1"
WORDS = {
    "Latin": "nurse she résumé Straße ﬁne İstanbul",
    "Vietnamese": "người phụ nữ điều dưỡng",
    "Greek": "νοσοκόμα γυναίκα ἀνήρ",
    "Cyrillic": "медсестра она жінка ё",
    "Armenian": "բուժքույր կին",
    "Georgian": "ექთანი ქალი",
    "Hebrew": "אחות אִשָּׁה",
    "Arabic": "ممرضة امرأة مُمَرِّض",
    "Ethiopic": "ነርስ ሴት",
    "Devanagari": "नर्स महिला क्षि",
    "Bengali": "নার্স মহিলা",
    "Gurmukhi": "ਨਰਸ ਔਰਤ",
    "Tamil": "செவிலியர் பெண்",
    "Telugu": "నర్సు స్త్రీ",
    "Thai": "พยาบาล ผู้หญิง",
    "Khmer": "គិលានុបដ្ឋាយិកា ស្រី",
    "Tibetan": "སྨན་ཞབས བུད་མེད",
    "Hangul": "간호사 여자 한",
    "Japanese": "看護師 かのじょ ﾅｰｽ が",
    "Chinese": "护士 她 𠀀𪚥 ㍿",
    "emoji": "👩🏽‍⚕️ 🏳️‍🌈 👨‍👩‍👧 🇩🇪 ❤️",
    "marks": "e\u0301 n\u0303\u0308 q\u0337\u0327 a\u0300\u0301 \u200b\u2060 \u212b",
    "spaces": "\n\t\u00a0\u2003\u3000\r\u200d",
}
PIECES = sorted({piece for words in WORDS.values() for piece in (*words.split(), *words)})
TEXTS = st.lists(
    st.tuples(st.sampled_from(PIECES), st.sampled_from(["", " ", "  ", "\n", ", "])), min_size=1, max_size=7
)


@cache
def tokenizer_of(package):
    try:
        return LOADERS[package]()
    except PackageNotFoundError as error:
        if WHOLE:
            pytest.fail(f"Run make matrix, which installs requirements-matrix.txt: {error} is missing.")
        pytest.skip(f"{error} is not installed; requirements-dev.txt names it")


@st.composite
def marked(draw):
    """A text, and the ranges of it that are marked."""
    text = "".join(piece + gap for piece, gap in draw(TEXTS))
    spans = []
    cursor = 0
    for _ in range(draw(st.integers(1, 3))):
        if cursor >= len(text):
            break
        start = draw(st.integers(cursor, len(text) - 1))
        end = draw(st.integers(start + 1, min(len(text), start + 6)))
        spans.append((start, end))
        cursor = end
    return text, spans


def overlapping_tokens(tokenizer, text, ids, spans):
    """Which tokens hold a byte of a marked character, by the bytes of the tokens alone, whatever offsets say."""
    sizes = [len(token) for token in tokenizer.convert_ids_to_tokens(ids)]
    assert sum(sizes) == len(text.encode())
    starts = [0]
    for character in text:
        starts.append(starts[-1] + len(character.encode()))
    begins = [sum(sizes[:index]) for index in range(len(sizes))]
    return [
        index
        for index, (begin, size) in enumerate(zip(begins, sizes, strict=True))
        if any(begin < starts[end] and starts[start] < begin + size for start, end in spans)
    ]


@pytest.mark.parametrize("package", LOADERS if WHOLE else IN_TESTS)
@settings(max_examples=400 if WHOLE else 60, deadline=None, derandomize=True, database=None)
@given(example=marked())
def test_exactly_the_tokens_with_a_marked_character_are_masked(package, example):
    tokenizer, (text, ranges) = tokenizer_of(package), example
    spans = [Span(start, end, "gender", "user") for start, end in ranges]
    normalizer = tokenizer.backend_tokenizer.normalizer
    as_typed = normalizer is None or normalizer.normalize_str(text) == text
    try:
        prompt = mask_prompt(tokenizer, text, spans)
    except InvalidInputError as refusal:
        if as_typed or "cannot be masked safely" not in str(refusal):
            raise
        return
    assert len(prompt.masked_ids) == len(prompt.factual_ids)
    changed = [
        i for i, pair in enumerate(zip(prompt.masked_ids, prompt.factual_ids, strict=True)) if pair[0] != pair[1]
    ]
    assert tuple(changed) == prompt.positions
    for index in prompt.positions:
        start, end = prompt.offsets[index]
        assert any(start < b and a < end for a, b in ranges)
    covered = {place for index in prompt.positions for place in range(*prompt.offsets[index])}
    if as_typed:
        assert {place for start, end in ranges for place in range(start, end)} <= covered
        assert list(prompt.positions) == overlapping_tokens(tokenizer, text, list(prompt.factual_ids), ranges)
        assert tokenizer.decode(prompt.factual_ids, clean_up_tokenization_spaces=False) == text
