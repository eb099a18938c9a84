"""What the audit page says of a session: the message that the browser builds its page from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from itertools import takewhile
from typing import TypedDict

from app.audit.until import stop_sentence
from app.sessions.service import Duplicate, PrunePreview
from app.shared.audits import FAMILY_NAMES, AuditView, BinView, ChainProgress, MaskPreview, RunUntil
from app.shared.chain_words import chain_panel, no_chain
from app.shared.policies import info_of
from app.shared.policy_menu import method_facts
from app.shared.step_words import (
    clock,
    count,
    named,
    plural,
    shapes,
    shown_token,
    signed,
    spoken_state,
    step_card,
    token_marks,
)
from coft_core.decode.contributions import LeaveOneOut, SpanContribution
from coft_core.types import Certificate, Span, Step
from db.chains import BranchOutline
from db.user_lists import UserListRecord

DECIMALS = 4


class SpanLine(TypedDict):
    """One masked span: ``t`` its words, ``f`` family key, ``n`` family's name, ``r`` log-ratios, ``z`` logits."""

    t: str
    f: str
    n: str
    r: list[float]
    z: list[float]


class Contributions(TypedDict):
    """Contributions by step: ``spans`` the lines, ``r`` and ``z`` totals, ``x`` what no span has alone, ``peak``."""

    kind: str
    spans: list[SpanLine]
    r: list[float]
    z: list[float]
    x: list[float]
    peak: str


def branches_text(branches: Sequence[str]) -> str:
    """Which readings of the prompt each step takes; empty where nobody knows."""
    if not branches:
        return ""
    if not _is_factorized(branches):
        own = len(branches) - 2
        more = f", and {plural(own, 'reading')} of the method’s own" if own > 0 else ""
        return f"{len(branches)} branches: as typed{',' if own > 0 else ', and'} masked{more}."
    each = " one at a time" if len(branches) > 2 else ""
    return f"{len(branches)} branches: as typed, and with {named(branches[1:])} masked{each}."


def reading_text(branches: Sequence[str]) -> str:
    """What the shown masked reading is when there are several; empty for the joint one."""
    if not _is_factorized(branches) or len(branches) < 3:
        return ""
    return f"Each of {named(branches[1:])} is masked in a branch of its own; here all of them are masked at once."


def contributions_message(prompt: str, found: LeaveOneOut) -> Contributions:
    """What each span contributes, step by step; contributions need not sum to the total."""
    return Contributions(
        kind="contributions",
        spans=[_line(prompt, own) for own in found.spans],
        r=_rounded(found.log_ratio),
        z=_rounded(found.sensitivity),
        x=_rounded(found.interaction),
        peak=_peak(prompt, found),
    )


def _line(prompt: str, own: SpanContribution) -> SpanLine:
    family = own.span.category
    return SpanLine(
        t=prompt[own.span.start : own.span.end],
        f=family,
        n=FAMILY_NAMES.get(family, family),
        r=_rounded(own.log_ratio),
        z=_rounded(own.sensitivity),
    )


def _peak(prompt: str, found: LeaveOneOut) -> str:
    """The largest contribution in a sentence, for those who do not see the picture."""
    cells = [
        (abs(value), value, step, own)
        for own in found.spans
        for value, step in zip(own.log_ratio, found.steps, strict=True)
    ]
    if not cells:
        return "No span is masked, so there is nothing to contribute."
    _, value, step, own = max(cells, key=lambda cell: cell[0])
    word = prompt[own.span.start : own.span.end]
    return f"The largest contribution is {signed(value)}, of “{word}” to the token of step {step + 1}."


def _is_factorized(branches: Sequence[str]) -> bool:
    return len(branches) > 1 and branches[1] != "masked"


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, DECIMALS) for value in values]


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


def branch_tree(branches: Sequence[BranchOutline]) -> list[TreeNode]:
    """All branches, each followed by those that depart from it, earlier forks first."""
    by_id = {branch.id: branch for branch in branches}
    children: defaultdict[int | None, list[BranchOutline]] = defaultdict(list)
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


def given_name(branch: BranchOutline) -> str:
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


def _tree_node(branch: BranchOutline, depth: int, by_id: dict[int, BranchOutline]) -> TreeNode:
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


def _owner(branch: BranchOutline, by_id: dict[int, BranchOutline]) -> int | None:
    cursor = by_id.get(branch.parent_id) if branch.parent_id is not None else None
    while cursor is not None and cursor.parent_id is not None and (cursor.fork_step or 0) >= (branch.fork_step or 0):
        cursor = by_id.get(cursor.parent_id)
    return None if cursor is None else cursor.id


