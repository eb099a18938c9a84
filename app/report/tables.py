"""Audit reports as CSV: one row per step."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.shared.audits import settings_from_json
from app.shared.files import to_csv
from app.shared.json import candidate_json, chain_json, family_json, refused_by, span_state
from app.shared.kept_controls import CONTROLS, control_cells
from app.shared.kept_steps import computations_of, stated_noise
from app.shared.thinking import STORED as STORED_MARKS
from app.shared.thinking import step_parts
from app.shared.verdicts import StandingVerdict, log_csv, owner_of, standing, verdict_at
from coft_core.conformal.chain import ChainCertificate
from coft_core.controls.result import Controls
from coft_core.step_numbers import step_numbers
from coft_core.types import Certificate, Span, Step
from db.audits import BranchRecord, SessionRecord
from db.verdicts import AnnotationRecord

COLUMNS = (
    "session_id", "step", "branch", "token_id", "token", "p_factual", "p_masked", "p_fused", "tau", "certified",
    "set_size", "certified_mass", "fallback", "chosen_by", "kl_fused_masked", "tv_bound", "verdict", "note", "model",
    "model_revision", "calibration_id", "fingerprint", "lam", "alpha", "temperature", "top_p", "seed", "spans",
    "threshold_state", "certificate", "tv_on_set", "sensitivity", "log_ratio", "policy", "policy_token", "top_k",
    "greedy", "calibration", "prompt", "warnings", "user_list", "masked_families", "mask_layout", "mask_mode",
    "whitelist", "group", "refused_by", "family_thresholds", "chain_certificate", "drift",
)  # fmt: skip

STORED = (
    "model", "model_revision", "lam", "alpha", "temperature", "top_p", "top_k", "greedy", "seed", "certificate",
    "policy", "prompt",
)  # fmt: skip
"""Columns that say what is stored of the session under the same names."""

COMPUTED = ("near_threshold", "numeric_noise", "computed")
"""Further columns of sessions that were stored with how their steps were computed."""

RANGES = ("set_size_low", "set_size_high", "noise")
"""Further columns of sessions whose steps give their set size as a range."""

BOUNDED = ("seen", "undecided", "exact")
"""Further columns of sessions whose engine returns only the most likely tokens."""

AT_MOST = "at_most"
"""Further column of their candidates: the readings in which the probability is an upper bound."""

PART = "part"
"""Further column, the last, of sessions whose model marks its thinking: ``thinking`` or ``answer``."""

COUNTED = "certified_at"
"""Further column of sessions under thresholds: at how many steps of the row's chain a token is certified."""

CERTIFIED_IN = "certified_in"
"""Further column of tables whose tokens are certified in the factual reading alone."""


@dataclass(frozen=True, slots=True)
class SessionData:
    """A stored session as its report needs it."""

    record: SessionRecord
    branches: Sequence[BranchRecord]
    chains: Mapping[int, tuple[Step, ...]]
    log: Sequence[AnnotationRecord]
    certificates: Mapping[int, ChainCertificate | None]
    drift: str | None
    controls: Mapping[int, Controls] = field(default_factory=dict)


def steps_csv(data: SessionData, whole_chains: bool = False) -> str:
    """The steps of a session as CSV text, branch by branch."""
    branches = {branch.id: branch for branch in data.branches}
    verdicts = standing(data.log)
    common = _common_cells(data.record) | {"drift": data.drift}
    rows, noise, certificate = [], stated_noise(data.record), Certificate.read(data.record.certificate)
    for branch_id, chain in data.chains.items():
        whole = {"chain_certificate": _json(chain_json(data.certificates[branch_id]))}
        whole[COUNTED] = certificate.counted(chain).text
        told = step_parts(chain, data.record.policy_settings) or ()
        for step in chain:
            owner = owner_of(branches, branches[branch_id], step.index)
            if whole_chains or owner.id == branch_id:
                near = {"near_threshold": step.near_threshold(noise.nats)}
                part = {PART: told[step.index]} if told else {}
                compared = control_cells(data.controls.get(branch_id), step.index)
                rows.append({**common, **whole, **near, **_step_cells(step, owner, verdicts), **part, **compared})
    # Tables of sessions without such parameters, or certified in both readings, keep the columns that they always had.
    further = [name for name, held in (("parameters", "parameters" in common), (CERTIFIED_IN, certified_alone(data)))
               if held]  # fmt: skip
    # The same holds for sessions that do not say how their steps were computed.
    computed = COMPUTED if common["computed"] is not None else ()
    ranges = RANGES if any(step.noise is not None for chain in data.chains.values() for step in chain) else ()
    bounded = BOUNDED if is_bounded(data) else ()
    marked = (PART,) if STORED_MARKS in data.record.policy_settings else ()
    counted = (COUNTED,) if certificate.certified else ()
    compared = CONTROLS if "controls" in data.record.policy_settings["settings"] else ()
    return to_csv((*COLUMNS, *computed, *further, *ranges, *bounded, *marked, *counted, *compared), rows)


