"""What the audit page says of the tree of branches, and of two chains beside each other."""

from __future__ import annotations

import pytest

from app.audit.branch_words import beside_message, branch_tree, crumbs, prune_message, tree_message
from app.audit.service import AuditService
from app.sessions.service import PrunePreview, SessionLibrary
from app.shared.step_words import step_card
from db.chains import BranchOutline
from tests.records import make_step

ROOT = BranchOutline(1, None, None, None, "main", 20, "length")


def fork(number: int, parent: int, step: int, name: str = "", length: int = 9) -> BranchOutline:
    return BranchOutline(number, parent, step, " he", name or " he", length)


def test_the_tree_lists_each_branch_before_those_that_depart_from_it_and_earlier_forks_first():
    later, earlier, inner = fork(2, 1, 8), fork(3, 1, 2), fork(4, 2, 12)
    found = branch_tree((ROOT, later, earlier, inner))
    assert [(node["id"], node["depth"]) for node in found] == [(1, 0), (3, 1), (2, 1), (4, 2)]


def test_a_fork_before_its_parents_own_first_step_leaves_the_chain_that_wrote_that_step():
    parent, inner = fork(2, 1, 8), fork(3, 2, 12)
    before, at_once, after = fork(4, 3, 5), fork(5, 2, 8), fork(6, 3, 10)
    owners = {node["id"]: node["owner"] for node in branch_tree((ROOT, parent, inner, before, at_once, after))}
    assert owners == {1: None, 2: 1, 3: 2, 4: 1, 5: 1, 6: 2}


def test_a_name_that_a_reviewer_gave_is_told_from_the_token_and_both_are_kept():
    plain, renamed = branch_tree((ROOT, fork(2, 1, 4), fork(3, 1, 4, "as a man")))[1:]
    assert (plain["token"], plain["name"], plain["step"]) == ("he", "", 5)
    assert (renamed["token"], renamed["name"]) == ("he", "as a man")


def test_a_leaf_says_how_long_it_is_and_how_it_ended():
    root, open_ended = branch_tree((ROOT, fork(2, 1, 4)))
    assert (root["length"], root["end"]) == (20, "length reached")
    assert (open_ended["length"], open_ended["end"]) == (9, "")


def test_the_session_message_carries_the_whole_tree_from_whichever_branch_it_is_seen(services):
    trees = [crumbs(services[AuditService].view(1, branch))["tree"] for branch in (1, 3, 4)]
    assert trees[0] == trees[1] == trees[2]
    assert [node["token"] for node in trees[0]] == ["main", "and", "he", "the"]
    assert tree_message(services[AuditService].view(1, 4))["branch"] == 4


def test_a_renamed_branch_is_called_so_in_the_path_too(services):
    services[SessionLibrary].rename_branch(1, 3, "as a man")
    on_path = crumbs(services[AuditService].view(1, 3))["path"][-1]
    assert (on_path["name"], on_path["token"]) == ("as a man", "he")


def test_pruning_names_what_goes_along_but_not_without_end():
    along = tuple(f" w{number}" for number in range(9))
    message = prune_message(7, PrunePreview((" he", *along), 30, 0, ""))
    assert message["allowed"]
    assert "9 branches that depart from it" in str(message["text"])
    assert str(message["text"]).endswith("It takes along: “w0”, “w1”, “w2”, “w3”, “w4”, “w5” and 3 more.")
    alone = prune_message(7, PrunePreview((" he",), 3, 0, ""))
    assert "along" not in str(alone["text"])


def test_a_refusal_is_the_services_own_sentence_and_promises_nothing():
    message = prune_message(7, PrunePreview((" he", " it"), 3, 1, "The verdict log has 1 entry here."))
    assert (message["allowed"], message["text"]) == (False, "The verdict log has 1 entry here.")


def test_two_chains_stand_beside_each_other_from_the_first_token_that_differs(services):
    left, right = services[AuditService].view(1, 3), services[AuditService].view(1, 4)
    message = beside_message(left, right)
    assert (message["apart"], message["lead"]) == (1, "and")
    assert [line[0] for line in message["left"]["steps"]][:3] == ["he", "filed", "his"]
    assert [line[0] for line in message["right"]["steps"]] == ["the"]
    assert message["left"]["steps"][0][3] == round(left.steps[1].diagnostics.log_ratio, 4)
    assert message["left"]["text"].startswith("he filed his notes")


def test_a_chain_beside_its_own_beginning_parts_where_the_shorter_one_ends(services):
    message = beside_message(services[AuditService].view(1, 2), services[AuditService].view(1, 2))
    assert (message["apart"], message["left"]["steps"], message["right"]["steps"]) == (2, [], [])


def test_a_card_has_every_candidate_once_for_the_pictures():
    step = make_step(3, " his")
    card = step_card(step)
    words = [row["t"].strip() for row in card["rows"]] + [point[0] for point in card["rest"]]
    assert sorted(words) == sorted(candidate.token.strip() for candidate in step.candidates)
    assert (card["kl"], card["tv"], card["mg"]) == (
        step.diagnostics.kl_fused_masked,
        step.diagnostics.tv_on_set,
        step.diagnostics.margin,
    )


@pytest.mark.parametrize("state", ["none", "uninformative"])
def test_where_there_is_no_threshold_there_is_no_margin(state):
    assert step_card(make_step(3, " his", state))["mg"] is None
