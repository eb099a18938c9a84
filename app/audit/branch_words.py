"""What the audit page says of a session's branches: the tree, the way to the shown one, and two chains side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import takewhile

from app.sessions.service import PrunePreview
from app.shared.audits import AuditView
from app.shared.format import quoted, shown_token
from app.shared.prompt_words import ENDS, Message
from app.shared.step_words import shapes, spoken_state, token_marks
from coft_core.types import Step
from db.chains import BranchOutline

NAMED_ALONG = 6
"""Branches that a question about pruning names, at most."""
LEAD_TOKENS = 12
"""Shared tokens that are shown before two chains part."""


def branch_tree(branches: Sequence[BranchOutline]) -> list[Message]:
    """All branches, each followed by those that depart from it, earlier forks first.

    ``step`` counts from 1. ``owner`` is the branch whose own part the chain leaves: the parent, or one of its
    ancestors where the fork lies before the parent's own first step. ``name`` is empty until the reviewer gives one.
    """
    by_id = {branch.id: branch for branch in branches}
    children: defaultdict[int | None, list[BranchOutline]] = defaultdict(list)
    for branch in branches:
        children[branch.parent_id].append(branch)
    nodes: list[Message] = []
    waiting = [(branch, 0) for branch in reversed(children[None])]
    while waiting:
        branch, depth = waiting.pop()
        step, token = _departure(branch)
        nodes.append(
            {
                "id": branch.id,
                "parent": branch.parent_id,
                "owner": _owner(branch, by_id),
                "depth": depth,
                "step": step,
                "token": token,
                "name": given_name(branch),
                "length": branch.length,
                "end": ENDS.get(branch.finished, branch.finished) if branch.finished else "",
            }
        )
        after = sorted(children[branch.id], key=lambda child: (child.fork_step or 0, child.id), reverse=True)
        waiting += [(child, depth + 1) for child in after]
    return nodes


def given_name(branch: BranchOutline) -> str:
    """The name that a reviewer gave a branch; empty while it is the token that it departs with."""
    return "" if branch.name.strip() == (branch.token or "main").strip() else branch.name


def crumbs(view: AuditView) -> Message:
    """The path of branches to the shown one, its siblings, and the branches that leave it."""
    by_id = {branch.id: branch for branch in view.branches}
    path: list[BranchOutline] = []
    branch = by_id.get(view.branch_id)
    while branch is not None:
        path.insert(0, branch)
        branch = None if branch.parent_id is None else by_id.get(branch.parent_id)
    current = path[-1] if path else None
    siblings = [
        other
        for other in view.branches
        if current and current.parent_id is not None and other.id != current.id
        if (other.parent_id, other.fork_step) == (current.parent_id, current.fork_step)
    ]
    children = [other for other in view.branches if other.parent_id == view.branch_id]
    return {
        "path": [_crumb(other, view.branch_id) for other in path],
        "siblings": [_crumb(other, view.branch_id) for other in siblings],
        "parent": current.parent_id if current else None,
        "at": current.fork_step if current else None,
        "children": [_crumb(other, view.branch_id) for other in children],
        "tree": branch_tree(view.branches),
    }


def tree_message(view: AuditView) -> Message:
    """The tree of branches as seen from the shown one, without the chain."""
    return {"kind": "tree", "session": view.session_id, "branch": view.branch_id, "crumbs": crumbs(view)}


def prune_message(branch_id: int, extent: PrunePreview) -> Message:
    """What pruning would take along, or why it is refused."""
    along = [quoted(name) for name in extent.branches[1:]]
    more = f" and {len(along) - NAMED_ALONG} more" if len(along) > NAMED_ALONG else ""
    takes = f" It takes along: {', '.join(along[:NAMED_ALONG])}{more}." if along and extent.allowed else ""
    return {"kind": "prune", "branch": branch_id, "allowed": extent.allowed, "text": f"{extent.sentence}{takes}"}


def beside_message(left: AuditView, right: AuditView) -> Message:
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


def _departure(branch: BranchOutline) -> tuple[int | None, str]:
    """The step (from 1) at which a branch leaves its parent, and the token there; the root has its name alone."""
    if branch.parent_id is None or branch.fork_step is None:
        return None, branch.name or "main"
    return branch.fork_step + 1, shown_token(branch.token or branch.name)


def _crumb(branch: BranchOutline, current: int) -> Message:
    step, token = _departure(branch)
    name = "" if step is None else given_name(branch)
    return {"id": branch.id, "step": step, "token": token, "name": name, "on": branch.id == current}


def _owner(branch: BranchOutline, by_id: dict[int, BranchOutline]) -> int | None:
    owner = None if branch.parent_id is None else by_id.get(branch.parent_id)
    while owner is not None and owner.parent_id is not None and (owner.fork_step or 0) >= (branch.fork_step or 0):
        owner = by_id.get(owner.parent_id)
    return None if owner is None else owner.id


def _beside(view: AuditView, start: int) -> Message:
    """A chain from a step on; each of its steps is word, classes, marks, log ratio and what a screen reader says."""
    steps = view.steps[start:]
    text = "".join(step.token for step in steps).strip()
    return {"id": view.branch_id, "text": text, "steps": [_line(step) for step in steps], "length": len(view.steps)}


def _line(step: Step) -> tuple[str, str, list[str], float, str]:
    ratio = round(step.diagnostics.log_ratio, 4)
    return (shown_token(step.token), " ".join(shapes(step)), token_marks(step), ratio, spoken_state(step))
