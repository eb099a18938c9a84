"""A comparison as a table: one row for each chain at each aligned place."""

from __future__ import annotations

import json
from collections.abc import Iterator

from app.services.csv_files import to_csv
from app.services.known_policies import policy_info
from app.services.plain import step_numbers
from app.services.views.comparisons import ChainSummary, Comparison
from coft_core.types import Step

STEP_COLUMNS = (
    "step", "token_id", "token", "p_factual", "p_masked", "p_fused", "tau", "certified", "threshold_state",
    "certified_in", "set_size", "fallback", "chosen_by", "log_ratio", "kl_fused_factual", "tv_fused_factual",
    "kl_fused_masked", "tv_on_set",
)  # fmt: skip

FROM_VANILLA = ("kl_fused_factual", "tv_fused_factual")

CHAIN_COLUMNS = (
    "session_id", "branch_id", "session", "branch", "policy", "lam", "alpha", "calibration", "mask_layout", "model",
    "seed", "certificate", "parameters", "seconds_per_token", "key_value_bytes", "model_bytes", "further_bytes",
    "peak_bytes",
)  # fmt: skip

RANGES = ("set_size_low", "set_size_high", "noise")

COLUMNS = ("row", "chain", "all_same", "differs", *STEP_COLUMNS, *CHAIN_COLUMNS, *RANGES)


def comparison_csv(comparison: Comparison) -> str:
    """RFC 4180 text; rows, chains and steps count from 1, and where a chain has no token its cells are empty."""
    return to_csv(COLUMNS, _rows(comparison))


def _rows(comparison: Comparison) -> Iterator[dict[str, object]]:
    own = [_chain(chain) for chain in comparison.chains]
    for number, row in enumerate(comparison.rows, 1):
        for place, chain in enumerate(comparison.chains):
            at = row.steps[place]
            yield {
                "row": number,
                "chain": place + 1,
                "all_same": row.same,
                "differs": row.differs[place],
                **_step(None if at is None else chain.steps[at], chain.own_model),
                **own[place],
            }


def _step(step: Step | None, own_model: bool) -> dict[str, object]:
    numbers = {} if step is None else step_numbers(step)
    # The factual reading of a checkpoint of its own is not vanilla's.
    hidden = FROM_VANILLA if own_model else ()
    return {name: None if name in hidden else numbers.get(name) for name in (*STEP_COLUMNS, *RANGES)}


def _chain(chain: ChainSummary) -> dict[str, object]:
    settings, calibration = chain.settings, chain.calibration
    return {
        "session_id": chain.session_id,
        "branch_id": chain.branch_id,
        "session": chain.name,
        "branch": chain.branch,
        "policy": chain.policy,
        "lam": settings.lam if policy_info(chain.policy).fuses else None,
        "alpha": None if calibration is None else settings.alpha,
        "calibration": None if calibration is None else calibration.name,
        "mask_layout": settings.mask_layout,
        "model": chain.model,
        "seed": settings.seed,
        "certificate": chain.certificate,
        "parameters": json.dumps(dict(settings.parameters)) if settings.parameters else None,
        "seconds_per_token": chain.seconds_per_token,
        "key_value_bytes": chain.key_value_bytes,
        "model_bytes": None if chain.footprint is None else chain.footprint.model_bytes,
        "further_bytes": None if chain.footprint is None else chain.footprint.further_bytes,
        "peak_bytes": chain.peak_bytes,
    }
