"""Tables of experiments are made of outcomes alone, the paper's figures beside ours, and what is missing is said."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from app.evaluate.experiments.charts import picture_figure
from app.evaluate.experiments.figures import Experiment, Figures, Sweep
from app.evaluate.experiments.grid import Paper, Value
from app.evaluate.experiments.lengths import LengthsTable
from app.evaluate.experiments.selections import Pairs, SelectionsTable
from app.evaluate.experiments.tables import (
    ChainsTable,
    ChoiceTable,
    Column,
    CoverageTable,
    DriftTable,
    FiguresTable,
    StabilityTable,
)
from app.evaluate.runs import CalibrationNote
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.values import CalibrationValues
from coft_core.experiments.averages import Part
from coft_core.experiments.certificates import empty_steps, toxic_fallbacks
from coft_core.experiments.choice import Averaged
from coft_core.suites.base import Card, Outcome, Suite, Unread, Written
from coft_core.suites.statistics import mean_figure
from tests.conftest import TOY_FINGERPRINT

CARD = Card("", "", "", "")


class Made(Suite):
    """Figures that are means of the facts of outcomes."""

    citation, licence, card = "", "", CARD

    def __init__(self, key, kind, better, scale=1.0):
        self.key, self.title, self.kind, self.main = key, key.upper(), kind, "mean"
        self.better, self.scale = better, scale

    def items(self, data):
        return []

    def figures(self, outcomes, outside="floor"):
        units = [outcome.unit for outcome in outcomes]
        values = [outcome.facts["value"] for outcome in outcomes]
        whole = mean_figure("mean", "Mean", units, values, scale=self.scale, what="items", better=self.better)
        return [whole]


HARM = Made("harm", "bias", "lower")
PAIRS = Made("pairs", "bias", "near the middle", 100.0)
TASK = Made("task", "utility", "higher", 100.0)


def outcomes(values, seed=0, **told):
    return [Outcome(f"item {place:03}", f"unit {place:03}", {"value": value}, (), seed=seed, **told)
            for place, value in enumerate(values)]  # fmt: skip


AVERAGED = Averaged((Part("harm"), Part("pairs", "", "distance from half")), (Part("task"),))


def experiment(*tables, methods=("Vanilla=vanilla", "COFT=coft:calibrated"), sweep=None):
    return Experiment(
        "made", "T", "S", "W", (), tables, ("harm", "pairs", "task"), methods, sweep, averaged=AVERAGED
    )  # fmt: skip


def kept(made, found, suites=(HARM, PAIRS, TASK), model="demo", **told):
    parts = {}
    for (suite, method), own in found.items():
        parts.setdefault(suite, {})[method] = own
    return Figures(made, model, made.evaluated(), {suite.key: suite for suite in suites}, parts, **told)


def grid(own):
    """The only table of what was kept."""
    (table,) = own.experiment.tables
    return table.grid(own)


def texts(table):
    """Cells of a table by the head of the row, and of the paper's rows by head and source."""
    return {
        (head.title, head.source): [None if cell is None else cell.text for cell in cells]
        for head, cells in table.layout.lines
    }


def paper(**rows):
    return Paper("LLaMA-2-13B", "Table 9", {name.replace("_", " "): values for name, values in rows.items()})


CHANGED = Column("Left", Part("harm"), against="Vanilla", percent=True)
METHODS = FiguresTable(
    "All",
    (
        paper(COFT=(Value(0.5), Value(0.4, 0.1), Value(-1.0), Value(50.0), Value(1.0))),
        Paper("Mistral-7B", "Table 9", {"COFT": (Value(0.6), Value(0.5), Value(-2.0), Value(60.0), Value(1.0))}),
    ),
    (
        Column("Harm", Part("harm")),
        Column("BiasAvg", average="bias"),
        Column("Change", average="utility", against="Vanilla"),
        CHANGED,
        Column("Rank", rank="bias"),
    ),
)
FOUND = {
    ("harm", "Vanilla"): [*outcomes([0.4] * 20), *outcomes([0.6] * 20, seed=1)],
    ("harm", "COFT"): [*outcomes([0.2] * 20), *outcomes([0.3] * 20, seed=1)],
    ("pairs", "Vanilla"): outcomes([0.7] * 20),
    ("pairs", "COFT"): outcomes([0.4] * 20),
    ("task", "Vanilla"): outcomes([1.0] * 15 + [0.0] * 5),
    ("task", "COFT"): outcomes([1.0] * 14 + [0.0] * 6),
}


