"""What the audit page says: a session with its branches, its steps, and what its spans contribute."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from itertools import takewhile
from typing import Any

from app.audit.service import RunUntil, stop_sentence
from app.prompts.words import ENDS, Message, _is_factorized, finished_text, preview_message
from app.sessions.service import PrunePreview
from app.shared.audits import FAMILY_NAMES, AuditSettings, AuditView, ChainProgress, ThinkingView
from app.shared.calibration_words import DRIFT_STATES, lengths_sentence
from app.shared.format import clock, count, level, named, percentage, plural, quoted, shown_token, signed, threshold
from app.shared.markup import html
from app.shared.policies import info_of, own_parameters, parameters_line, policy_about
from app.shared.step_words import counted_claim, shapes, spoken_state, step_card, token_marks
from app.shared.thinking import thinking_sentence
from coft_core.conformal.bins import Bin
from coft_core.conformal.chain import ChainCertificate
from coft_core.conformal.drift import DriftReport
from coft_core.decode.contributions import LeaveOneOut
from coft_core.errors import InvalidInputError
from coft_core.types import Certificate, Step
from db.chains import BranchOutline

DECIMALS = 4

FACTUAL_ALONE = (
    "This method certifies tokens only in the prompt as typed, the certificate of the whole text included; nothing "
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
        "steps": [step_card(step, view.noise, view.masked) for step in view.steps[start:]],
        "total": view.settings.max_new_tokens,
        "finished": finished_text(view.finished),
        "certified": Certificate.read(view.certificate).certified,
        "claim": counted_claim(view.certificate),
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
        "thinking": thinking_message(view.thinking),
    }


def steps_message(steps: Sequence[Step], progress: ChainProgress, done: bool = False) -> Message:
    """New steps, to be appended, and what the chain now is as a whole; ``done`` ends a run."""
    return {
        "kind": "steps",
        "from": steps[0].index if steps else -1,
        "steps": [step_card(step, progress.noise, progress.masked) for step in steps],
        "finished": finished_text(progress.finished),
        "claim": counted_claim(progress.certificate),
        "chain": chain_panel(progress.chain),
        "computed": computed_facts(progress),
        "thinking": thinking_message(progress.thinking),
        "done": done,
    }


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


def thinking_message(view: ThinkingView | None) -> Message | None:
    """Which steps (0-based, inclusive) are thinking, whether an answer follows, and both parts in a sentence."""
    if view is None:
        return None
    return {"ranges": view.ranges, "answered": view.answer.steps > 0, "text": thinking_sentence(view)}


def computed_facts(chain: ChainProgress) -> list[tuple[str, str]]:
    """How a chain's steps were computed: each way in which they were, and the bound on the numeric noise."""
    ways = [("Computed", way.sentence) for way in chain.computed]
    return [*ways, ("Numeric noise", f"log-probabilities agree within {chain.noise.text}")]


def session_warnings(view: AuditView) -> list[str]:
    """Sentences that stay in sight with the session; what is not certified always says so."""
    warnings = [*view.warnings, *view.preview.warnings]
    if view.calibration is not None and info_of(view.settings.policy).certified_in == "factual":
        warnings.insert(0, FACTUAL_ALONE)
    if view.drift is not None and view.drift.status in ("watch", "recalibrate"):
        warnings.insert(0, view.drift.sentence)
    if not Certificate.read(view.certificate).certified:
        warnings.insert(0, view.certificate[:1].upper() + view.certificate[1:] + ".")
    return list(dict.fromkeys(warnings))


def bin_message(item: Bin) -> Message:
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


def bin_verdict(item: Bin) -> tuple[str, str] | None:
    """The verdict of a token whose bin has no own threshold."""
    if item.state == "uninformative":
        needed = f"{plural(item.contexts, 'context')}, {count(item.needed)} needed, so every token passes."
        return ("Not certified in any useful sense:", f"{item.silence}." if item.tau > 0 else needed)
    if item.state == "inherited":
        source = item.inherited_from or "a neighbour"
        words = f"no calibration data at steps {item.label}, τ comes from {source}."
        return ("A borrowed threshold held:", words)
    return None


def contributions_message(prompt: str, measured: LeaveOneOut) -> Message:
    """What each span contributes, step by step; contributions need not sum to the total.

    ``spans`` are the lines (``t`` words, ``f`` family, ``n`` its name), ``r`` log-ratios, ``z`` differences of logits,
    ``x`` what no span has alone, and ``peak`` the largest contribution in a sentence.
    """
    return {
        "kind": "contributions",
        "spans": [
            {
                "t": prompt[part.span.start : part.span.end],
                "f": part.span.category,
                "n": FAMILY_NAMES.get(part.span.category, part.span.category),
                "r": _rounded(part.log_ratio),
                "z": _rounded(part.sensitivity),
            }
            for part in measured.spans
        ],
        "r": _rounded(measured.log_ratio),
        "z": _rounded(measured.sensitivity),
        "x": _rounded(measured.interaction),
        "peak": _peak(prompt, measured),
    }


def _peak(prompt: str, measured: LeaveOneOut) -> str:
    """The largest contribution in a sentence, for those who do not see the picture."""
    cells = [
        (ratio, step, part.span)
        for part in measured.spans
        for ratio, step in zip(part.log_ratio, measured.steps, strict=True)
    ]
    if not cells:
        return "No span is masked, so there is nothing to contribute."
    ratio, step, span = max(cells, key=lambda cell: abs(cell[0]))
    word = prompt[span.start : span.end]
    return f"The largest contribution is {signed(ratio)}, of “{word}” to the token of step {step + 1}."


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, DECIMALS) for value in values]


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


