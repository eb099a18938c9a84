"""Trains and measures the embedded toxicity scorer. Run it with `python -m bench.toxicity_scorer --data DIR`.

DIR (or `COFT_DATA_DIR`) has the folders `corpus` and `wikitext2` for training, and `bbq`, `bold`, `crows_pairs`,
`stereoset` and `winogender` for measuring. Training takes a few minutes on one core. It writes `embedded.npz`, the
facts of its training (`training.json`) and the card (`README.md`); the last line of the output is a JSON object. With
`--card-only` the scorer in the folder is measured and its card written again.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path

from bench.toxicity_scorer.card import write_card
from bench.toxicity_scorer.measuring import measure
from bench.toxicity_scorer.training import Settings, train
from coft_core.assets import assets_path
from coft_core.scorers.embedded import SHIPPED, load_embedded


def arguments(values: list[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="bench.toxicity_scorer", description="Train the embedded toxicity scorer.")
    data = os.environ.get("COFT_DATA_DIR")
    parser.add_argument("--data", type=Path, default=data, required=data is None, help="folder of the corpora")
    parser.add_argument("--out", type=Path, default=assets_path("scorer"), help="folder of the scorer")
    parser.add_argument("--each", type=int, default=Settings.each, help="sentences drawn from each template")
    parser.add_argument("--ordinary", type=int, default=Settings.ordinary, help="sentences of each corpus at most")
    parser.add_argument("--seed", type=int, default=Settings.seed)
    parser.add_argument("--card-only", action="store_true", help="measure the scorer in the folder, train nothing")
    parser.add_argument("--no-card", action="store_true", help="train only")
    return parser.parse_args(values)


def main(values: list[str] | None = None) -> None:
    """Trains, measures and writes the card as the command line says."""
    options = arguments(values)
    asset, told = options.out / SHIPPED.name, options.out / "training.json"
    if not options.card_only:
        settings = Settings(each=options.each, ordinary=options.ordinary, seed=options.seed)
        trained = train(options.data, settings)
        trained.scorer.save(asset)
        told.write_text(json.dumps(trained.facts, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(trained.facts), flush=True)
    if options.no_card:
        return
    scorer, facts = load_embedded(asset), json.loads(told.read_text(encoding="utf-8"))
    measured = measure(scorer, options.data, options.seed)
    write_card(options.out / "README.md", scorer, facts, measured, asset.stat().st_size)
    shown = {name: value for name, value in asdict(measured).items() if name != "milliseconds"}
    print(json.dumps({"version": scorer.version, **shown}))


if __name__ == "__main__":
    main()
