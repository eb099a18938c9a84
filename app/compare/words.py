"""Chains beside each other in words: their names, what each was decoded with, where they part, and why."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from markupsafe import Markup

from app.compare.chains import NONE, ChainSummary, ComparedRow, Comparison, PairComparison, memory
from app.prompts.words import Message, finished_text
from app.shared.audits import SENSITIVE, AuditSettings, AuditView, CalibrationSummary
from app.shared.calibration_words import LAYOUTS as MASKS
from app.shared.calibration_words import NAMES
from app.shared.errors import ServiceError
from app.shared.format import (
    count,
    day,
    level,
    listed,
    plural,
    probability,
    quoted,
    shown_token,
    signed,
    times_likelier,
)
from app.shared.markup import certificate_state, html
from app.shared.policies import info_of, parameter_values, parameters_line, policy_info, policy_name
from app.shared.settings_json import decimal, whole
from app.shared.step_words import certificate_words, step_card
from app.shared.thinking import thinking_sentence
from coft_core.conformal.informative import BY_CONSTRUCTION
from coft_core.types import Candidate, Certificate, Step
from db.chains import BranchOutline
from db.library import SessionEntryRecord

WHOLE = ("max_new_tokens", "top_k", "seed")
DECIMAL = ("temperature", "top_p")
CALLED = {"max_new_tokens": "number of steps", "top_k": "top-k", "top_p": "top-p", "lam": "lambda"}


def compared_columns_from(shared: Mapping[str, Any], columns: Sequence[Mapping[str, Any]]) -> tuple[AuditSettings, ...]:
    """The settings of each column."""
    return tuple(_column_from(shared, given, place) for place, given in enumerate(columns, 1))


def _column_from(shared: Mapping[str, Any], given: Mapping[str, Any], place: int) -> AuditSettings:
    everywhere: dict[str, Any] = {name: whole(shared, name, CALLED.get(name, name)) for name in WHOLE}
    everywhere |= {name: decimal(shared, name, CALLED.get(name, name)) for name in DECIMAL}
    where = f" of column {place}"
    info = policy_info(str(given.get("policy") or ""))
    try:
        parameters = parameter_values(info, given.get("parameters") or {})
    except ServiceError as error:
        raise ServiceError(f"Column {place}: {error}") from error
    # A policy without lambda or thresholds has no fields for them; what stood there before counts for nothing.
    values_given: dict[str, Any] = {"lam": decimal(given, "lam", f"lambda{where}")} if info.fuses else {}
    values_given |= {"alpha": decimal(given, "alpha", f"alpha{where}")} if info.certifies else {}
    calibration = whole(given, "calibration", f"calibration{where}") or None if info.certifies else None
    return AuditSettings(
        model=str(shared.get("model") or "demo").strip(),
        policy=info.key,
        calibration_id=calibration,
        parameters=parameters,
        mask_layout=str(given.get("layout") or "joint"),
        proceed_uncertified=bool(given.get("proceed")),
        greedy=bool(shared.get("greedy")),
        **values_given,
        **everywhere,
    )


def chains_from(items: Sequence[Sequence[Any]]) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    """Sessions and branches as the browser names them; a missing branch is the active one."""
    sessions = tuple(int(item[0]) for item in items)
    return sessions, tuple(None if item[1] is None else int(item[1]) for item in items)


LAYOUTS = {"joint": "one mask for all families", "factorized": "one mask for each family"}

PARTS: tuple[Callable[[ChainSummary], str], ...] = (
    lambda chain: f"λ {chain.settings.lam:.2f}" if info_of(chain.settings.policy).fuses else "",
    lambda chain: f"α {level(chain.settings.alpha)}" if chain.view.calibration else "",
    lambda chain: parameters_line(chain.settings),
    lambda chain: chain.view.calibration.name if chain.view.calibration else "no calibration",
    lambda chain: LAYOUTS.get(chain.settings.mask_layout, chain.settings.mask_layout),
    lambda chain: f"seed {chain.settings.seed}",
    lambda chain: branch_name(chain.branch),
    lambda chain: f"session {chain.view.session_id}",
    lambda chain: f"branch {chain.view.branch_id}",
)
"""What chains can be told apart by, the plainest first."""


def chain_names(chains: Sequence[ChainSummary]) -> list[str]:
    """A short name of each chain that no other one has: its policy, and what else is needed to tell them apart."""
    if len({chain.view.session_id for chain in chains}) == 1:
        branches = [branch_name(chain.branch) for chain in chains]
        return [
            name if branches.count(name) == 1 else f"{name} ({chain.view.branch_id})"
            for name, chain in zip(branches, chains, strict=True)
        ]
    told: list[list[str]] = [[] for _ in chains]
    for part in PARTS:
        names = [_name(chain, words) for chain, words in zip(chains, told, strict=True)]
        times = Counter(names)
        for name in [name for name, number in times.items() if number > 1]:
            alike = [place for place, other in enumerate(names) if other == name]
            words = {place: part(chains[place]) for place in alike}
            if len(set(words.values())) > 1:
                for place in alike:
                    told[place] += [words[place]] if words[place] else []
    return [_name(chain, words) for chain, words in zip(chains, told, strict=True)]


def branch_name(branch: BranchOutline) -> str:
    """A branch's name, after the step at which it departs."""
    step = "" if branch.fork_step is None else f"{count(branch.fork_step + 1)} "
    return f"{step}{shown_token(branch.name)}"


