"""Effects of controls against one plain, uncached forward a row."""

import pytest
import torch

import coft_core as cc
from coft_core.controls import measure as module
from coft_core.controls.measure import controls_of
from coft_core.controls.placebos import placebos_of
from coft_core.controls.result import Controls, Effects, FamilyControls
from coft_core.controls.statistics import step_down
from coft_core.controls.words import shipped_words
from coft_core.errors import InvalidInputError, PromptTooLongError
from coft_core.model.fake import scripted_model, tiny_model
from tests.conftest import PlainDetector

TEXT = "an old man and a girl met in a park"
SPANS = (cc.Span(3, 6, "age"), cc.Span(7, 10, "gender"), cc.Span(17, 21, "gender"))
TOKENS = [40, 75, 81, 20]
TEMPERATURE = 0.7


@pytest.fixture(scope="module")
def plan():
    policy = cc.CoftPolicy(0.6, temperature=TEMPERATURE)
    return cc.plan(tiny_model(), TEXT, policy, SPANS, detector=PlainDetector())


def distributions(plan, row):
    """After each token of the chain, (T, V) in float64."""
    with torch.inference_mode():
        logits = plan.model.module(input_ids=torch.tensor([[*row, *TOKENS[:-1]]])).logits[0, len(row) - 1 :]
    return torch.softmax(logits.double() / TEMPERATURE, -1)


def slow(plan, pair):
    """Effects and changes of log-probabilities of a pair."""
    shown, masked = (distributions(plan, row) for row in pair)
    own = {token for token, other in zip(*pair, strict=True) if token != other}
    others = [token for token in range(shown.shape[1]) if token not in own]
    effects = (shown - masked)[:, others].clamp(min=0).sum(-1)
    steps = range(len(TOKENS))
    return effects.tolist(), (shown.log() - masked.log())[steps, TOKENS].tolist()


def close(found, plan, pair):
    effects, ratios = slow(plan, pair)
    return found.effects == pytest.approx(effects, abs=3e-5) and found.log_ratios == pytest.approx(ratios, abs=3e-4)


def test_effects_equal_the_slow_computation_and_decide_by_family(plan):
    found = controls_of(plan, TOKENS, neutral=6, others=4)
    placebos = placebos_of(plan, 6, 4, shipped_words())
    assert found.steps == len(TOKENS)
    assert [family.family for family in found.families] == [family.family for family in placebos]
    for family, expected in zip(found.families, placebos, strict=True):
        assert (len(family.neutral), len(family.others)) == (6, 4)
        assert close(family.marked, plan, expected.pair)
        for rows, alike in ((family.neutral, expected.neutral), (family.others, expected.others)):
            assert [row.word for row in rows] == [placebo.word for placebo in alike]
            assert all(close(row, plan, placebo.pair) for row, placebo in zip(rows, alike, strict=True))
        assert list(family.p_values) == step_down([row.effects for row in (family.marked, *family.neutral)])
        assert max(family.marked.effects) > 0.01


@pytest.mark.parametrize("rows", [2, 5, 1000])
def test_batches_of_any_size_give_the_same(plan, monkeypatch, rows):
    whole = controls_of(plan, TOKENS, neutral=6, others=4)
    monkeypatch.setattr(module, "ROWS", rows)
    for family, other in zip(controls_of(plan, TOKENS, neutral=6, others=4).families, whole.families, strict=True):
        for a, b in zip((family.marked, *family.neutral, *family.others),
                        (other.marked, *other.neutral, *other.others), strict=True):  # fmt: skip
            assert a.word == b.word
            assert a.effects == pytest.approx(b.effects, abs=3e-5)
            assert a.log_ratios == pytest.approx(b.log_ratios, abs=3e-4)


