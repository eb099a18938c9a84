"""Comparing chains: every token in one row, the true place where they part, and fair starting conditions."""

import csv
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.audit.service import AuditService
from app.compare.chains import align, beside, first_divergence
from app.compare.operations import comparison_json
from app.compare.service import ComparisonService
from app.sessions.service import LibraryQuery, SessionLibrary
from app.shared.audits import AuditSettings, CalibrationRequest, StartAudit
from app.shared.errors import ColumnMismatch, ServiceError
from app.shared.policies import fitted
from app.shared.step_words import fused_overruled
from coft_core.text.thinking import ThinkingMarks
from coft_core.types import Candidate, Span
from db.types import NotFoundError
from tests.app.conftest import calibrated_on
from tests.conftest import prompt_set_csv

CHAINS = st.lists(st.integers(0, 4), max_size=12)
SETTINGS = AuditSettings(model="tiny", max_new_tokens=8, top_p=1.0, seed=1)
REQUEST = StartAudit("The nurse said he", SETTINGS, (Span(15, 17, "gender"),), "night")


@given(CHAINS, CHAINS)
def test_each_token_of_each_chain_is_in_exactly_one_row_in_order(first, other):
    rows = align(first, other)
    assert [row.first for row in rows if row.first is not None] == list(range(len(first)))
    assert [row.other for row in rows if row.other is not None] == list(range(len(other)))
    for row in rows:
        if row.first is None or row.other is None:
            assert row.kind == ("added" if row.first is None else "removed")
        else:
            assert (first[row.first] == other[row.other]) is (row.kind == "same")


@given(CHAINS, CHAINS)
def test_chains_part_where_the_shared_beginning_ends(first, other):
    at = first_divergence(first, other)
    if at is None:
        assert first == other
    else:
        assert first[:at] == other[:at]
        assert first[at : at + 1] != other[at : at + 1]


def test_what_is_shared_after_an_insertion_stands_beside_itself():
    rows = [(row.kind, row.first, row.other) for row in align("abcd", "aXbcd")]
    assert rows == [("same", 0, 0), ("added", None, 1), ("same", 1, 2), ("same", 2, 3), ("same", 3, 4)]


@given(CHAINS, st.lists(CHAINS, min_size=1, max_size=3))
def test_many_alignments_become_one_table_without_losing_or_moving_a_token(first, others):
    rows = beside(len(first), [align(first, other) for other in others])
    for place, chain in enumerate([first, *others]):
        assert [row.steps[place] for row in rows if row.steps[place] is not None] == list(range(len(chain)))
    for row in rows:
        tokens = [None if at is None else chain[at] for at, chain in zip(row.steps, [first, *others], strict=True)]
        assert row.same is (len(set(tokens)) == 1)
        if row.steps[0] is not None:
            assert row.differs[1:] == tuple(token != tokens[0] for token in tokens[1:])


def test_what_two_chains_insert_at_one_place_stands_side_by_side():
    rows = beside(2, [align("ab", "aXYb"), align("ab", "aZb")])
    assert [row.steps for row in rows] == [(0, 0, 0), (None, 1, 1), (None, 2, None), (1, 3, 2)]
    assert [row.differs for row in rows[1:3]] == [(False, True, True), (False, True, False)]


@pytest.fixture(scope="module")
def wired(shared):
    return shared


@pytest.fixture(scope="module")
def calibrated(wired, tmp_path_factory):
    request = CalibrationRequest(name="set", model="tiny", top_p=1.0)
    return calibrated_on(wired, tmp_path_factory.mktemp("set"), prompt_set_csv(), request)


@pytest.fixture(scope="module")
def vanilla_and_coft(wired):
    """The sessions of a finished run, which tests leave as they are but for branches."""
    return run(wired)[0]


def begun(wired, request=REQUEST, policies=("vanilla", "coft")):
    return wired[ComparisonService].run_columns(request, [fitted(request.settings, policy) for policy in policies])


def run(wired, request=REQUEST):
    ids = begun(wired, request)
    return ids, list(wired[ComparisonService].advance(ids))


def test_policies_run_beside_each_other_share_prompt_spans_and_seed(wired, calibrated):
    request = replace(REQUEST, spans=None, settings=replace(SETTINGS, calibration_id=calibrated))
    ids, taken = run(wired, request)
    vanilla, coft = (wired[AuditService].view(session_id) for session_id in ids)
    assert (vanilla.prompt, vanilla.spans, vanilla.settings.seed) == (coft.prompt, coft.spans, coft.settings.seed)
    assert [view.name for view in (vanilla, coft)] == ["night · Vanilla", "night · COFT"]
    assert vanilla.certificate == "uncertified: vanilla decoding"
    assert coft.certificate.startswith("certified at ")
    assert [session_id for session_id, _ in taken[:4]] == [ids[0], ids[1], ids[0], ids[1]]
    for view in (vanilla, coft):
        assert view.finished in ("length", "end")
        assert [step for session_id, step in taken if session_id == view.session_id] == list(view.steps)