def _name(chain: ChainSummary, words: Sequence[str]) -> str:
    return f"{policy_name(chain.settings.policy)} ({', '.join(words)})" if words else policy_name(chain.settings.policy)


def settings_line(chain: ChainSummary) -> str:
    """What a chain was decoded with, in one line."""
    info, settings = info_of(chain.settings.policy), chain.settings
    parameters = parameters_line(settings)
    if not info.fuses and not info.certifies:
        return parameters or info.about
    parts = [f"λ {settings.lam:.2f}"] if info.fuses else []
    parts += [parameters] if parameters else []
    if info.certifies and chain.view.calibration is not None:
        parts += [f"α {level(settings.alpha)}", f"calibrated, {plural(chain.view.calibration.contexts, 'context')}"]
        parts += [f"group {settings.group}"] if settings.group else []
    elif info.certifies:
        parts.append("no calibration")
    if settings.mask_layout != info.layouts[0]:
        parts.append(LAYOUTS.get(settings.mask_layout, settings.mask_layout))
    return ", ".join(parts)


def claim(certificate: str) -> tuple[str, str]:
    """A certificate's badge and its words, without what a mismatch differs in."""
    return certificate_state(certificate), certificate_words(certificate.partition(" (")[0])


def parting(comparison: Comparison, names: Sequence[str]) -> list[str]:
    """Where each chain leaves the first, one sentence a chain."""
    first = comparison.chains[0]
    return [_parting(first, comparison.chains[pair.other], names[0], names[pair.other], pair)
            for pair in comparison.pairs]  # fmt: skip


def _parting(first: ChainSummary, other: ChainSummary, a: str, b: str, pair: PairComparison) -> str:
    at, shared = pair.first_divergence, pair.counts["same"]
    if at is None:
        tokens = plural(shared, "token")
        return f"{a} and {b} write the same {tokens}." if shared else f"{a} and {b} have written nothing yet."
    words = f"{_written(first, at)} in {a}, {_written(other, at)} in {b}"
    if pair.changes == [(1, "changed")]:
        return f"{a} and {b} differ in one token, number {count(at + 1)}: {words}."
    changes = [f"{count(number)} {word}" for number, word in pair.changes]
    return f"{a} and {b} differ from token {count(at + 1)} on: {words}; {listed(changes)}, {count(shared)} shared."


def _written(chain: ChainSummary, at: int) -> str:
    return quoted(chain.steps[at].token) if at < len(chain.steps) else "nothing more"


def row_sentences(comparison: Comparison, names: Sequence[str]) -> list[str]:
    """A sentence for each aligned row: what the columns write there, and why at the first row that differs."""
    first = next((number for number, row in enumerate(comparison.rows) if not row.same), None)
    sentences = []
    for number, row in enumerate(comparison.rows):
        if number == first and len({chain.view.prompt for chain in comparison.chains}) == 1:
            sentences.append(_first_difference(comparison, names, number))
        else:
            sentences.append(_row_sentence(comparison, names, row, first is not None and number >= first))
    return sentences


def _row_sentence(comparison: Comparison, names: Sequence[str], row: ComparedRow, parted: bool) -> str:
    steps = [None if at is None else chain.steps[at] for at, chain in zip(row.steps, comparison.chains, strict=True)]
    if row.same and steps[0] is not None:
        return f"All write {quoted(steps[0].token)}." + (" Their texts differ before it." if parted else "")
    said = [f"{name} writes {quoted(step.token)}" if step else f"{name} has no token here"
            for name, step in zip(names, steps, strict=True)]  # fmt: skip
    return f"{listed(said)}. The texts differ before this token, so the probabilities belong to different texts."


