"""Calibration on references: several weights and families in one pass, against slow computations one by one."""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import coft_core as cc
from coft_core.calibrate.run import calibrate_factorized, calibrate_many
from coft_core.conformal.calibration import Calibration, split_alpha
from coft_core.conformal.part import Part
from coft_core.conformal.values import BELOW, CalibrationValues
from coft_core.errors import CalibrationMismatch, InvalidInputError
from coft_core.model.fake import tiny_model
from coft_core.text.masking import continuation_ids, mask_prompt
from tests.conftest import PlainDetector

LAMS = [0.0, 0.4, 1.0]


def example(number):
    """Gender in every prompt, age in two of three."""
    text = f"the old man number {number} said he"
    spans = [cc.Span(text.index("man"), text.index("man") + 3, "gender")]
    if number % 3:
        spans.append(cc.Span(4, 7, "age"))
    return cc.Example(text, "would" if number % 2 else "went home", tuple(spans))


EXAMPLES = [example(number) for number in range(12)]
OPTIONS = {"detector": PlainDetector(), "alpha": 0.2}


@pytest.fixture(scope="module")
def model():
    return tiny_model()


slow_model = functools.cache(tiny_model)


@functools.cache
def slow_logits(ids):
    """The logits behind a text, which no weight changes, in float64."""
    with torch.inference_mode():
        return slow_model().module(input_ids=torch.tensor([ids])).logits[0, -1].double()


def slow_support(model, example, families, lam, temperature):
    """Support of each reference token in each branch of ``families``, one forward a prefix and branch, float64."""
    given = cc.mask_prompt(model.tokenizer, example.prompt, example.spans)
    branches = [given.factual_ids]
    for wanted in families:
        own = [span for span in example.spans if span.category in wanted]
        branches.append(cc.mask_prompt(model.tokenizer, example.prompt, own).masked_ids)
    tokens = model.tokenizer.encode(" " + example.reference, add_special_tokens=False)
    rows = []
    for position, token in enumerate(tokens):
        z = [slow_logits((*ids, *tokens[:position])) / temperature for ids in branches]
        fused = torch.log_softmax((1 - lam) * z[0] + lam * torch.stack(z[1:]).mean(0), -1)[token]
        rows.append([float(min(fused, torch.log_softmax(m, -1)[token])) for m in z[1:]])
    return np.array(rows)


def test_every_weight_gives_the_slow_values(model):
    made = calibrate_many(model, EXAMPLES, LAMS, temperature=0.8, verification_share=0, batch_size=5, **OPTIONS)
    for lam, calibration in zip(LAMS, made, strict=True):
        expected = [slow_support(model, e, [("gender", "age")], lam, 0.8)[:, 0] for e in EXAMPLES]
        np.testing.assert_allclose(calibration.joint.values.values + BELOW, np.concatenate(expected), atol=2e-5)
        assert calibration.fingerprint.lam == lam


def test_one_weight_among_many_equals_that_weight_alone_and_none_or_a_wrong_one_is_refused(model):
    alone = cc.calibrate(model, EXAMPLES, lam=0.4, **OPTIONS)
    among = calibrate_many(model, EXAMPLES, LAMS, **OPTIONS)[1]
    assert replace(among, created="") == replace(alone, created="")
    assert among.coverage == alone.coverage
    with pytest.raises(InvalidInputError, match="at least one lambda"):
        calibrate_many(model, EXAMPLES, [], **OPTIONS)
    with pytest.raises(InvalidInputError, match="lambda is 2"):
        calibrate_many(model, EXAMPLES, [0.5, 2], **OPTIONS)


def test_more_weights_do_not_run_the_model_more_often(model, monkeypatch):
    counts = []
    inner = model.module.model.forward
    for lams in ([0.5], [0.1, 0.2, 0.3, 0.4, 0.5]):
        calls = []
        monkeypatch.setattr(
            model.module.model, "forward", lambda *a, calls=calls, **k: calls.append(0) or inner(*a, **k)
        )
        calibrate_many(model, EXAMPLES, lams, **OPTIONS)
        counts.append(len(calls))
    assert counts[0] == counts[1]


