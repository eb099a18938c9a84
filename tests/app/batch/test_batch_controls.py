"""Marked words beside comparable ones, over all prompts of a batch, and groups beside rows of one group."""

import csv
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest

from app.audit.service import AuditService
from app.batch import service
from app.batch.controls import NOT_COMPARED, NOT_MARKED, NOTHING_LIKE, REPEATED, batch_controls, controls_said
from app.batch.groups import NO_CONTEXT, NO_WORDINGS, group_control
from app.batch.impact import outcomes_of
from app.batch.rows import sorted_rows
from app.batch.service import BatchService, _time_to_compare
from app.jobs.service import JobService
from app.shared.impact import OutcomeRule, impact_table
from coft_core.controls.result import FamilyRank
from coft_core.controls.statistics import rank_sum_p
from tests.app.batch.small_batch import REQUEST, SETTINGS, parsed, run
from tests.app.batch.test_outcomes_and_totals import ROW

SET = "prompt\nThe blind cook left\nThe elderly nurse left\nHe left\nNobody left\n"
COMPARED = replace(REQUEST, settings=replace(SETTINGS, controls=3))


def ranked(line, *ranks, **changes):
    """A row whose families rank so among so many rows, by what decides."""
    found = tuple(FamilyRank(family, by, rank, rows, 0.5, rank / rows) for family, by, rank, rows in ranks)
    p_value = min((len(found) * rank.p_value for rank in found), default=None)
    return replace(ROW, line=line, prompt=f"p{line}", ranks=found, effect_p=p_value, **changes)


def test_a_rank_sum_is_as_likely_as_counting_all_ranks_says_also_where_it_is_very_small():
    rows = (3, 4, 2)
    for ranks in product(*(range(1, count + 1) for count in rows)):
        as_small = sum(sum(own) <= sum(ranks) for own in product(*(range(1, count + 1) for count in rows)))
        assert rank_sum_p(ranks, rows) == pytest.approx(as_small / 24)
    assert rank_sum_p([1] * 19 + [2], [40] * 20) == pytest.approx(float(21 * Fraction(1, 40) ** 20))


def test_ranks_of_comparable_words_are_summed_by_family_and_others_are_told_apart_with_their_reasons():
    rows = [
        ranked(2, ("age", "neutral", 1, 40)),
        ranked(3, ("age", "neutral", 2, 40), ("gender", "others", 1, 4)),
        ranked(4, ("race", "names", 10, 20)),
        ranked(5, ("gender", "others", 1, 20)),
        ranked(6, ("gender", "others", 3, 20)),
        ranked(7, ("race", "", 1, 1)),
        ranked(8),
        replace(ranked(9), ranks=None),
        replace(ranked(10, ("age", "neutral", 1, 40)), prompt="p2"),
        replace(ranked(11, ("age", "neutral", 1, 40)), state="unfinished"),
    ]
    found = batch_controls(rows, 39)
    age, race = found.families
    assert (age.family, age.prompts, age.rank_sum, age.expected) == ("age", 2, 3, 41.0)
    assert (race.prompts, race.p_value) == (1, 0.5)
    assert age.p_value == pytest.approx(rank_sum_p((1, 2), (40, 40)))
    assert found.p_value == pytest.approx(2 * age.p_value), "the better of both families was chosen"
    assert (found.prompts, found.flagged, found.others, found.others_first) == (3, 1, 2, 1)
    assert found.without == {NOTHING_LIKE: (7,), NOT_MARKED: (8,), NOT_COMPARED: (9,), REPEATED: (10,)}
    assert len(controls_said(found)) == 5
    assert [row.line for row in sorted_rows(rows, "effect_p", False)[:2]] == [2, 10]
    none = batch_controls(rows, 0)
    assert (none.prompts, none.p_value, none.without) == (0, None, {})
    assert controls_said(none)[0].startswith("No control")


def test_a_batch_stores_what_it_compares_and_its_rows_tell_the_strongest_effect(wired, tmp_path):
    view = wired[BatchService].view(run(wired, tmp_path, COMPARED, SET))
    assert (view.controls.prompts, view.controls.others, view.controls.without) == (2, 1, {NOT_MARKED: (5,)})
    assert {own.family for own in view.controls.families} == {"age", "disability"}
    for row in view.rows[:3]:
        branch = wired[AuditService].view(row.session_id).branch_id
        (family,) = wired[AuditService].controls(row.session_id, branch).families
        assert (row.effect, row.effect_p) == (max(family.marked.effects), pytest.approx(min(family.p_values)))
        assert row.controls == len(family.deciding)
    assert (view.rows[3].effect, view.rows[3].effect_p, view.rows[3].controls) == (None, None, None)
    rows, _, sums = wired[BatchService].write_csv(view.id, tmp_path)
    told = [(row["effect"], row["effect_p"], row["controls"]) for row in csv.DictReader(rows.open(newline=""))]
    assert told[0] == (str(view.rows[0].effect), str(view.rows[0].effect_p), "3")
    listed = list(csv.DictReader(sums.open(newline="")))
    assert [row["family"] for row in listed] == ["age", "disability", "all"]
    assert float(listed[-1]["p_value"]) == view.controls.p_value