def _first_difference(comparison: Comparison, names: Sequence[str], at: int) -> str:
    """Where texts part all have the same text before, so that their next tokens can be held against each other."""
    said = [f"{name} writes {_written(chain, at)}" for chain, name in zip(comparison.chains, names, strict=True)]
    steps = [chain.steps[at] if at < len(chain.steps) else None for chain in comparison.chains]
    first = steps[0]
    if first is None:
        return f"{listed(said)}."
    reasons = [_reason(first, step, name) for name, step in zip(names[1:], steps[1:], strict=True) if step]
    return " ".join([f"After the same text {listed(said)}.", *(reason for reason in reasons if reason)])


def _reason(first: Step, other: Step, name: str) -> str:
    """Why a chain did not write the first one's token, as far as its stored candidates tell."""
    if other.token_id == first.token_id:
        return ""
    if other.forced:
        return f"In {name} it was forced by a reviewer."
    wanted = next((item for item in other.candidates if item.token_id == first.token_id), None)
    if wanted is None:
        return ""
    seen, masked = (probability(math.exp(value)) for value in (wanted.log_p_factual, wanted.log_p_masked))
    token = quoted(first.token)
    if _refused(other, wanted):
        tau = probability(math.exp(other.log_tau), 3)
        below = f"and {masked} with the attribute masked, under the threshold {tau}"
        return f"{token} has {seen}, {below}: {name} leaves it out."
    fused, taken = (probability(math.exp(value)) for value in (wanted.log_p_fused, other.log_p_fused))
    return (
        f"In {name}, {token} has {fused} and {quoted(other.token)} has {taken}; with the attribute masked "
        f"{token} goes from {seen} to {masked}."
    )


def _refused(step: Step, candidate: Candidate) -> bool:
    return step.state in ("calibrated", "inherited") and not step.fallback and not candidate.certified


def peak(chain: ChainSummary, name: str) -> str:
    """The most sensitive token of a chain; empty without tokens."""
    if not chain.steps:
        return ""
    step = max(chain.steps, key=lambda item: abs(item.diagnostics.log_ratio))
    return f"{name} peaks at “{shown_token(step.token)}”, {times_likelier(step.diagnostics.log_ratio)}."


FIGURE = Markup('<span class="vh">Figure</span>')
DASH = Markup('<span aria-hidden="true">–</span><span class="vh">none</span>')
SETTINGS = {
    **NAMES,
    "alpha": "alpha",
    "policy": "policy",
    "calibration_id": "calibration",
    "greedy": "greedy",
    "seed": "seed",
    "max_new_tokens": "steps at most",
    "proceed_uncertified": "proceed uncertified",
    "user_list_id": "word list",
    "mask_layout": "mask",
    "mask_hint": "hint of the mask",
    "group": "group",
    "parameters": "parameters of the method",
}
"""Settings as they are named on pages."""


def summary_rows(comparison: Comparison, names: Sequence[str]) -> list[list[str]]:
    """Figures of each chain below their title; a dash where there is nothing to count."""
    chains = comparison.chains
    differing = [NONE, *(count(len(pair.rows) - pair.counts["same"]) for pair in comparison.pairs)]
    rows = [
        ["Tokens written", *(count(len(chain.steps)) for chain in chains)],
        [f"Aligned steps that differ from {names[0]}", *differing],
        *([title, *map(read, chains)] for title, read in FIGURES),
    ]
    measured = [[title, *map(read, chains)] for title, read in MEASURED]
    return rows + [row for row in measured if any(text != NONE for text in row[1:])]


def summary_table(comparison: Comparison, names: Sequence[str]) -> Markup:
    """The figures on the page, with what must be said of a count of certified tokens."""
    table = columns_table(FIGURE, names, summary_rows(comparison, names), "sumtab", "Summary of the columns", "n")
    counted = any(chain.certified is not None for chain in comparison.chains)
    return table + Markup('<p class="sub">{}</p>').format(BY_CONSTRUCTION) if counted else table


def columns_table(
    first: str, names: Sequence[str], rows: Sequence[Sequence[str]], classes: str, caption: str, kind: str = ""
) -> Markup:
    """A table with a column for each chain; every row begins with its title, and cells are escaped."""
    return html(
        """
        <table class="{{ classes }}"><caption class="vh">{{ caption }}</caption><thead><tr><th scope="col">{{ first }}
        </th>{% for name in names %}<th scope="col" class="{{ kind }}">{{ name }}</th>{% endfor %}</tr></thead><tbody>
        {% for row in rows %}<tr><th scope="row">{{ row[0] }}</th>
        {% for cell in row[1:] %}<td class="{{ kind }}">{{ dash if cell == "–" else cell }}</td>{% endfor %}</tr>
        {% endfor %}</tbody></table>
        """,
        first=first,
        names=names,
        rows=rows,
        classes=classes,
        caption=caption,
        kind=kind,
        dash=DASH,
    )


