"""What the audit page says of the tree of branches, and of two chains beside each other."""

from app.audit.branch_words import beside_message, branch_tree, crumbs, tree_message
from app.audit.service import AuditService
from app.shared.step_words import step_card
from db.chains import BranchOutline
from tests.records import make_step

ROOT = BranchOutline(1, None, None, None, "main", 20, "length")


def fork(number, parent, step, name="", length=9):
    return BranchOutline(number, parent, step, " he", name or " he", length)


def test_the_tree_lists_branches_before_those_that_depart_from_them_and_names_the_chain_that_wrote_a_step():
    later, earlier, inner = fork(2, 1, 8), fork(3, 1, 2), fork(4, 2, 12)
    found = branch_tree((ROOT, later, earlier, inner))
    assert [(node["id"], node["depth"]) for node in found] == [(1, 0), (3, 1), (2, 1), (4, 2)]
    parent, inner = fork(2, 1, 8), fork(3, 2, 12)
    before, at_once, after = fork(4, 3, 5), fork(5, 2, 8), fork(6, 3, 10)
    owners = {node["id"]: node["owner"] for node in branch_tree((ROOT, parent, inner, before, at_once, after))}
    assert owners == {1: None, 2: 1, 3: 2, 4: 1, 5: 1, 6: 2}


def test_the_session_message_carries_the_whole_tree_from_whichever_branch_it_is_seen(services):
    trees = [crumbs(services[AuditService].view(1, branch))["tree"] for branch in (1, 3, 4)]
    assert trees[0] == trees[1] == trees[2]
    assert [node["token"] for node in trees[0]] == ["main", "and", "he", "the"]
    assert tree_message(services[AuditService].view(1, 4))["branch"] == 4


def test_two_chains_are_beside_each_other_from_the_first_token_that_differs_or_the_end_of_the_shorter(services):
    left, right = services[AuditService].view(1, 3), services[AuditService].view(1, 4)
    message = beside_message(left, right)
    assert (message["apart"], message["lead"]) == (1, "and")
    assert [line[0] for line in message["left"]["steps"]][:3] == ["he", "filed", "his"]
    assert [line[0] for line in message["right"]["steps"]] == ["the"]
    assert message["left"]["steps"][0][3] == round(left.steps[1].diagnostics.log_ratio, 4)
    assert message["left"]["text"].startswith("he filed his notes")
    message = beside_message(services[AuditService].view(1, 2), services[AuditService].view(1, 2))
    assert (message["apart"], message["left"]["steps"], message["right"]["steps"]) == (2, [], [])


def test_a_card_has_every_candidate_once_and_no_margin_without_a_threshold():
    step = make_step(3, " his")
    card = step_card(step)
    words = [row["t"].strip() for row in card["rows"]] + [point[0] for point in card["rest"]]
    assert sorted(words) == sorted(candidate.token.strip() for candidate in step.candidates)
    assert (card["kl"], card["tv"], card["mg"]) == (
        step.diagnostics.kl_fused_masked, step.diagnostics.tv_on_set, step.diagnostics.margin,
    )  # fmt: skip
    for state in ("none", "uninformative"):
        assert step_card(make_step(3, " his", state))["mg"] is None
