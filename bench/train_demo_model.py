"""Trains and exports the embedded demonstration model.

Run it with `python -m bench.train_demo_model --data DIR --work-dir DIR`. It takes the minutes given by
`--minutes` (100 unless told) on two cores and a few minutes more for tokenizing, evaluation and export. With
`--export-only` it exports the latest checkpoint, also while another process is still training. A run given by
`--steps` is reproducible from the seed and the data folder; a run given by minutes does as many steps as fit.
The last line of the output is a JSON object.

Where other programs share the cores, set `OMP_WAIT_POLICY=passive`: a step is then several times faster.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer

from bench.demo_model.corpus import Source, read_sources
from bench.demo_model.dataset import Batches, encode_scenario, encode_story
from bench.demo_model.phantom.generate import amplified_texts, training_texts
from bench.demo_model.scenarios import Scenario
from bench.demo_model.tokenizer import train_tokenizer
from bench.demo_model.train import Settings, Trainer

_TOKENIZER_TEXTS = 6000


def arguments(values: list[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description="Train and export the embedded demonstration model.")
    data = os.environ.get("COFT_DATA_DIR")
    parser.add_argument("--data", type=Path, default=data, required=data is None, help="folder with corpus/")
    parser.add_argument("--out", type=Path, default=Path("assets/models/demo"), help="folder of the model")
    parser.add_argument("--work-dir", type=Path, required=True, help="folder of tokenizer and checkpoint")
    parser.add_argument("--minutes", type=float, default=100.0, help="training time")
    parser.add_argument("--steps", type=int, help="training steps instead of a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bfloat16", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--compile", action="store_true", help="compile the loss (takes a C++ compiler)")
    parser.add_argument("--device", default="cpu", help="device to train on")
    parser.add_argument("--export-only", action="store_true", help="export the checkpoint, train nothing")
    parser.add_argument("--prompts-per-cell", type=int, default=8, help="held-out prompts of a cell of the manifest")
    return parser.parse_args(values)


def load_or_train_tokenizer(path: Path, sources: list[Source], scenarios: list[Scenario], size: int) -> Tokenizer:
    """Returns the tokenizer of the work folder, training it first if there is none."""
    if not path.exists():
        texts = [text for source in sources for text in source.training[:_TOKENIZER_TEXTS]]
        texts += [scenario.text for scenario in scenarios[: len(scenarios) // 3]]
        train_tokenizer(texts, size).save(str(path))
    return Tokenizer.from_file(str(path))


def main(values: list[str] | None = None) -> None:
    """Trains, or only exports, as the command line says."""
    options = arguments(values)
    started = time.monotonic()
    torch.set_num_threads(options.threads)
    options.work_dir.mkdir(parents=True, exist_ok=True)
    settings = Settings(
        seed=options.seed, minutes=options.minutes, steps=options.steps, bfloat16=options.bfloat16,
        compiled=options.compile, device=options.device,
    )  # fmt: skip
    sources = read_sources(options.data, options.seed)
    scenarios = training_texts(options.seed)
    tokenizer = load_or_train_tokenizer(options.work_dir / "tokenizer.json", sources, scenarios, settings.vocabulary)
    checkpoint = options.work_dir / "checkpoint.pt"
    if not options.export_only:
        stories = [[encode_story(tokenizer, text) for text in source.training] for source in sources]
        planted = [encode_scenario(tokenizer, scenario) for scenario in scenarios]
        amplified = [encode_scenario(tokenizer, scenario) for scenario in amplified_texts(options.seed)]
        tokens = [sum(len(document.ids) for document in group) for group in [*stories, planted]]
        print(f"documents ready after {time.monotonic() - started:.0f} s, tokens {tokens}", flush=True)
        batches = Batches(stories, planted, options.seed, amplified)
        Trainer(settings, batches, checkpoint).run()
    # Training needs nothing of the core, so a copy of `bench` alone can train; the export measures with the core.
    from bench.demo_model.export import export_model

    metrics = export_model(checkpoint, tokenizer, sources, options.data, options.out, options.prompts_per_cell)
    print(json.dumps(metrics))


if __name__ == "__main__":
    main()
