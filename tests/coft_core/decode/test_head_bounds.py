"""A head's bounds hold whatever the tail is: against the reading of all logits, and against float64 sums."""

import math
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import coft_core as cc
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.values import CalibrationValues
from coft_core.decode.heads import fused_tail
from coft_core.decode.keep import Keeper
from coft_core.decode.record import StepContext, pack_step, unpack_step
from coft_core.decode.reread import Reader, read_full, read_head
from coft_core.policies.sampling import choose
from tests.conftest import TOY_FINGERPRINT

FAMILIES = ("gender", "race", "age")


@cache
def calibration(tau):
    """A threshold of ``tau`` at every step; 0 is a calibration that certifies everything."""
    count = 99 if tau else 3
    values = np.full(count, math.log(tau) if tau else -1.0)
    return cc.Calibration.of(TOY_FINGERPRINT, 0.1, CalibrationValues(values, np.zeros(count, int), np.arange(count)))


def policy_for(branches, lam, tau, **sampling):
    if branches == 2:
        thresholds = None if tau is None else calibration(tau)
        return cc.CoftPolicy(lam=lam, calibration=thresholds, **sampling)
    parts = [
        (name, calibration(tau * (1 + i) / 2).joint)
        for i, name in enumerate(FAMILIES[: branches - 1])
        if tau is not None
    ]
    thresholds = Calibration(0.31, tuple(parts)) if parts else None
    return cc.FactorizedCoftPolicy(lam=lam, calibration=thresholds, **sampling)


def names(branches):
    return ("factual", "masked") if branches == 2 else ("factual", *(f"masked:{f}" for f in FAMILIES[: branches - 1]))


def keep(policy, logits, head_tokens, emitted, full_bytes=0):
    keeper = Keeper.of(policy, names(len(logits)), logits, full_bytes, head_tokens)
    return keeper.unpack(keeper.pack(logits, torch.tensor([emitted])).numpy().tobytes())


def step_of(policy, logits, emitted, uniform=0.5, greedy=False):
    with torch.inference_mode():
        views = policy.views(logits[None], 0, names(len(logits)))
        draw = torch.tensor([uniform], dtype=torch.float64)
        choice = choose(views.log_p_fused, views.certified, policy.sampling, draw, greedy)
        packed = pack_step(views, choice, torch.tensor([emitted]))[0].tolist()
    return unpack_step(packed, str, views, StepContext(0, False, False, logits.shape[-1]))


@st.composite
def cases(draw):
    """Logits of a step, how it was decoded, and how it is read again."""
    seed, vocabulary = draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from([12, 80, 700]))
    branches = draw(st.sampled_from([2, 2, 3, 4]))
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(vocabulary, generator=generator) * draw(st.sampled_from([0.5, 2.0, 5.0]))
    apart = draw(st.sampled_from([0.0, 0.2, 1.0, 4.0]))
    logits = shared + apart * torch.randn(branches, vocabulary, generator=generator)
    if draw(st.booleans()):
        logits = (logits * 4).round() / 4
    if draw(st.integers(0, 4)) == 0:
        logits[torch.rand(branches, vocabulary, generator=generator) < 0.1] = -torch.inf
    # No one types a lambda with more digits; below 1e-45 it is 0 in float32, and 0 times a forbidden token is NaN.
    lams = st.one_of(st.sampled_from([0.0, 0.3, 0.5, 0.6, 1.0]), st.floats(0, 1).map(lambda lam: round(lam, 6)))
    return SimpleNamespace(
        logits=logits.to(draw(st.sampled_from([torch.float32, torch.bfloat16]))),
        decoded_lam=draw(lams),
        lam=draw(lams),
        tau=draw(st.sampled_from([None, 0, 1e-4, 1e-3, 0.01, 0.05, 0.3])),
        sampling={
            "temperature": draw(st.sampled_from([0.7, 1.0, 1.5])),
            "top_p": draw(st.sampled_from([0.2, 0.9, 0.99, 1.0])),
            "top_k": draw(st.sampled_from([0, 0, 3, 40])),
        },
        head_tokens=draw(st.integers(1, vocabulary)),
        emitted=draw(st.integers(0, vocabulary - 1)),
        uniform=draw(st.floats(0, 1, exclude_max=True)),
        greedy=draw(st.booleans()),
    )