def certified_alone(data: SessionData) -> bool:
    """Whether steps are certified in the factual reading alone, so that tables must name the reading."""
    return any(step.certified_in == "factual" for chain in data.chains.values() for step in chain)


def is_bounded(data: SessionData) -> bool:
    """Whether the engine returned only the most likely tokens at a step."""
    return any(step.bounds is not None for chain in data.chains.values() for step in chain)


def _common_cells(record: SessionRecord) -> dict[str, object]:
    settings = settings_from_json(record.policy_settings["settings"])
    return {
        **{name: getattr(record, name) for name in STORED},
        "session_id": record.id,
        "calibration_id": settings.calibration_id if record.calibration_label else None,
        "calibration": record.calibration_label,
        "fingerprint": record.fingerprint_digest,
        "spans": spans_text(record.spans),
        "warnings": " ".join(record.warnings),
        "user_list": record.policy_settings.get("user_list", ""),
        "masked_families": " ".join(settings.masked_families or ()),
        "mask_layout": settings.mask_layout,
        "mask_mode": record.fingerprint["mask_mode"],
        "whitelist": _json(settings.whitelist or None),
        "group": settings.group,
        "numeric_noise": stated_noise(record).text,
        "computed": " | ".join(item.sentence for item in computations_of(record)) or None,
        **({"parameters": _json(dict(settings.parameters))} if settings.parameters else {}),
    }


def _step_cells(step: Step, branch: BranchRecord, verdicts: Sequence[StandingVerdict]) -> dict[str, object]:
    verdict = verdict_at(verdicts, branch.path, step.index)
    return {
        **step_numbers(step),
        "refused_by": " ".join(refused_by(step)),
        "family_thresholds": _json([family_json(part) for part in step.families] or None),
        "branch": branch.path,
        "verdict": None if verdict is None else verdict.in_words,
        "note": None if verdict is None else _note(verdict),
    }


def _note(verdict: StandingVerdict) -> str:
    """The notes on a step; a verdict on a span names its steps, since it is shown at each of them."""
    if verdict.target.kind != "span":
        return verdict.notes
    return f"{verdict.target.label}: {verdict.notes}" if verdict.notes else verdict.target.label


def _json(value: object) -> str | None:
    """A cell that holds more than one thing; empty for None."""
    return None if value is None else json.dumps(value, ensure_ascii=False, allow_nan=False)


CANDIDATE_COLUMNS = (
    "session_id", "branch", "step", "rank", "token_id", "token", "p_factual", "p_masked", "p_fused", "log_p_factual",
    "log_p_masked", "log_p_fused", "tau", "certified", "emitted", "policy_choice", "refused_by",
)  # fmt: skip


def candidates_csv(data: SessionData) -> str:
    """One row a candidate of every step, branch by branch, each step once; steps and ranks count from 1."""
    rows: list[dict[str, object]] = [
        {
            "session_id": data.record.id,
            "branch": branch.path,
            "step": step.index + 1,
            "rank": rank,
            **candidate_json(row),
            "log_p_factual": row.log_p_factual,
            "log_p_masked": row.log_p_masked,
            "log_p_fused": row.log_p_fused,
            "tau": math.exp(step.log_tau),
            "emitted": row.token_id == step.token_id,
            "policy_choice": row.token_id == step.policy_token_id,
            "refused_by": " ".join(row.refused_by),
            AT_MOST: " ".join(row.at_most),
            CERTIFIED_IN: step.certified_in,
        }
        for branch in data.branches
        for step in data.chains[branch.id][branch.fork_step or 0 :]
        for rank, row in enumerate(step.candidates, 1)
    ]
    further = [name for name, held in ((CERTIFIED_IN, certified_alone(data)), (AT_MOST, is_bounded(data))) if held]
    return to_csv((*CANDIDATE_COLUMNS, *further), rows)


def annotations_csv(data: SessionData) -> str:
    """One row an entry of the verdict log, oldest first; steps count from 1."""
    return log_csv(data.record.id, data.log)


def spans_text(spans: tuple[Span, ...]) -> str:
    """Spans in one cell of a report: a JSON list of ``[start, end, family, state, source, score]``.

    The state is ``"masked"``, ``"kept"`` or ``"suggested"``; a score that nobody gave is null.
    """
    rows = [[s.start, s.end, s.category, span_state(s), s.source, s.score] for s in spans]
    return json.dumps(rows)
