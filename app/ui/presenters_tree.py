"""What the audit page says of a session's tree of branches, and of two of its chains beside each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import takewhile
from typing import TypedDict

from app.services.step_words import shapes
from app.services.views import AuditView, BranchView, Step
from app.services.views.library import PrunePreview
from app.ui.presenters import spoken_state, token_marks
from app.ui.presenters_format import shown_token

ENDS = {"length": "length reached", "end": "end of text", "context": "context full"}
NAMED_ALONG = 6
"""Branches that a question about pruning names, at most."""
LEAD_TOKENS = 12
"""Shared tokens that are shown before two chains part."""


class TreeNode(TypedDict):
    """One branch: ``parent`` and ``owner`` are ids, ``step`` counts from 1.

    ``owner`` is the branch whose own part the chain leaves: the parent, or one of its ancestors where the fork lies
    before the parent's own first step. ``name`` is empty until the reviewer gives one.
    """

    id: int
    parent: int | None
    owner: int | None
    depth: int
    step: int | None
    token: str
    name: str
    length: int
    end: str


class Beside(TypedDict):
    """One of two chains beside each other, from where they part: ``steps`` are word, classes, marks, ratio, spoken."""

    id: int
    text: str
    steps: list[tuple[str, str, list[str], float, str]]
    length: int


def branch_tree(branches: Sequence[BranchView]) -> list[TreeNode]:
    """All branches, each followed by those that depart from it, earlier forks first."""
    by_id = {branch.id: branch for branch in branches}
    children: defaultdict[int | None, list[BranchView]] = defaultdict(list)
    for branch in branches:
        children[branch.parent_id].append(branch)
    found: list[TreeNode] = []
    waiting = [(branch, 0) for branch in reversed(children[None])]
    while waiting:
        branch, depth = waiting.pop()
        found.append(_tree_node(branch, depth, by_id))
        after = sorted(children[branch.id], key=lambda item: (item.fork_step or 0, item.id), reverse=True)
        waiting += [(item, depth + 1) for item in after]
    return found


def given_name(branch: BranchView) -> str:
    """The name that a reviewer gave a branch; empty while it is the token that it departs with."""
    return "" if branch.name.strip() == (branch.token or "main").strip() else branch.name


def prune_message(branch_id: int, found: PrunePreview) -> dict[str, object]:
    """What pruning would take along, or why it is refused."""
    along = [shown_token(name) for name in found.branches[1:]]
    more = f" and {len(along) - NAMED_ALONG} more" if len(along) > NAMED_ALONG else ""
    named = ", ".join(f"“{name}”" for name in along[:NAMED_ALONG]) + more
    text = f"{found.sentence} It takes along: {named}." if along and found.allowed else found.sentence
    return {"kind": "prune", "branch": branch_id, "allowed": found.allowed, "text": text}


def beside_message(left: AuditView, right: AuditView) -> dict[str, object]:
    """Two chains of a session from the first token that they do not share; ``apart`` counts from 0."""
    pairs = zip(left.steps, right.steps, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0].token_id == pair[1].token_id, pairs))
    lead = "".join(step.token for step in left.steps[max(0, shared - LEAD_TOKENS) : shared])
    return {
        "kind": "beside",
        "session": left.session_id,
        "apart": shared,
        "lead": f"… {lead.strip()}" if shared > LEAD_TOKENS else lead.strip(),
        "left": _beside(left, shared),
        "right": _beside(right, shared),
    }


def _tree_node(branch: BranchView, depth: int, by_id: dict[int, BranchView]) -> TreeNode:
    root = branch.parent_id is None or branch.fork_step is None
    return TreeNode(
        id=branch.id,
        parent=branch.parent_id,
        owner=_owner(branch, by_id),
        depth=depth,
        step=None if root else (branch.fork_step or 0) + 1,
        token=branch.name or "main" if root else shown_token(branch.token or branch.name),
        name=given_name(branch),
        length=branch.length,
        end=ENDS.get(branch.finished, branch.finished) if branch.finished else "",
    )


def _owner(branch: BranchView, by_id: dict[int, BranchView]) -> int | None:
    cursor = by_id.get(branch.parent_id) if branch.parent_id is not None else None
    while cursor is not None and cursor.parent_id is not None and (cursor.fork_step or 0) >= (branch.fork_step or 0):
        cursor = by_id.get(cursor.parent_id)
    return None if cursor is None else cursor.id


def _beside(view: AuditView, start: int) -> Beside:
    own = view.steps[start:]
    text = "".join(step.token for step in own).strip()
    return Beside(id=view.branch_id, text=text, steps=[_line(step) for step in own], length=len(view.steps))


def _line(step: Step) -> tuple[str, str, list[str], float, str]:
    ratio = round(step.diagnostics.log_ratio, 4)
    return (shown_token(step.token), " ".join(shapes(step)), token_marks(step), ratio, spoken_state(step))