def test_columns_are_figures_averages_changes_and_ranks_with_the_papers_row_below_ours():
    table = grid(kept(experiment(METHODS), FOUND, model="org/llama-2-13b-hf"))
    rows = texts(table)
    assert list(rows) == [("Vanilla", ""), ("COFT", ""), ("COFT", "paper, LLaMA-2-13B")]
    harm = table.rows[0][1][0]
    assert (harm.value, harm.deviation, harm.n) == pytest.approx((0.5, np.std([0.4, 0.6], ddof=1), 40))
    # Mean over the seeds; the average of 0.2 and |40 - 50| / 100 in the only seed that has both; 70 - 75; 50 %.
    for source, expected in (("", [0.25, 0.15, -5.0, 50.0, 1.0]), ("paper, LLaMA-2-13B", [0.5, 0.4, -1, 50, 1])):
        assert [float(text.replace("−", "-")) for text in rows["COFT", source]] == pytest.approx(expected)
    assert any("LLaMA-2-13B (Table 9)" in note and "also has Mistral-7B" in note for note in table.notes)
    assert any("BiasAvg is the mean over HARM and PAIRS" in note for note in table.notes)


def test_changes_pair_the_units_that_both_methods_read():
    generator = np.random.default_rng(0)
    base = generator.random(200)
    found = {
        ("harm", "Vanilla"): outcomes(base.tolist()),
        ("harm", "COFT"): outcomes((base - 0.1).tolist()),
    }
    figures = kept(experiment(METHODS), found)
    change = Column("C", Part("harm"), against="Vanilla").value(figures, "COFT")
    assert (change.low, change.value, change.high) == pytest.approx((-0.1, -0.1, -0.1))
    share = CHANGED.value(figures, "COFT")
    assert share.low < share.value < share.high
    assert share.value == pytest.approx(100 * (base.mean() - 0.1) / base.mean())
    nothing = {("harm", "Vanilla"): outcomes([0.0] * 20), ("harm", "COFT"): outcomes([0.1] * 20)}
    assert CHANGED.value(kept(experiment(METHODS), nothing), "COFT").value is None


def test_an_average_without_all_its_suites_says_of_how_many_it_is_and_what_was_left_out():
    table = grid(kept(experiment(METHODS), FOUND, suites=(HARM, TASK), left_out=("PAIRS is left out: no file.",)))
    assert texts(table)["COFT", ""][1] == "0.250"
    assert any("BiasAvg is of 1 of the 2 suites (HARM) and does not compare" in note for note in table.notes)
    assert "PAIRS is left out: no file." in table.notes
    rows = texts(grid(kept(experiment(METHODS), {own: FOUND[own] for own in FOUND if own != ("pairs", "COFT")})))
    assert (rows["COFT", ""][1], rows["Vanilla", ""][1] is None) == (None, False)
    other = Made("other", "bias", "lower")
    found = {("other" if suite == "harm" else suite, method): own for (suite, method), own in FOUND.items()}
    table = grid(replace(kept(experiment(METHODS), found), suites={"harm": other, "pairs": PAIRS, "task": TASK}))
    assert "OTHER stands in for harm, of which there is no file." in table.notes
    assert texts(table)["COFT", ""][0] == "0.250"


def test_of_suites_in_rows_each_method_has_a_column_and_empty_sets_are_of_that_suite_alone():
    columns = (
        Column("V", method="Vanilla"),
        Column("C", method="COFT"),
        Column("Steps", certified=empty_steps, method="COFT"),
        Column("V steps", certified=empty_steps, method="Vanilla"),
        Column("Toxic", certified=toxic_fallbacks, method="COFT"),
    )
    table = FiguresTable("Suites", (paper(harm=tuple(map(Value, (1.0, 2.0, 3.0, 4.0, 5.0)))),), columns, "suites")
    answer = Written("text", 10, "length", (2, 3), 0.2)
    found = dict(FOUND)
    for seed in (0, 1):
        found["harm", "COFT"] = [
            *found["harm", "COFT"][: 20 * seed],
            *[replace(own, answers=(answer,) if place < 5 else (replace(answer, empty=()),),
                      marks={"fallbacks": (1.0,), "toxic_fallbacks": (float(place == 0),)} if place < 5 else {})
              for place, own in enumerate(outcomes([0.2] * 20, seed))],
        ]  # fmt: skip
    rows = texts(grid(kept(experiment(table), found, suites=(HARM, TASK))))
    assert list(rows) == [("HARM", ""), ("harm", "paper, LLaMA-2-13B"), ("TASK", "")]
    harm = rows["HARM", ""]
    assert [float(harm[place]) for place in (0, 1, 2, 4)] == pytest.approx([0.5, 0.2, 5.0, 20.0])
    assert harm[3] is None  # vanilla decoding certifies nothing
    assert rows["TASK", ""][4] in (None, "unscored")


