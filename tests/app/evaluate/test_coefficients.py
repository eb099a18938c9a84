"""Mixed-effects coefficients of stored answers: fitted once, told by method, and refused in a sentence."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from datetime import UTC, datetime

import numpy as np
import pytest

from app.evaluate import coefficients
from app.evaluate.coefficients import CoefficientService
from app.evaluate.experiments.page import ExperimentHandlers
from app.evaluate.items import outcome_bytes
from app.evaluate.operations import evaluation_coefficients
from app.evaluate.page import EvaluateHandlers
from app.evaluate.runs import EvaluationRequest, EvaluationView, SuitePlan, plans_json
from app.evaluate.terminal import print_coefficients
from app.shared.errors import ServiceError
from coft_core.suites.base import Likelihood, Outcome, Scored, Unread
from coft_core.suites.discrim_eval import GENDERS, RACES, DiscrimEvalExplicit, DiscrimEvalImplicit, mixed_effects
from db.evaluations import EvaluationItemRecord, EvaluationsRepository
from tests.app.evaluate.made import COFT, VANILLA, Questions, rights

EXPLICIT = "discrim_eval_explicit"


def answers(seed: int, questions: int = 8) -> tuple[Outcome, ...]:
    """Decisions about persons of each combination, the log-odds drawn by lot."""
    lots = np.random.default_rng(seed)
    found = []
    for question in range(questions):
        own = lots.normal(1.0, 0.8)
        for number, (age, gender, race) in enumerate(itertools.product((20, 60, 100), GENDERS, RACES)):
            log_p = float(own + 0.5 * (race == "black") + lots.normal(0, 0.3))
            texts = tuple(Likelihood(1, value, value) for value in (log_p, -40.0, 0.0, -40.0))
            facts = {"age": age, "gender": gender, "race": race}
            found.append(Outcome(f"{question}/{number}", str(question), facts, (Scored(texts),)))
    return tuple(found)


class Kept:
    """An evaluation of which answers are kept."""

    def __init__(self, suites=(EXPLICIT,)):
        self.suites = suites
        self.given = {"Vanilla": answers(1), "COFT": answers(2)}

    def known_suites(self):
        return DiscrimEvalExplicit(), DiscrimEvalImplicit(), Questions()

    def view(self, number):
        request = EvaluationRequest("first", self.suites, (VANILLA, COFT), "tiny")
        return EvaluationView(number, "first", request, datetime(2026, 1, 1, tzinfo=UTC), None, ())

    def suite_outcomes(self, number, suite):
        return self.given

    def outcomes(self, number, suite, label):
        return self.given[label]


@pytest.fixture
def kept():
    return Kept()


@pytest.fixture
def service(kept):
    return CoefficientService(kept)


@pytest.fixture
def fits(monkeypatch):
    """How often a model is fitted."""
    counted = []
    monkeypatch.setattr(coefficients, "mixed_effects", lambda *asked: counted.append(asked) or mixed_effects(*asked))
    return counted


def test_every_method_has_the_coefficients_of_its_own_answers_and_none_is_fitted_twice(service, kept, fits):
    told = []
    found = service.coefficients(1, progress=lambda share, words: told.append((share, words)))
    assert told == [(0.0, "fitting the model of Vanilla"), (0.5, "fitting the model of COFT")]
    assert (found.suite, found.title) == (EXPLICIT, "DiscrimEval, said outright")
    for label, figures in found.methods.items():
        assert figures == tuple(mixed_effects(kept.given[label]))
        assert found.fitted[label]
    assert service.coefficients(1, EXPLICIT) == found
    assert len(fits) == 2
    plain = evaluation_coefficients.json(found)
    assert [own["method"] for own in plain["methods"]] == ["Vanilla", "COFT"]
    coefficient = plain["methods"][0]["coefficients"]["race: black"]
    assert coefficient["low"] < coefficient["value"] < coefficient["high"]
    assert coefficient["n"] == 360
    kept.given["COFT"] = answers(2, 7)
    service.coefficients(1)
    assert len(fits) == 3


def test_answers_that_are_too_few_have_no_coefficients_and_the_table_says_so(kept, service, capsys):
    kept.given["COFT"] = answers(2, 1)
    found = service.coefficients(1)
    assert list(found.fitted.values()) == [True, False]
    assert "could not be fitted for COFT" in found.notes[1]
    print_coefficients(found)
    said = capsys.readouterr().out
    assert "race: black" in said
    assert found.notes[1] in " ".join(said.split())


def test_what_has_no_such_model_is_refused(kept, service):
    for suites, asked, reason in (
        (("questions",), "", "has no suite of DiscrimEval"),
        ((EXPLICIT, "discrim_eval_implicit"), "", "has several suites of DiscrimEval; name one of"),
        ((EXPLICIT,), "questions", "'questions' has no mixed-effects model here; choose discrim_eval_explicit"),
    ):
        kept.suites = suites
        with pytest.raises(ServiceError, match=reason):
            service.coefficients(1, asked)
    kept.suites = (EXPLICIT,)
    kept.given = {"COFT": (Outcome("1", "1", {}, (Unread("It is too long."),)),)}
    with pytest.raises(ServiceError, match="No item of DiscrimEval, said outright is read yet"):
        service.coefficients(1)


def keep(wired):
    """The number of a stored evaluation of two suites, one of which has such a model."""
    store, made = wired[EvaluationsRepository], {EXPLICIT: answers(0), "piqa": rights("rwrwr")}
    plans = tuple(
        SuitePlan(suite, suite, "folder", "", {}, "", len(own), 8, {0: 0}, {0: len(own)}) for suite, own in made.items()
    )
    request = EvaluationRequest("decisions", tuple(made), (VANILLA, COFT), "tiny", (0,))
    number = store.add("decisions", asdict(request), plans_json(plans)).id
    for suite, label in itertools.product(made, ("Vanilla", "COFT")):
        keys = {f"{suite}{label}{at}": own for at, own in enumerate(made[suite])}
        records = [
            EvaluationItemRecord(suite=suite, method=label, seed=0, place=at, item=own.item, key=key)
            for at, (key, own) in enumerate(keys.items())
        ]
        store.keep(number, records, {key: outcome_bytes(own) for key, own in keys.items()})
    return number


def test_the_page_offers_them_where_there_are_any_and_tells_how_far_they_are(wired):
    number, handlers = keep(wired), EvaluateHandlers(wired, ExperimentHandlers(wired))
    offered = [handlers.offered(number, suite)[0].visible for suite in (EXPLICIT, "piqa", "")]
    assert offered == [True, False, False]
    first, second, (busy, table) = handlers.fitted(number, EXPLICIT, "floor")
    assert ["of 2" in told for told, _ in (first, second)] == [True, True]
    assert (busy, table.count("<tr"), "Tamkin et al. 2023" in table) == ("", 8, True)
