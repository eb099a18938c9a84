"""The detector's training data are mapped as documented, and its scores are those of the definition."""

import random
from collections import Counter
from pathlib import Path

import pytest

from bench.detector.corpora import TaggedSentence, read_corpora
from bench.detector.crows import CHOOSING, UNTOUCHED, measure_pairs, part_of
from bench.detector.generated import Fillers
from bench.detector.labels import Labelled, Labeller
from bench.detector.scoring import Share, counts, summary, word_counts
from coft_core.types import Span


@pytest.fixture(scope="module")
def labeller() -> Labeller:
    return Labeller()


def mapped(labeller: Labeller, source: str, *pairs: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Entities and unlabelled pieces of a sentence given as ``word/tag``."""
    words, tags = zip(*(pair.rsplit("/", 1) for pair in pairs), strict=True)
    labelled = labeller.label(TaggedSentence(words, (tags,), source, "train"))
    text = labelled.text
    return [(text[a:b], label) for a, b, label in labelled.entities], [text[a:b] for a, b in labelled.unknown]


def test_tags_of_the_corpora_become_people_places_and_groups_or_nothing(labeller: Labeller, tmp_path: Path) -> None:
    given = mapped(labeller, "uner_english_ewt", "Mr/B-PER", "Ali/I-PER", "Haddad/I-PER", "left/O")
    assert given == ([("Ali Haddad", "PERSON")], [])
    words = ("From/O", "Texas/B-LOC", "to/O", "Holborn/B-LOC", "Hill/I-LOC")
    assert mapped(labeller, "uner_english_ewt", *words) == ([("Texas", "GPE")], ["Holborn", "Hill"])
    words = ("Nigerian/O", "pilots/O", "of/O", "American/B-ORG", "Airlines/I-ORG")
    assert mapped(labeller, "wnut17", *words) == ([("Nigerian", "NORP")], [])
    entities, unknown = mapped(labeller, "broad_twitter", "@/B-PER", "colleague/B-PER", "hi/O")
    assert entities == []
    assert unknown == ["@", "colleague"]
    words = ("the/B-PER", "old/I-PER", "man/I-PER", "saw/O", "Miss/B-PER", "Bates/I-PER")
    assert mapped(labeller, "litbank", *words) == ([("Bates", "PERSON")], [])
    with pytest.raises(FileNotFoundError, match="wnut17"):
        list(read_corpora(tmp_path))


FILLERS = Fillers(
    common=("Anna",), rare=("Ngozi",), surnames=("Lee",), groups=("Kenyan",), places=("Chad",),
    words={"surname": ("Lee",), "title": ("Miss",), "odd": ("May",), "thing": ("car",)},
    templates=("{title} {last} met {oddfull}, a {group} from {place}.",), plain=("{thing} keys in May.",),
)  # fmt: skip


GOLD = Labelled("Anna Lee met Bo at Kew.", ((0, 8, "PERSON"), (13, 15, "PERSON")), ((19, 22),), "made", "test")


def test_spans_count_when_exact_words_when_touched_and_scores_are_those_of_the_sums() -> None:
    found = [(0, 4, "PERSON"), (13, 15, "PERSON"), (19, 22, "PERSON"), (9, 12, "GPE")]
    assert counts(GOLD, found, "PERSON") == (1, 2, 2)
    assert word_counts(GOLD, found, "PERSON") == (2, 2, 3)
    rng = random.Random(5)
    rows = [(right, right + rng.randrange(2), right + rng.randrange(3)) for right in rng.choices(range(3), k=60)]
    scores = summary(rows, seed=1)
    right, found, wanted = (sum(row[i] for row in rows) for i in range(3))
    assert scores["f1"]["value"] == pytest.approx(2 * right / (found + wanted), abs=1e-4)
    assert scores["precision"]["n"] == found
    assert all(score["interval"][0] < score["value"] < score["interval"][1] for score in scores.values())
    assert scores == summary(rows, seed=1)
    share = Share(0, 10).to_dict()
    assert share["interval"] == [0.0, pytest.approx(1 - 0.025**0.1, abs=1e-4)]
    assert Share(0, 0).to_dict()["value"] is None


def test_only_words_that_differ_between_a_pair_count_as_wanted(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(
        "sent_more,sent_less,bias_type\nHe met the old cook,She met the new cook,gender\n", encoding="utf-8"
    )

    def detect(text: str) -> list[Span]:
        return [Span(0, text.index(" "), "gender", "lexicon"), Span(text.index("cook"), len(text), "name", "lexicon")]

    measured = measure_pairs(path, detect)
    assert (measured["recall"]["gender"]["value"], measured["recall"]["gender"]["n"]) == (0.5, 4)
    assert (measured["others"]["value"], measured["others"]["n"]) == (0.3333, 3)


def test_what_is_masked_by_default_is_counted_in_each_part_of_the_pairs_and_told_beside_what_is_marked(
    tmp_path: Path,
) -> None:
    path = tmp_path / "pairs.csv"
    rows = [f"He met cook {number},She met cook {number},gender" for number in range(40)]
    path.write_text("\n".join(["sent_more,sent_less,bias_type", *rows]) + "\n", encoding="utf-8")
    parts = [part_of(f"He met cook {number}", f"She met cook {number}") for number in range(40)]

    def detect(text: str) -> list[Span]:
        return [Span(0, text.index(" "), "gender", "lexicon", suggested=part_of_text[text] == UNTOUCHED)]

    part_of_text = {f"{who} met cook {number}": parts[number] for number in range(40) for who in ("He", "She")}
    measured = measure_pairs(path, detect)
    assert {part: row["pairs"] for part, row in measured["parts"].items()} == dict(Counter(parts))
    assert set(parts) == {CHOOSING, UNTOUCHED}
    masked = {part: row["masked_recall"]["value"] for part, row in measured["parts"].items()}
    assert masked == {CHOOSING: 1.0, UNTOUCHED: 0.0}
    assert measured["recall"]["all"]["value"] == 1.0
    assert sum(row["others_masked"]["n"] for row in measured["parts"].values()) == measured["others_masked"]["n"]
