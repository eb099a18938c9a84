"""The calibrate page's form in plain values: which fields apply, and the request that they make."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from app.services.views import FAMILIES, PROMPT_SET_FIELDS, CalibrationRequest
from app.ui.components.markup import icon
from app.ui.components.rail_values import terms
from app.ui.presenters_format import level

SHARES = tuple(f"share_{family}" for family in FAMILIES)
"""Fields that hold each family's share of alpha."""

FIELDS = (
    "name", "model", "source", "max_new_tokens", "max_iterations", "tolerance", "record_chains", "alpha", "lam",
    "layout", "family", "masked_families", "split", *SHARES, "user_list_id", "mask_mode", "mask_hint", "sentinel",
    "whitelist", "estimator", "draws", "bin_spacing", "bin_width", "max_position", "shift", "rho", "deployment",
    "temperature", "top_p", "top_k", "by_group", "verification_share", "prompt_format", "chat_date", "seed",
)  # fmt: skip
"""The form's fields in the order of its controls."""

BOXES = (
    "rollouts", "length", "chains", "one_family", "families", "split", "shares", *SHARES, "hint", "draws", "rho",
    "column", "deployment",
)  # fmt: skip
"""Parts of the form that show only where they apply."""

WHOLE = ("max_new_tokens", "max_iterations", "top_k", "draws", "bin_width", "max_position", "seed")
EXACT = ("alpha", "lam", "temperature", "top_p", "tolerance", "verification_share")

WEIGHTED = ("column", "estimated")
"""Where shift weights can come from; chains cannot be recorded under weights."""

Given = Mapping[str, Any]


def given_from(values: Sequence[object]) -> dict[str, Any]:
    """The controls' values by field."""
    return dict(zip(FIELDS, values, strict=True))


def applicable(given: Given) -> dict[str, bool]:
    """Which parts of the form apply to what is chosen in it, by the names of :data:`BOXES`."""
    rollout, layout, shift = given["source"] == "rollout", given["layout"], given["shift"]
    by_hand = layout == "factorized" and given["split"] == "hand"
    chosen = given["masked_families"] or ()
    return {
        "rollouts": rollout,
        "length": rollout or (bool(given["record_chains"]) and shift not in WEIGHTED and layout != "factual"),
        "chains": not rollout and shift not in WEIGHTED and layout != "factual",
        "one_family": layout == "single",
        "families": layout in ("joint", "factorized"),
        "split": layout == "factorized",
        "shares": by_hand,
        **{f"share_{family}": by_hand and family in chosen for family in FAMILIES},
        "hint": given["mask_mode"] == "soft",
        "draws": given["estimator"] == "one_per_context",
        "rho": shift == "rho",
        "column": shift == "column",
        "deployment": shift == "estimated",
    }


def calibration_request(
    given: Given, usual_name: str, accept_errors: bool, deployment: tuple[str, ...]
) -> CalibrationRequest:
    """The request that the form makes; fields that do not apply are left as they usually are.

    Args:
        given: The controls' values by field.
        usual_name: Name of the run where none is typed.
        accept_errors: Go on with the good rows.
        deployment: Prompts that will be audited, where weights are estimated from them.
    """
    applies = applicable(given)
    usual = CalibrationRequest(name="")
    numbers: dict[str, Any] = {name: int(_or_usual(given, name, usual)) for name in WHOLE}
    numbers |= {name: float(_or_usual(given, name, usual)) for name in EXACT}
    if not applies["draws"]:
        numbers["draws"] = 1
    return CalibrationRequest(
        name=str(given["name"] or "").strip() or usual_name,
        model=str(given["model"]),
        accept_errors=accept_errors,
        masked_families=(str(given["family"]),) if applies["one_family"] else masked_families(given),
        mask_layout="factorized" if given["layout"] == "factorized" else "joint",
        certified_in="factual" if given["layout"] == "factual" else "both",
        alpha_by_family=shares(given) if applies["shares"] else None,
        mask_hint=_text(given["mask_hint"]) if applies["hint"] else None,
        user_list_id=int(given["user_list_id"] or 0) or None,
        sentinel=_text(given["sentinel"]),
        whitelist=terms(given["whitelist"]),
        rho=float(given["rho"] or 1) if applies["rho"] else 1.0,
        weighting=given["shift"] if given["shift"] in WEIGHTED else "none",
        deployment=deployment if applies["deployment"] else (),
        record_chains=bool(given["record_chains"]) and applies["chains"],
        **numbers,
        **{name: given[name] for name in ("estimator", "source", "mask_mode", "bin_spacing")},
        by_group=bool(given["by_group"]),
        prompt_format=str(given["prompt_format"]),
        chat_date=_text(given["chat_date"]),
    )


def columns_from(values: Sequence[object]) -> dict[str, str]:
    """For each field of a prompt set the column that is chosen for it; ``""`` is none."""
    return {field: str(value or "") for field, value in zip(PROMPT_SET_FIELDS, values, strict=True)}


def masked_families(given: Given) -> tuple[str, ...]:
    """The chosen families in their usual order."""
    return tuple(family for family in FAMILIES if family in (given["masked_families"] or ()))


def shares(given: Given) -> tuple[tuple[str, float], ...]:
    """(family, its share of alpha) for the masked families."""
    return tuple((family, float(given[f"share_{family}"] or 0)) for family in masked_families(given))


def equal_shares(alpha: float, families: Sequence[str]) -> list[float]:
    """The same share for each family of :data:`SHARES`, rounded down so that they fit into alpha."""
    exact = Decimal(str(alpha)) / max(1, len(families))
    digits = 4 if exact >= Decimal("0.001") else 6
    return [float(math.floor(exact * 10**digits) / Decimal(10**digits))] * len(FAMILIES)


def shares_line(given: Given) -> str:
    """The running sum of the shares against alpha."""
    if not applicable(given)["shares"]:
        return ""
    spent = sum((Decimal(str(share)) for _, share in shares(given)), Decimal(0))
    alpha = Decimal(str(given["alpha"]))
    if spent > alpha:
        return (
            f'<p class="caution tnum">{icon("tri")}The shares sum to {spent.normalize():f}, more than alpha '
            f"{level(float(alpha))}: lower one of them.</p>"
        )
    return f'<p class="hint tnum">The shares sum to {spent.normalize():f} of alpha {level(float(alpha))}.</p>'


def _text(value: object) -> str | None:
    return str(value or "").strip() or None


def _or_usual(given: Given, name: str, usual: CalibrationRequest) -> Any:
    return getattr(usual, name) if given[name] is None else given[name]
