"""Makes the checkpoints of the train-time references. Run it with `python -m bench.train_time METHOD --out DIR`.

    python -m bench.train_time cda|adversarial --out DIR [--model MODEL] [--texts FILE ...]

`cda` fine-tunes a causal language model on every text once as it is and once with its attributes swapped (the policy
`cda`); `adversarial` trains its head alone, while an adversary behind a gradient reversal reads the attribute off its
logits (the policy `adv_lm_head`). Both take one epoch of AdamW at a learning rate of 1e-5 in batches of 128 texts, as
the paper does. Texts are `.txt` files, one text a line, or `.jsonl` files with the field `text`; the span detector
finds their attributes. Without any, texts of the embedded model's scenarios are generated, whose attributes are known.

A tenth of the texts, 300 at most, is kept out of training, and both models are measured on it; those of the embedded
model also on its scenarios. The folder DIR is written whole or not at all; `load_model`, and the parameter `checkpoint`
of both policies, take it. The last line of the output is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bench.train_time.checkpoints import require_free
from bench.train_time.measure import Measuring, compare, lines, plain
from bench.train_time.runs import AdversarialSettings, train_adversarial, train_augmented
from bench.train_time.texts import MarkedText, marked, planted_texts, read_texts
from bench.train_time.training import Schedule
from coft_core import CoftError, LanguageModel, load_model
from coft_core.text.detection import default_detector

DEMO = "demo"
TEXTS_SEED = 30_011
"""Apart from the seeds of the embedded model's training texts."""
KEPT_OUT_SHARE, KEPT_OUT_MOST = 0.1, 300


def arguments(values: list[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    schedule, settings = Schedule(), AdversarialSettings()
    parser = argparse.ArgumentParser(
        prog="bench.train_time", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("method", choices=("cda", "adversarial"))
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the checkpoint, a new one")
    parser.add_argument("--model", default=DEMO, help="id or folder; the embedded model unless told")
    parser.add_argument("--texts", type=Path, nargs="+", metavar="FILE", help="training texts, .txt or .jsonl")
    parser.add_argument("--number", type=int, default=8000, metavar="N", help="texts generated without a file")
    parser.add_argument("--learning-rate", type=float, default=schedule.learning_rate)
    parser.add_argument("--batch", type=int, default=schedule.batch, help="texts of a step")
    parser.add_argument("--part-tokens", type=int, default=schedule.part_tokens, help="tokens read at once")
    parser.add_argument("--strength", type=float, default=settings.strength, help="of the reversal")
    parser.add_argument("--adversary-rate", type=float, default=settings.learning_rate)
    parser.add_argument("--prompts", type=int, default=2, help="held-out prompts a cell of the scenarios")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args(values)


def kept_out(texts: Sequence[MarkedText], seed: int) -> tuple[list[MarkedText], list[str]]:
    """Texts for training, and other ones for measuring; equal texts are one."""
    different = list({item.text: item for item in texts}.values())
    random.Random(f"kept-out-{seed}").shuffle(different)
    number = min(KEPT_OUT_MOST, max(1, round(KEPT_OUT_SHARE * len(different))))
    return different[number:], [item.text for item in different[:number]]


def train(options: argparse.Namespace, model: LanguageModel, texts: Sequence[MarkedText]) -> dict[str, Any]:
    """Trains as the command line says."""
    schedule = Schedule(options.learning_rate, options.batch, options.part_tokens, options.seed)
    if options.method == "cda":
        return train_augmented(model, texts, options.out, schedule, say)
    settings = AdversarialSettings(options.strength, options.adversary_rate)
    return train_adversarial(model, texts, options.out, schedule, settings, say)


def say(line: str) -> None:
    """Prints at once."""
    print(line, flush=True)


def main(values: list[str] | None = None) -> None:
    """Trains, then measures."""
    options = arguments(values)
    torch.set_num_threads(options.threads)
    started = time.monotonic()
    try:
        require_free(options.out)
        if options.texts:
            found = marked(read_texts(options.texts), default_detector().detect)
        else:
            found = planted_texts(options.number, TEXTS_SEED + options.seed)
        training, held_out = kept_out(found, options.seed)
        # Weights are trained in float32: steps of 1e-5 are lost in a shorter type.
        facts = train(options, load_model(options.model, options.device, "float32"), training)
        seconds = round(time.monotonic() - started)
        base, trained = (load_model(name, options.device, "float32") for name in (options.model, str(options.out)))
        figures = compare(base, trained, Measuring(held_out, options.model == DEMO, options.prompts), say)
    except CoftError as error:
        raise SystemExit(str(error)) from error
    say("\n".join(lines(figures)))
    print(json.dumps({"benchmark": "train_time", **facts, "seconds": seconds, "figures": plain(figures)}))


if __name__ == "__main__":
    main()
