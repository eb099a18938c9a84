"""Symmetric tuning against slow computations of its definitions."""

import functools
import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from coft_core.calibrate.run import calibrate
from coft_core.decode.loop import score
from coft_core.errors import InvalidInputError
from coft_core.model.fake import tiny_model
from coft_core.policies.coft import CoftPolicy
from coft_core.policies.fusion import fuse_logits
from coft_core.policies.registry import method
from coft_core.policies.vanilla import VanillaPolicy
from coft_core.text.masking import mask_prompt
from coft_core.tuning.measure import Measured, TuningItem, check_items, measure_many
from coft_core.tuning.sweep import Point, best_point, sweep, variants_of
from coft_core.types import Example, Span

PLACES = ("shop", "school", "farm", "office")


def items(choices=True):
    """Pairs of prompts that differ in one masked word, of as many tokens in both."""
    return [
        TuningItem(
            f"The {who} went to the {place} and was",
            " good",
            (" bad", " late") if choices else (),
            pair=place,
            spans=(Span(4, 4 + len(who), "gender"),),
        )
        for place in PLACES
        for who in ("man", "boy")
    ]


def measure(model, rows, policy):
    return measure_many(model, rows, [policy])[0]


@pytest.fixture(scope="module")
def model():
    return tiny_model(seed=5)


@functools.cache
def slow_logits(module, *rows):
    with torch.inference_mode():
        return module(input_ids=torch.tensor(rows), use_cache=False).logits[:, -1].double()


def slow_log_p(model, item, text, lam):
    """Sum of the fused log-probabilities of a continuation, one uncached forward a token."""
    prompt = mask_prompt(model.tokenizer, item.prompt, item.spans)
    ids = model.tokenizer.encode(item.prompt + text, add_special_tokens=False)
    tokens = ids[len(prompt.factual_ids) :]
    total, written = 0.0, []
    for token in tokens:
        logits = slow_logits(model.module, *((*row, *written) for row in (prompt.factual_ids, prompt.masked_ids)))
        total += float(torch.log_softmax(fuse_logits(logits[0], logits[1], lam), -1)[token])
        written.append(token)
    return total


def test_accuracy_and_gap_are_those_of_the_definition(model):
    for lam in (0.0, 0.6, 1.0):
        rows = items()
        found = measure(model, rows, CoftPolicy(lam=lam))
        answers = []
        for item in rows:
            logs = np.array([slow_log_p(model, item, text, lam) for text in item.choices])
            answers.append(np.exp(logs) / np.exp(logs).sum())
        right = [answer[0] > answer[1:].max() for answer in answers]
        gaps = [
            max(
                0.5 * np.abs(a - b).sum()
                for a, b in combinations([x for x, item in zip(answers, rows, strict=True) if item.pair == place], 2)
            )
            for place in PLACES
        ]
        assert found.accuracy == pytest.approx(np.mean(right))
        assert found.gap == pytest.approx(np.mean(gaps), abs=1e-5)
        assert (found.items, found.pairs) == (8, 4)
        assert found.gap_interval[0] <= found.gap <= found.gap_interval[1]


def test_the_masked_reading_has_no_gap_and_ungraded_items_count_for_it_alone(model):
    assert measure(model, items(), CoftPolicy(lam=1.0)).gap == pytest.approx(0.0, abs=1e-6)
    assert measure(model, items(), CoftPolicy(lam=0.0)).gap > 1e-3
    rows = items()
    extra = [replace(item, pair=None) for item in rows[:3]]
    found = measure(model, [*(replace(item, graded=False) for item in rows), *extra], CoftPolicy())
    assert found.gap == pytest.approx(measure(model, rows, CoftPolicy()).gap)
    ungraded = [replace(item, graded=False) for item in rows[6:]]
    alone = [measure(model, [item, *ungraded], CoftPolicy()).accuracy for item in extra]
    assert found.accuracy == pytest.approx(np.mean(alone))
    assert (found.items, found.pairs) == (3, 4)


def test_without_choices_the_greedy_token_decides(model):
    rows = items(choices=False)
    policy = VanillaPolicy()
    found = measure(model, rows, policy)
    prompts = [mask_prompt(model.tokenizer, item.prompt, item.spans).factual_ids for item in rows]
    first = [model.tokenizer.encode(item.prompt + item.answer, add_special_tokens=False) for item in rows]
    hits = []
    for ids, whole in zip(prompts, first, strict=True):
        with torch.inference_mode():
            best = int(model.module(input_ids=torch.tensor([ids])).logits[0, -1].argmax())
        hits.append(best == whole[len(ids)])
    assert found.accuracy == np.mean(hits)


def certified(step):
    return any(candidate.certified for candidate in step.candidates if candidate.token_id == step.token_id)