def test_a_comparison_says_what_the_chains_say(wired, calibrated):
    request = replace(REQUEST, settings=replace(SETTINGS, calibration_id=calibrated, alpha=0.9))
    ids, _ = run(wired, request)
    result = wired[ComparisonService].compare(ids)
    views = [wired[AuditService].view(session_id) for session_id in ids]
    (pair,) = result.pairs
    tokens = [[step.token_id for step in view.steps] for view in views]
    assert pair.first_divergence == first_divergence(*tokens)
    assert tokens[0] != tokens[1]
    assert pair.rows == align(*tokens)
    assert (len(pair.rows) - pair.counts["added"], len(pair.rows) - pair.counts["removed"]) == (8, 8)
    assert not pair.by_text
    assert {name: (a, b) for name, a, b in pair.differences} == {
        "policy": ("vanilla", "coft"),
        "calibration_id": ("None", str(calibrated)),
    }
    alone, certified = result.chains
    assert (alone.settings.policy, alone.certified, alone.overruled, alone.fallbacks) == ("vanilla", None, None, None)
    assert certified.certified == sum(step.certified for step in views[1].steps)
    ratios = [abs(step.diagnostics.log_ratio) for step in views[0].steps]
    assert alone.mean_log_ratio == pytest.approx(sum(ratios) / 8)
    assert result.notes == ()


def test_equal_chains_are_said_to_be_equal_and_shorter_ones_end(wired, vanilla_and_coft):
    first, _ = vanilla_and_coft
    copy = wired[AuditService].start(wired[SessionLibrary].prefill(first).request)
    for _ in range(3):
        wired[AuditService].step(copy.session_id)
    shorter = wired[ComparisonService].compare([first, copy.session_id])
    assert (shorter.pairs[0].first_divergence, shorter.pairs[0].counts["removed"]) == (3, 5)
    assert any("not finished" in note for note in shorter.notes)
    list(wired[AuditService].run(copy.session_id))
    equal = wired[ComparisonService].compare([first, copy.session_id]).pairs[0]
    assert (equal.first_divergence, equal.counts["same"], equal.differences) == (None, 8, ())
    assert "same 8 tokens" in equal.sentence


def test_branches_of_one_session_are_compared_and_thinking_is_told_from_the_answer(
    wired, vanilla_and_coft, monkeypatch, tmp_path
):
    _, coft = vanilla_and_coft
    view = wired[AuditService].view(coft)
    fork = wired[AuditService].fork(coft, view.branch_id, 2, view.steps[2].token_id ^ 1)
    result = wired[ComparisonService].compare([coft, coft], [view.branch_id, fork.branch_id])
    assert result.pairs[0].first_divergence == 2
    assert result.chains[0].branch.name == "main"
    tokens = [step.token for step in view.steps]
    monkeypatch.setattr("app.shared.thinking.thinking_marks", lambda *_: ThinkingMarks(tokens[1], tokens[3]))
    thinking = run(wired)[0]
    path = wired[ComparisonService].write_csv(thinking, (), tmp_path)
    parts = {row["part"] for row in csv.DictReader(path.open(newline="", encoding="utf-8"))}
    assert parts == {"thinking", "answer"}
    with pytest.raises(ServiceError, match="twice"):
        wired[ComparisonService].compare([coft, coft])


def test_different_prompts_and_seeds_are_pointed_out(wired):
    first = wired[AuditService].start(REQUEST)
    other = wired[AuditService].start(replace(REQUEST, prompt="The nurse said hey", settings=replace(SETTINGS, seed=2)))
    for view in (first, other):
        wired[AuditService].step(view.session_id)
    notes = wired[ComparisonService].compare([first.session_id, other.session_id]).notes
    assert any("different prompts" in note for note in notes)
    assert any("different seeds" in note for note in notes)


def test_a_comparison_that_cannot_be_made_is_refused_and_starts_nothing(wired, calibrated, vanilla_and_coft):
    ids = vanilla_and_coft
    total = wired[SessionLibrary].search(LibraryQuery()).total
    for sessions, branches, error in (
        (ids[:1], (), ServiceError), (ids * 5, (), ServiceError), (ids, (1,), ServiceError),
        ((ids[0], 999), (), NotFoundError),
    ):  # fmt: skip
        with pytest.raises(error):
            wired[ComparisonService].compare(sessions, branches)
    settings, vanilla = replace(SETTINGS, calibration_id=calibrated), replace(SETTINGS, policy="vanilla")
    for columns, named in (
        ((SETTINGS,), "2 to"),
        ((SETTINGS, SETTINGS), "same policy"),
        ((vanilla, replace(settings, policy="vanilla")), "same policy"),
        ((SETTINGS, replace(SETTINGS, policy="guess")), "'guess'"),
    ):
        with pytest.raises(ServiceError, match=named):
            wired[ComparisonService].run_columns(REQUEST, columns)
    with pytest.raises(ColumnMismatch, match="lam: calibrated") as caught:
        wired[ComparisonService].run_columns(REQUEST, (vanilla, replace(settings, lam=0.1)))
    assert caught.value.column == 1
    assert wired[SessionLibrary].search(LibraryQuery()).total == total


