"""WikiText-2 is cut, detokenised and counted as by lm-evaluation-harness, and read in windows of words."""

import math
import re
from dataclasses import replace

import pytest
from lm_eval.api.metrics import bits_per_byte, weighted_perplexity
from lm_eval.tasks.wikitext import preprocess_wikitext
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from coft_core.suites.files import DataError, Line
from coft_core.suites.wikitext import WikiText, WikiTextLong, detokenised, pages, windows
from tests.coft_core.suites.by_hand import by_key, chosen, folder, likelihood

SUITE = WikiText()
TEXT = (
    " \n = The Old Mill = \n \n The Old Mill is a well @-@ known house , built in 1901 ; it cost $ 3 @,@ 500 . "
    "Its wheel is 2 @.@ 5 m wide ( about 8 ft ) and turns at 20 ° C . \n \n = = Use = = \n \n The miller 's "
    'son said : " It grinds ! " Did it ? [ 1 ] The boys \' school { once } closed . \n \n = = = Later = = = \n \n'
    " N of them stayed . \n \n = Owls = \n \n Owls 'sleep ' by day . \n \n"
)


def long_text(words):
    return " \n = Long = \n \n " + " ".join(f"word{number:04}" for number in range(words)) + " . \n"


def test_articles_text_and_windows_are_those_of_the_harness():
    first, second = pages(TEXT)
    assert first.startswith(" = The Old Mill = \n")
    assert second.startswith(" = Owls = \n")
    # All lines but the blank one before the first title are in an article.
    assert f"{first}\n{second}" == TEXT.removeprefix(" \n")
    for page in pages(TEXT):
        assert detokenised(page) == preprocess_wikitext.wikitext_detokenizer({"page": page})
    assert "well-known house, built in 1901; it cost $ 3,500. Its wheel is 2.5 m wide (about 8 ft)" in detokenised(TEXT)
    tokens = list(range(23))
    text = " ".join(map(str, tokens))
    theirs = [make_disjoint_window(pair) for pair in get_rolling_token_windows(tokens, -1, 5, 1)]
    ours = windows(text, 5, 1)
    assert [list(map(int, window.text.split())) for window in ours] == [list(pair[1]) for pair in theirs]
    # Before the last window, which is shorter, the harness puts as many more tokens as there is room for.
    assert [list(map(int, window.before.split())) or [-1] for window in ours] == [list(pair[0][-1:]) for pair in theirs]


@pytest.mark.parametrize("words", [1, 4, 7, 8, 9, 100])
@pytest.mark.parametrize("before", [1, 3, 20])
def test_windows_make_up_the_text_and_each_follows_the_words_before_it(words, before):
    text = detokenised(pages(TEXT)[0])
    found = windows(text, words, before)
    assert "".join(window.text for window in found) == text
    assert found[0].before == ""
    assert all(len(window.text.split()) == words for window in found[:-1])
    assert 1 <= len(found[-1].text.split()) <= words
    start = 0
    for window in found:
        assert window.before.split() == text[:start].split()[-before:]
        assert text[:start].endswith(window.before)
        start = window.end
    assert start == len(text)


def test_words_and_bytes_are_those_that_the_harness_counts(tmp_path):
    text = TEXT + long_text(730)
    items = SUITE.items(folder(tmp_path, "wikitext", wiki__test__raw=text))
    for number, page in enumerate(pages(text), 1):
        theirs = preprocess_wikitext.process_results({"page": page}, (-1.0,))
        ours = [item for item in items if item.unit == str(number)]
        assert sum(item.facts["words"] for item in ours) == theirs["word_perplexity"][1]
        assert sum(item.facts["bytes"] for item in ours) == theirs["byte_perplexity"][1]
    assert [item.id for item in items] == ["1-1", "2-1", *(f"3-{place}" for place in range(1, 9))]
    assert items[0].facts["article"] == "The Old Mill"
    long = WikiTextLong().items(folder(tmp_path, "wikitext", wiki__test__raw=long_text(1200)))
    assert [len(item.asks[0].texts[0].split()) for item in long] == [500, 500, 203]
    assert [len(item.asks[0].prompt.split()) for item in long] == [0, 500, 500]
    # Windows of one article have shares of its counts by their length.
    assert all(abs(item.facts["words"] - 100) <= 3 for item in items[2:-1])