# Sweeps.

SWEEP = Sweep("lambda", (0, 0.2, 0.4, 0.6, 0.8, 1), "coft:calibrated,alpha=0.1")
CHOICE = ChoiceTable("C", ())
BIAS = {0: 0.30, 0.2: 0.25, 0.4: 0.20, 0.6: 0.15, 0.8: 0.149, 1: 0.0}


def swept(units=200, harm=BIAS):
    found = {}
    for value in SWEEP.values:
        label = f"lambda {value:g}"
        found["harm", label] = outcomes([harm[value]] * units)
        found["pairs", label] = outcomes([0.5 + harm[value]] * units)
        found["task", label] = outcomes([1.0] * int(0.8 * units) + [0.0] * (units - int(0.8 * units)))
    return found


def swept_with(table, found, sweep=SWEEP, **told):
    return grid(kept(experiment(table, methods=(), sweep=sweep), found, **told))


def test_a_sweep_is_chosen_on_units_of_validation_and_shown_on_the_others():
    table = swept_with(CHOICE, swept())
    rows = texts(table)
    assert [head for head, _ in rows] == [
        "lambda 0", "lambda 0.2", "lambda 0.4", "lambda 0.6", "lambda 0.8", "lambda 1",
        "lambda 0.6, on the other units",
    ]  # fmt: skip
    assert rows["lambda 0.6", ""][0] == "0.150"
    assert rows["lambda 0.6", ""][3] == "100.0"
    assert rows["lambda 1", ""][3] is None  # never eligible
    assert rows["lambda 0.6, on the other units", ""][0] == "0.150"
    said = " ".join(table.notes)
    assert "The knee rule chooses lambda 0.6" in said
    assert "The line search (successive halving) chooses lambda 0.6" in said
    validated, tested = re.search(r"chosen on (\d+) units of validation; (\d+) other units", said).groups()
    assert int(validated) + int(tested) == 3 * 200
    assert int(validated) == pytest.approx(120, abs=40)
    table = swept_with(CHOICE, swept(1))
    # Without a unit of validation the sweep is shown over all units.
    rows = {label: values for (label, _), values in texts(table).items()}
    assert {label: values[0] for label, values in rows.items()} == {
        f"lambda {value:g}": f"{bias:.3f}" for value, bias in BIAS.items()
    }
    assert all(values[2:4] == [None, None] for values in rows.values())
    assert table.notes[0].startswith("Nothing is chosen: ")


def test_deviations_of_a_sweep_are_over_its_seeds_in_the_table_and_in_its_picture():
    again = swept(harm={value: bias + 0.1 for value, bias in BIAS.items()})
    found = {place: [*own, *(replace(one, seed=1) for one in again[place])] for place, own in swept().items()}
    table = swept_with(CHOICE, found)
    bias = table.rows[0][1][0]
    # Both parts of the average are larger by 0.1 under the other seed, by the same on every unit.
    assert (bias.value, bias.deviation) == pytest.approx((0.35, 0.1 / math.sqrt(2)))
    assert table.rows[-1][1][0].deviation == pytest.approx(0.1 / math.sqrt(2))
    shown = {trace.name: trace for trace in picture_figure(table.picture).data}
    assert shown["beaten by another value"].error_x.array[0] == bias.deviation


def test_lambda_and_alpha_are_chosen_together_for_all_suites_and_for_each_family():
    pairs = Pairs((0.0, 0.5), (0.1, 0.2))
    table = SelectionsTable("S", (paper(All_suites=(Value(0.6), Value(0.1))),), pairs, {"Own": ("harm",), "No": ("x",)})
    # Less harm with both, and a larger alpha costs no utility; of the pairs, a stereotype is least with lambda alone.
    harm = {(0.0, 0.1): 0.4, (0.0, 0.2): 0.38, (0.5, 0.1): 0.3, (0.5, 0.2): 0.1}
    off = {(0.0, 0.1): 0.4, (0.0, 0.2): 0.4, (0.5, 0.1): 0.05, (0.5, 0.2): 0.25}
    found = {}
    for lam, alpha in pairs.pairs:
        label = f"lambda {lam:g}, alpha {alpha:g}"
        found["harm", label] = outcomes([harm[lam, alpha]] * 200)
        found["pairs", label] = outcomes([0.5 + off[lam, alpha]] * 200)
        found["task", label] = outcomes([1.0] * 160 + [0.0] * 40)
    table = grid(kept(experiment(table, methods=pairs.methods), found))
    rows = {head.title: values for head, values in table.rows if not head.source}
    assert [value.value for value in rows["All suites"][:4]] == pytest.approx([0.5, 0.1, 0.4, 0.175])
    assert [value.value for value in rows["Own"][:4]] == pytest.approx([0.5, 0.2, 0.4, 0.1])
    assert rows["Own"][6].value == 100.0
    assert rows["No"] == (None,) * 7
    assert any(note.startswith("No: nothing is chosen") for note in table.notes)