def _ratios(chain: ChainSummary) -> list[float]:
    return [step.diagnostics.log_ratio for step in chain.steps]


def _certified(chain: ChainSummary) -> str:
    return NONE if chain.certified is None else f"{count(chain.certified)} of {count(len(chain.steps))}"


def _optional(value: int | None) -> str:
    return NONE if value is None else count(value)


def _decimal(value: float | None, digits: int, factor: float = 1.0) -> str:
    return NONE if value is None else f"{factor * value:.{digits}f}"


FIGURES: tuple[tuple[str, Callable[[ChainSummary], str]], ...] = (
    ("Mean sensitivity, size only", lambda chain: _decimal(chain.mean_log_ratio, 2)),
    ("Largest sensitivity", lambda chain: signed(max(_ratios(chain), key=abs)) if chain.steps else NONE),
    (f"Sensitive tokens, {SENSITIVE:.2f} or more",
     lambda chain: count(sum(abs(value) >= SENSITIVE for value in _ratios(chain)))),
    ("Favourites overruled", lambda chain: _optional(chain.overruled)),
    ("Thresholds held", _certified),
    ("Fallback steps", lambda chain: _optional(chain.fallbacks)),
    ("From vanilla, total variation", lambda chain: _decimal(chain.mean_tv_factual, 3)),
    ("From vanilla, KL in nats", lambda chain: _decimal(chain.mean_kl_factual, 3)),
    ("Time per token, ms", lambda chain: _decimal(chain.seconds_per_token, 1, 1000)),
    ("Keys and values, computed", lambda chain: memory(chain.key_value_bytes)),
)  # fmt: skip

MEASURED: tuple[tuple[str, Callable[[ChainSummary], str]], ...] = (
    ("Further models, their weights", lambda chain: memory(chain.footprint.further_bytes if chain.footprint else None)),
    ("Device memory, measured peak of all that ran", lambda chain: memory(chain.peak_bytes)),
)
"""Figures that stand only where some chain has them."""


def differences_table(comparison: Comparison, names: Sequence[str]) -> Markup:
    """The settings that the columns do not share; a sentence where they share all."""
    differing = dict.fromkeys(name for pair in comparison.pairs for name, _, _ in pair.differences)
    shown = {
        name: [_value(name, chain) for chain in comparison.chains] for name in differing if _matters(name, comparison)
    }
    if not shown:
        return Markup('<p class="sub">The columns were decoded with the same prompt and settings.</p>')
    rows = [[SETTINGS.get(name, name), *row] for name, row in shown.items()]
    return columns_table("Setting", names, rows, "plain differ", f"{plural(len(rows), 'setting')} that differ")


def _matters(name: str, comparison: Comparison) -> bool:
    """Whether a setting decides something in at least two of the columns or tells them apart."""
    infos = [info_of(chain.settings.policy) for chain in comparison.chains]
    if name == "lam":
        return any(info.fuses for info in infos)
    if name == "alpha":
        return any(chain.view.calibration is not None for chain in comparison.chains)
    return True


def _value(name: str, chain: ChainSummary) -> str:
    info = info_of(chain.settings.policy)
    if name == "policy":
        return info.name
    if name == "calibration_id":
        return chain.view.calibration.name if chain.view.calibration else "none"
    if (name == "lam" and not info.fuses) or (name == "alpha" and chain.view.calibration is None):
        return NONE
    if name == "prompt":
        return chain.view.prompt
    if name == "spans":
        return _text(tuple(chain.view.prompt[span.start : span.end] for span in chain.view.spans if span.masked))
    if name == "parameters":
        return parameters_line(chain.settings) or NONE
    return _text(getattr(chain.settings, name))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value) or "none"
    return "none" if value is None or value == "" else str(value)


SHOWN_ROWS = 6
"""Candidates of a step that are shown, the written one besides."""

MOST_COLUMNS = 4
"""Columns that the page shows beside each other."""