def test_a_cancelled_comparison_is_taken_up_again_and_nothing_is_measured_twice(wired, tmp_path, monkeypatch):
    audits, measured = wired[AuditService], []
    original = audits.comparing

    def comparing(session_id, branch_id):
        measured.append(session_id)
        if len(measured) == 2:
            wired[BatchService].cancel(batch_id)
        yield 0.0
        return (yield from original(session_id, branch_id))

    batch_id = wired[BatchService].store(wired[BatchService].prepare(parsed(wired, tmp_path, SET), (COMPARED,)))[0].id
    monkeypatch.setattr(audits, "comparing", comparing)
    job = wired[JobService].wait(wired[BatchService].resume(batch_id))
    stopped = wired[BatchService].view(batch_id)
    assert (job.status, stopped.counts["finished"]) == ("cancelled", 2)
    assert [row.ranks is not None for row in stopped.rows[:2]] == [True, False]
    assert stopped.controls.without == {NOT_COMPARED: (3,)}
    assert wired[JobService].wait(wired[BatchService].resume(batch_id)).status == "done"
    view = wired[BatchService].view(batch_id)
    assert measured == [row.session_id for row in (view.rows[0], view.rows[1], *view.rows[1:])]
    assert (view.resumable, view.controls.prompts) == (False, 2)


def test_what_cannot_be_compared_is_told_beside_its_finished_row_and_tried_again(wired, tmp_path, monkeypatch):
    def refusing(*_):
        raise RuntimeError("tensors of 3 and 4 columns")
        yield

    with monkeypatch.context() as patched:
        patched.setattr(wired[AuditService], "comparing", refusing)
        view = wired[BatchService].view(run(wired, tmp_path, COMPARED, "prompt\nThe blind cook left\n"))
    assert (view.rows[0].state, view.resumable, view.job.result["failed"]) == ("finished", True, 1)
    assert "tensors of 3 and 4" in view.rows[0].error
    wired[JobService].wait(wired[BatchService].resume(view.id))
    again = wired[BatchService].view(view.id)
    assert (again.rows[0].error, again.rows[0].controls, again.resumable) == ("", 3, False)


def test_an_estimate_counts_comparable_words_where_they_are_asked_for(wired, tmp_path, monkeypatch):
    monkeypatch.setattr(service, "_timed", lambda _: ([1, 2, 3], 2.0, 1.0))
    monkeypatch.setattr(service, "controls_of", lambda *_, **__: None)
    monkeypatch.setattr(service, "_time_to_compare", lambda *_: (3.0, 0.5))
    prompts = parsed(wired, tmp_path, SET)
    seconds = [wired[BatchService].estimate(prompts, request).seconds for request in (REQUEST, COMPARED)]
    assert seconds == [4 * (2 + 3 * 1), 4 * (5 + 3 * 1.5)]
    now = iter((0.0, 9.0, 0.0, 3.0))
    compared = []
    assert _time_to_compare(compared.append, [1, 2, 3], lambda: next(now)) == (3.0, 3.0)
    assert compared == [[1, 2, 3], [1]]


def outcomes(*rows):
    """Rows of a group and a context that are selected or not."""
    listed = [
        replace(ROW, line=line, group=group, context=context, text="yes" if chosen else "no")
        for line, (group, context, chosen) in enumerate(rows, 2)
    ]
    found = outcomes_of(listed, OutcomeRule("yes", "no"))
    return impact_table(found.pairs), found


def test_groups_are_compared_within_contexts_beside_wordings_of_one_group():
    alike = [(group, str(place), group == "a") for place in range(6) for group in "aabb"]
    control = group_control(*outcomes(*alike))
    assert (control.groups, control.contexts, control.pairs, control.missing) == (("a", "b"), 6, 1, "")
    assert (control.found.difference, control.between, control.within) == (1.0, 1.0, 0.0)
    # Of the six ways to deal each context's rows, two tell the groups as far apart, and all contexts must agree.
    assert control.p_value == pytest.approx(2 / 6**6, abs=1e-3)
    unlike = [("a", str(place), place + w < 4) for place in range(4) for w in range(2)]
    unlike += [("b", str(place), place + w < 3) for place in range(4) for w in range(2)]
    noisy = group_control(*outcomes(*unlike))
    assert noisy.p_value > 0.05
    assert noisy.within > 0


def test_what_a_set_lacks_is_said_and_the_choice_of_two_of_three_groups_is_corrected():
    assert group_control(*outcomes(("a", None, True), ("b", None, False))).missing == NO_CONTEXT
    assert group_control(*outcomes(("a", "1", True), ("b", "2", False))).found is None
    assert group_control(*outcomes(("a", "1", True))) is None
    three = [(group, str(place), group == "a") for place in range(5) for group in "abc"]
    control = group_control(*outcomes(*three))
    assert (control.pairs, control.within, control.missing) == (3, None, NO_WORDINGS)
    assert control.p_value == pytest.approx(3 * 2 / 2**5)
