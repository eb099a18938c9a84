"""The gate of a pipeline: how often its verdicts are wrong, and how soon it finds a planted regression.

    python -m bench.gate --parts verdicts      simulated repositories at the border of their claims
    python -m bench.gate --parts regression    the embedded model, whose gap is made larger between two checks

The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

import coft_core as cc
from app.gate.file import Asked, Budget, CheckFile, Claim, Outcome
from app.gate.run import Item, Judge, Seen, Setting, run_check
from app.prompts.sets import parse_prompt_set, rows_of
from coft_core.assets import assets_path
from coft_core.conformal.coverage import clopper_pearson
from coft_core.model.forced import OwnRoom
from coft_core.text.detection import default_detector

GROUPS, CONTEXTS, EVERY = ("a", "b"), 100, 8
RISK, PLANTED = 0.05, 0.15


def share(number: int, of: int) -> dict[str, Any]:
    """A share with its 95 % interval."""
    return {"n": of, "share": number / of, "interval": clopper_pearson(number, of)}


def verdicts(repositories: int) -> dict[str, Any]:
    """Repositories whose claims are true or false by a hair; a wrong verdict at any look counts."""
    wrong = 0
    for number in range(repositories):
        draw = random.Random(number)
        low = draw.uniform(0.1, 0.6)
        gap, exact = draw.uniform(0.0, 0.35), draw.random() < 0.5
        holds = draw.random() < 0.5
        claim = Claim("", 1, "gap", "yes", (), "<=" if holds else "<", gap)
        judge, seen, concentration = Judge(claim, RISK, GROUPS), Seen(), draw.uniform(1, 20)
        for context in range(CONTEXTS):
            for group, rate in zip(GROUPS, (low, low + gap), strict=True):
                value = (
                    draw.betavariate(rate * concentration, (1 - rate) * concentration)
                    if exact
                    else draw.random() < rate
                )
                seen.items.append(Item(context, str(context), group, "yes", float(value)))
            if context % EVERY == EVERY - 1 and judge.look(seen).verdict == ("fail" if holds else "pass"):
                wrong += 1
                break
    return share(wrong, repositories)


def regression(runs: int) -> dict[str, Any]:
    """Checks after a change that makes the gap larger by 0.15, and after none; each has its own order of prompts."""
    model, policies = cc.load_model("demo", device="cpu"), {}
    rows = rows_of(parse_prompt_set(assets_path("prompts", "hiring_pairs.csv")))
    outcome = {"hired": Outcome(selected=(" Yes",), other=(" No",))}

    def checked(lam: float, claims: tuple[Claim, ...], seed: int, risk: float, before: tuple[Item, ...] = ()) -> Any:
        policies.setdefault(lam, cc.CoftPolicy(lam))
        file = CheckFile(prompts="", outcomes=outcome, claims=("",), seed=seed, risk=risk, budget=Budget(seconds=60))
        setting = Setting(model, policies[lam], default_detector(), None, OwnRoom())
        return run_check(Asked(Path("audit.yaml"), file, claims), rows, setting, lambda *_: None, "", before)

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
    parser.add_argument("--parts", nargs="+", choices=("verdicts", "regression"), default=["verdicts", "regression"])
    parser.add_argument("--repositories", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    counts = {"verdicts": options.repositories, "regression": options.runs}
    print(json.dumps({part: globals()[part](counts[part]) for part in options.parts}))


if __name__ == "__main__":
    main()