def test_refused_tokens_cannot_be_answers(model):
    rows = items()
    texts = [text for item in rows for text in item.choices]
    examples = [Example(rows[n % 8].prompt, text, rows[n % 8].spans) for n, text in enumerate(texts * 3)]
    calibration = calibrate(model, examples, lam=0.6, alpha=0.15)
    policy = CoftPolicy(lam=0.6, calibration=calibration, accept_mismatch=True)
    answers, refusals = [], 0
    for item in rows:
        chances = []
        for text in item.choices:
            steps = score(model, item.prompt, text, policy, item.spans)
            refused = any(step.set_size and not certified(step) for step in steps)
            chances.append(0.0 if refused else math.exp(sum(step.log_p_fused for step in steps)))
            refusals += refused
        answers.append(np.array(chances) / sum(chances) if any(chances) else np.full(3, 1 / 3))
    assert 0 < refusals < 3 * len(rows)
    gaps = [0.5 * np.abs(answers[2 * n] - answers[2 * n + 1]).sum() for n in range(len(PLACES))]
    found = measure(model, rows, policy)
    assert found.gap == pytest.approx(np.mean(gaps), abs=1e-6)
    assert found.accuracy == np.mean([answer[0] > answer[1:].max() for answer in answers])


def point(accuracy, gap, strength=1.0):
    measured = Measured(accuracy, (accuracy, accuracy), gap, (gap, gap), 100, 50, (gap,) * 50)
    return Point("sdd", {"decay": strength}, measured)


def test_policies_measured_together_are_measured_as_alone(model):
    rows = items()[:4]
    policies = [CoftPolicy(lam=0.2), CoftPolicy(lam=0.7), VanillaPolicy(), method("sdd").build()]
    alone = [measure(model, rows, policy) for policy in policies]
    assert measure_many(model, rows, policies) == alone


def with_gaps(gaps):
    own = point(0.8, float(np.mean(gaps)))
    return replace(own, measured=replace(own.measured, gaps=tuple(gaps)))


def test_the_best_point_has_the_smallest_gap_beyond_noise_among_those_that_keep_accuracy():
    vanilla = point(0.80, 0.5).measured
    weak, strong, too_strong = point(0.79, 0.3), point(0.76, 0.2), point(0.7599, 0.1)
    assert best_point([weak, strong, too_strong], vanilla) is strong
    assert best_point([too_strong], vanilla) is None
    tie = replace(strong, measured=replace(strong.measured, accuracy=0.78))
    assert best_point([strong, tie], vanilla) is tie
    for differences, chosen in (
        ((0.1,) * 50, False), ((0.0,) * 50, False), ((-0.1,) * 50, True), ((-0.3, 0.25) * 25, False),
    ):  # fmt: skip
        tried = with_gaps([0.5 + difference for difference in differences])
        assert best_point([tried], vanilla) is (tried if chosen else None)
    # Among many points, a gain must be clearer.
    tried = with_gaps(0.5 + np.random.default_rng(3).normal(-0.1, 0.3, 50))
    assert best_point([tried], vanilla) is tried
    assert best_point([tried] * 200, vanilla) is None
    gaps = {5.0: 0.3, 20.0: 0.1, 80.0: 0.2}
    variants = variants_of(method("sdd"), tuple(gaps))
    found = sweep(variants, vanilla, lambda tried: [point(0.8, gaps[own.policy.decay]).measured for own in tried])
    assert [own.values["decay"] for own in found.points] == [5.0, 20.0, 80.0]
    assert (found.best.values, found.floor) == ({"decay": 20.0}, pytest.approx(0.76))


def test_strengths_lie_within_their_ranges_and_methods_without_one_have_one_variant():
    for name in ("sdd", "dexperts", "gedi", "contrastive", "dtcd"):
        (turned,) = (own for own in method(name).parameters if own.strength)
        values = [variant.values[turned.name] for variant in variants_of(method(name))]
        assert values == sorted(set(values))
        assert turned.default in values
        assert all(turned.low <= value <= turned.high for value in values)
    assert [variant.values for variant in variants_of(method("vanilla"))] == [{}]
    assert [variant.values for variant in variants_of(method("safety_template"))] == [{}]


def test_coft_is_swept_over_lambda_and_alpha_with_a_calibration_each(model):
    examples = [Example(item.prompt, " good and late", item.spans) for item in items() for _ in range(5)]
    calibrations = {lam: calibrate(model, examples, lam=lam, alpha=0.4) for lam in (0.3, 0.6)}
    found = variants_of(method("coft"), (0.3, 0.6), calibrations, (0.4, 0.5))
    assert [dict(own.values) for own in found] == [
        {"lam": lam, "alpha": alpha} for lam in (0.3, 0.6) for alpha in (0.4, 0.5)
    ]
    assert [own.policy.calibration.alpha for own in found] == [0.4, 0.5, 0.4, 0.5]
    with pytest.raises(InvalidInputError, match=r"no calibration at lambda 0\.9"):
        variants_of(method("coft"), (0.9,), calibrations)


def enough(**changes):
    return [replace(item, **changes) for item in items() for _ in range(3)]


def test_items_that_nothing_can_be_tuned_on_are_refused():
    check_items(enough()[:20])
    for given, said in (
        (items(), "at least 20"),
        (enough(graded=False), "right answer"),
        (enough(pair=None), "share a pair"),
        (enough(others=(" good",)), "Prompt 1 has the same answer twice"),
        (enough(answer=" "), "Prompt 1 is empty"),
        ([*enough(), TuningItem("The man was", " good", (" ill",), pair="shop")], "'shop' have different answers"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            check_items(given)
