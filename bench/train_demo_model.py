"""Trains and exports the embedded demonstration model.

Run it with `python -m bench.train_demo_model --data DIR --work-dir DIR`. It takes the minutes given by
`--minutes` (100 unless told) on two cores and a few minutes more for tokenizing, evaluation and export. With
`--export-only` it exports the latest checkpoint, also while another process is still training. A run given by
`--steps` is reproducible from the seed and the data folder; a run given by minutes does as many steps as fit.
The last line of the output is a JSON object.

With `--start-from FOLDER` the run continues the training of an exported model: it takes the model's weights and
tokenizer, fresh optimisers and the stages `stages.CONTINUED_STAGES`. Keep the `--seed` of the first run, which decides
what stories are held out, and give a work folder of its own. A work folder that already holds a checkpoint of such a
run resumes from it.

Where other programs share the cores, set `OMP_WAIT_POLICY=passive`: a step is then several times faster.
`MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=-1` keeps freed memory in the process, and together with `--compile` it about
doubled the speed on two cores of the machine where it was tried.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
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
    parser.add_argument("--start-from", type=Path, metavar="FOLDER", help="exported model whose training continues")
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


def take_tokenizer(folder: Path, path: Path) -> None:
    """Copies the tokenizer of an exported model to the work folder."""
    exported = folder / "tokenizer.json"
    if not exported.is_file():
        raise FileNotFoundError(f"there is no tokenizer at {exported}; give the folder of an exported model")
    if not path.exists():
        shutil.copyfile(exported, path)
    elif path.read_bytes() != exported.read_bytes():
        raise ValueError(f"{path} is not the tokenizer of {folder}; take another work folder")


def main(values: list[str] | None = None) -> None:
    """Trains, or only exports, as the command line says."""
    options = arguments(values)
    started = time.monotonic()
    torch.set_num_threads(options.threads)
    options.work_dir.mkdir(parents=True, exist_ok=True)
    settings = Settings(
        seed=options.seed, minutes=options.minutes, steps=options.steps, bfloat16=options.bfloat16,
        compiled=options.compile, device=options.device, continued=options.start_from is not None,
    )  # fmt: skip
    sources = read_sources(options.data, options.seed)
    scenarios = training_texts(options.seed)
    tokenizer_path = options.work_dir / "tokenizer.json"
    if options.start_from is not None:
        take_tokenizer(options.start_from, tokenizer_path)
    tokenizer = load_or_train_tokenizer(tokenizer_path, sources, scenarios, settings.vocabulary)
    checkpoint = options.work_dir / "checkpoint.pt"
    if not options.export_only:
        stories = [[encode_story(tokenizer, text) for text in source.training] for source in sources]
        planted = [encode_scenario(tokenizer, scenario) for scenario in scenarios]
        amplified = [encode_scenario(tokenizer, scenario) for scenario in amplified_texts(options.seed)]
        tokens = [sum(len(document.ids) for document in group) for group in [*stories, planted]]
        print(f"documents ready after {time.monotonic() - started:.0f} s, tokens {tokens}", flush=True)
        # The seed also decides what is held out, so a continued run keeps it but draws other batches than the first.
        batches = Batches(stories, planted, options.seed + settings.continued, amplified)
        Trainer(settings, batches, checkpoint, options.start_from).run()
    # Training needs nothing of the core, so a copy of `bench` alone can train; the export measures with the core.
    from bench.demo_model.export import export_model

    metrics = export_model(
        checkpoint, tokenizer, sources, options.data, options.out, options.prompts_per_cell, options.start_from
    )
    print(json.dumps(metrics))


if __name__ == "__main__":
    main()