def test_perplexities_are_those_of_the_harness_for_the_same_likelihoods(tmp_path):
    text = TEXT + long_text(230)
    items = SUITE.items(folder(tmp_path, "wikitext", wiki__test__raw=text))
    log_p = {item.id: -100.0 - 10 * place for place, item in enumerate(items)}
    results = []
    for number, page in enumerate(pages(text), 1):
        total = sum(log_p[item.id] for item in items if item.unit == str(number))
        results.append(preprocess_wikitext.process_results({"page": page}, (total,)))
    figures = by_key(SUITE.figures([chosen(item, likelihood(log_p[item.id], tokens=50)) for item in items]))
    assert figures["word_perplexity"].value == pytest.approx(
        weighted_perplexity([result["word_perplexity"] for result in results])
    )
    assert figures["byte_perplexity"].value == pytest.approx(
        weighted_perplexity([result["byte_perplexity"] for result in results])
    )
    assert figures["bits_per_byte"].value == pytest.approx(
        bits_per_byte([result["bits_per_byte"] for result in results])
    )


def outcomes(items, first, second):
    """Two articles of 40 words and 200 bytes each, as facts say."""
    facts = [{"words": 40, "bytes": 200}, {"words": 40, "bytes": 200}]
    counted = [replace(item, facts=fact) for item, fact in zip(items, facts, strict=True)]
    return [chosen(item, value) for item, value in zip(counted, (first, second), strict=True)]


@pytest.fixture
def items(tmp_path):
    return SUITE.items(folder(tmp_path, "wikitext2", wiki__test__raw=TEXT))


def test_figures_are_those_worked_out_by_hand(items):
    # 80 words, 400 bytes and 100 tokens of 120 nats; one of the hundred is refused and counts 10 nats more.
    read = outcomes(items, likelihood(-80.0, 60), likelihood(-40.0, 40, floored=-50.0, refused=1, log_mass=-4.0))
    figures = by_key(SUITE.figures(read))
    assert figures["word_perplexity"].value == pytest.approx(math.exp(130 / 80))
    assert figures["byte_perplexity"].value == pytest.approx(math.exp(130 / 400))
    assert figures["bits_per_byte"].value == pytest.approx(130 / 400 / math.log(2))
    assert figures["token_perplexity"].value == pytest.approx(math.exp(1.3))
    assert figures["refused"].value == pytest.approx(1.0)
    assert (figures["word_perplexity"].n, figures["word_perplexity"].what) == (80, "words")
    low, high = figures["word_perplexity"].low, figures["word_perplexity"].high
    # Both articles drawn twice, one each: no other draw is possible.
    assert (low, high) == (pytest.approx(math.exp(50 / 40)), pytest.approx(math.exp(80 / 40)))


def test_impossible_perplexities_have_no_value_and_certified_sets_their_own_distribution(items):
    read = outcomes(items, likelihood(-80.0, 60), likelihood(-40.0, 40, floored=-50.0, refused=1))
    figures = by_key(SUITE.figures(read, "zero"))
    for key in ("word_perplexity", "byte_perplexity", "bits_per_byte", "token_perplexity"):
        assert figures[key].value is None
        assert figures[key].low is None
    assert (figures["word_perplexity"].n, figures["word_perplexity"].unscored) == (40, 40)
    assert (figures["token_perplexity"].n, figures["token_perplexity"].unscored) == (60, 40)
    assert figures["refused"].value == pytest.approx(1.0)
    read = outcomes(items, likelihood(-80.0, 60, log_mass=-8.0), likelihood(-40.0, 40, log_mass=-12.0))
    assert by_key(SUITE.figures(read, "zero"))["word_perplexity"].value == pytest.approx(math.exp(100 / 80))


def test_the_file_is_found_under_both_names_and_one_with_unknown_words_is_refused(tmp_path, items):
    assert SUITE.items(folder(tmp_path, "wikitext", wiki__test__raw=TEXT)) == items
    assert WikiTextLong().items(folder(tmp_path, "wikitext", wiki__test__raw=TEXT)) == items
    with pytest.raises(DataError, match=r"wiki\.test\.raw has words replaced by <unk>; take the raw version"):
        SUITE.items(folder(tmp_path, "wikitext", wiki__test__raw=TEXT.replace("house", "<unk>")))


def test_lines_of_a_hub_give_the_same_items(items, monkeypatch):
    rows = [line if line.strip() else "" for line in re.findall(r"[^\n]*\n", TEXT)]
    lines = [Line("hub", number, {"text": row}) for number, row in enumerate(rows, 1)]
    monkeypatch.setattr("coft_core.suites.base.hub_lines", lambda part: lines)
    assert SUITE.items_from_hub() == items
