"""What the audit page says of a session: the message that the browser builds its page from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from app.services.policy_words import info_of
from app.services.views import (
    FAMILY_NAMES,
    AuditView,
    BinView,
    BranchView,
    ChainProgress,
    MaskPreview,
    Span,
    Step,
    UserListSummary,
)
from app.services.views.library import Duplicate
from app.ui.presenters import step_card
from app.ui.presenters_branches import branches_text, reading_text
from app.ui.presenters_chain import chain_panel, no_chain
from app.ui.presenters_format import clock, count, shown_token
from app.ui.presenters_policies import method_facts
from app.ui.presenters_tree import ENDS, branch_tree, given_name

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
        "certified": view.certificate == "certified",
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
    if view.certificate != "certified":
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
    path: list[BranchView] = []
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


def _node(branch: BranchView, current: int) -> Message:
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


def list_choices(found: Sequence[UserListSummary]) -> list[tuple[str, int]]:
    """Word lists for a menu; 0 stands for none."""
    return [("None", 0), *((item.name, item.id) for item in found)]
