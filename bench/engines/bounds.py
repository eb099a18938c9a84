"""Bounds: how many steps are decided where only the most likely tokens come back, and how many of them wrongly."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

import coft_core as cc
from coft_core.assets import assets_path
from coft_core.decode.loop import generate_together
from coft_core.model.fake import most_likely_of
from coft_core.policies.bounds import bounded_views, choose_by

COUNT, LENGTH, TOGETHER = 20, 48, 40
SETTINGS = (
    (0.6, 1.0, 0.1), (0.6, 1.0, 0.05), (0.6, 1.0, 0.2), (0.0, 1.0, 0.1), (0.3, 1.0, 0.1), (1.0, 1.0, 0.1),
    (0.6, 0.7, 0.1), (0.6, 1.3, 0.1),
)  # fmt: skip
"""Lambda, temperature and risk level; the first are those of the shipped calibration."""


def measured(quick: bool) -> dict[str, Any]:
    """Chains of the embedded model under its shipped calibration, each step also from its most likely tokens only."""
    model, calibration = cc.load_model("demo", device="cpu", dtype="float32"), shipped()
    own, found, chains = cc.CoftPolicy(calibration=calibration), {}, list[Tensor]()
    for name, texts in prompts().items():
        of_set = list(written(model, own, texts[: 5 if quick else 220]))
        found[name] = compared(of_set, own)
        chains += of_set
    found["all, no tokens named"] = compared(chains, own, [most_likely_of(logits, COUNT) for logits in chains])
    return found | {
        f"lambda {lam:g}, temperature {temperature:g}, alpha {alpha:g}": compared(
            chains, cc.CoftPolicy(lam, calibration.read(alpha=alpha), temperature=temperature)
        )
        for lam, temperature, alpha in (SETTINGS[:2] if quick else SETTINGS)
    }


def shipped() -> cc.Calibration:
    """The calibration that comes with the embedded model."""
    return cc.Calibration.load(assets_path("models/demo") / "calibration.zip")


def prompts() -> dict[str, list[str]]:
    """Prompts like those of the calibration, and the samples, by set."""
    folder = assets_path("prompts")
    lines = (folder / "tuning_demo.jsonl").read_text("utf-8").splitlines()
    found = {"as calibrated": [json.loads(line)["prompt"] for line in lines]}
    for name in ("to_audit", "everyday", "medicine", "hiring"):
        with (folder / f"{name}.csv").open(encoding="utf-8") as file:
            found[name] = [row["prompt"] for row in csv.DictReader(file)]
    return found


def written(model: cc.LanguageModel, policy: cc.CoftPolicy, texts: Sequence[str]) -> Iterator[Tensor]:
    """The logits of every step of each chain, ``(C, 2, V)``."""
    plans = [cc.plan(model, text, policy, seed=seed, max_new_tokens=LENGTH, keep_logits=True)
             for seed, text in enumerate(texts)]  # fmt: skip
    for begin in range(0, len(plans), TOGETHER):
        for run in generate_together(plans[begin : begin + TOGETHER]):
            yield torch.stack([step.logits.tensor() for step in run.steps if step.logits is not None])


@torch.inference_mode()
def compared(
    chains: Sequence[Tensor], policy: cc.CoftPolicy, returned: Sequence[Tensor] | None = None
) -> dict[str, Any]:
    """Steps, the share that is decided with its 95 % interval over chains, and what is wrong of them.

    ``returned`` is what a server gives of each chain; None takes the most likely tokens of the chain itself, and those
    that came back for the other branch only, which vLLM gives where they are named.
    """
    decided, wrong, false_members, exact, wrong_draws = [], 0, 0, 0, 0
    for seed, logits in enumerate(chains):
        log_tau = torch.tensor([policy.threshold(step)[0] for step in range(len(logits))], dtype=torch.float32)[:, None]
        whole = policy.views_at(logits, log_tau)
        few = _named(logits) if returned is None else returned[seed]
        views = bounded_views(policy, few, log_tau, count=COUNT)
        if views.ends is None or views.certified is None or whole.certified is None:
            raise AssertionError("There are no bounds of a set.")
        closed = views.ends.undecided == 0  # (C,)
        decided.append(closed.double().numpy())
        wrong += int(((views.certified != whole.certified).any(-1) & closed).sum())
        false_members += int((views.certified & ~whole.certified).any(-1).sum())
        uniform = torch.rand(len(logits), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        ours, theirs = (choose_by(each, policy.sampling, uniform) for each in (views, whole))
        if ours.exact is None:
            raise AssertionError("It is not said whether a draw is exact.")
        exact += int(ours.exact.sum())
        wrong_draws += int((ours.exact & (ours.token_ids != theirs.token_ids)).sum())
    steps = sum(map(len, decided))
    return {
        "chains": len(chains), "steps": steps, "decided": int(sum(map(np.sum, decided))),
        "share": [round(number, 4) for number in share_of(decided)], "decided wrongly": wrong,
        "steps with a false member": false_members, "exact draws": exact, "wrong exact draws": wrong_draws,
    }  # fmt: skip


def _named(logits: Tensor) -> Tensor:
    found = most_likely_of(logits, COUNT)  # (C, 2, V)
    seen = (found > -torch.inf).any(1, keepdim=True)
    return torch.log_softmax(logits.float(), -1).masked_fill(~seen, -torch.inf)


def share_of(decided: Sequence[np.ndarray]) -> tuple[float, float, float]:
    """The share with a 95 % bootstrap interval over chains."""
    sums, sizes = np.array([each.sum() for each in decided]), np.array([len(each) for each in decided])
    places = np.random.default_rng(0).integers(len(sums), size=(2000, len(sums)))
    low, high = np.quantile(sums[places].sum(1) / sizes[places].sum(1), [0.025, 0.975])
    return float(sums.sum() / sizes.sum()), float(low), float(high)