def test_a_figure_at_several_lengths_has_a_curve_a_method_and_their_difference():
    class Lengths(Made):
        def figures(self, outcomes, outside="floor"):
            for length in (128, 256):
                values = [own.facts["value"] * 128 / length for own in outcomes]
                yield mean_figure(f"mean_{length}", "M", [own.unit for own in outcomes], values, better="higher")

    table = LengthsTable(
        "L", (Paper("m", "s", {"256": (Value(0.95), Value(0.946))}),), "harm", "mean_{}", (128, 256),
        ("Vanilla", "COFT"), "MAUVE",
    )  # fmt: skip
    table = grid(kept(experiment(table), FOUND, suites=(Lengths("harm", "bias", "higher"),)))
    rows = {(head.title, bool(head.source)): [own and own.value for own in values] for head, values in table.rows}
    assert rows["128", False] == pytest.approx([0.5, 0.25, -0.25])
    assert rows["256", False] == pytest.approx([0.25, 0.125, -0.125])
    assert rows["256", True] == [0.95, 0.946, None]
    vanilla, coft = picture_figure(table.picture).data
    assert (list(vanilla.x), list(vanilla.y), list(coft.y)) == ([128, 256], [0.5, 0.25], [0.25, 0.125])
    assert list(vanilla.error_y.array) == pytest.approx([np.std([0.4, 0.6], ddof=1), np.std([0.2, 0.3], ddof=1)])


def test_stability_takes_every_bias_alone_and_says_their_mean():
    found = swept()
    late = {**BIAS, 0.6: 0.2, 0.8: 0.1}
    for value in SWEEP.values:
        found["pairs", f"lambda {value:g}"] = outcomes([0.5 + late[value]] * 200)
    rows = texts(swept_with(StabilityTable("S", (paper(Mean=(Value(0.41),)),), ()), found))
    assert rows["HARM", ""][0] == "0.600"
    assert rows["PAIRS", ""][0] == "0.800"
    assert rows["Mean", ""][0] == "0.700"
    assert rows["Mean", "paper, LLaMA-2-13B"][0] == "0.410"
    assert float(rows["Standard deviation", ""][0]) == pytest.approx(np.std([0.6, 0.8], ddof=1), abs=1e-3)


# Coverage.


def note(method, seed, coverage, checked, suite="harm"):
    return CalibrationNote(suite, method, seed, 0.1, "reference", 90, 9, coverage, 0.0, 1.0, checked, 4, 0)


def test_miscoverage_pools_suites_by_contexts_within_a_seed_and_averages_over_seeds():
    notes = (
        note("alpha 0.1", 0, 0.9, 30), note("alpha 0.1", 0, 0.8, 10, "task"), note("alpha 0.1", 1, 1.0, 40),
        note("alpha 0.2", 0, None, 0),
    )  # fmt: skip
    answers = {"answers": (Written("t", 10, "length", (), 0.2),)}
    found = {("harm", "alpha 0.1"): [replace(own, **answers) for own in outcomes([0.2] * 5)]}
    sweep = Sweep("alpha", (0.1, 0.2), "coft:calibrated,lam=0.6")
    rows = texts(swept_with(CoverageTable("C", ()), found, sweep, calibrations=notes))
    assert float(rows["alpha 0.1", ""][0]) == pytest.approx(((3 + 2) / 40 + 0) / 2, abs=1e-3)
    assert float(rows["alpha 0.1", ""][1]) == pytest.approx(0.2)
    assert rows["alpha 0.2", ""] == [None, None]


