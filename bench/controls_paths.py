"""Measures how many draws the question of sampled texts takes to be decided, with shared noise and without.

    python -m bench.controls_paths [--model demo] [--repeats 5] [--limit 2000] [--seed 0]

In each of the phantom's 32 settings (a scene and a kind of text) a decision about the least favoured group of a family
is drawn as typed and masked, and about the least and the most favoured group; it is the first token of a text. A
setting is left out where both answers have less than a tenth of the probability. Draws are counted until the difference
of the favourable answers is decided at level 0.05, with the same noise in both worlds and with independent draws; what
is not decided counts as the limit. The ratio of both has a 95 % bootstrap interval over settings.

Twins that change worlds at random have no difference: how often one is decided all the same is the false-alarm rate.
Families without planted bias differ by what the model has not learned exactly; that is shown with how often it is
decided within 200 draws. The last line is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import coft_core as cc
from bench.demo_model.phantom.groups import STANDING
from bench.demo_model.phantom.held_out import GROUPS, Wording, write_wordings
from bench.demo_model.phantom.intervals import share
from bench.demo_model.phantom.outcomes import masked_prompt, outcome_tokens
from bench.demo_model.phantom.text import settings
from coft_core.decode.loop import ROOT_PATH
from coft_core.model.forced import teacher_forced_logits
from coft_core.model.language_model import LanguageModel
from coft_core.paths.question import Outcomes, decided_after
from coft_core.paths.sample import path_seed
from coft_core.policies.sampling import choose, keyed_uniform
from coft_core.types import Sampling

LEVEL, BATCH, NULL_DRAWS, BOOTSTRAP = 0.05, 50, 200, 10_000
LEAST_ANSWERED = 0.1


def worlds_of(model: LanguageModel, wording: Wording, planted: bool, seed: int) -> tuple[Tensor, list[int]]:
    """Logits of the first token ``(3, V)`` with the least favoured group, masked, and with the most favoured group.

    The family is one that the setting's bias is planted in, or one that it is not; with it the tokens of both answers.
    """
    strength = next(item.strength for item in settings() if item.name == wording.setting)
    families = [family for family in STANDING if (strength[family] > 0) == planted]
    family = random.Random(f"paths-{seed}-{wording.setting}-{wording.kind}").choice(families)
    standing = STANDING[family]
    low, high = (
        wording.prompts[GROUPS.index((family, group))]
        for group in (min(standing, key=standing.__getitem__), max(standing, key=standing.__getitem__))
    )
    first, second = masked_prompt(model, low), masked_prompt(model, high)
    rows = [first.factual_ids, first.masked_ids, second.factual_ids]
    return torch.cat(teacher_forced_logits(model, [(ids, (0,)) for ids in rows])), outcome_tokens(model, low)


def answered(worlds: Tensor, answers: list[int]) -> bool:
    """Whether the first token of every world mostly answers."""
    return bool((torch.softmax(worlds, -1)[:, answers].sum(-1) >= LEAST_ANSWERED).all())


def difference(worlds: Tensor, answers: list[int]) -> float:
    """How far the shares of the favourable answer are apart, as typed and masked."""
    p = torch.softmax(worlds[:2, answers].double(), -1)[:, 0]
    return float((p[0] - p[1]).abs())


def drawn(logits: Tensor, answers: list[int], shared: bool, seeds: list[int]) -> Outcomes:
    """What the first tokens of so many texts of a world answer."""
    uniform = torch.tensor([keyed_uniform(seed, ROOT_PATH, 0) for seed in seeds], dtype=torch.float64)
    log_p = torch.log_softmax(logits, -1).expand(len(seeds), -1)
    tokens = choose(log_p, None, Sampling(shared_noise=shared), uniform).token_ids.tolist()
    return [{answers[0]: True, answers[1]: False}.get(token) for token in tokens]


def draws_to_decide(
    worlds: Tensor, answers: list[int], shared: bool, limit: int, seed: int, mixed: bool = False
) -> float:
    """Draws of two worlds ``(2, V)`` after which their difference is decided; infinite where the limit comes first.

    Twins that are ``mixed`` change worlds at random.
    """
    pairs: list[Outcomes] = []
    turn = random.Random(seed)
    for first in range(0, limit, BATCH):
        # Independent worlds have seeds of their own.
        keys = (seed, seed) if shared else (~(2 * seed), ~(2 * seed + 1))
        batch = [
            drawn(logits, answers, shared, [path_seed(key, number) for number in range(first, first + BATCH)])
            for key, logits in zip(keys, worlds, strict=True)
        ]
        pairs += [pair[::-1] if mixed and turn.random() < 0.5 else pair for pair in zip(*batch, strict=True)]
        if (after := decided_after(list(zip(*pairs, strict=True)), LEVEL)) is not None:
            return after
    return np.inf


def compared(counts: npt.NDArray[np.float64], limit: int, seed: int) -> dict[str, Any]:
    """Draws ``(S, R, 2)`` with shared noise and without, by settings and repeats, and their ratio."""
    draws = np.minimum(counts, limit).mean(axis=1)  # (S, 2)
    picked = np.random.default_rng(seed).integers(len(draws), size=(BOOTSTRAP, len(draws)))
    shared, independent = draws[picked].sum(axis=1).T  # (B,) each
    return {
        "settings": len(draws), "repeats": counts.shape[1], "ratio": draws[:, 0].sum() / draws[:, 1].sum(),
        "interval": np.quantile(shared / independent, [0.025, 0.975]).tolist(),
        "mean_draws": draws.mean(axis=0).tolist(), "undecided": np.isinf(counts).sum(axis=(0, 1)).tolist(),
    }  # fmt: skip


def measure_paths(model: LanguageModel, repeats: int = 5, limit: int = 2000, seed: int = 0) -> dict[str, Any]:
    """All figures; pairs of numbers are those with shared noise and of independent draws."""
    wordings = write_wordings(1, seed + 1000)
    biased, plain = (
        [found for own in wordings if answered(*(found := worlds_of(model, own, planted, seed)))]
        for planted in (True, False)
    )
    found: dict[str, Any] = {}
    for name, places in (("masked", [0, 1]), ("exchanged", [0, 2])):
        counts = np.array(
            [
                [
                    [draws_to_decide(worlds[places], answers, shared, limit, seed + number) for shared in (True, False)]
                    for number in range(repeats)
                ]
                for worlds, answers in biased
            ]
        )
        found[name] = compared(counts, limit, seed)
    mixed = [
        np.isfinite(draws_to_decide(worlds[places], answers, True, 2 * NULL_DRAWS, seed + number, mixed=True))
        for worlds, answers in biased
        for places in ([0, 1], [0, 2])
        for number in range(repeats)
    ]
    small = [np.isfinite(draws_to_decide(worlds[:2], answers, True, NULL_DRAWS, seed)) for worlds, answers in plain]
    return found | {
        "false_alarms": share(sum(mixed), len(mixed), "runs of mixed twins").to_dict(),
        "without_bias": share(sum(small), len(small), "settings").to_dict(),
        "difference_without_bias": float(np.mean([difference(*own) for own in plain])),
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=int, default=2000, help="draws of each world at most")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    started = time.monotonic()
    found = measure_paths(cc.load_model(options.model), options.repeats, options.limit, options.seed)
    result = {"benchmark": "paths", "level": LEVEL, "seconds": round(time.monotonic() - started), **found}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
