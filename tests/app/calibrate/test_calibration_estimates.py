"""What a calibration will take, extrapolated from a trial with a few of its own prompts."""

import math

import pytest

from app.calibrate.run import CalibrationWork
from app.calibrate.trial import LARGEST_TRIAL, Trial
from app.shared.audits import CalibrationRequest
from coft_core.calibrate.true_tokens import TOKEN_BUDGET
from coft_core.model.fake import tiny_model
from coft_core.text.detection import SpanDetector
from coft_core.types import Example
from db.prompt_sets import PromptRow


class Machine:
    """A clock that the work itself moves: so many seconds a call and a token."""

    def __init__(self, monkeypatch, a_call, a_token):
        self.now, self.runs = 0.0, []

        def calibrated(work, progress=None, ledger=None):
            request = work.request
            tokens = sum(len(row.example.prompt) + len(row.example.reference or "") for row in work.rows)
            steps = request.max_new_tokens - 1 if request.source == "rollout" else 0
            self.now += a_call * (1 + steps) + a_token * (tokens + steps * len(work.rows))
            self.runs.append((len(work.rows), request))

        monkeypatch.setattr("app.calibrate.trial.calibrated", calibrated)

    def __call__(self):
        return self.now


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def detector():
    return SpanDetector(pipeline=None)


@pytest.fixture
def work(model, detector):
    def make(count=200, words="He said", **changes):
        # Lengths from 20 to 119 tokens, one a character, in an order that says nothing.
        rows = tuple(
            PromptRow(i + 2, Example(words.ljust(10 + (i * 37) % 100, "x"), "y" * 10, group="g", context=str(i // 2)))
            for i in range(count)
        )
        return CalibrationWork(model, detector, rows, CalibrationRequest("set", model="tiny", **changes))

    return make


def tokens(work):
    return sum(len(row.example.prompt) + len(row.example.reference) for row in work.rows)


def test_references_take_what_their_tokens_take_and_a_slow_model_is_tried_on_fewer(work, monkeypatch):
    for a_call, a_token, fewest, most in ((0.001, 0.0001, LARGEST_TRIAL, LARGEST_TRIAL), (0.0, 0.004, 1, 7)):
        machine, asked = Machine(monkeypatch, a_call, a_token), work(lam=0.3, max_iterations=4)
        found = Trial(asked, machine).estimate()
        assert found.seconds == pytest.approx(tokens(asked) * a_token, rel=0.1)
        assert (found.prompts, found.contexts, found.needed) == (200, 100, 9)
        assert fewest <= found.tried <= most
        assert machine.now < 2
        assert {(request.max_iterations, request.lam) for _, request in machine.runs} == {(1, 0.3)}


def test_what_every_batch_costs_is_not_multiplied_by_the_prompts(work, monkeypatch):
    machine = Machine(monkeypatch, a_call=0.5, a_token=0.0001)
    asked = work()
    batches = math.ceil(2 * tokens(asked) / TOKEN_BUDGET)
    expected = batches * 0.5 + tokens(asked) * 0.0001
    assert Trial(asked, machine).estimate().seconds == pytest.approx(expected, rel=0.1)


def test_rollouts_take_what_reading_and_each_further_token_take(work, monkeypatch):
    machine = Machine(monkeypatch, a_call=0.01, a_token=0.0001)
    asked = work(source="rollout", max_new_tokens=50)
    # A batch has 16 prompts; each step costs a call, and each prompt its token.
    expected = 200 / 16 * (50 * 0.01 + 49 * 16 * 0.0001) + tokens(asked) * 0.0001
    assert Trial(asked, machine).estimate().seconds == pytest.approx(expected, rel=0.1)
    assert max(request.max_new_tokens for _, request in machine.runs) <= 5
    plain, recorded = (
        Trial(work(record_chains=chains, max_new_tokens=50), machine).estimate().seconds for chains in (False, True)
    )
    assert recorded > 1.5 * plain


def test_prompts_with_nothing_masked_are_counted_and_leave_factorized_masks_their_time(work, monkeypatch):
    machine = Machine(monkeypatch, a_call=0.0, a_token=0.0001)
    some = work(count=100)
    rows = (*some.rows, *(PromptRow(500 + i, Example(f"two and {i} " + "z" * 40, "y" * 10)) for i in range(100)))
    joint = CalibrationWork(some.model, some.detector, rows, some.request)
    found = Trial(joint, machine).estimate()
    assert found.unmasked == 100
    assert found.seconds == pytest.approx(tokens(joint) * 0.0001, rel=0.1)
    factorized = work(count=100, mask_layout="factorized")
    parts = CalibrationWork(some.model, some.detector, rows, factorized.request)
    assert Trial(parts, machine).estimate().seconds == pytest.approx(tokens(some) * 0.0001, rel=0.1)


def test_an_estimate_says_how_many_prompts_it_could_look_at(work, monkeypatch):
    machine = Machine(monkeypatch, a_call=0.0, a_token=0.0001)
    asked = work(count=100, words="two")

    class Slow(SpanDetector):
        __slots__ = ()

        def detect(self, text):
            machine.now += 0.1
            return super().detect(text)

    slow = CalibrationWork(asked.model, Slow(pipeline=None), asked.rows, asked.request)
    found = Trial(slow, machine).estimate()
    assert (found.prompts, found.unmasked) == (100, found.looked_at)
    assert found.looked_at == 11
    assert Trial(asked, machine).estimate().looked_at is None


def test_each_family_needs_its_share_of_contexts_and_a_bound_asks_for_more(work, monkeypatch):
    machine = Machine(monkeypatch, a_call=0.0, a_token=0.0001)
    factorized = {"words": "He met a Muslim", "mask_layout": "factorized"}
    shares = (("gender", 0.08), ("religion", 0.02))
    for changes, needed in ((factorized, 19), ({**factorized, "alpha_by_family": shares}, 49), ({"rho": 2.0}, 19)):
        assert Trial(work(count=40, **changes), machine).estimate().needed == needed


def test_the_real_model_can_be_tried(work):
    for changes in ({}, {"source": "rollout", "max_new_tokens": 4}, {"mask_layout": "factorized"}):
        found = Trial(work(count=6, **changes)).estimate()
        assert found.seconds > 0
        assert (found.prompts, found.unmasked) == (6, 0)
        assert 1 <= found.tried <= 6
