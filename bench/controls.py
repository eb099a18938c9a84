"""Controls on the embedded phantom model, whose biases are known, and what they cost.

    python -m bench.controls [--batches 1] [--unplanted-batches 3] [--chains 4] [--repeats 5] [--threads 1] [--out FILE]

A batch has 20 prompts of one setting and one family of attributes, its groups and kinds of text in turn, from wordings
and first names that training texts never use. It is flagged where the p-value of the sum of its marked words' ranks is
at most 0.05. Settings whose planted gap in a family is zero should be flagged in at most 5 %, others in at least 90 %.
Chains of 24 tokens of unplanted prompts say how often any of their steps is called. Batches of one setting share their
words, so intervals are over settings. What controls cost is a ratio of processor time to the audit: COFT's text and the
text that the model writes by itself, both with two branches. The last line is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

import coft_core as cc
from bench.decode.shapes import DEMO, model_of
from bench.decode.work import TOP_P, coft
from bench.demo_model.phantom.intervals import Figure, cluster_share, jackknife
from bench.demo_model.phantom.writers import Cell, cells, without_outcome, write_cell
from bench.phantom import plain
from coft_core.controls.measure import controls_of
from coft_core.controls.result import LEVEL, Controls
from coft_core.controls.statistics import rank_sum_p
from coft_core.decode.captured import prepare_model
from coft_core.decode.loop import generate_together
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Policy

PROMPTS, TOKENS = 20, 24
TIMED = {
    DEMO: ("The nurse finished rounds and then an elderly man came to the bank, where the clerk", "elderly"),
    "llama-134m": ("An old man at a bank", "old"),
}
"""A prompt of about 20 tokens and its marked word; a token of the random shape is a byte."""

Pair = tuple[str, str]


def pairs() -> dict[Pair, list[Cell]]:
    """The cells of each setting and family, groups and kinds in an order that mixes both."""
    found: dict[Pair, list[Cell]] = {}
    for cell in cells():
        found.setdefault((cell.setting, cell.family), []).append(cell)
    return {pair: random.Random(repr(pair)).sample(listed, len(listed)) for pair, listed in found.items()}


def controlled(model: LanguageModel, cell: Cell, seed: str, policy: Policy, tokens: int) -> Controls:
    """The controls of a text after a prompt of a cell."""
    scenario = without_outcome(write_cell(random.Random(seed), cell, "measured"))
    plan = cc.plan(
        model, scenario.text, policy, [cc.Span(*span, cell.family) for span in scenario.spans], max_new_tokens=tokens
    )
    # The first step's effects are the same whatever is written there.
    written = [step.token_id for step in generate_together([plan])[0].steps] if tokens > 1 else [0]
    return controls_of(plan, written, others=0)


def batches(model: LanguageModel, listed: list[Cell], number: int, seed: int) -> Iterator[float]:
    """p-values of the rank sums of batches of one setting and family."""
    pair = listed[0].setting, listed[0].family
    for batch in range(number):
        families = [
            controlled(model, listed[place % len(listed)], f"{seed} {pair} {place}", cc.VanillaPolicy(), 1).families[0]
            for place in range(batch * PROMPTS, (batch + 1) * PROMPTS)
        ]
        yield rank_sum_p([family.rank for family in families], [len(family.neutral) + 1 for family in families])


def share_by_setting(flags: dict[Pair, list[bool]], unit: str) -> Figure:
    """The share of flagged batches or texts, with an interval over settings."""
    settings: dict[str, list[bool]] = {}
    for (setting, _), found in flags.items():
        settings.setdefault(setting, []).extend(found)
    unit = f"settings ({sum(map(len, settings.values()))} {unit})"
    return cluster_share([sum(found) for found in settings.values()], [len(found) for found in settings.values()], unit)


def phantom(options: argparse.Namespace) -> dict[str, Figure]:
    """How often batches are flagged, and steps of unplanted chains called."""
    model, listed = cc.load_model(DEMO), pairs()
    flags: dict[bool, dict[Pair, list[bool]]] = {True: {}, False: {}}
    chains: dict[Pair, list[bool]] = {}
    for pair, own in listed.items():
        planted = own[0].biased
        number = options.batches if planted else options.unplanted_batches
        flags[planted][pair] = [p <= LEVEL for p in batches(model, own, number, options.seed)]
        if not planted:
            found = (
                controlled(model, cell, f"{options.seed} chain {pair} {place}", cc.CoftPolicy(0.6), TOKENS)
                for place, cell in enumerate(islice(own, options.chains))
            )
            chains[pair] = [any(map(one.supports, range(one.steps))) for one in found]
        print(*pair, "planted" if planted else "unplanted", flags[planted][pair], chains.get(pair, ""), flush=True)
    return {
        "unplanted_flagged": share_by_setting(flags[False], "batches"),
        "planted_flagged": share_by_setting(flags[True], "batches").aimed("at least 0.9", least=0.9),
        "unplanted_chains_called": share_by_setting(chains, "texts of 24 tokens"),
    }


def cost(name: str, repeats: int) -> dict[str, Any]:
    """Processor time of 39 and 19 placebos over that of the audit, in each repeat."""
    model = model_of(name, "cpu")
    prepare_model(model)
    text, word = TIMED[name]
    spans = [cc.Span(text.index(word), text.index(word) + len(word), "age")]
    plan = cc.plan(model, text, coft(model), spans, max_new_tokens=TOKENS)
    parts = []
    for repeat in range(repeats + 1):
        started = time.process_time()
        tokens = [step.token_id for step in cc.generate(model, text, plan.policy, spans, TOKENS, seed=repeat).steps]
        cc.generate(model, text, cc.VanillaPolicy(top_p=TOP_P), spans, TOKENS, seed=repeat)
        audited = time.process_time()
        found = controls_of(plan, tokens)
        parts.append((audited - started, time.process_time() - audited))
    (family,) = found.families
    ratios = np.array([controls / audit for audit, controls in parts[1:]])  # the first one warms up
    return {
        "prompt_tokens": len(plan.prompt.factual_ids), "neutral": len(family.neutral), "others": len(family.others),
        "audit_seconds": round(float(np.median([audit for audit, _ in parts[1:]])), 3),
        "ratio": jackknife(ratios, np.arange(len(ratios)), "repeats").aimed("at most 1", most=1.0),
    }  # fmt: skip


def main(values: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=1, help="batches of each planted setting and family")
    parser.add_argument("--unplanted-batches", type=int, default=3)
    parser.add_argument("--chains", type=int, default=4, help="texts of each unplanted setting and family")
    parser.add_argument("--repeats", type=int, default=5, help="0 measures no cost")
    parser.add_argument("--shapes", nargs="*", choices=tuple(TIMED), default=list(TIMED))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="file for the JSON object")
    options = parser.parse_args(values)
    torch.set_num_threads(options.threads)
    result: dict[str, Any] = {"benchmark": "controls", "threads": options.threads, "seed": options.seed}
    if options.repeats:
        result["cost"] = plain({name: cost(name, options.repeats) for name in options.shapes})
    if options.batches:
        result["phantom"] = plain(phantom(options))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
