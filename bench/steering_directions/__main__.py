"""Fits directions of attention heads for activation steering. Run it with `python -m bench.steering_directions`.

    python -m bench.steering_directions --out FILE [--model MODEL] [--pairs FILE] [--measure DIR]

It takes any transformers model of the Llama, Mistral, Mixtral, Qwen2, GPT-2 or GPT-NeoX kind. The labelled pairs are a
`.jsonl` or `.csv` file with the fields `wanted` and `unwanted`, two texts that end where the model should be moved;
without one they are written from what was planted in the embedded model. The file of directions is what the parameter
`directions` of the policy `iti` takes.

`--measure DIR` is for the embedded model: it chooses the number of heads and the strength on texts of their own,
measures the choice on held-out wordings, and writes `README.md` and `measurements.json` into the folder DIR. The last
line of the output is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bench.steering_directions.card import measured, write_card
from bench.steering_directions.fitting import LabelledPair, fit_directions
from bench.steering_directions.pairs import KINDS, planted_pairs, read_pairs
from coft_core import CoftError, LanguageModel, load_model
from coft_core.model.steering import Directions

DTYPES = ("float32", "bfloat16", "float16")


def arguments(values: list[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog="bench.steering_directions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="demo", help="id or folder; the embedded model unless told")
    parser.add_argument("--pairs", type=Path, metavar="FILE", help="labelled pairs, .jsonl or .csv")
    parser.add_argument("--planted", type=int, default=1500, metavar="N", help="pairs that are written without a file")
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0],
                        help="wanted written texts: with the group masked, or that end against the bias")  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="file of directions to write (.npz)")
    parser.add_argument("--dtypes", nargs="+", default=DTYPES, choices=DTYPES,
                        help="fit in the first; the file serves the model loaded in any of these")  # fmt: skip
    parser.add_argument("--measure", type=Path, metavar="DIR", help="measure on the embedded model's scenarios")
    parser.add_argument("--prompts", type=int, default=2, help="held-out prompts a cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args(values)


def fit(
    name: str, pairs: Sequence[LabelledPair], dtypes: Sequence[str], device: str, seed: int
) -> tuple[LanguageModel, Directions]:
    """Fits in the first floating type, and lets the directions serve the model in the others too."""
    model = load_model(name, device, dtypes[0])
    directions = fit_directions(model, pairs, seed)
    others = [load_model(name, device, dtype).weights_digest for dtype in dtypes[1:]]
    return model, replace(directions, weights=(model.weights_digest, *others))


def save(directions: Directions, path: Path) -> None:
    """Writes the file; a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    directions.save(partial)
    os.replace(partial, path)


def summary(directions: Directions) -> dict[str, Any]:
    """The heads that tell most held-out pairs apart."""
    best = directions.best(8)
    rows = zip(best.layers.tolist(), best.heads.tolist(), best.accuracies.tolist(), strict=True)
    return {
        "pairs": directions.pairs, "heads": len(directions.layers),
        "best": [{"layer": layer, "head": head, "accuracy": round(share, 3)} for layer, head, share in rows],
    }  # fmt: skip


def main(values: list[str] | None = None) -> None:
    """Fits, and measures where it is asked to."""
    options = arguments(values)
    torch.set_num_threads(options.threads)
    try:
        if options.pairs is not None:
            pairs = read_pairs(options.pairs)
        else:
            pairs = planted_pairs(
                load_model(options.model, options.device), options.planted, options.seed, options.kind
            )
        print(f"fitting on {len(pairs):,} pairs", flush=True)
        model, directions = fit(options.model, pairs, options.dtypes, options.device, options.seed)
        save(directions, options.out)
    except CoftError as error:
        raise SystemExit(str(error)) from error
    result = summary(directions)
    print("\n".join(f"layer {row['layer']}, head {row['head']}: {row['accuracy']:.1%} of held-out texts told apart"
                    for row in result["best"]), flush=True)  # fmt: skip
    if options.measure is not None:
        found = measured(model, directions, options.prompts, options.seed, lambda line: print(line, flush=True))
        write_card(options.measure, result | found)
        result |= found
    print(json.dumps(result))


if __name__ == "__main__":
    main()
