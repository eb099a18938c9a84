from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from coft_core.calibrate.chains import record_chains
from coft_core.calibrate.rollouts import in_force, largest_change
from coft_core.calibrate.run import calibrate
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.values import BELOW, CalibrationValues
from coft_core.errors import CalibrationMismatch, InvalidInputError
from coft_core.model.fake import tiny_model
from coft_core.policies.coft import CoftPolicy
from coft_core.types import Certificate, Example

EXAMPLES = [Example(f"{'He' if i % 2 else 'She'} said number {i} to the nurse", f"and {i} more") for i in range(160)]
SETTINGS = {
    "source": "rollout", "max_new_tokens": 4, "bin_width": 4, "bin_spacing": "even", "max_position": 4, "alpha": 0.2,
}  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def made(model):
    return calibrate(model, EXAMPLES, tolerance=0.002, seed=3, **SETTINGS)


class TestIteration:
    def test_thresholds_that_depend_on_themselves_settle_on_fresh_contexts_at_the_level(self, made):
        assert made.chains.settled
        assert made.chains.iterations[-1].final
        assert made.chains.iterations[-1].change <= 0.002
        assert "The thresholds settled" in made.chains.sentence
        # The first round certifies everything, so all of its thresholds are change, and it is never the fixed point.
        first = made.chains.iterations[0]
        assert first.kept == first.contexts
        assert not first.consistent
        assert len(made.chains.iterations) > 2
        assert sum(entry.contexts for entry in made.chains.iterations) + made.coverage.contexts == 160
        assert made.coverage.contexts == 40
        assert made.context_count == made.chains.iterations[-1].contexts
        assert not set(made.joint.values.contexts.tolist()) & set(made.joint.verification.contexts.tolist())
        assert made.coverage.low <= 1 - made.alpha <= made.coverage.high
        assert made.coverage.agrees
        assert largest_change(None, made.joint) == max(entry.tau for entry in made.bins)
        assert largest_change(made.joint, made.joint) == 0.0

    def test_budgets_and_splits_are_kept_and_what_cannot_be_iterated_is_refused(self, model):
        short = calibrate(model, EXAMPLES[:60], tolerance=0.0, max_iterations=2, **SETTINGS)
        assert not short.chains.settled
        assert len(short.chains.iterations) == 2
        assert "before the budget of 2 rounds ended" in short.chains.sentence
        assert short.chains.sentence in short.notes
        few = calibrate(model, EXAMPLES[:12], max_iterations=9, verification_share=0.0, **SETTINGS)
        assert all(entry.contexts >= 4 for entry in few.chains.iterations)
        assert few.joint.bin(0).state == "calibrated"
        with pytest.raises(InvalidInputError, match="Example 2: The prompt is empty"):
            calibrate(model, [EXAMPLES[0], Example("  ")], **SETTINGS)
        for tolerance, rounds in ((-1.0, 4), (math.nan, 4), (0.1, 0)):
            with pytest.raises(InvalidInputError, match=r"choose|allow"):
                calibrate(model, EXAMPLES[:30], tolerance=tolerance, max_iterations=rounds, **SETTINGS)

    def test_same_seed_gives_the_same_file_and_references_are_not_read(self, model):
        bare = [Example(example.prompt) for example in EXAMPLES[:30]]
        one, other, without = (calibrate(model, e, **SETTINGS) for e in (EXAMPLES[:30], EXAMPLES[:30], bare))
        assert replace(one, created="").to_bytes() == replace(other, created="").to_bytes()
        assert without.joint.values == one.joint.values


class TestPolicy:
    def test_policy_of_the_same_settings_is_certified(self, model, made):
        from coft_core.decode.loop import generate

        assert Certificate.read(
            generate(model, "He said", CoftPolicy(0.6, made), max_new_tokens=2).certificate
        ).certified
        with pytest.raises(CalibrationMismatch, match="lam"):
            generate(model, "He said", CoftPolicy(0.5, made), max_new_tokens=2)

    def test_another_reading_is_marked_and_the_record_of_the_rounds_survives_the_file(self, made):
        assert made.as_rolled_out
        other = made.read(alpha=0.3)
        assert not other.as_rolled_out
        assert any("other thresholds" in note for note in other.notes)
        assert other.read(alpha=0.2) == made
        copy = Calibration.from_bytes(made.to_bytes())
        assert copy == made
        assert copy.chains == made.chains
        assert copy.chosen == made.chosen
        assert len(copy.chosen) > 0