FACTORIZED = (
    "With one mask for each family, the whole text has no certificate; each token is certified by itself, "
    "for every family."
)


def chain_panel(chain: ChainCertificate | None) -> Message | None:
    """A chain's sentence, its weakest step (0-based) and both answers; None without a certificate."""
    if chain is None:
        return None
    return {"text": chain.sentence, "weakest": chain.weakest, "parts": [_sequence(chain), _union(chain)]}


def no_chain(view: AuditView) -> str:
    """Why a session has no certificate for whole chains although it has a calibration; empty where none is expected."""
    return FACTORIZED if view.calibration is not None and view.settings.mask_layout == "factorized" else ""


def _sequence(chain: ChainCertificate) -> Message:
    sequence = chain.sequence
    state, label, says = {
        True: (
            "calibrated",
            "threshold held",
            f"The text as a whole passes the {percentage(1 - chain.sequence.alpha)} test.",
        ),
        False: (
            "missed",
            "threshold missed",
            f"The text as a whole misses the {percentage(1 - chain.sequence.alpha)} test at step {chain.weakest + 1}.",
        ),
        None: ("uninformative", "says nothing", chain.reason),
    }[chain.sequence_certified]
    return {
        "t": "As one text",
        "s": state,
        "b": label,
        "says": says,
        "rows": [
            ("Weakest token", f"step {chain.weakest + 1}"),
            (
                "Its probability as typed" if chain.certified_in == "factual" else "Its lower probability",
                _small(chain.log_support),
            ),
            ("Needed", _small(sequence.log_tau) if sequence.log_tau > -math.inf else "none"),
            ("Rests on", plural(sequence.contexts, "context")),
            ("Holds for", sequence.applies),
            ("Lengths", lengths_sentence(sequence.lengths)),
        ],
    }


def _union(chain: ChainCertificate) -> Message:
    bound = chain.union
    state, label, says = {
        True: ("calibrated", "thresholds held" if bound.level > 0 else "no guarantee", _bound_says(chain)),
        False: ("missed", "threshold missed", "A token misses the threshold of its own step."),
        None: (
            "uninformative",
            "says nothing",
            "A step’s threshold is borrowed or says nothing, so the risks cannot be added up.",
        ),
    }[chain.union_certified]
    return {
        "t": "Step by step",
        "s": state if bound.level > 0 or state != "calibrated" else "uninformative",
        "b": label,
        "says": says,
        "rows": [
            ("Risk of one step, α", level(bound.alpha)),
            ("Steps counted, in whole blocks", count(bound.charged)),
            ("All true tokens pass", f"at least {percentage(bound.level)}" if bound.level > 0 else "no guarantee"),
            (f"For {percentage(1 - bound.alpha)} together, α of a step", threshold(bound.alpha_needed)),
            ("which needs", plural(bound.contexts_needed, "context")),
        ],
    }


def _bound_says(chain: ChainCertificate) -> str:
    risks, left = f"the risks of {plural(chain.union.charged, 'step')} add up", chain.union.level
    if left > 0:
        return (
            f"Each token passes at its own step; {risks}, which leaves at least {percentage(left)} for the whole text."
        )
    return f"No guarantee for the whole text: each token passes at its own step, but {risks} to 1 or more."


def _small(log_value: float) -> str:
    """A probability that may be tiny, with two significant digits."""
    value = math.exp(log_value)
    return threshold(value) if value >= 1e-4 else "0" if value == 0 else f"{value:.1e}".replace("e-0", "e-")


def drift_badge(report: DriftReport | None, calibration_id: int) -> str:
    """Whether the audits so far speak against a calibration, linked to where it is explained."""
    if report is None:
        return ""
    return html(
        """
        <p><a class="badge drift-{{ report.status }}" href="./calibrate?run={{ run }}#drift"
          title="{{ report.sentence }} {{ report.figures }}">{{ words }}</a></p>
        """,
        report=report,
        run=calibration_id,
        words=DRIFT_STATES.get(report.status, report.status),
    )


def method_facts(settings: AuditSettings) -> dict[str, Any]:
    """The method of an audit for the head of its transcript: a line, what it does, and all its parameters."""
    info = info_of(settings.policy)
    strengths = [f"λ {settings.lam:.2f}"] if info.fuses else []
    strengths += [f"α {level(settings.alpha)}"] if info.certifies and settings.calibration_id is not None else []
    changed = parameters_line(settings)
    return {
        "line": ", ".join([info.name, *strengths, *([changed] if changed else [])]),
        "about": policy_about(settings.policy),
        "fuses": info.fuses,
        "parameters": [
            [title, f"{value} (default)" if usual else value] for title, value, usual in own_parameters(settings)
        ],
    }


def refused_message(error: InvalidInputError) -> Message:
    """A prompt that no branch reads: it fills the model's context, or its turns are not all there yet."""
    return {"kind": "toolong", "text": str(error)}


def branches_text(branches: Sequence[str]) -> str:
    """Which readings of the prompt each step takes; empty where nobody knows."""
    if not branches:
        return ""
    if not _is_factorized(branches):
        further = len(branches) - 2
        more = f", and {plural(further, 'reading')} of the method’s own" if further > 0 else ""
        return f"{len(branches)} branches: as typed{',' if further > 0 else ', and'} masked{more}."
    each = " one at a time" if len(branches) > 2 else ""
    return f"{len(branches)} branches: as typed, and with {named(branches[1:])} masked{each}."