class TestFactorized:
    def test_each_family_has_the_slow_values_of_the_examples_that_mask_it(self, model):
        made = calibrate_factorized(model, EXAMPLES, LAMS, verification_share=0, **OPTIONS)
        for lam, calibration in zip(LAMS, made, strict=True):
            assert calibration.families == ("gender", "age")
            expected = {"gender": [], "age": []}
            for e in EXAMPLES:
                present = [f for f in ("gender", "age") if any(s.category == f for s in e.spans)]
                values = slow_support(model, e, [(f,) for f in present], lam, 1.0)
                for index, family in enumerate(present):
                    expected[family].append(values[:, index])
            for family, values in expected.items():
                found = calibration.part(family).values
                np.testing.assert_allclose(found.values + BELOW, np.concatenate(values), atol=2e-5)
                assert found.context_count == len(values)

    def test_alpha_is_shared_out_equally_or_by_hand_and_never_exceeded(self, model):
        equal = calibrate_factorized(model, EXAMPLES, detector=PlainDetector(), alpha=0.4)[0]
        assert equal.alphas == {"gender": 0.2, "age": 0.2}
        hand = {"gender": 0.3, "age": 0.1}
        by_hand = calibrate_factorized(model, EXAMPLES, detector=PlainDetector(), alpha=0.4, by_family=hand)[0]
        assert by_hand.alphas == hand
        assert equal.read(by_family=hand).part("gender").bins == replace(equal.part("gender"), alpha=0.3).bins
        with pytest.raises(InvalidInputError, match=r"sum to more than alpha 0\.3"):
            equal.read(alpha=0.3, by_family=hand)
        with pytest.raises(InvalidInputError, match="'age' has no share"):
            split_alpha(0.4, ("gender", "age"), {"gender": 0.1})
        for alpha in (0.1, 0.05, 0.2, 0.3):
            for count in range(1, 12):
                shares = split_alpha(alpha, [str(i) for i in range(count)])
                assert math.fsum(shares.values()) <= alpha + 1e-15
                assert math.fsum(shares.values()) > alpha - 1e-7

    def test_every_family_keeps_the_contexts_that_its_level_needs_and_nothing_masked_is_refused(self, model):
        made = calibrate_factorized(model, EXAMPLES, detector=PlainDetector(), alpha=0.3, verification_share=0.9)[0]
        for _, part in made.parts:
            assert part.context_count >= math.ceil(1 / part.alpha) - 1
            assert part.verification.context_count > 0
        with pytest.raises(InvalidInputError, match="Nothing is masked"):
            calibrate_factorized(model, [cc.Example("a b", "c", ())], **OPTIONS)
        with pytest.raises(InvalidInputError, match="Nothing is masked"):
            calibrate_factorized(model, EXAMPLES, families=("race",), **OPTIONS)

    def test_parts_of_different_policies_are_refused(self, fingerprint):
        one, other = (
            Part(print_, 0.05, CalibrationValues.empty()) for print_ in (fingerprint, replace(fingerprint, lam=0.1))
        )
        with pytest.raises(CalibrationMismatch, match="lam"):
            Calibration(0.1, (("age", one), ("race", other)))
        with pytest.raises(InvalidInputError, match="at least one part"):
            Calibration(0.1, ())
        with pytest.raises(InvalidInputError, match="sum to more"):
            Calibration(0.07, (("age", one), ("race", one)))


class TestMaskSettings:
    """Whatever changes the mask changes the fingerprint, so that a calibration made otherwise does not fit."""

    def test_a_policy_with_another_mask_is_refused_and_with_the_same_accepted(self, model):
        for change in (
            {"mask_mode": "soft"}, {"mask_mode": "soft", "mask_hint": "someone"}, {"families": ("gender",)},
            {"whitelist": ("old",)},
        ):  # fmt: skip
            made = cc.calibrate(model, EXAMPLES, lam=0.6, **OPTIONS)
            other = calibrate_many(model, EXAMPLES, [0.6], **OPTIONS, **change)[0]
            for calibration, good, bad in ((made, {}, change), (other, change, {})):
                good_policy = cc.CoftPolicy(calibration=calibration, **good)
                assert good_policy.certificate(model, "none").text == "certified"
                with pytest.raises(CalibrationMismatch, match="mask_mode"):
                    cc.CoftPolicy(calibration=calibration, **bad).certificate(model, "none")

    def test_two_hints_or_joint_and_factorized_masks_do_not_serve_each_other(self, model):
        made = calibrate_many(model, EXAMPLES, [0.6], mask_mode="soft", mask_hint="a person", **OPTIONS)[0]
        with pytest.raises(CalibrationMismatch, match="soft: someone"):
            cc.CoftPolicy(calibration=made, mask_mode="soft", mask_hint="someone").certificate(model, "none")
        joint = cc.calibrate(model, EXAMPLES, lam=0.6, **OPTIONS)
        parts = calibrate_factorized(model, EXAMPLES, **OPTIONS)[0]
        assert joint.fingerprint.differences(parts.fingerprint) == (("mask_mode", "hard", "hard; factorized"),)

    def test_what_is_kept_in_the_audit_or_in_the_examples_fits_only_its_like(self, model):
        made = cc.calibrate(model, EXAMPLES, lam=0.6, **OPTIONS)
        text, spans = "the old man said he", [cc.Span(4, 7, "age"), cc.Span(8, 11, "gender")]

        def planned(spans, **settings):
            return cc.plan(model, text, cc.CoftPolicy(**settings), spans, detector=PlainDetector())

        with pytest.raises(CalibrationMismatch, match='keeps \\["old"\\]'):
            planned(spans, calibration=made, whitelist=("old",))
        knowingly = planned(spans, calibration=made, whitelist=("old",), accept_mismatch=True)
        assert knowingly.certificate.text == "uncertified: policy mismatch (mask_mode)"
        kept = planned([replace(spans[0], kept=True), spans[1]], calibration=made)
        assert kept.certificate.text == "certified"
        assert sum(span.masked for span in kept.prompt.spans) == 1
        keeping = [replace(e, spans=tuple(replace(s, kept=s.category == "age") for s in e.spans)) for e in EXAMPLES]
        made = calibrate_many(model, keeping, [0.6], **OPTIONS)[0]
        assert made.fingerprint.mask_mode == 'hard; keeps ["old"]'
        listed = planned(spans, calibration=made, whitelist=(" Old ",))
        assert (listed.certificate.text, [span.kept for span in listed.prompt.spans]) == ("certified", [True, False])
        with pytest.raises(CalibrationMismatch, match="mask_mode"):
            cc.CoftPolicy(calibration=made).certificate(model, "none")


def test_reference_has_ended_only_where_it_is_written_with_the_end_of_text():
    model = tiny_model()
    examples = [cc.Example("She said that", "he was right"), cc.Example("The old man", "was a judge")]
    ends = {continuation_ids(model, mask_prompt(model.tokenizer, "The old man", ()), " was a judge")[-1]}
    ending = replace(model, end_token_ids=frozenset(ends))
    (found,) = calibrate_many(ending, examples, [0.6], alpha=0.5, verification_share=0.0)
    assert found.joint.values.ends.tolist() == [0] * (len(found.joint.values) - 1) + [1]
