"""What the audit page says of families, chains and contributions."""

import math
import re
from dataclasses import replace

import pytest

from app.audit.service import AuditService
from app.audit.words import contributions_message, no_chain, session_message, steps_message
from app.shared.step_words import step_card
from coft_core.conformal.bins import PositionBins
from coft_core.conformal.chain import ChainCertificate
from coft_core.conformal.sequence import ChainLengths, SequenceThreshold, union_bound, why_silent
from coft_core.decode.contributions import LeaveOneOut, SpanContribution
from coft_core.types import FamilyStep, Span
from tests.records import make_step

FAMILIES = ("gender", "religion")
SHIFTS = (0.72, 1.2, 0.95)
"""What masking each family in turn does to the masked probability."""

HORIZON = 40
CHAIN_TAU = 0.011


def with_families(step, families):
    """The same step as factorized masks would show it."""
    taus = [math.exp(step.log_tau) * (1.0 - 0.25 * (place % 3)) for place in range(len(families))]

    def joint(candidate, place):
        return min(candidate.log_p_fused, candidate.log_p_masked + math.log(SHIFTS[place % 3]))

    def refusing(candidate):
        return tuple(name for place, name in enumerate(families) if math.exp(joint(candidate, place)) < taus[place])

    applied = step.state != "none"
    rows = tuple(
        replace(row, refused_by=refusing(row) if applied else (), certified=applied and not refusing(row))
        for row in step.candidates
    )
    own = next(row for row in rows if row.token_id == step.token_id)
    parts = tuple(
        FamilyStep(
            name, own.log_p_masked + math.log(SHIFTS[place % 3]), joint(own, place),
            math.log(taus[place]) if taus[place] else -math.inf, name not in own.refused_by, step.state,
        )
        for place, name in enumerate(families)
    )  # fmt: skip
    return replace(
        step, candidates=rows, families=parts, certified=own.certified and step.state not in ("none", "mismatch"),
        log_tau=min(part.log_tau for part in parts), set_size=sum(row.certified for row in rows),
    )  # fmt: skip


def chain_of(steps, alpha):
    """Both certificates of a chain."""
    if not steps or any(step.state == "none" for step in steps):
        return None
    supports = [min(step.log_p_fused, step.log_p_masked) for step in steps]
    weakest = supports.index(min(supports))
    lengths = ChainLengths(reached=301, ended=111, shortest=6, median=40, longest=HORIZON)
    sequence = SequenceThreshold(
        alpha, HORIZON, lengths, state="calibrated", log_tau=math.log(CHAIN_TAU), contexts=412, values=412, rank=41
    )
    silent = why_silent(sequence, len(steps), "end")
    own = all(step.state == "calibrated" for step in steps)
    return ChainCertificate(
        steps=len(steps), log_support=supports[weakest], weakest=weakest, sequence=sequence,
        sequence_certified=supports[weakest] >= sequence.log_tau if not silent else None,
        union=union_bound(alpha, len(steps), PositionBins(8, 256, "even")),
        union_certified=all(step.certified for step in steps) if own else None,
        reason=silent or ("" if own else "A step has no calibrated threshold of its own."),
    )  # fmt: skip


def contributions_of(steps, spans):
    """Shares of each step's log ratio that do not add up to it."""
    masked = [span for span in spans if span.masked]
    ratios = [step.diagnostics.log_ratio for step in steps]
    shares = [0.8, -0.35, 0.2, 0.1]
    parts = tuple(
        SpanContribution(
            span,
            tuple(1.1 * shares[place % 4] * ratio for ratio in ratios),
            tuple(shares[place % 4] * ratio for ratio in ratios),
        )
        for place, span in enumerate(masked)
    )
    return LeaveOneOut(
        tuple(range(len(steps))), tuple(step.token_id for step in steps), tuple(1.1 * r for r in ratios),
        tuple(ratios), parts,
    )  # fmt: skip


def factorized(state="calibrated", **changes):
    return replace(with_families(make_step(3, " his", state), FAMILIES), **changes)


