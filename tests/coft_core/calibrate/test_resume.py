"""A calibration that was cancelled is resumed from its ledger: nothing is repeated, and the result is the same."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest

import coft_core as cc
from coft_core.model.fake import tiny_model
from tests.coft_core.calibrate.conftest import PlainDetector


class StoppedError(Exception):
    pass


class OnceLedger(cc.MemoryLedger):
    """A ledger that takes each result once."""

    def put_many(self, phase, results):
        assert not self.get_many(phase, list(results))
        super().put_many(phase, results)

    @classmethod
    def again(cls, ledger):
        made = cls()
        made.__dict__.update(cc.MemoryLedger.from_bytes(ledger.to_bytes()).__dict__)
        return made


def example(number):
    who = ("the old man", "the nurse", "the old lady", "somebody")[number % 4 if number % 8 else 3]
    return cc.Example(f"{who} number {number} said", "yes" if number % 3 else "not today", group=str(number % 2))


EXAMPLES = [example(number) for number in range(36)]
CHAINS: dict[str, Any] = {
    "source": "rollout", "max_new_tokens": 3, "bin_width": 2, "bin_spacing": "widening", "max_position": 4,
    "tolerance": 0.0, "max_iterations": 3,
}  # fmt: skip
COMMON: dict[str, Any] = {"alpha": 0.3, "detector": PlainDetector(), "by_group": True, "batch_size": 5, "seed": 2}


@pytest.fixture(scope="module")
def model():
    return tiny_model()


Made = list[cc.Calibration]


def references(model, **options):
    return list(cc.calibrate_many(model, EXAMPLES, [0.2, 0.6], **{**COMMON, **options}))


def factorized(model, **options):
    return list(cc.calibrate_factorized(model, EXAMPLES, [0.2, 0.6], **{**COMMON, **options}))


def rollouts(model, **options):
    return [cc.calibrate(model, EXAMPLES, **{**COMMON, **CHAINS, **options})]


def factorized_rollouts(model, **options):
    return list(cc.calibrate_factorized(model, EXAMPLES, **{**COMMON, **CHAINS, **options}))


WAYS = [references, factorized, rollouts, factorized_rollouts]


def timeless(made):
    """Everything in a calibration but when it was made."""
    return [replace(one, created="").to_bytes() for one in made]


def stopped_after(batches):
    calls = []

    def progress(done, total):
        calls.append(done)
        if len(calls) == batches:
            raise StoppedError

    return progress


@pytest.fixture(scope="module")
def finished(model):
    """The ledger of a way that was never interrupted, what it made, and of how many steps."""

    @functools.cache
    def carried_out(way):
        ledger, seen = cc.MemoryLedger(), []
        made = way(model, ledger=ledger, progress=lambda *step: seen.append(step))
        return ledger, made, seen[-1][1]

    return carried_out


@pytest.mark.parametrize("way", WAYS)
def test_interrupted_again_and_again_and_resumed_the_result_is_bit_for_bit_the_same(finished, model, way):
    _, whole, total = finished(way)
    ledger, stops = OnceLedger(), 0
    while True:
        known = len(ledger)
        calls: list[tuple[int, int]] = []

        def progress(done, of, ledger=ledger, known=known, calls=calls):
            assert of == total
            calls.append((done, len(ledger)))
            if len(ledger) >= known + 10:
                raise StoppedError

        try:
            made = way(model, ledger=ledger, progress=progress)
            break
        except StoppedError:
            stops += 1
        # What is known counts as done before the model runs, and everything that is done is kept.
        assert known == 0 or (known, known) in calls
        assert all(done == kept for done, kept in calls if kept > known)
        ledger = OnceLedger.again(ledger)
    assert stops >= 2
    assert timeless(made) == timeless(whole)
    assert calls[-1][0] == len(ledger) == total


@pytest.mark.parametrize("way", WAYS)
def test_finished_ledger_is_read_without_running_the_model(finished, model, way, monkeypatch):
    ledger, whole, _ = finished(way)

    def fail(*arguments, **options):
        raise AssertionError("the model ran")

    monkeypatch.setattr(model.module.model, "forward", fail)
    seen: list[tuple[int, int]] = []
    assert timeless(way(model, ledger=ledger, progress=lambda *step: seen.append(step))) == timeless(whole)
    assert seen[-1][0] == seen[-1][1]


def test_ledger_of_other_settings_examples_models_or_kinds_is_refused(model):
    for way, change in (
        (references, {"temperature": 0.7}), (references, {"families": ("age",)}), (rollouts, {"alpha": 0.4}),
        (rollouts, {"max_new_tokens": 4}), (rollouts, {"seed": 1}),
        (factorized_rollouts, {"by_family": {"gender": 0.2, "age": 0.1}}),
    ):  # fmt: skip
        ledger = cc.MemoryLedger()
        with pytest.raises(StoppedError):
            way(model, ledger=ledger, progress=stopped_after(1))
        known = len(ledger)
        with pytest.raises(cc.LedgerMismatchError, match="another model, prompt set or setting"):
            way(model, ledger=ledger, **change)
        assert len(ledger) == known
    ledger = cc.MemoryLedger()
    references(model, ledger=ledger)
    other = [*EXAMPLES[1:], EXAMPLES[0]]
    for run in (
        lambda: cc.calibrate_many(model, other, [0.2, 0.6], ledger=ledger, **COMMON),
        lambda: cc.calibrate_many(tiny_model(seed=1), EXAMPLES, [0.2, 0.6], ledger=ledger, **COMMON),
        lambda: cc.calibrate_many(model, EXAMPLES, [0.6, 0.2], ledger=ledger, **COMMON),
        lambda: factorized(model, ledger=ledger),
        lambda: rollouts(model, ledger=ledger),
    ):
        with pytest.raises(cc.LedgerMismatchError):
            run()


def test_references_serve_every_level_and_split(model):
    """Levels and splits are read off values, so they do not make a ledger another one."""
    ledger = cc.MemoryLedger()
    references(model, ledger=ledger)
    other = {"alpha": 0.2, "seed": 9, "by_group": False, "verification_share": 0.5, "bin_spacing": "even"}
    assert timeless(references(model, ledger=ledger, **other)) == timeless(references(model, **other))


@pytest.mark.parametrize("kind", [cc.CoftPolicy, cc.FactorizedCoftPolicy])
def test_recorded_chains_are_resumed(model, kind):
    way = references if kind is cc.CoftPolicy else factorized
    policy = kind(0.6, way(model)[1])
    options: dict[str, Any] = {"max_new_tokens": 2, "detector": PlainDetector()}
    whole = cc.record_chains(model, EXAMPLES, policy, **options)
    ledger = OnceLedger()
    with pytest.raises(StoppedError):
        cc.record_chains(model, EXAMPLES, policy, ledger=ledger, progress=stopped_after(2), **options)
    seen: list[tuple[int, int]] = []
    again = OnceLedger.again(ledger)
    resumed = cc.record_chains(
        model, EXAMPLES, policy, ledger=again, progress=lambda *step: seen.append(step), **options
    )
    assert seen[0] == (len(ledger), 36)
    assert resumed == whole
    other = replace(policy, calibration=policy.calibration.read(alpha=0.5))
    with pytest.raises(cc.LedgerMismatchError):
        cc.record_chains(model, EXAMPLES, other, ledger=again, **options)