def cell(step: Step, own_model: bool = False, thought: bool = False) -> Message:
    """Everything that the page shows of a step; the short keys keep a comparison's message small.

    ``i`` index, ``t`` raw text, ``w`` shown text, ``p`` factual probability, ``r`` log ratio and ``rt`` its text,
    ``sr`` words for screen readers, ``k`` marks, ``d`` divergence of fused from masked, ``v`` divergence from vanilla
    as total variation and as KL (null where it is not known, as for a checkpoint of its own), ``tt`` the threshold's
    text, ``rows`` candidates: text, factual, masked, fused, joint, mark, why, whether it was written, and the fused
    probability from 0 to 1, ``th`` whether it is part of the thinking.
    """
    card = step_card(step)
    shown = [row for place, row in enumerate(card["rows"]) if place < SHOWN_ROWS or row["id"] == step.token_id]
    said = step.diagnostics
    fused = {item.token_id: math.exp(item.log_p_fused) for item in step.candidates}
    return {
        "i": step.index,
        "t": step.token,
        "w": card["w"],
        "p": probability(math.exp(step.log_p_factual)),
        "r": card["r"],
        "rt": signed(said.log_ratio),
        "sr": f"{card['sr']}, thinking" if thought else card["sr"],
        "k": card["k"],
        "d": float(f"{said.kl_fused_masked:.4g}"),
        "v": [None if own_model else _short(value) for value in (said.tv_fused_factual, said.kl_fused_factual)],
        "tt": card["tt"],
        "rows": [_candidate(row, step, fused[row["id"]]) for row in shown],
        "th": thought,
    }


def _short(value: float | None) -> float | None:
    """Four digits; an infinite divergence is told apart by the browser's message, which has no infinities, as -1."""
    return None if value is None else -1.0 if math.isinf(value) else float(f"{value:.4g}")


def _candidate(row: dict[str, Any], step: Step, fused: float) -> list[str | bool | float]:
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
        "prompt": first.view.prompt,
        "spans": [asdict(span) for span in first.view.spans],
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
    state, words = claim(chain.view.certificate)
    info = info_of(chain.settings.policy)
    return {
        "name": name,
        "line": settings_line(chain),
        "state": state,
        "claim": words,
        "why": chain.view.certificate,
        "session": chain.view.session_id,
        "branch": chain.view.branch_id,
        "title": chain.view.name,
        "where": chain.branch.name,
        "branches": [[branch.id, branch_name(branch)] for branch in chain.view.branches],
        "finished": finished_text(chain.view.finished) or "",
        "total": chain.settings.max_new_tokens,
        "fuses": info.fuses,
        "certifies": info.certifies,
        "joint": info.certified_in == "both",
        "thinking": "" if chain.view.thinking is None else thinking_sentence(chain.view.thinking),
        "cells": [cell(step, chain.own_model, chain.thought(step.index)) for step in chain.steps],
    }


def _notes(comparison: Comparison, names: Sequence[str]) -> list[str]:
    """Notes on the comparison, and what the sessions themselves say; what all say stands once."""
    said: dict[str, list[str]] = {}
    for chain, name in zip(comparison.chains, names, strict=True):
        own = [*chain.view.warnings, *chain.view.preview.warnings]
        if not Certificate.read(chain.view.certificate).certified and info_of(chain.settings.policy).certifies:
            own.insert(0, f"{chain.view.certificate[:1].upper()}{chain.view.certificate[1:]}.")
        for text in dict.fromkeys(own):
            said.setdefault(text, []).append(name)
    everywhere = len(comparison.chains)
    warnings = [text if len(who) == everywhere else f"{', '.join(who)}: {text}" for text, who in said.items()]
    return [*comparison.notes, *warnings]


def menu_message(calibrations: Sequence[CalibrationSummary]) -> Message:
    """What columns can be made of, beside the methods that every page knows."""
    return {
        "kind": "menu",
        "layouts": MASKS,
        "usual": {"lam": AuditSettings().lam, "alpha": AuditSettings().alpha},
        "calibrations": [
            {"id": item.id, "name": item.name, "model": item.model, "layout": item.mask_layout, "lam": item.lam,
             "alpha": item.alpha, "embedded": item.embedded}
            for item in calibrations
        ],
        "most": MOST_COLUMNS,
    }  # fmt: skip


def found_message(entries: Sequence[SessionEntryRecord], total: int) -> Message:
    """Sessions that can be compared."""
    rest = total - len(entries)
    return {
        "kind": "found",
        "more": f"{plural(rest, 'more session')}: search for them." if rest > 0 else "",
        "sessions": [
            {"id": item.id, "name": item.name,
             "about": f"{policy_name(item.policy)}, {plural(item.step_count, 'step')}, {day(item.updated_at)}"}
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