def refusing(step, *names):
    """The same step, the emitted token refused by some families."""
    parts = tuple(
        replace(part, log_joint=part.log_tau - 0.1 if part.family in names else part.log_tau + 0.1)
        for part in step.families
    )
    rows = tuple(
        replace(row, refused_by=names, certified=not names) if row.token_id == step.token_id else row
        for row in step.candidates
    )
    return replace(step, families=parts, candidates=rows, certified=not names)


# families


def test_a_familys_borrowed_or_missing_threshold_is_never_called_certified_without_a_caveat():
    for state in ("inherited", "uninformative", "mismatch", "none"):
        step = factorized(state)
        card = step_card(step)
        assert card["v"][0] != "Thresholds held:"
        assert all(row["mark"] != "tick" for row in card["rows"])
        assert all(row["mark"] != "tick" for row in card["fam"])


def test_a_refused_candidate_and_a_forced_token_name_the_families_and_a_certified_one_none():
    step = refusing(factorized(), "religion")
    rows = {row["id"]: row for row in step_card(step)["rows"]}
    assert rows[step.token_id]["why"] == "refused by religion"
    step = refusing(factorized(), *FAMILIES)
    rows = {row["id"]: row for row in step_card(step)["rows"]}
    assert rows[step.token_id]["why"] == "refused by every family"
    step = refusing(factorized())
    assert {row["id"]: row for row in step_card(step)["rows"]}[step.token_id]["mark"] == "tick"
    step = replace(refusing(factorized(), "gender"), forced=True)
    card = step_card(step)
    assert "gender" in card["v"][1]
    assert "religion" not in card["v"][1]
    assert card["k"] == ["pin", "tri"]
    assert "not certified" in card["sr"]
    both = step_card(replace(refusing(factorized(), *FAMILIES), forced=True))
    assert "gender and religion" in both["v"][1]


def test_each_familys_line_shows_its_own_threshold_and_with_one_branch_nothing_is_said_of_families():
    step = factorized()
    card = step_card(step)
    assert [row["n"] for row in card["fam"]] == ["gender", "religion"]
    taus = [math.exp(part.log_tau) for part in step.families]
    assert [float(row["tau"]) for row in card["fam"]] == pytest.approx(taus, rel=0.05)
    tightest = min(step.families, key=lambda part: part.log_joint - part.log_tau)
    assert f"Tightest for {tightest.family}" in card["d"]
    card = step_card(make_step(3, " his"))
    assert card["fam"] == []
    assert all("refused" not in row["why"] for row in card["rows"])


# chains


def chain(steps=5, **changes):
    made = chain_of([make_step(index, " word") for index in range(steps)], 0.1)
    return replace(made, **changes)


def test_sessions_say_why_there_is_no_certificate_and_new_steps_bring_that_of_the_longer_chain(services):
    view = services[AuditService].view(1)
    assert no_chain(view) == ""
    assert "no certificate for the whole chain" in no_chain(
        replace(view, settings=replace(view.settings, mask_layout="factorized"))
    )
    assert no_chain(services[AuditService].view(2)) == ""
    assert session_message(services[AuditService].view(2))["chain"] is None
    assert session_message(view)["chain"]["parts"]
    now = services[AuditService].progress(1)
    message = steps_message([make_step(37, " chart")], now, done=True)
    assert message["chain"]["weakest"] == now.chain.weakest
    assert message["finished"] is None


# contributions and branches


def test_contributions_keep_the_spans_words_and_need_a_masked_span():
    prompt = "The German nurse"
    found = contributions_of(
        [make_step(index, " word") for index in (0, 3)], (Span(4, 10, "nationality"), Span(11, 16))
    )
    message = contributions_message(prompt, found)
    assert [(line["t"], line["n"]) for line in message["spans"]] == [("German", "nationality"), ("nurse", "other")]
    for step, total in enumerate(message["r"]):
        apart = sum(line["r"][step] for line in message["spans"])
        assert message["x"][step] == pytest.approx(total - apart, abs=1e-3)
    assert re.findall(r"[+\d.]*\d|“.*?”", message["peak"]) == ["+0.90", "“German”", "2"]
    found = contributions_of([make_step(0, " and")], (Span(0, 3, kept=True),))
    assert not re.search(r"\d", contributions_message("The", found)["peak"])
