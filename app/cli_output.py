"""What commands print for people."""

from __future__ import annotations

import math
from pathlib import Path

from app.services.plain import chain_text, span_state
from app.services.policy_words import policy_name
from app.services.step_words import set_size
from app.services.views import (
    AuditView,
    SessionSummary,
    Span,
    Step,
    UserListSummary,
    UserListView,
    silence,
)

STATES = {
    "calibrated": "",
    "inherited": "inherited threshold",
    "uninformative": "uninformative",
    "mismatch": "uncertified: policy mismatch",
    "none": "no calibration",
}


def print_audit(view: AuditView, out: Path | None) -> None:
    """The chain as a table, with every reservation that the page would show."""
    print(f"Session {view.session_id}: {view.name}")
    print(f"Model {view.model}; policy {policy_name(view.settings.policy)}; {view.certificate}")
    for state, otherwise in (("masked", "nothing"), ("suggested", ""), ("kept", "")):
        named = ", ".join(_span(view.prompt, span) for span in view.spans if span_state(span) == state)
        if named or otherwise:
            print(f"{state.capitalize()}: {named or otherwise}")
    if view.preview.masked_count and view.preview.sentinel:
        print(f"Sentinel: {view.preview.sentinel}")
    if view.user_list:
        print(f"Word list: {view.user_list}")
    for warning in view.warnings:
        print(f"Note: {warning}")
    print(f"\n{'step':>4}  {'token':<16} {'factual':>8} {'masked':>8} {'fused':>8} {'tau':>8} {'set':>5}  certified")
    for step in view.steps:
        print(_row(step))
    print(f"\n{view.prompt}{chain_text(view)}")
    if out:
        print(f"\nReport: {out}")


def print_sessions(sessions: tuple[SessionSummary, ...]) -> None:
    """One line a session."""
    if not sessions:
        print('No sessions yet. Start one with: python -m app audit --prompt "..."')
    for s in sessions:
        print(f"{s.id:>5}  {s.updated_at:%Y-%m-%d %H:%M}  {s.steps:>4} steps  {s.model:<12} {s.name}")


def print_user_lists(found: tuple[UserListSummary, ...]) -> None:
    """One line a word list."""
    if not found:
        print("No word lists yet. Store one with: python -m app lists add terms.csv")
    for item in found:
        print(f"{item.terms:>6} terms  {item.digest[:12]}  {item.created_at:%Y-%m-%d}  {item.name}")


def print_user_list(view: UserListView) -> None:
    """A word list term by term."""
    print(f"Word list “{view.summary.name}”: {view.masked} masked, {view.kept} kept; {view.summary.digest}")
    for term in view.terms:
        print(f"{'keep' if term.keep else 'mask'}  {term.family:<14} {term.term}")


def _span(prompt: str, span: Span) -> str:
    sure = "" if span.score is None else f" {span.score:.2f}"
    return f"“{prompt[span.start : span.end]}” ({span.category}, {span.source}{sure})"


def _row(step: Step) -> str:
    mark = "yes" if step.certified else "fallback" if step.fallback else "no"
    reservation = STATES[step.state]
    if step.state == "uninformative":
        reservation = f"{reservation}: {silence(step.log_tau)}"
    token = step.token.replace("\n", "\\n").replace(" ", "·", 1) if step.token.startswith(" ") else step.token
    return (
        f"{step.index + 1:>4}  {token:<16} {math.exp(step.log_p_factual):>8.4f} {math.exp(step.log_p_masked):>8.4f} "
        f"{math.exp(step.log_p_fused):>8.4f} {math.exp(step.log_tau):>8.4f} {set_size(step):>5}  {mark}"
        + (f" ({reservation})" if reservation else "")
        + (" forced" if step.forced else "")
    )
