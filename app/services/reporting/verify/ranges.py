"""The check of set sizes that are given as a range: it holds the size and fits the candidates and the bound."""

from __future__ import annotations

from app.services.computations import computations_of
from app.services.reporting.document import session_record
from app.services.reporting.verify.findings import Findings
from app.services.reporting.verify.loaded import Loaded
from app.services.reporting.verify.numbers import BOUNDARY
from app.services.reporting.verify.rules import StepRules, rules_of
from app.services.views import Step
from app.services.views.verification import Check
from coft_core.numeric_noise import noise_of


def check_ranges(loaded: Loaded) -> Check:
    """Sizes within numeric noise follow from the candidates as far as these tell, with a bound that is not too small.

    How far the model's own log-probabilities lie apart was measured when it was loaded, and only a replay can do that
    again; but the bound is never below that of the number type at the session's temperature.
    """
    found = Findings("Set sizes within numeric noise")
    record = session_record(loaded.report)
    least = noise_of(record.fingerprint.get("dtype"), record.temperature).nats
    ways = computations_of(record)
    told = bool(ways) and all(way.temperature is not None for way in ways)
    rules, ranges = rules_of(loaded.settings), 0
    for branch, step in loaded.own_steps():
        place = f"Branch {branch.path}, step {step.index + 1}"
        parts = (step.set_size_low, step.set_size_high, step.noise)
        if parts == (None, None, None):
            had = told and step.state != "none"
            found.expect(not had, f"{place}: the session gives set sizes as ranges, and this step has none.")
            continue
        if step.set_size_low is None or step.set_size_high is None or step.noise is None:
            found.expect(False, f"{place}: its range of set sizes is given in part.")
            continue
        ranges += 1
        low, high = step.set_size_low, step.set_size_high
        found.expect(
            low <= step.set_size <= high, f"{place}: the set size {step.set_size} is outside its range {low} to {high}."
        )
        enough = step.noise >= least * (1 - BOUNDARY)
        found.expect(enough, f"{place}: its numeric noise is {step.noise:g} nats, and at least {least:g}.")
        if not step.families and not rules.refuses_more:
            _check_listed(found, place, step, rules, step.noise)
    return found.check(f"{ranges:,} ranges")


def _check_listed(found: Findings, place: str, step: Step, rules: StepRules, noise: float) -> None:
    """What is listed and stands clear of the threshold is in the least set, and what is near it in the largest."""
    margins = [rules.support(row) - step.log_tau for row in step.candidates]
    sure = sum(margin >= noise + BOUNDARY for margin in margins)
    refused = sum(margin < -noise - BOUNDARY for margin in margins)
    possible = sum(margin >= -noise + BOUNDARY for margin in margins)
    low, high = step.set_size_low or 0, step.set_size_high or 0
    found.expect(low >= sure, f"{place}: the least set has {low} tokens, and {sure} listed ones are in it.")
    found.expect(high >= possible, f"{place}: the largest set has {high} tokens, and {possible} listed ones are in it.")
    near = len(margins) - sure - refused
    found.expect(
        high - low >= near - sum(abs(abs(margin) - noise) < BOUNDARY for margin in margins),
        f"{place}: its range is {low} to {high}, and {near} listed tokens stand at the threshold within the noise.",
    )