def _beside(view: AuditView, start: int) -> Beside:
    own = view.steps[start:]
    text = "".join(step.token for step in own).strip()
    return Beside(id=view.branch_id, text=text, steps=[_tree_line(step) for step in own], length=len(view.steps))


def _tree_line(step: Step) -> tuple[str, str, list[str], float, str]:
    ratio = round(step.diagnostics.log_ratio, 4)
    return (shown_token(step.token), " ".join(shapes(step)), token_marks(step), ratio, spoken_state(step))


Message = dict[str, object]

FACTUAL_ALONE = (
    "This method certifies tokens in the prompt as typed alone, the certificate of the whole chain included; nothing "
    "is certified of the masked reading."
)


def session_message(view: AuditView, start: int = 0) -> Message:
    """A session from step ``start`` (0-based) on; earlier steps are those that the page has already."""
    return {
        "kind": "session",
        "session": view.session_id,
        "branch": view.branch_id,
        "name": view.name,
        "prompt": view.prompt,
        "spans": [asdict(span) for span in view.spans],
        "preview": preview_message(view.preview),
        "from": start,
        "steps": [step_card(step, view.noise) for step in view.steps[start:]],
        "total": view.settings.max_new_tokens,
        "finished": finished_text(view.finished),
        "certified": Certificate.read(view.certificate).certified,
        "bins": [bin_message(item) for item in view.bins],
        "crumbs": crumbs(view),
        "warnings": session_warnings(view),
        "saved": f"{view.name} · all changes saved {clock(view.updated_at)}",
        "fingerprint": view.fingerprint_digest,
        "chain": chain_panel(view.chain),
        "nochain": no_chain(view),
        "cost": branches_text(view.preview.branches),
        "method": method_facts(view.settings),
        "computed": computed_facts(view),
    }


def tree_message(view: AuditView) -> Message:
    """The tree of branches as seen from the shown one, without the chain."""
    return {"kind": "tree", "session": view.session_id, "branch": view.branch_id, "crumbs": crumbs(view)}


def draft_message(made: Duplicate, preview: MaskPreview | str) -> Message:
    """A session that is not started yet: the prompt and spans of another one, and what of it could not be had.

    Args:
        made: The request, and what could not be taken over.
        preview: The masked reading, or why there is none.
    """
    refused = (preview,) if isinstance(preview, str) else ()
    return {
        "kind": "draft",
        "prompt": made.request.prompt,
        "spans": [asdict(span) for span in made.request.spans or ()],
        "preview": None if isinstance(preview, str) else preview_message(preview),
        "notes": [*made.notes, *refused],
        "saved": f"{made.request.name}, not started yet",
    }


def steps_message(steps: Sequence[Step], progress: ChainProgress, done: bool = False) -> Message:
    """New steps, to be appended, and what the chain now is as a whole; ``done`` ends a run."""
    return {
        "kind": "steps",
        "from": steps[0].index if steps else -1,
        "steps": [step_card(step, progress.noise) for step in steps],
        "finished": finished_text(progress.finished),
        "chain": chain_panel(progress.chain),
        "computed": computed_facts(progress),
        "done": done,
    }


def computed_facts(found: AuditView | ChainProgress) -> list[tuple[str, str]]:
    """How a chain's steps were computed: each way in which they were, and the bound on the numeric noise."""
    ways = [("Computed", item.sentence) for item in found.computed]
    return [*ways, ("Numeric noise", f"log-probabilities agree within {found.noise.text}")]


def preview_message(preview: MaskPreview) -> Message:
    """The prompt as the masked branch reads it."""
    tokens = f"{count(preview.token_count)} token{'' if preview.token_count == 1 else 's'}"
    return {
        "kind": "preview",
        "pieces": [[piece.text, piece.masked] for piece in preview.pieces],
        "counts": f"{tokens}, {count(preview.masked_count)} masked, same length",
        "warnings": list(preview.warnings),
        "branches": " ".join(filter(None, (reading_text(preview.branches), _sentinel(preview)))),
    }


def _sentinel(preview: MaskPreview) -> str:
    """Which token stands for masked ones and why, where one does."""
    return preview.sentinel if preview.masked_count else ""


def spans_message(spans: Sequence[Span]) -> Message:
    """Detected spans; offsets count code points."""
    return {"kind": "spans", "spans": [asdict(span) for span in spans]}


def spans_from(items: object) -> tuple[Span, ...] | None:
    """Spans as the browser sends them; None lets the detector find them."""
    if not isinstance(items, list):
        return None
    return tuple(
        sorted(
            Span(
                start=int(item["start"]),
                end=int(item["end"]),
                category=str(item.get("category", "other")),
                source=str(item.get("source", "user")),
                detail=str(item.get("detail", "")),
                kept=bool(item.get("kept", False)),
                score=None if item.get("score") is None else float(item["score"]),
                suggested=bool(item.get("suggested", False)),
            )
            for item in items
        )
    )