class Drawn(Reader):
    """Reads a step whose draw is given."""

    @classmethod
    def at(cls, policy, uniform, greedy=False):
        reader = cls(policy, 0, "0", greedy, False, str)
        object.__setattr__(reader, "given", uniform)
        return reader

    def uniform(self, step):
        return self.given


def both(case):
    """The step read from all of its logits and from its head."""
    branches = len(case.logits)
    decoded = policy_for(branches, case.decoded_lam, case.tau, **case.sampling)
    reader = policy_for(branches, case.lam, case.tau, **case.sampling)
    step = step_of(decoded, case.logits, case.emitted, case.uniform, case.greedy)
    at_draw = Drawn.at(reader, case.uniform, case.greedy)
    (full,) = read_full([(step, keep(decoded, case.logits, 0, case.emitted, full_bytes=10**9))], at_draw)
    stored = keep(decoded, case.logits, case.head_tokens, case.emitted)
    head = read_full([(step, stored)], at_draw)[0] if stored.mode == "full" else read_head(step, stored, at_draw)
    return full, head


def contains(bounds, exact, slack=1e-4):
    """Whether bounds hold a number that was computed in float32."""
    if math.isinf(exact.low):
        return exact.low in (bounds.low, bounds.high)
    return bounds.low - slack <= exact.low <= bounds.high + slack


@settings(max_examples=60, deadline=None)
@given(cases())
def test_what_a_head_says_for_certain_and_its_bounds_agree_with_all_logits(case):
    full, head = both(case)
    for name in ("in_set", "certified", "fallback", "policy_token_id", "policy_token", "changed"):
        said = getattr(head, name)
        assert said is None or said == getattr(full, name), name
    assert (head.log_tau, head.token_id) == (full.log_tau, full.token_id)
    assert head.state == full.state or (head.width_open and full.state == "uninformative")
    for own, exact in zip(head.families, full.families, strict=True):
        assert own.in_set is None or own.in_set == exact.in_set
        assert (own.family, own.log_tau, own.state) == (exact.family, exact.log_tau, exact.state)
        assert contains(own.margin, exact.margin)
    assert head.set_size.low <= full.set_size.low <= head.set_size.high
    for name in ("log_p_fused", "certified_mass", "margin", "kl_fused_masked"):
        bounds = getattr(head, name)
        assert bounds.low <= bounds.high
        assert contains(bounds, getattr(full, name)), (name, bounds, getattr(full, name))
    bounds_hold_the_sums_over_the_whole_vocabulary(case, head)


def bounds_hold_the_sums_over_the_whole_vocabulary(case, head):
    """Against the definition, in float64."""
    if head.mode == "full":
        return
    rows = case.logits.float().double() / case.sampling["temperature"]
    masked = rows[1:].mean(0)
    fused = rows[0] if case.lam == 0 else masked if case.lam == 1 else (1 - case.lam) * rows[0] + case.lam * masked
    log_p, log_q = torch.log_softmax(fused, 0), torch.log_softmax(masked, 0)
    own = float(log_p[case.emitted])
    assert own == head.log_p_fused.low or head.log_p_fused.low - 1e-9 <= own <= head.log_p_fused.high + 1e-9
    alive = log_p > -math.inf
    divergence = float((log_p.exp() * (log_p - log_q))[alive].sum())
    assert divergence == head.kl_fused_masked.high or (
        head.kl_fused_masked.low - 1e-9 <= max(divergence, 0.0) <= head.kl_fused_masked.high + 1e-9
    )


@settings(max_examples=40, deadline=None)
@given(cases())
def test_at_a_lambda_that_was_measured_nothing_but_rounding_is_open_and_a_whole_head_is_read_exactly(case):
    lam, case.lam = case.lam, case.decoded_lam
    full, head = both(case)
    assert head.log_p_fused.exact
    assert head.margin.exact
    assert head.kl_fused_masked.exact
    if abs(full.margin.low) > 1e-2:
        assert head.in_set is not None
    case.lam, case.head_tokens = lam, case.logits.shape[-1]
    full, head = both(case)
    assert head == full