def calibration(seed, shift=0.0, contexts=300, steps=8):
    generator = np.random.default_rng(seed)
    values = -generator.exponential(1.0, (contexts, steps)) - shift
    rows = np.repeat(np.arange(contexts), steps)
    whole = CalibrationValues(values.ravel(), np.tile(np.arange(steps), contexts), rows)
    apart = list(range(contexts // 2, contexts))
    return Calibration.of(
        TOY_FINGERPRINT, 0.1, whole.select(list(range(contexts // 2))), whole.select(apart), bin_spacing="even"
    )


def test_whole_chains_are_shown_by_level_and_length_with_the_papers_row_below_its_level():
    table = ChainsTable("Chains", (Paper("m", "s", {"alpha 0.1": (Value(0.142),)}),), "COFT", (1, 8, 30), (0.1, 0.2))
    thresholds = lambda suite, method, seed: calibration(seed)  # noqa: E731
    found = grid(kept(experiment(table), FOUND, suites=(HARM,), thresholds=thresholds))
    rows = texts(found)
    assert list(rows)[:4] == [
        ("alpha 0.1, 1 step", ""), ("alpha 0.1, 8 steps", ""), ("alpha 0.1, 30 steps", ""), ("alpha 0.1", "paper, m"),
    ]  # fmt: skip
    assert float(rows["alpha 0.1, 8 steps", ""][0]) == pytest.approx(0.1, abs=0.06)
    assert float(rows["alpha 0.2, 8 steps", ""][0]) == pytest.approx(0.2, abs=0.08)
    assert rows["alpha 0.1, 30 steps", ""][0] is None
    assert any(said.startswith("Not measured: HARM, 30 steps") for said in found.notes)
    assert {alpha: list(missed) for alpha, missed in found.picture.levels.items()} == {0.1: [1, 8], 0.2: [1, 8]}
    figure = picture_figure(found.picture)
    assert [line.y0 for line in figure.layout.shapes] == [0.1, 0.2]
    numbers = {head.title: values[0] for head, values in found.rows}
    assert list(figure.data[0].y) == [numbers[f"alpha 0.1, {steps}"].value for steps in ("1 step", "8 steps")]


def test_drift_holds_the_first_sets_thresholds_against_the_others():
    table = DriftTable("Drift", (), "COFT", {"In": "harm", "Hard": "task"})
    prompts = {
        "harm": ([f"a plain prompt number {n} about work" for n in range(40)],) * 2,
        "task": ([f"a plain prompt number {n} about {'work' if n % 3 else 'play'}" for n in range(40)],) * 2,
    }
    made = kept(
        experiment(table), FOUND, suites=(HARM, TASK),
        thresholds=lambda suite, method, seed: calibration(seed + 10, 1.0 if suite == "task" else 0.0),
        prompts=lambda suite, seed: prompts[suite],
    )  # fmt: skip
    found = grid(made)
    rows = texts(found)
    assert float(rows["In", ""][0]) == pytest.approx(0.9, abs=0.05)
    assert float(rows["Hard", ""][0]) == pytest.approx(1 - 0.1 * math.e, abs=0.1)
    assert rows["In", ""][1] in ("1.0", "1.00")
    assert float(rows["Hard", ""][1]) >= 1.0
    assert float(rows["Hard", ""][2]) == pytest.approx(70.0)
    prompts["task"] = ([f"another topic altogether, case {n}" for n in range(40)],) * 2
    found = grid(made)
    assert texts(found)["Hard", ""][1] is None
    assert any("do not overlap with those of HARM" in said for said in found.notes)
    found = grid(replace(made, prompts=lambda suite, seed: None))
    assert texts(found)["Hard", ""][1] is None
    assert any("files are not there any more" in said for said in found.notes)


def test_what_is_missing_unread_unscored_or_says_nothing_is_counted_below_the_table():
    columns = (Column("Harm", Part("harm")), Column("Other", Part("harm", "other")))
    found = {
        ("harm", "Vanilla"): outcomes([0.2, None, None, *[0.1] * 17]),
        ("harm", "COFT"): [*outcomes([0.2] * 19), Outcome("item 019", "unit 019", {}, (Unread("It is too long."),))],
    }
    silent = replace(note("COFT", 0, 1.0, 3), silent="too few contexts for this alpha, so every token passes")
    made = experiment(FiguresTable("T", (), columns))
    notes = grid(kept(made, found, suites=(HARM,), calibrations=(silent,))).notes
    for said in (
        "Other: nothing has this figure",
        "Harm: of Vanilla, 2 of 20 could not be scored",
        "HARM: COFT has no answer to 1 of 20 items, which are in no figure; the first: It is too long.",
        "1 of 1 calibrations say nothing, so that nothing is refused there: too few contexts",
    ):
        assert any(told.startswith(said) for told in notes), said