def test_ranges_hold_the_watched_tokens_with_neutral_words(plan):
    watched = [(40, 65), (), (7,)]
    found = controls_of(plan, TOKENS, neutral=6, others=0, watched=watched)
    for family, placebos in zip(found.families, placebos_of(plan, 6, 0, shipped_words()), strict=True):
        rows = torch.stack([distributions(plan, placebo.pair[0]) for placebo in placebos.neutral])  # (N, T, V)
        for step, tokens in enumerate([*watched, ()]):
            expected = [(float(rows[:, step, token].min()), float(rows[:, step, token].max())) for token in tokens]
            assert list(family.ranges[step]) == [pytest.approx(pair, abs=3e-5) for pair in expected]


def test_a_words_own_repetition_is_no_effect():
    rest, own, other = ". ", " old", " sad"
    model = scripted_model({own: 0.5, other: 0.3, rest: 0.2}, {own: 0.1, other: 0.2, rest: 0.7},
                           (rest, "the", own, other, " man"))  # fmt: skip
    found = cc.plan(model, "the old man", cc.CoftPolicy(0.6), (cc.Span(4, 7, "age"),), detector=PlainDetector())
    (family,) = controls_of(found, [model.tokenizer.convert_tokens_to_ids("Ġsad")], neutral=0, others=0).families
    assert family.marked.effects == pytest.approx([0.1], abs=1e-4)


def test_the_share_that_is_done_grows_to_one_and_an_error_ends_it(plan, monkeypatch):
    monkeypatch.setattr(module, "ROWS", 4)
    told = []
    controls_of(plan, TOKENS, neutral=6, others=4, told=told.append)
    assert len(told) > 2
    assert told == sorted(set(told))
    assert told[-1] == 1

    def cancel(share):
        told.append(share)
        raise KeyboardInterrupt

    told.clear()
    with pytest.raises(KeyboardInterrupt):
        controls_of(plan, TOKENS, neutral=6, others=4, told=cancel)
    assert len(told) == 1


def test_nothing_to_compare_and_texts_that_do_not_fit(plan):
    with pytest.raises(InvalidInputError):
        controls_of(plan, [])
    with pytest.raises(PromptTooLongError):
        controls_of(plan, [40] * 300)
    bare = cc.plan(plan.model, TEXT, cc.CoftPolicy(0.6), (), detector=PlainDetector())
    none = controls_of(bare, TOKENS)
    assert (none.families, none.evidence, none.steps, none.strongest(0), none.supports(0)) == ((), None, 0, None, False)


def test_ranks_and_evidence_rest_on_the_first_step_only(plan):
    short, long = (controls_of(plan, tokens, neutral=9, others=4) for tokens in (TOKENS[:1], TOKENS))
    assert short.evidence == long.evidence == long.computed()
    for one, other in zip(short.families, long.families, strict=True):
        assert one.rank == other.rank == sum(row.effects[0] >= one.marked.effects[0] for row in one.neutral) + 1
        assert one.rank_elsewhere == other.rank_elsewhere


def test_other_words_decide_only_where_no_neutral_word_fits_and_families_share_the_level():
    def row(*effects):
        return Effects("", effects, (0.0,) * len(effects))

    marked, stronger, weaker = row(0.5, 0.1), row(0.6, 0.0), row(0.4, 0.0)
    both = FamilyControls("age", marked, "neutral", (weaker,) * 39, (stronger,), (0.025, 1.0))
    only = FamilyControls("gender", marked, "", (), (stronger, weaker), (2 / 3, 1.0))
    none = FamilyControls("race", marked, "", (), ())
    assert [family.computed() for family in (both, only, none)] == [
        pytest.approx((0.025, 0.025)), pytest.approx((2 / 3, 2 / 3)), (1.0, 1.0)
    ]  # fmt: skip
    assert (both.rank, both.rank_elsewhere, only.rank) == (1, 2, 2)
    found = Controls((both, only), "key")
    assert found.strongest(0) is both
    assert found.p_value(0) == pytest.approx(0.05)
    assert (found.supports(0), found.supports(1), found.supports(2)) == (True, False, False)
    assert Controls((both,), "key").computed() == found.computed() > 1
    assert Controls((only,), "key").computed() is None
