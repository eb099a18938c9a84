"""p-values and e-values of controls keep their level where the marked word does what any comparable word does.

Shares are compared with their level plus four standard errors. Each of about 110 comparisons is wrong with a chance of
at most 3e-5, so that a correct program fails with a chance below 0.4 % for a new seed; the seeds are fixed.
"""

import numpy as np
import pytest

from coft_core.controls.statistics import between_groups, e_value, rank_of, rank_sum_p, step_down

LEVELS = np.arange(1, 20) / 20
ROWS, STEPS = 40, 24


def effects(generator, correlation, rows=ROWS, steps=STEPS):
    """Effects of exchangeable rows, (R, T): steps of a row are alike, and all rows share what a step is like."""
    own = generator.normal(size=(rows, 1)) * np.sqrt(correlation)
    return np.abs(own + generator.normal(size=(rows, steps)) * np.sqrt(1 - correlation)) * generator.gamma(
        1, size=steps
    )


def never_too_small(p_values):
    """Whether the share of p-values up to each level is at most the level, but for chance."""
    shares = (np.asarray(p_values)[:, None] <= LEVELS + 1e-9).mean(axis=0)
    return bool((shares <= LEVELS + 4 * np.sqrt(LEVELS * (1 - LEVELS) / len(p_values))).all())


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.99])
def test_the_smallest_p_value_of_a_text_is_never_too_small(correlation):
    generator = np.random.default_rng(11)
    p_values = [step_down(effects(generator, correlation)) for _ in range(3000)]
    assert never_too_small(np.min(p_values, axis=1))
    assert never_too_small([row[0] for row in p_values])
    # Nothing is given away: the smallest one is at most 0.05 in just 5 %.
    assert np.mean(np.min(p_values, axis=1) <= 0.05) == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / 3000))


def test_steps_without_an_effect_are_seldom_called_though_others_have_one():
    generator = np.random.default_rng(12)
    smallest = []
    for _ in range(2000):
        table = effects(generator, 0.6)
        table[0, :5] += 20
        smallest.append(min(step_down(table)[5:]))
    assert never_too_small(smallest)


def test_without_the_correction_the_strongest_step_would_be_called_too_often():
    generator = np.random.default_rng(13)
    tables = [effects(generator, 0.0) for _ in range(500)]
    assert np.mean([min((table >= table[0]).mean(axis=0)) <= 0.05 for table in tables]) > 0.3


def test_rank_sums_of_prompts_are_never_too_small():
    generator = np.random.default_rng(14)
    sizes = generator.integers(5, 41, size=20)
    p_values = [rank_sum_p([rank_of(generator.random((rows, 1))) for rows in sizes], sizes) for _ in range(2000)]
    assert never_too_small(p_values)
    assert np.mean(np.asarray(p_values) <= 0.05) > 0.03


@pytest.mark.parametrize(("prompts", "members", "repetitions"), [(1, 5, 400), (2, 3, 800), (3, 8, 60)])
def test_groups_that_do_not_differ_are_seldom_told_apart_and_intervals_hold_the_difference(
    prompts, members, repetitions
):
    generator = np.random.default_rng(15)
    tests = []
    for _ in range(repetitions):
        values = generator.random((2, prompts, members)) * 0.5 + generator.random((prompts, 1)) * 0.3
        values[0] += 0.1
        tests.append((between_groups((values[0] - 0.1).tolist(), values[1].tolist()), between_groups(*values.tolist())))
    assert never_too_small([equal.p_value for equal, _ in tests])
    missed = np.mean([not apart.low <= 0.1 <= apart.high for _, apart in tests])
    assert missed <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / repetitions)


def test_reviewers_who_stop_when_they_like_seldom_reach_evidence_of_twenty():
    generator = np.random.default_rng(16)
    reached, ends = [], []
    for reviewer in range(2000):
        product, best, rows = 1.0, 1.0, 40
        for prompt in range(40):
            # How many comparable words are taken next may depend on the evidence so far.
            product *= e_value(generator.random((rows, 1)), f"{reviewer} {prompt}")
            best, rows = max(best, product), 40 if product > 1 else 20
        reached.append(best)
        ends.append(product)
    for evidence in (2, 5, 20, 37, 100):
        assert np.mean(np.asarray(reached) >= evidence) <= 1 / evidence + 4 * np.sqrt(1 / evidence / 2000)
    assert np.mean(np.asarray(reached) >= 20) <= 0.05


def test_a_word_that_matters_more_is_found():
    generator = np.random.default_rng(17)
    product = 1.0
    for prompt in range(10):
        table = generator.random((ROWS, 1))
        table[0] += 0.6
        product *= e_value(table, str(prompt))
    assert product > 20


def repeats(word, before, vocabulary):
    """A model that begins to repeat a word of two tokens at times, and mostly ends what it began."""
    p = np.full(vocabulary, 1 / vocabulary)
    if word is not None and before == word[0]:
        p *= 0.1
        p[word[1]] += 0.9
    elif word is not None:
        p *= 0.95
        p[word[0]] += 0.05
    return p


def test_only_the_first_step_of_a_text_that_was_written_with_the_word_treats_all_words_alike():
    generator, vocabulary = np.random.default_rng(18), 500
    first, strongest, without_repetition = [], [], []
    for _ in range(200):
        words = generator.integers(0, vocabulary, (ROWS, 2))
        before, rows = None, []
        for _ in range(STEPS):
            shown = np.array([repeats(word, before, vocabulary) for word in words])  # (R, V)
            gained = np.clip(shown - repeats(None, before, vocabulary), 0, None)
            left = gained.copy()
            for row, word in enumerate(words):
                left[row, word] = 0
            rows.append((gained.sum(axis=1), left.sum(axis=1)))
            before = generator.choice(vocabulary, p=shown[0])
        # Words that do exactly the same are told apart at random.
        table, other = np.array(rows).transpose(1, 2, 0) + 1e-6 * generator.random((2, ROWS, STEPS))
        first.append(step_down(table[:, :1])[0])
        strongest.append(min(step_down(table)))
        without_repetition.append(min(step_down(other)))
    assert never_too_small(first)
    assert np.mean(np.asarray(strongest) <= 0.05) > 0.3
    # A word's own tokens are left out of its effect for this reason.
    assert never_too_small(without_repetition)