def peaked(vocabulary=2000, seed=5):
    """Two branches with nearly all of their mass on the first tokens."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, vocabulary, generator=generator)
    logits[:, :40] += torch.linspace(16, 9, 40)
    return logits


def test_a_head_with_nearly_all_of_the_mass_leaves_next_to_nothing_open():
    case = SimpleNamespace(
        logits=peaked(), decoded_lam=0.6, tau=0.004, sampling={"temperature": 1.0, "top_p": 0.9, "top_k": 0},
        head_tokens=64, greedy=False,
    )  # fmt: skip
    for case.lam in (0.1, 0.37, 0.9):
        for case.emitted, case.uniform in ((0, 0.05), (3, 0.5), (1500, 0.77), (9, 0.93)):
            full, head = both(case)
            assert head.mode == "head"
            assert (head.in_set, head.policy_token_id, head.fallback) == (
                full.in_set, full.policy_token_id, full.fallback,
            )  # fmt: skip
            assert head.set_size == full.set_size
            assert head.log_p_fused.high - head.log_p_fused.low < 1e-4
            assert head.kl_fused_masked.high - head.kl_fused_masked.low < 1e-4


def test_a_token_whose_status_hangs_on_the_tail_says_so():
    generator = torch.Generator().manual_seed(0)
    flat = torch.randn(2, 3000, generator=generator) * 2
    case = SimpleNamespace(
        logits=flat, decoded_lam=0.6, lam=0.4, sampling={"temperature": 1.0, "top_p": 0.9, "top_k": 0}, head_tokens=8,
        emitted=int(flat[1].argmax()), uniform=0.6, greedy=False,
    )  # fmt: skip
    case.tau = 0.01
    exact = both(case)[0]
    case.tau = math.exp(exact.log_tau + exact.margin.low)
    _, head = both(case)
    assert (head.in_set, head.certified) == (None, None)
    assert head.hangs_on_tail
    assert "were not kept" in head.note
    case.tau *= 0.5
    _, head = both(case)
    assert (head.in_set, head.hangs_on_tail, head.note) == (True, False, "")


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), lam=st.floats(0, 1), temperature=st.sampled_from([0.5, 1.0, 2.0]))
def test_bounds_on_the_fused_tail_hold_and_are_no_wider_than_hoelders(seed, lam, temperature):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 300, generator=generator) * 3
    stored = keep(cc.CoftPolicy(lam=0.6, temperature=temperature), logits, 20, 0)
    tail = fused_tail(stored.tail, lam, temperature)
    outside = torch.ones(300, dtype=torch.bool).index_fill(0, torch.from_numpy(stored.tail.ids), False)
    fused = ((1 - lam) * logits[0].double() + lam * logits[1].double())[outside] / temperature
    assert tail.log_mass.low - 1e-9 <= float(torch.logsumexp(fused, 0)) <= tail.log_mass.high + 1e-9
    assert float(fused.max()) <= tail.largest + 1e-9
    factual, masked = stored.tail.log_mass
    assert tail.log_mass.high <= (1 - lam) * factual + lam * masked + 1e-8


def test_tokens_with_the_same_logits_are_told_apart_by_their_order():
    logits = torch.zeros(2, 50)
    logits[:, [7, 30, 41]] = 9.0
    case = SimpleNamespace(
        logits=logits, decoded_lam=0.5, lam=0.2, tau=0.1, sampling={"temperature": 1.0, "top_p": 1.0, "top_k": 0},
        head_tokens=3, emitted=7, greedy=False,
    )  # fmt: skip
    for case.uniform, expected in ((0.1, 7), (0.5, 30), (0.9, 41)):
        full, head = both(case)
        assert head.mode == "head"
        assert head.policy_token_id == full.policy_token_id == expected


def test_a_policy_that_only_draws_from_the_factual_branch_is_read_too():
    logits = peaked()
    policy = cc.VanillaPolicy()
    step = step_of(policy, logits, 0, 0.4)
    reading = read_head(step, keep(policy, logits, 64, 0), Drawn.at(policy, 0.4))
    assert (reading.policy_token_id, reading.changed) == (step.policy_token_id, False)
    assert (reading.state, reading.certified, reading.set_size) == ("none", False, cc.Bounds(0, 0))
    assert reading.log_p_fused.low == pytest.approx(step.log_p_fused, abs=1e-5)
    assert reading.kl_fused_masked.low == pytest.approx(step.diagnostics.kl_fused_masked, abs=1e-4)