class TestReference:
    def test_chains_can_be_recorded_for_a_calibration_on_references_and_no_unknown_source(self, model):
        reference = calibrate(model, EXAMPLES[:40], alpha=0.2)
        assert not len(reference.chosen)
        recorded = record_chains(model, EXAMPLES[40:60], CoftPolicy(0.6, reference), max_new_tokens=3)
        assert recorded.chosen.context_count == 20
        assert recorded.bins == reference.bins
        assert recorded.as_rolled_out
        assert [note for note in recorded.notes if "beyond noise" not in note] == []
        with pytest.raises(InvalidInputError, match="no calibration"):
            record_chains(model, EXAMPLES[:2], CoftPolicy(0.6))
        with pytest.raises(InvalidInputError, match="reference, rollout"):
            calibrate(model, EXAMPLES[:2], source="dreams")


class TestGroups:
    @pytest.fixture(scope="class")
    def grouped(self, model):
        rows = [replace(e, group="rare" if i % 10 == 0 else "common") for i, e in enumerate(EXAMPLES)]
        return calibrate(model, rows, alpha=0.2, by_group=True)

    def test_each_group_has_its_own_contexts_on_which_its_thresholds_rest(self, grouped):
        common, rare = grouped.joint.groups
        assert (common.name, common.contexts, common.verification_contexts) == ("common", 108, 36)
        assert (rare.name, rare.contexts, rare.verification_contexts) == ("rare", 12, 4)
        assert grouped.context_count == 120
        own = grouped.for_group("rare")
        assert own.context_count == 12
        assert own.group == "rare"
        assert own.coverage.contexts == 4
        assert own.fingerprint == grouped.fingerprint
        assert Calibration.from_bytes(own.to_bytes()) == own
        strict = grouped.read(alpha=0.05)
        with pytest.raises(InvalidInputError, match=r"'rare' has 12 contexts, and 19 are needed"):
            strict.for_group("rare")
        assert [entry.certifiable for entry in strict.joint.groups] == [True, False]
        assert strict.joint.groups[1].smallest_alpha == pytest.approx(1 / 13)
        assert grouped.read(alpha=0.1).for_group("rare").joint.bin(0).state == "calibrated"
        with pytest.raises(InvalidInputError, match="common, rare"):
            grouped.for_group("other")

    @pytest.mark.parametrize("by_group", [False, True])
    def test_a_shared_context_merges_rows_and_a_shared_group_merges_none(self, model, by_group):
        asked: dict[str, Any] = {"alpha": 0.2, "verification_share": 0.0, "by_group": by_group}
        rows = [replace(e, group=f"group {i % 2}") for i, e in enumerate(EXAMPLES[:40])]
        assert calibrate(model, rows, **asked).context_count == 40
        named = [replace(e, group="all", context=f"pair {i // 2}") for i, e in enumerate(EXAMPLES[:40])]
        assert calibrate(model, named, **asked).context_count == 20

    def test_rows_without_a_group_are_named(self, model):
        with pytest.raises(InvalidInputError, match="Example 1 has no group"):
            calibrate(model, EXAMPLES[:3], by_group=True)
        mixed = [replace(EXAMPLES[i], group=f"g{i}", context="same") for i in range(2)]
        with pytest.raises(InvalidInputError, match="one context belong to one group"):
            calibrate(model, mixed, by_group=True)


# Without BELOW, values depend on the batch with either seed.
@pytest.mark.parametrize("seed", [0, pytest.param(3, marks=pytest.mark.slow)])
def test_values_of_copied_prompts_do_not_depend_on_the_batch(seed):
    """A threshold is the support of a copy's token, which rounding must not put on either side of it."""
    prompts = ("He said number one to the nurse", "She said it to me", "The old man went", "My sister and he ran home")
    examples = [Example(prompts[i % 4]) for i in range(48)]

    def supports(batch_size):
        made = calibrate(
            tiny_model(), examples, alpha=0.2, source="rollout", max_new_tokens=6, top_p=1.0, seed=seed,
            batch_size=batch_size,
        )  # fmt: skip
        found = CalibrationValues.concat([made.joint.values, made.joint.verification])
        return dict(zip(zip(found.contexts.tolist(), found.steps.tolist(), strict=True), found.values, strict=True))

    alone = supports(1)
    for batch_size in (5, None):
        assert supports(batch_size) == pytest.approx(alone, abs=1e-4)


def test_thresholds_in_force_stand_below_what_was_read_off_by_more_than_rounding(made):
    (lower,) = in_force({"": made.joint}).values()
    for written, read in zip(lower.bins, made.bins, strict=True):
        assert written.log_tau == pytest.approx(read.log_tau - BELOW, abs=1e-6)
