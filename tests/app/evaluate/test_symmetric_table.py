"""The symmetric table shows each method at its best point, chosen on other units than it is shown on."""

from __future__ import annotations

import pytest

from app.evaluate.experiments.figures import Experiment, Figures
from app.evaluate.experiments.grid import Paper, Value
from app.evaluate.experiments.symmetric import CHOSEN_ON, SymmetricTable
from coft_core.experiments.choice import unit_place
from coft_core.suites.base import Card, Outcome, Suite
from coft_core.suites.statistics import mean_figure

METHODS = ("Plain=vanilla", "Fixed=sdd", "COFT, weak=coft:lam=0.1", "COFT, good=coft:lam=0.5", "COFT, far=coft:lam=0.9")
"""COFT has a weak point, a good one, and one that loses accuracy."""


class Posts(Suite):
    """Accuracy and bias are facts of outcomes."""

    key, title, kind, main = "posts", "Posts", "bias", "amplification"
    citation, licence, card = "", "", Card("", "", "", "")

    def items(self, data):
        return []

    def figures(self, outcomes, outside="floor"):
        units = [own.unit for own in outcomes]
        yield mean_figure("amplification", "B", units, [own.facts["bias"] for own in outcomes], better="lower")
        right = [own.facts["right"] for own in outcomes]
        yield mean_figure("accuracy", "A", units, right, scale=100.0, better="higher")


def answers(bias, wrong, tested=0.0, units=200):
    """Answers that are wrong at so many of a hundred items; on units of the test the bias is larger."""
    of_test = [unit_place("split", 0, "posts", f"u{n}") >= CHOSEN_ON for n in range(units)]
    facts = [{"bias": bias + tested * later, "right": float(n % 100 >= wrong)} for n, later in enumerate(of_test)]
    return [Outcome(f"i{n}", f"u{n}", own, ()) for n, own in enumerate(facts)]


FOUND = {
    "Plain": answers(0.4, 10),
    "Fixed": answers(0.3, 30),
    "COFT, weak": answers(0.35, 10),
    "COFT, good": answers(0.2, 12, tested=0.05),
    "COFT, far": answers(0.1, 40),
}


def grid(found):
    table = SymmetricTable("S", (Paper("m", "s", {"COFT": (Value(0.11), Value(83.2))}),), "posts", "amplification")
    experiment = Experiment("made", "T", "S", "W", (), (table,), ("posts",), METHODS)
    return table.grid(Figures(experiment, "demo", experiment.evaluated(), {"posts": Posts()}, {"posts": found}))


def test_the_point_with_least_bias_that_keeps_accuracy_is_shown_on_units_it_was_not_chosen_on():
    table = grid(FOUND)
    assert [(head.title, bool(head.source)) for head, _ in table.rows] == [
        ("Plain", False), ("Fixed", False), ("COFT, good", False), ("COFT", True),
    ]  # fmt: skip
    rows = {head.title: values for head, values in table.rows}
    assert rows["COFT, good"][0].value == pytest.approx(0.25)
    assert rows["COFT, good"][1].value == pytest.approx(88, abs=4)
    assert rows["COFT, good"][2].value == 2  # the weak one keeps accuracy too
    assert rows["Fixed"][0].value == pytest.approx(0.3)  # nothing to choose: it is shown as it is


def test_a_method_without_a_point_that_keeps_accuracy_has_none_and_gains_within_noise_are_said():
    found = {**FOUND, "COFT, weak": answers(0.41, 10), "COFT, good": answers(0.2, 40)}
    table = grid(found)
    assert "COFT, weak" in [head.title for head, _ in table.rows]
    assert any("beyond noise" in note for note in table.notes)
    table = grid({**found, "COFT, weak": answers(0.2, 50)})
    assert {head.title: values for head, values in table.rows if not head.source}["COFT"][0] is None
    assert grid({}).notes[0].startswith("Nothing is chosen")
