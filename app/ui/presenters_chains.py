"""What the compare page says: the messages that the browser builds its columns from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TypedDict

from app.services.policy_words import info_of, policy_name
from app.services.views import AuditView, CalibrationSummary, Step
from app.services.views.comparisons import ChainSummary, ComparedRow, Comparison
from app.services.views.library import LibraryEntry
from app.services.views.policies import PolicyInfo
from app.ui.presenters import Row, step_card
from app.ui.presenters_chains_tables import differences_table, summary_table
from app.ui.presenters_chains_words import (
    branch_name,
    chain_names,
    claim,
    parting,
    peak,
    row_sentences,
    settings_line,
)
from app.ui.presenters_format import day, plural, probability, shown_token, signed
from app.ui.presenters_policies import policies_json
from app.ui.presenters_session import Message, finished_text

SHOWN_ROWS = 6
"""Candidates of a step that are shown, the written one besides."""

MOST_COLUMNS = 4
"""Columns that the page shows beside each other."""


class Cell(TypedDict):
    """A token in a column; the short keys keep a comparison's message small.

    ``i`` index, ``t`` raw text, ``w`` shown text, ``p`` factual probability, ``r`` log ratio and ``rt`` its text,
    ``sr`` words for screen readers, ``k`` marks, ``d`` divergence of fused from masked, ``v`` divergence from vanilla
    as total variation and as KL (null where it is not known), ``tt`` the threshold's text, ``rows`` candidates: text,
    factual, masked, fused, joint, mark, why, whether it was written, and the fused probability from 0 to 1.
    """

    i: int
    t: str
    w: str
    p: str
    r: float
    rt: str
    sr: str
    k: list[str]
    d: float
    v: list[float | None]
    tt: str
    rows: list[list[str | bool | float]]


def cell(step: Step, own_model: bool = False) -> Cell:
    """Everything that the page shows of a step.

    Args:
        step: The step.
        own_model: Whether its policy decodes a checkpoint of its own, whose factual reading is not vanilla's.
    """
    card = step_card(step)
    shown = [row for place, row in enumerate(card["rows"]) if place < SHOWN_ROWS or row["id"] == step.token_id]
    said = step.diagnostics
    fused = {item.token_id: math.exp(item.log_p_fused) for item in step.candidates}
    return Cell(
        i=step.index,
        t=step.token,
        w=card["w"],
        p=probability(math.exp(step.log_p_factual)),
        r=card["r"],
        rt=signed(step.diagnostics.log_ratio),
        sr=card["sr"],
        k=card["k"],
        d=float(f"{step.diagnostics.kl_fused_masked:.4g}"),
        v=[None if own_model else _short(value) for value in (said.tv_fused_factual, said.kl_fused_factual)],
        tt=card["tt"],
        rows=[_candidate(row, step, fused[row["id"]]) for row in shown],
    )


def _short(value: float | None) -> float | None:
    """Four digits; an infinite divergence is told apart by the browser's message, which has no infinities, as -1."""
    return None if value is None else -1.0 if math.isinf(value) else float(f"{value:.4g}")


def _candidate(row: Row, step: Step, fused: float) -> list[str | bool | float]:
    written = row["id"] == step.token_id
    share = float(f"{fused:.4f}")
    return [shown_token(row["t"]), row["f"], row["m"], row["x"], row["j"], row["mark"], row["why"], written, share]


def rows_message(rows: Iterable[ComparedRow]) -> list[list[list[int | None]]]:
    """Aligned rows: the steps of each chain, and 1 where a chain differs."""
    return [[list(row.steps), [int(differs) for differs in row.differs]] for row in rows]


def comparison_message(comparison: Comparison) -> Message:
    """A whole comparison."""
    names = chain_names(comparison.chains)
    first = comparison.chains[0]
    return {
        "kind": "comparison",
        "prompt": first.prompt,
        "spans": [asdict(span) for span in first.spans],
        "columns": [_column(chain, name) for chain, name in zip(comparison.chains, names, strict=True)],
        "rows": rows_message(comparison.rows),
        "say": row_sentences(comparison, names),
        "parting": parting(comparison, names),
        "peaks": [text for chain, name in zip(comparison.chains, names, strict=True) if (text := peak(chain, name))],
        "summary": summary_table(comparison, names),
        "differences": differences_table(comparison, names),
        "notes": _notes(comparison, names),
    }


def _column(chain: ChainSummary, name: str) -> Message:
    state, words = claim(chain.certificate)
    return {
        "name": name,
        "line": settings_line(chain),
        "state": state,
        "claim": words,
        "why": chain.certificate,
        "session": chain.session_id,
        "branch": chain.branch_id,
        "title": chain.name,
        "where": chain.branch,
        "branches": [[branch.id, branch_name(branch)] for branch in chain.branches],
        "finished": finished_text(chain.finished) or "",
        "total": chain.settings.max_new_tokens,
        "fuses": info_of(chain.policy).fuses,
        "certifies": info_of(chain.policy).certifies,
        "joint": info_of(chain.policy).certified_in == "both",
        "cells": [cell(step, chain.own_model) for step in chain.steps],
    }


def _notes(comparison: Comparison, names: Sequence[str]) -> list[str]:
    """Notes on the comparison, and what the sessions themselves say; what all say stands once."""
    said: dict[str, list[str]] = {}
    for chain, name in zip(comparison.chains, names, strict=True):
        own = [*chain.warnings]
        if chain.certificate != "certified" and info_of(chain.policy).certifies:
            own.insert(0, f"{chain.certificate[:1].upper()}{chain.certificate[1:]}.")
        for text in own:
            said.setdefault(text, []).append(name)
    everywhere = len(comparison.chains)
    warnings = [text if len(who) == everywhere else f"{', '.join(who)}: {text}" for text, who in said.items()]
    return [*comparison.notes, *warnings]


def menu_message(policies: Sequence[PolicyInfo], calibrations: Sequence[CalibrationSummary]) -> Message:
    """What columns can be made of."""
    return {
        "kind": "menu",
        "policies": policies_json(policies),
        "calibrations": [
            {"id": item.id, "name": item.name, "model": item.model, "layout": item.mask_layout, "lam": item.lam,
             "alpha": item.alpha, "embedded": item.embedded}
            for item in calibrations
        ],
        "most": MOST_COLUMNS,
    }  # fmt: skip


def found_message(entries: Sequence[LibraryEntry], total: int) -> Message:
    """Sessions that can be compared."""
    rest = total - len(entries)
    return {
        "kind": "found",
        "more": f"{plural(rest, 'more session')}: search for them." if rest > 0 else "",
        "sessions": [
            {"id": item.id, "name": item.name,
             "about": f"{policy_name(item.policy)}, {plural(item.steps, 'step')}, {day(item.updated_at)}"}
            for item in entries
        ],
    }  # fmt: skip


def picked_message(view: AuditView) -> Message:
    """One session with its branches."""
    return {
        "kind": "picked",
        "session": view.session_id,
        "branch": view.branch_id,
        "title": view.name,
        "name": policy_name(view.settings.policy),
        "branches": [[branch.id, branch_name(branch)] for branch in view.branches],
    }
