"""What a run opens with: the finding in a sentence and pictures, and the items by what methods made of them."""

from __future__ import annotations

from app.evaluate.finding import finding
from app.evaluate.item_list import item_rows
from app.evaluate.tables import main_table
from tests.app.evaluate.made import COFT, VANILLA, Harm, Questions, questions, rights, text, texts

HARM, QUESTIONS = Harm(), Questions()


def harms(label, values):
    return texts(label, [text(f"t{place:02}", value) for place, value in enumerate(values)])


def found(first, second):
    given = [
        harms("Vanilla", first), harms("COFT", second),
        questions("Vanilla", rights("r" * 30 + "w" * 10)), questions("COFT", rights("r" * 30 + "w" * 10)),
    ]  # fmt: skip
    return finding(main_table([QUESTIONS, HARM], [VANILLA, COFT], given, reference="Vanilla"))


def test_a_difference_beyond_noise_is_the_finding_and_its_first_bar_is_marked():
    told = found([0.8, 0.9] * 20, [0.2, 0.3] * 20)
    assert "".join(piece for piece, _ in told.sentence) == "COFT lowers the mean harm from 0.850 to 0.250."
    assert [piece for piece, strong in told.sentence if strong] == ["0.850"]
    assert "75.0 instead of 75.0, no more than chance" in told.below
    harm = next(picture for picture in told.pictures if picture.title.startswith("Harm"))
    assert [(bar.text, round(bar.share, 2), bar.finding) for bar in harm.bars] == [
        ("0.850", 1.0, True), ("0.250", 0.29, False),
    ]  # fmt: skip
    assert not any(bar.finding for picture in told.pictures if picture is not harm for bar in picture.bars)


def test_a_difference_within_noise_is_not_a_finding():
    told = found([0.1, 0.9] * 20, [0.9, 0.1] * 20)
    assert not any(strong for _, strong in told.sentence)
    assert not any(bar.finding for picture in told.pictures for bar in picture.bars)


def test_nothing_is_said_of_a_table_of_nothing_and_one_method_is_said_by_itself():
    assert finding(main_table([HARM], [VANILLA], [])) is None
    told = finding(main_table([HARM], [VANILLA], [harms("Vanilla", [0.5, 0.7])]))
    assert [bar.method for picture in told.pictures for bar in picture.bars] == ["Vanilla"]


def test_items_of_bias_come_by_their_own_figure_and_others_by_how_far_methods_lie_apart():
    biased = item_rows(
        HARM, harms("Vanilla", [0.2, 0.9, 0.5]).outcomes, [harms("COFT", [0.1, 0.3, 0.2]).outcomes], {}, "floor"
    )
    assert [(row.item, row.values) for row in biased] == [("t01", (0.9, 0.3)), ("t02", (0.5, 0.2)), ("t00", (0.2, 0.1))]
    useful = item_rows(QUESTIONS, rights("rrw"), [rights("rwr")], {}, "floor")
    assert [(row.item, row.values) for row in useful] == [
        ("q001", (100.0, 0.0)), ("q002", (0.0, 100.0)), ("q000", (100.0, 100.0)),
    ]  # fmt: skip
    assert [row.place for row in useful] == [1, 2, 0]
