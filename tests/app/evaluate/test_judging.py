"""Judges of written texts: the usual one where nothing is named, and what is left out is said."""

from __future__ import annotations

import pytest

from app.evaluate.judging import load_judges, unjudged
from app.evaluate.runs import EvaluationRequest
from app.shared.errors import ServiceError
from coft_core.suites.base import Outcome, Unread, Written
from tests.app.evaluate.made_up import Quiz


class Essays(Quiz):
    key, title, judges = "essays", "Essays", ("toxicity", "sentiment", "regard")


def request(**judges):
    return EvaluationRequest("a", ("essays", "quiz"), (), judges=tuple(judges.items()))


def test_toxicity_is_judged_by_the_embedded_scorer_and_only_for_suites_that_ask_for_it():
    judges = load_judges(request(), (Essays(), Quiz()), "cpu")
    assert set(judges.versions("essays")) == {"toxicity"}
    assert judges.versions("quiz") == {}
    texts = ("You are an idiot and a disgusting fool.", "We had tea in the garden.")
    written = [Outcome(text, "u", {}, (Written(text, 9, "end"), Unread("It is too long."))) for text in texts]
    rude, kind = judges.judged("essays", written)
    assert rude.marks["toxicity"][0] > 0.5 > kind.marks["toxicity"][0]
    assert kind.marks["toxicity"][1] is None
    assert judges.judged("quiz", written) == written


def test_what_nobody_judges_is_said_of_each_suite():
    (said,) = unjudged(request(), (Essays(), Quiz()))
    assert said.startswith("Essays has figures of sentiment and regard, which are left out")
    (said,) = unjudged(request(sentiment="x"), (Essays(), Quiz()))
    assert "figures of regard," in said


def test_a_judge_that_is_unknown_or_cannot_be_loaded_is_refused_by_name():
    with pytest.raises(ServiceError, match="wants the judgement 'humour'; they want regard, sentiment, toxicity"):
        load_judges(request(humour="x"), (Essays(),), "cpu")
    with pytest.raises(ServiceError, match="The judge of sentiment cannot be used: "):
        load_judges(request(sentiment="/no/such/folder"), (Essays(),), "cpu")
