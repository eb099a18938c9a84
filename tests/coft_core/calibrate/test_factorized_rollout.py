"""Rollouts of the policy with factorized masks: what is recorded, how thresholds are iterated, and what is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import coft_core as cc
from coft_core.calibrate.chains import BATCH_ROWS, TRUTH_PATH, chain_prompts, chain_seed, generate_chains
from coft_core.calibrate.rollouts import round_size
from coft_core.conformal.coverage import clopper_pearson
from coft_core.errors import InvalidInputError
from coft_core.model.fake import tiny_model
from coft_core.policies.sampling import choose, keyed_uniform
from coft_core.types import Sampling
from tests.coft_core.calibrate.conftest import PlainDetector
from tests.coft_core.levels import fitting_by_family

TEXTS = ("the old man said", "the nurse wrote a long letter", "an old tree", "somebody said", "the man")
FAMILIES = (("gender", "age"), ("gender",), ("age",), (), ("gender",))
EXAMPLES = [
    cc.Example(f"the {who} number {number} said")
    for number, who in enumerate(("old man", "nurse", "old tree", "man") * 40)
]
FAMILIES_OF = (("gender", "age"), ("gender",), ("age",), ("gender",))
"""Families of each of four neighbouring examples."""

SETTINGS: dict[str, Any] = {
    "source": "rollout", "alpha": 0.4, "max_new_tokens": 4, "bin_width": 4, "bin_spacing": "even", "max_position": 4,
    "detector": PlainDetector(),
}  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def thresholded(model, taus):
    """A policy with one threshold a family at every step."""
    bare = cc.FactorizedCoftPolicy(0.6)
    return replace(bare, calibration=fitting_by_family(bare, model, taus, source="rollout"))


def prompts(model, policy):
    return chain_prompts(model, [cc.Example(text) for text in TEXTS], range(len(TEXTS)), policy, PlainDetector())


class TestChains:
    def test_chains_are_those_that_the_policy_generates_with_its_thresholds_in_force(self, model):
        policy = thresholded(model, {"gender": -5.0, "age": -4.0})
        chains = generate_chains(model, policy, prompts(model, policy), max_new_tokens=6, seed=5)
        free = generate_chains(model, cc.FactorizedCoftPolicy(0.6), prompts(model, policy), max_new_tokens=6, seed=5)
        assert chains.views == FAMILIES
        assert chains.tokens != free.tokens
        for row, (text, tokens) in enumerate(zip(TEXTS, chains.tokens, strict=True), start=1):
            run = cc.generate(model, text, policy, max_new_tokens=6, seed=chain_seed(5, row), detector=PlainDetector())
            assert tuple(step.token_id for step in run.steps) == tokens
            # The value that drift compares is the one that an audit shows.
            expected = [min(step.log_p_fused, step.log_p_masked) for step in run.steps]
            assert chains.chosen.select([row - 1]).values.tolist() == pytest.approx(expected, abs=1e-4)

    def test_true_tokens_are_factual_draws_supported_in_each_familys_branch(self, model):
        policy = thresholded(model, {"gender": -5.0, "age": -4.0})
        given = prompts(model, policy)
        chains = generate_chains(model, policy, given, max_new_tokens=4, seed=8)
        for index, families in enumerate(FAMILIES):
            branches = [branch.input_ids for branch in policy.branches(given[index].prompt)]
            for step in range(len(chains.tokens[index])):
                before = chains.tokens[index][:step]
                with torch.inference_mode():
                    z = torch.stack([model.module(torch.tensor([[*b, *before]])).logits[0, -1] for b in branches])
                log_p = torch.log_softmax(z.double(), -1)
                uniform = torch.tensor([keyed_uniform(chain_seed(8, index + 1), TRUTH_PATH, step)], dtype=torch.double)
                truth = int(choose(log_p[:1].float(), None, Sampling(), uniform).token_ids)
                mean = z[1:].double().mean(0) if families else z[0].double()
                fused = torch.log_softmax(0.4 * z[0].double() + 0.6 * mean, -1)
                for place, family in enumerate(families, start=1):
                    own = chains.truth(family)
                    found = own.values[(own.rows == index + 1) & (own.steps == step)]
                    assert found.tolist() == pytest.approx([float(min(fused[truth], log_p[place][truth]))], abs=1e-4)
        assert chains.truth("race").context_count == 0

    def test_one_family_gives_the_chains_of_its_joint_mask(self, model):
        joint = cc.CoftPolicy(0.6, families=("age",))
        factorized = cc.FactorizedCoftPolicy(0.6, families=("age",))
        one = generate_chains(model, joint, prompts(model, joint)[:1], 5, seed=1)
        other = generate_chains(model, factorized, prompts(model, factorized)[:1], 5, seed=1)
        assert one.tokens == other.tokens
        assert one.truth() == other.truth("age")
        assert one.chosen == other.chosen

    def test_batches_hold_prompts_of_the_same_families_and_no_more_rows_than_allowed(self, model, monkeypatch):
        seen: list[int] = []
        many = chain_prompts(model, EXAMPLES, range(160), cc.FactorizedCoftPolicy(), PlainDetector())
        generate_chains(model, cc.FactorizedCoftPolicy(), many, 1, progress=seen.append)
        # 40 prompts with three branches in batches of 10, 120 with two in batches of 16, by family.
        assert sum(seen) == 160
        assert sorted(seen, reverse=True) == [16] * 7 + [10] * 4 + [8]
        assert max(seen) * 2 <= BATCH_ROWS


class TestIteration:
    @pytest.fixture(scope="class")
    def made(self, model):
        (made,) = cc.calibrate_factorized(model, EXAMPLES, tolerance=0.005, seed=3, **SETTINGS)
        return made

    def test_families_have_their_shares_and_contexts_and_the_intersection_covers_what_was_asked(self, made):
        rounds = made.chains.iterations
        assert made.chains.settled
        assert sum(entry.contexts for entry in rounds) + made.coverage.contexts == 160
        assert made.context_count == rounds[-1].contexts
        assert made.notes == (made.chains.sentence,)
        assert made.alphas == {"gender": 0.2, "age": 0.2}
        for name, own in made.parts:
            rows = {int(row) for row in (*own.values.rows, *own.verification.rows)}
            assert all(name in FAMILIES_OF[(row - 1) % 4] for row in rows)
            assert all(entry.state == "calibrated" for entry in own.bins)
            low, high = clopper_pearson(own.coverage.kept, own.coverage.contexts, 0.975)
            assert low <= 0.8 <= high
        assert made.coverage.contexts == 40
        assert made.coverage.agrees
        smallest = min(own.coverage.coverage or 0 for _, own in made.parts)
        assert made.coverage.coverage >= 0.6
        assert made.coverage.coverage <= smallest + 0.2
        copy = cc.Calibration.from_bytes(made.to_bytes())
        assert copy == made
        assert copy.chains == made.chains
        assert copy.chosen == made.chosen
        assert copy.coverage == made.coverage

    def test_prompts_without_anything_masked_play_no_part_and_are_counted(self, model):
        plain = [cc.Example(f"somebody number {i}") for i in range(5)]
        seen: list[tuple[int, int]] = []
        rows = [*plain, *EXAMPLES[:24]]
        (made,) = cc.calibrate_factorized(model, rows, progress=lambda *step: seen.append(step), **SETTINGS)
        assert made.unmasked == 5
        assert seen[-1] == (24, 24)
        assert any("without anything masked (5)" in note for note in made.notes)
        reference = cc.calibrate_factorized(
            model, [replace(e, reference="so") for e in rows], alpha=0.4, detector=PlainDetector()
        )
        assert reference[0].unmasked == 5


def test_several_weights_nothing_masked_and_an_unknown_source_are_refused(model):
    with pytest.raises(InvalidInputError, match="2 fusion weights"):
        cc.calibrate_factorized(model, EXAMPLES[:4], [0.2, 0.6], **SETTINGS)
    with pytest.raises(InvalidInputError, match="masked"):
        cc.calibrate_factorized(model, [cc.Example("somebody")], **SETTINGS)
    with pytest.raises(InvalidInputError, match="reference, rollout"):
        cc.calibrate_factorized(model, EXAMPLES[:4], source="dreams")


def test_rounds_leave_every_family_what_its_level_needs():
    order = list(range(40))
    everywhere, rare = frozenset(order), frozenset(range(0, 40, 4))
    assert round_size(order, {"": everywhere}, {"": 0.2}, 4) == (10, 3)
    # Four contexts a round are needed: ten rare ones are enough for two rounds.
    assert round_size(order, {"gender": everywhere, "age": rare}, {"gender": 0.2, "age": 0.2}, 4) == (20, 1)
    # A family that has too few even altogether does not keep the others from being iterated.
    assert round_size(order, {"gender": everywhere, "age": frozenset([1])}, {"gender": 0.2, "age": 0.2}, 4) == (10, 3)
    # Nor is anything iterated where none has enough.
    assert round_size([1, 2], {"": frozenset([1, 2])}, {"": 0.2}, 4) == (2, 0)
    crowded = frozenset(range(10))
    assert round_size(order, {"gender": everywhere, "age": crowded}, {"gender": 0.2, "age": 0.2}, 4) == (40, 0)
