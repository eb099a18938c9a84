"""Tables are functions of outcomes, and their numbers are those worked out by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from app.evaluate import words
from app.evaluate.exports import table_csv
from app.evaluate.finding import finding
from app.evaluate.item_list import item_rows
from app.evaluate.runs import CalibrationNote
from app.evaluate.tables import table_of
from coft_core.suites.base import Likelihood, Scored
from tests.app.evaluate.made import (
    COFT,
    VANILLA,
    Harm,
    Questions,
    main_table,
    measured_of,
    method,
    question,
    questions,
    rights,
    suite_table,
    text,
    texts,
    unread,
)

QUESTIONS, HARM = Questions(), Harm()


def cell_of(table, label, place=0):
    return table.row(label).cells[place]


def test_a_cell_holds_mean_and_deviation_over_seeds_with_the_interval_of_all_answers_together():
    given = questions("COFT", [*rights("rrrw", 0), *rights("rrww", 1), *rights("rwww", 2)])
    cell = cell_of(main_table([QUESTIONS], [COFT], [given]), "COFT")
    assert cell.value == pytest.approx(50.0)
    assert cell.deviation == pytest.approx(25.0)
    assert cell.pooled == pytest.approx(50.0)
    assert cell.low < 50.0 < cell.high
    assert (cell.n, cell.unscored) == (12, 0)
    assert [(seed.seed, seed.value, seed.n) for seed in cell.seeds] == [(0, 75.0, 4), (1, 50.0, 4), (2, 25.0, 4)]
    uneven = questions("COFT", [*rights("rr", 0), *rights("wwwwww", 1)])
    cell = cell_of(main_table([QUESTIONS], [COFT], [uneven]), "COFT")
    assert (cell.value, cell.pooled) == (50.0, 25.0)
    # Clopper and Pearson for 8 of 10.
    cell = cell_of(main_table([QUESTIONS], [COFT], [questions("COFT", rights("r" * 8 + "ww"))]), "COFT")
    assert (cell.value, cell.deviation) == (80.0, None)
    assert (cell.low, cell.high) == (pytest.approx(44.39, abs=0.01), pytest.approx(97.48, abs=0.01))


def test_the_order_of_outcomes_methods_and_suites_in_what_is_given_changes_no_byte():
    given = [
        questions("Vanilla", [*rights("rwtrwwrr", 0), *rights("wwrrwtrr", 1)]),
        questions("COFT", [*rights("rrrrwwrr", 0), unread("q900", "Too long."), *rights("rwrrwtrr", 1)]),
        texts("COFT", [text("a", 0.5), text("b", None), text("c", 0.1)]),
    ]
    shuffled = []
    for part in given:
        mixed = list(part.outcomes)
        random.Random(7).shuffle(mixed)
        half = len(mixed) // 2
        shuffled = [part._replace(outcomes=tuple(mixed[:half])), *shuffled, part._replace(outcomes=tuple(mixed[half:]))]
    tables = [
        main_table([QUESTIONS, HARM], [VANILLA, COFT], outcomes, reference="Vanilla") for outcomes in (given, shuffled)
    ]
    assert table_csv(tables[0]).encode() == table_csv(tables[1]).encode()
    assert tables[0] == tables[1]


def test_what_was_not_read_is_in_no_figure_and_counted_with_its_reasons():
    found = [*rights("rw"), unread("x", "It has 9 tokens."), unread("y", "It has 9 tokens."), unread("z", "Other.")]
    table = main_table([QUESTIONS], [COFT], [questions("COFT", found)])
    reading = table.row("COFT").readings[0]
    assert (cell_of(table, "COFT").value, cell_of(table, "COFT").n) == (50.0, 2)
    assert (reading.items, reading.unread, reading.compared) == (5, 3, 2)
    assert reading.reasons == (("It has 9 tokens.", 2), ("Other.", 1))
    nothing = main_table([QUESTIONS], [COFT], [questions("COFT", [unread("x", "No.")])])
    assert (nothing.columns, nothing.absent) == ((), ("Questions",))
    assert nothing.row("COFT").readings[0].unread == 1


def test_methods_within_noise_share_ranks_and_are_all_among_the_best():
    given = [
        questions("Vanilla", rights("rw" * 50)),
        questions("COFT", rights("rw" * 49 + "rr")),
        questions("Bad", rights("w" * 100)),
    ]
    table = main_table([QUESTIONS], [VANILLA, COFT, method("Bad")], given)
    cells = [cell_of(table, label) for label in ("Vanilla", "COFT", "Bad")]
    assert [cell.rank for cell in cells] == [1.5, 1.5, 3.0]
    assert [cell.best for cell in cells] == [True, True, False]


def test_methods_are_ranked_and_compared_on_the_items_that_all_of_them_read():
    # Without the ten items that Vanilla could not read, both are alike.
    hard = [question(f"h{place}", True) for place in range(10)]
    easy = rights("rw" * 10)
    given = [
        questions("Vanilla", [*easy, *(unread(outcome.item, "Too long.") for outcome in hard)]),
        questions("COFT", [*easy, *hard]),
    ]
    table = main_table([QUESTIONS], [VANILLA, COFT], given, reference="Vanilla")
    cell = cell_of(table, "COFT")
    assert cell.value == pytest.approx(100 * 20 / 30)
    assert (cell.rank, cell.best) == (1.5, True)
    assert (cell.contrast.value, cell.contrast.low, cell.contrast.high) == (0.0, 0.0, 0.0)
    assert [row.readings[0].compared for row in table.rows] == [20, 20]


def test_the_difference_to_the_reference_is_that_of_the_figures_with_a_paired_interval():
    given = [questions("Vanilla", rights("rw" * 50)), questions("COFT", rights("rw" * 45 + "rr" * 5))]
    table = main_table([QUESTIONS], [VANILLA, COFT], given, reference="Vanilla")
    contrast = cell_of(table, "COFT").contrast
    assert contrast.value == pytest.approx(5.0)
    # Five of a hundred items differ, so the paired interval is far narrower than that of two independent shares.
    assert 0 < contrast.low < 5.0 < contrast.high < 11.0
    assert not contrast.noise
    assert cell_of(table, "Vanilla").contrast is None


def test_the_table_of_a_suite_has_every_figure_and_those_of_parts_behind_the_whole():
    found = [question("a", True, subject="law"), question("b", False, subject="art"), question("c", True)]
    table = suite_table(QUESTIONS, [COFT], [questions("COFT", found)])
    assert [column.name for column in table.columns] == [
        "questions", "questions:length", "questions:accuracy:art", "questions:accuracy:law",
    ]  # fmt: skip
    assert [cell.value for cell in table.rows[0].cells] == [pytest.approx(200 / 3), 6.0, 0.0, 100.0]
    assert table.rows[0].averages == ()
    given = [questions("Vanilla", found[:1]), questions("COFT", [found[0], question("b", True, subject="art")])]
    table = suite_table(QUESTIONS, [VANILLA, COFT, method("SDD")], given, reference="SDD")
    place = [column.part for column in table.columns].index("art")
    assert cell_of(table, "Vanilla", place) is None
    assert (cell_of(table, "COFT", place).value, cell_of(table, "COFT", place).rank) == (100.0, None)
    assert cell_of(table, "COFT").contrast is None
    assert (set(table.row("SDD").cells), table.row("SDD").readings) == ({None}, ())


def test_masked_refused_and_empty_are_shares_of_what_was_read():
    found = [
        question("a", True, masked=0), question("b", True, masked=2, refused=2), question("c", True, empty=1),
        unread("d", "No."),
    ]  # fmt: skip
    reading = main_table([QUESTIONS], [COFT], [questions("COFT", found)]).row("COFT").readings[0]
    assert reading.unmasked == pytest.approx(1 / 3)
    assert reading.refused == pytest.approx(2 / 18)
    assert reading.empty == pytest.approx(1 / 18)
    assert not reading.writes
    found = [text("a", 0.1, empty=(0, 2), tokens=5), text("b", 0.1, tokens=5)]
    reading = main_table([HARM], [COFT], [texts("COFT", found)]).row("COFT").readings[0]
    assert (reading.refused, reading.empty, reading.writes) == (None, pytest.approx(0.2), True)
    for one in (VANILLA, method("COFT")):
        reading = main_table([QUESTIONS], [one], [questions(one.label, rights("rw"))]).rows[0].readings[0]
        assert (reading.refused, reading.empty) == (None, None)


def test_a_refused_token_counts_as_the_threshold_or_makes_the_text_impossible():
    refused = Scored((Likelihood(3, -1.0, -1.0, -0.5, 1), Likelihood(3, -2.0, -2.0, -0.5)), 1)
    given = [questions("COFT", [replace(question("a", True), answers=(refused,))])]
    values = {
        outside: cell_of(main_table([QUESTIONS], [COFT], given, outside), "COFT").value for outside in ("floor", "zero")
    }
    assert values == {"floor": 100.0, "zero": 0.0}


def test_average_ranks_are_over_the_suites_of_one_kind_and_told_by_seed():
    def harms(values, seed):
        return [text(f"t{place:02}", value, seed=seed) for place, value in enumerate(values)]

    given = [
        questions("Vanilla", [*rights("r" * 20, 0), *rights("r" * 20, 1)]),
        questions("COFT", [*rights("w" * 20, 0), *rights("w" * 20, 1)]),
        texts("Vanilla", [*harms([0.9] * 20, 0), *harms([0.9] * 20, 1)]),
        texts("COFT", [*harms([0.1] * 20, 0), *harms([0.9] * 20, 1)]),
    ]
    table = main_table([QUESTIONS, HARM], [VANILLA, COFT], given)
    utility, bias = table.row("COFT").averages
    assert (utility.kind, utility.value, utility.columns) == ("utility", 2.0, 1)
    # The second seed ties, so that it is better over both seeds together, and in the first one alone.
    assert (bias.kind, bias.value) == ("bias", 1.0)
    assert bias.seeds == ((0, 1.0), (1, 1.5))
    assert bias.deviation == pytest.approx(0.3535534)


def test_ranks_are_averaged_over_columns_in_which_every_method_has_one():
    other = Harm()
    other.key = "other"
    given = [
        texts("Vanilla", [text(f"t{place}", 0.9) for place in range(9)]),
        texts("COFT", [text(f"t{place}", 0.1) for place in range(9)]),
        texts("COFT", [text("a", 0.5)])._replace(suite="other"),
    ]
    table = main_table([HARM, other], [VANILLA, COFT], given)
    assert [(row.averages[0].value, row.averages[0].columns) for row in table.rows] == [(2.0, 1), (1.0, 1)]


def test_a_table_is_the_same_to_the_last_bit_whatever_else_was_measured():
    lots = np.random.default_rng(3)
    given = [
        part
        for label, chance in (("Vanilla", 0.5), ("COFT", 0.8))
        for part in (
            questions(
                label,
                [own for seed in (0, 1) for own in rights(lots.choice(["w", "r"], 40, p=[1 - chance, chance]), seed)],
            ),
            texts(
                label, [text(f"t{place}", float(lots.random()), seed=seed) for seed in (0, 1) for place in range(20)]
            ),
        )
    ]
    suites, methods = [QUESTIONS, HARM], [VANILLA, COFT]
    whole = measured_of(suites, methods, given)
    for made, anew in (
        (
            main_table(suites, methods, given, reference="Vanilla"),
            table_of(suites, methods, whole, "floor", "Vanilla"),
        ),
        (suite_table(QUESTIONS, methods, given), table_of([QUESTIONS], methods, whole, "floor", None, "questions")),
    ):
        assert made == anew
        for one, other in zip(made.rows, anew.rows, strict=True):
            assert [cell.draws.tobytes() for cell in one.cells] == [cell.draws.tobytes() for cell in other.cells]


# What is said of tables.


def test_numbers_are_written_so_that_none_reads_as_another():
    given = ([58.31, 3.0], [None, 9.99], [0.079, -0.5], [], [float("inf"), 2.0])
    assert [words.digits_for(values) for values in given] == [1, 2, 3, 3, 2]
    given = (-0.04, -1.25, float("inf"), float("-inf"), None)
    assert [words.number(value, 1) for value in given] == ["0.0", "\u22121.2", "∞", "−∞", ""]
    shown = [words.percent(share) for share in (0.0, 1e-5, 0.5, 0.99999, 1.0)]
    assert shown == ["0.0 %", "<0.1 %", "50.0 %", ">99.9 %", "100.0 %"]


def test_notes_count_what_is_missing_from_figures():
    many = [*rights("rw"), *(unread(f"x{place}", f"Reason {place % 5}.") for place in range(12))]
    fewer = [questions("Vanilla", [*rights("rw"), unread("z", "No.")]), questions("COFT", rights("rwr"))]
    seeds = [questions("Vanilla", [*rights("rw", 0), *rights("rw", 1)]), questions("COFT", rights("rw", 1))]
    for given, told, untold in (
        ([questions("COFT", many)], "12 of 14 items, which are in no figure: Reason 0 (3); Reason 1 (3); ", "rest on"),
        ([questions("COFT", many)], "; and 2 more reasons.", "2 of the 3"),
        (fewer, "of COFT rest on 2 of the 3 items", "figure only of"),
        (seeds, "COFT has a figure only of the seed 1", "Vanilla has a figure"),
        ([texts("COFT", [text("a", None), text("b", 0.1)])], "1 of 2 of COFT could not be scored", "rest on"),
    ):
        said = " ".join(words.notes(main_table([QUESTIONS, HARM], [VANILLA, COFT], given)))
        assert told in said
        assert untold not in said


def test_calibrations_that_say_nothing_are_told_together_where_suite_seeds_and_reason_are_the_same():
    silent = [("A", 0, "few"), ("B", 0, "few"), ("A", 1, "few"), ("B", 1, ""), ("C", 0, "few"), ("C", 1, "few")]
    notes = [
        CalibrationNote("bbq", method, seed, 0.1, "reference", 3, 9, None, None, None, 0, 1, 1, reason)
        for method, seed, reason in silent
    ]
    assert words.silent_sentences(notes) == ["A and C on bbq, seeds 0 and 1: few", "B on bbq, seed 0: few"]


def harms(label, values):
    return texts(label, [text(f"t{place:02}", value) for place, value in enumerate(values)])


def found(first, second):
    same = [questions(label, rights("r" * 30 + "w" * 10)) for label in ("Vanilla", "COFT")]
    given = [harms("Vanilla", first), harms("COFT", second), *same]
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
    within_noise = found([0.1, 0.9] * 20, [0.9, 0.1] * 20)
    assert not any(strong for _, strong in within_noise.sentence)
    assert not any(bar.finding for picture in within_noise.pictures for bar in picture.bars)
    assert finding(main_table([HARM], [VANILLA], [])) is None
    alone = finding(main_table([HARM], [VANILLA], [harms("Vanilla", [0.5, 0.7])]))
    assert [bar.method for picture in alone.pictures for bar in picture.bars] == ["Vanilla"]


def test_items_of_bias_come_by_their_own_figure_and_others_by_how_far_methods_lie_apart():
    biased = item_rows(
        HARM, harms("Vanilla", [0.2, 0.9, 0.5]).outcomes, [harms("COFT", [0.1, 0.3, 0.2]).outcomes], {}, "floor"
    )
    assert [(row.item, row.values) for row in biased] == [("t01", (0.9, 0.3)), ("t02", (0.5, 0.2)), ("t00", (0.2, 0.1))]
    useful = item_rows(QUESTIONS, rights("rrw"), [rights("rwr")], {}, "floor")
    assert [(row.item, row.place, row.values) for row in useful] == [
        ("q001", 1, (100.0, 0.0)), ("q002", 2, (0.0, 100.0)), ("q000", 0, (100.0, 100.0)),
    ]  # fmt: skip