def finished_text(finished: str | None) -> str | None:
    """Why nothing can be added to the chain."""
    return ENDS.get(finished, finished) if finished else None


def session_warnings(view: AuditView) -> list[str]:
    """Sentences that stay in sight with the session; what is not certified always says so."""
    found = [*view.warnings, *view.preview.warnings]
    if view.calibration is not None and info_of(view.settings.policy).certified_in == "factual":
        found.insert(0, FACTUAL_ALONE)
    if view.drift is not None and view.drift.status in ("watch", "recalibrate"):
        found.insert(0, view.drift.sentence)
    if not Certificate.read(view.certificate).certified:
        found.insert(0, view.certificate[:1].upper() + view.certificate[1:] + ".")
    return list(dict.fromkeys(found))


def bin_message(item: BinView) -> Message:
    """A bin for the overview, and the verdict of tokens whose state comes from it."""
    short = {"uninformative": " weak" if item.tau > 0 else " none", "inherited": " inh."}.get(item.state, "")
    return {
        "first": item.first_step,
        "last": item.last_step,
        "label": item.label,
        "short": short,
        "state": item.state,
        "v": bin_verdict(item),
    }


def bin_verdict(item: BinView) -> tuple[str, str] | None:
    """The verdict of a token whose bin has no own threshold."""
    if item.state == "uninformative":
        return (
            "Not certified in any useful sense:",
            f"{item.silence}."
            if item.tau > 0
            else f"{count(item.contexts)} context{'' if item.contexts == 1 else 's'}, {count(item.needed)} needed, "
            "so every token passes.",
        )
    if item.state == "inherited":
        source = f"τ comes from {item.inherited_from}" if item.inherited_from else "τ comes from a neighbour"
        return ("Certified with a borrowed threshold:", f"no calibration data at steps {item.label}, {source}.")
    return None


def crumbs(view: AuditView) -> Message:
    """The path of branches to the shown one, its siblings, and the branches that leave it."""
    by_id = {branch.id: branch for branch in view.branches}
    path: list[BranchOutline] = []
    cursor = by_id.get(view.branch_id)
    while cursor is not None:
        path.insert(0, cursor)
        cursor = by_id.get(cursor.parent_id) if cursor.parent_id is not None else None
    current = path[-1] if path else None
    siblings = [
        branch
        for branch in view.branches
        if current and current.parent_id is not None and branch.id != current.id
        if branch.parent_id == current.parent_id and branch.fork_step == current.fork_step
    ]
    children = [branch for branch in view.branches if branch.parent_id == view.branch_id]
    return {
        "path": [_node(branch, view.branch_id) for branch in path],
        "siblings": [_node(branch, view.branch_id) for branch in siblings],
        "parent": current.parent_id if current else None,
        "at": current.fork_step if current else None,
        "children": [_node(branch, view.branch_id) for branch in children],
        "tree": branch_tree(view.branches),
    }


def _node(branch: BranchOutline, current: int) -> Message:
    if branch.parent_id is None or branch.fork_step is None:
        return {"id": branch.id, "step": None, "token": branch.name or "main", "name": "", "on": branch.id == current}
    return {
        "id": branch.id,
        "step": branch.fork_step + 1,
        "token": shown_token(branch.token or branch.name),
        "name": given_name(branch),
        "on": branch.id == current,
    }


def family_choices() -> list[tuple[str, str]]:
    """Families for a menu: what is shown, and the category."""
    return [(name, key) for key, name in FAMILY_NAMES.items()]


def list_choices(found: Sequence[UserListRecord]) -> list[tuple[str, int]]:
    """Word lists for a menu; 0 stands for none."""
    return [("None", 0), *((item.name, item.id) for item in found)]


def frame_message(session_id: int, branch_id: int, steps: Sequence[Step], progress: ChainProgress) -> Message:
    """Steps of one branch that the page may not have yet; a late frame is told apart by its branch."""
    return {**steps_message(steps, progress), "session": session_id, "branch": branch_id}


def end_message(
    session_id: int, branch_id: int, progress: ChainProgress, until: RunUntil | None, last: Step | None, written: int
) -> Message:
    """The end of a run: why it stopped, and how long the chain now is, so that no lost frame goes unnoticed."""
    message: Message = {
        **steps_message((), progress, done=True),
        "session": session_id,
        "branch": branch_id,
        "why": stop_sentence(until, last, written, progress.finished),
    }
    return message if last is None else {**message, "length": last.index + 1}
