"""The branch handlers of the audit page on the real services: store, decoder and library together."""

import itertools

import gradio as gr
import pytest

from app.audit.handlers import BranchHandlers
from app.audit.service import AuditService
from app.review.log import VerdictRequest
from app.review.service import VerdictService
from app.shared.audits import AuditSettings, StartAudit
from coft_core.types import Span

PROMPT = "The nurse said he would come"
NUMBERS = itertools.count(1)


def event(**data):
    return gr.EventData(None, {**data, "nonce": next(NUMBERS)})


@pytest.fixture
def session(wired):
    """A session with a chain of four steps, a fork of it, and a fork of that fork: their ids."""
    request = StartAudit(PROMPT, AuditSettings(model="tiny", max_new_tokens=6, top_p=1.0), (Span(15, 17, "gender"),))
    view = wired[AuditService].start(request)
    for _ in range(4):
        wired[AuditService].step(view.session_id)
    first = wired[AuditService].fork(view.session_id, view.branch_id, 1, "x")
    inner = wired[AuditService].fork(view.session_id, first.branch_id, 2, "y")
    return view.session_id, view.branch_id, first.branch_id, inner.branch_id


def tree(message):
    return {node["id"]: node for node in message["crumbs"]["tree"]}


def test_what_is_shown_stays_shown_when_another_branch_is_pruned(wired, session):
    number, root, first, inner = session
    pruned = BranchHandlers(wired).prune(event(session=number, shown=root, branch=inner))
    assert (pruned["branch"], list(tree(pruned))) == (root, [root, first])


def test_a_judged_branch_says_why_it_stays_and_stays(wired, session):
    number, root, first, inner = session
    wired[VerdictService].add(VerdictRequest(session_id=number, reviewer="A", verdict="unfair", branch_id=inner))
    handlers = BranchHandlers(wired)
    asked = handlers.ponder(event(session=number, shown=root, branch=first))
    assert (asked["allowed"], "nothing can be taken out of the log" in asked["text"]) == (False, True)
    with pytest.raises(gr.Error, match="nothing can be taken out of the log"):
        handlers.prune(event(session=number, shown=root, branch=first))
    assert list(tree(handlers.tree(event(session=number, shown=root)))) == [root, first, inner]


def test_chains_are_those_of_the_store_a_renamed_branch_keeps_its_token_and_a_pruned_one_takes_its_own_along(
    wired, session
):
    number, root, first, _ = session
    found = BranchHandlers(wired).beside(event(session=number, pair=[root, first]))
    own = wired[AuditService].view(number, root).steps
    assert found["apart"] == 1
    assert [line[0] for line in found["left"]["steps"]] == [step.token.strip() for step in own[1:]]
    assert [line[0] for line in found["right"]["steps"]] == ["x"]
    number, root, first, inner = session
    handlers = BranchHandlers(wired)
    renamed = handlers.rename(event(session=number, shown=inner, branch=first, name="  as a   man "))
    assert (tree(renamed)[first]["name"], tree(renamed)[first]["token"]) == ("as a man", "x")
    assert renamed["branch"] == inner
    asked = handlers.ponder(event(session=number, shown=inner, branch=first))
    assert asked["allowed"]
    assert "It takes along: “y”." in asked["text"]
    pruned = handlers.prune(event(session=number, shown=inner, branch=first))
    assert list(tree(pruned)) == [root]
    assert pruned["branch"] == root
    assert [branch.id for branch in wired[AuditService].view(number).branches] == [root]