def test_pausing_one_chain_lets_the_others_go_on_and_none_stays_marked_as_running(wired):
    ids = begun(wired)
    running = wired[ComparisonService].advance(ids)
    next(running)
    wired[AuditService].pause(ids[0])
    rest = list(running)
    assert {session_id for session_id, _ in rest} == {ids[1]}
    assert len(rest) == 8
    cut = wired[ComparisonService].advance(ids[:1])
    next(cut)
    assert wired[AuditService].running(ids[0])
    cut.close()
    assert not wired[AuditService].running(ids[0])


def test_one_policy_runs_beside_itself_with_other_settings_and_its_tokens_are_timed(wired, calibrated, tmp_path):
    settings = replace(SETTINGS, calibration_id=calibrated)
    columns = (replace(settings, policy="vanilla"), settings, replace(settings, calibration_id=None, lam=1.0))
    ids = wired[ComparisonService].run_columns(replace(REQUEST, settings=settings), columns)
    list(wired[ComparisonService].advance(ids))
    views = [wired[AuditService].view(session_id) for session_id in ids]
    assert [view.name for view in views] == ["night · Vanilla", "night · COFT 2", "night · COFT 3"]
    assert [view.settings.calibration_id for view in views] == [None, calibrated, None]
    result = wired[ComparisonService].compare(ids)
    assert all(chain.seconds_per_token > 0 for chain in result.chains)
    tokens = [[step.token_id for step in view.steps] for view in views]
    assert result.rows == beside(8, [align(tokens[0], other) for other in tokens[1:]])
    path = wired[ComparisonService].write_csv(ids, (), tmp_path)
    rows = list(csv.DictReader(path.open(newline="", encoding="utf-8")))
    assert len(rows) == 3 * len(result.rows)
    third = [row for row in rows if row["chain"] == "3" and row["step"]]
    assert [int(row["token_id"]) for row in third] == tokens[2]
    assert {(row["lam"], row["calibration"]) for row in third} == {("1.0", "")}
    assert comparison_json(result)["rows"][0]["steps"] == [1, 1, 1]


def test_a_pause_stops_all_columns_also_those_that_have_not_begun(wired):
    ids = begun(wired)
    running = wired[ComparisonService].advance(ids)
    next(running)
    wired[ComparisonService].pause(ids)
    assert list(running) == []
    assert [len(wired[AuditService].view(session_id).steps) for session_id in ids] == [1, 0]
    assert len(list(wired[ComparisonService].advance(ids))) == 15


def test_a_token_is_overruled_only_where_another_one_is_certified(wired):
    view = wired[AuditService].start(REQUEST)
    step = wired[AuditService].step(view.session_id)

    def with_candidates(*certified):
        rows = tuple(Candidate(i, "t", -1.0, -1.0, -1.0 - i, member) for i, member in enumerate(certified))
        return replace(step, candidates=rows)

    assert fused_overruled(with_candidates(False, True, True))
    assert not fused_overruled(with_candidates(True, False))
    assert not fused_overruled(with_candidates(False, False))


PROMPT = "The nurse finished rounds and then he left"


def test_policies_run_beside_each_other_and_are_compared_again_from_the_store(tmp_path, command):
    out = tmp_path / "beside.csv"
    audit = ("audit", "--prompt", PROMPT, "--model", "tiny", "--steps", 6, "--lam", 1)
    code, text, _ = command(*audit, "--policy", "vanilla,coft", "--out", out, "--json")
    assert code == 0
    found = json.loads(text)
    assert [chain["policy"] for chain in found["chains"]] == ["vanilla", "coft"]
    ids = [chain["session_id"] for chain in found["chains"]]
    assert len(list(csv.DictReader(out.open(newline="", encoding="utf-8")))) == 2 * len(found["rows"])
    _, text, _ = command("compare", *ids, "--json")
    again = json.loads(text)
    for chain in (*found["chains"], *again["chains"]):
        del chain["seconds_per_token"]
    assert again == found
    code, text, _ = command("compare", f"{ids[0]}:{found['chains'][0]['branch_id']}", ids[1])
    assert code == 0
    assert found["pairs"][0]["sentence"] in text
    assert text.splitlines()[-1].split()[0] == str(len(found["rows"]))


def test_a_command_that_cannot_compare_says_so_in_one_sentence(command):
    audit = ("audit", "--prompt", PROMPT, "--model", "tiny", "--steps", 2)
    for arguments, sentence in (
        (("compare", "x", "2"), "'x' is no session"),
        (("compare", "1"), "choose 2 to 8"),
        ((*audit, "--policy", "guess"), "There is no policy 'guess'; choose one of 'coft', 'vanilla'"),
        ((*audit, "--policy", "coft,vanilla", "--until", "steps:1"), "--until stops one text"),
    ):
        code, _, error = command(*arguments)
        assert code == 1
        assert sentence in error
