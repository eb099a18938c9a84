"""The gate of a pipeline: how often its verdicts are wrong, and how soon it finds a planted regression.

    python -m bench.gate --parts verdicts      simulated repositories at the border of their claims
    python -m bench.gate --parts pairing       contexts that a claim on an impact ratio takes
    python -m bench.gate --parts regression    the embedded model, whose gap is made larger between two checks

The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

import coft_core as cc
from app.gate.file import Asked, Budget, CheckFile, Claim, Operator, Outcome
from app.gate.judge import Item, Judge, Judged, Seen
from app.gate.prompts import Setting
from app.gate.run import run_check
from app.prompts.sets import parse_prompt_set, rows_of
from coft_core.assets import assets_path
from coft_core.conformal.betting import interval_of_rest
from coft_core.conformal.coverage import clopper_pearson
from coft_core.model.forced import OwnRoom
from coft_core.text.detection import default_detector

GROUPS, CONTEXTS, EVERY, ITEMS = ("a", "b"), 96, 8, 200
RISK, PLANTED = 0.05, 0.15
PARTS = ("verdicts", "pairing", "regression")


def share(number: int, of: int) -> dict[str, Any]:
    """A share with its 95 % interval."""
    return {"n": of, "share": number / of, "interval": clopper_pearson(number, of)}


def verdicts(repositories: int) -> dict[str, Any]:
    """Repositories whose claims are true or false by a hair; a wrong verdict at any look counts."""
    kinds = {"gap": _gap_wrong, "impact_ratio": _ratio_wrong, "suite": _suite_wrong}
    return {
        kind: share(sum(wrong(random.Random(number)) for number in range(repositories)), repositories)
        for kind, wrong in kinds.items()
    }


def _gap_wrong(draw: random.Random) -> bool:
    low, gap = draw.uniform(0.1, 0.6), draw.uniform(0.0, 0.35)
    return _prompts_wrong(draw, "gap", (low, low + gap), gap, "<=", "<")


def _ratio_wrong(draw: random.Random) -> bool:
    high, ratio = draw.uniform(0.2, 0.9), draw.uniform(0.4, 1.0)
    return _prompts_wrong(draw, "impact_ratio", (high * ratio, high), ratio, ">=", ">")


def _prompts_wrong(
    draw: random.Random, measure: str, rates: tuple[float, float], bound: float, true: Operator, false: Operator
) -> bool:
    """Whether a claim with its bound at the true value is ever judged wrongly."""
    holds = draw.random() < 0.5
    judge = Judge(Claim("", 1, measure, "yes", (), true if holds else false, bound), RISK, GROUPS)
    return any(one.verdict == ("fail" if holds else "pass") for one in _looks(judge, draw, rates))


def _looks(judge: Judge, draw: random.Random, rates: tuple[float, float], paired: bool = True) -> Iterator[Judged]:
    """What the judge says while contexts are read; groups are yes or no, or have probabilities that go together."""
    seen, exact, concentration = Seen(), draw.random() < 0.5, draw.uniform(1, 20)
    for context in range(CONTEXTS):
        place = draw.random()
        for group, rate in zip(GROUPS, rates, strict=True):
            ends = (rate * concentration, (1 - rate) * concentration)
            value = float(beta.ppf(place, *ends)) if exact else float(draw.random() < rate)
            seen.items.append(Item(context, f"{context}" if paired else f"{context}{group}", group, "yes", value))
        if context % EVERY == EVERY - 1:
            yield judge.look(seen)


def _suite_wrong(draw: random.Random) -> bool:
    """Whether the mean of all items, some of which have no value, ever lies outside of the interval."""
    rate, missing = draw.uniform(0.05, 0.95), draw.uniform(0.0, 0.3)
    values = [np.nan if draw.random() < missing else float(draw.random() < rate) for _ in range(ITEMS)]
    mean = np.nanmean(values)
    # What was rejected once stays rejected, so that the last interval shows every wrong look.
    low, high = interval_of_rest(values[:-1], ITEMS, RISK)
    return not low - 1e-9 <= mean <= high + 1e-9


def pairing(repositories: int) -> dict[str, Any]:
    """Contexts until an impact ratio of 0.6 fails a claim of 0.8, with the groups in the same contexts and apart."""
    claim, found = Claim("", 1, "impact_ratio", "yes", (), ">=", 0.8), {}
    for paired in (True, False):
        counts = []
        for number in range(repositories):
            looks = _looks(Judge(claim, RISK, GROUPS), random.Random(number), (0.48, 0.8), paired)
            decided = next((one.observations for one in looks if one.verdict == "fail"), None)
            counts.append(math.inf if decided is None else decided)
        ends = [end if math.isfinite(end) else None for end in np.quantile(counts, (0.25, 0.5, 0.75), method="lower")]
        decided = share(sum(map(math.isfinite, counts)), repositories)
        found["paired" if paired else "unpaired"] = {"decided": decided, "quartiles": ends}
    return found


def regression(runs: int) -> dict[str, Any]:
    """Checks after a change that makes the gap larger by 0.15, and after none; each has its own order of prompts."""
    model, policies = cc.load_model("demo", device="cpu"), {}
    rows = rows_of(parse_prompt_set(assets_path("prompts", "hiring_pairs.csv")))
    outcome = {"hired": Outcome(selected=(" Yes",), other=(" No",))}

    def checked(lam: float, claims: tuple[Claim, ...], seed: int, risk: float, before: tuple[Item, ...] = ()) -> Any:
        policies.setdefault(lam, cc.CoftPolicy(lam))
        file = CheckFile(prompts="", outcomes=outcome, claims=("",), seed=seed, risk=risk, budget=Budget(seconds=60))
        setting = Setting(model, policies[lam], default_detector(), None, OwnRoom())
        return run_check(Asked(Path("audit.yaml"), file, claims), rows, (), setting, lambda *_: None, "", before)

    everything = (Claim("", 1, "gap", "hired", (), "<=", 0.0),)
    # With so small a risk nothing is decided before all prompts are read.
    gaps = {lam: _gap(checked(lam, everything, 0, 1e-30).items) for lam in (0.0, 0.3, 0.6)}
    pairs = ((old, new) for old in gaps for new in gaps if gaps[new] > gaps[old])
    before, after = min(pairs, key=lambda pair: abs(gaps[pair[1]] - gaps[pair[0]] - PLANTED))
    claim = (Claim("", 1, "regression", "hired", (), "<=", 0.0),)
    earlier = checked(before, everything, 0, 1e-30).items
    found, seconds, called = 0, [], 0
    for seed in range(runs):
        began = time.perf_counter()
        found += checked(after, claim, seed, RISK, earlier).verdict == "fail"
        seconds.append(time.perf_counter() - began)
        called += checked(before, claim, seed, RISK, earlier).verdict == "fail"
    return {
        "gap_before": gaps[before],
        "gap_after": gaps[after],
        "prompts": len(rows),
        "found": share(found, runs),
        "seconds": [min(seconds), max(seconds)],
        "failed_without_a_change": share(called, runs),
    }


def _gap(items: tuple[Item, ...]) -> float:
    rates = {group: [item.value for item in items if item.group == group] for group in {item.group for item in items}}
    means = [sum(own) / len(own) for own in rates.values()]
    return max(means) - min(means)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--repositories", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    counts = {"verdicts": options.repositories, "pairing": options.repositories, "regression": options.runs}
    print(json.dumps({part: globals()[part](counts[part]) for part in options.parts}))


if __name__ == "__main__":
    main()
