"""Measures how often thresholds keep the true next token: by step, bin, chain, group and family.

    python -m bench.coverage [--model demo] [--prompts FILE] [--calibration FILE] [--bin-spacing widening] [--out FILE]

The prompt file is a CSV or JSONL as for `python -m app calibrate`, with a prompt and a reference in each row. Without
`--calibration` the contexts are split: one part gives the thresholds and `--share` of them measures the coverage. With
`--calibration` all prompts measure a calibration that was made before on others; it must belong to the same policy.

Contexts are the units. A figure over several tokens is the mean over contexts of each context's share of kept tokens,
which is what the hierarchical estimator bounds, and its 95 % interval is a bootstrap over contexts; where every context
keeps all or nothing, as at a single step, it is the exact one (Clopper-Pearson). The last line is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import coft_core as cc
from app.shared.prompt_sets import parse_prompt_set, rows_of
from coft_core.assets import assets_path
from coft_core.conformal.bins import BIN_SPACINGS
from coft_core.conformal.coverage import CoverageRow, clopper_pearson
from coft_core.conformal.quantile import ESTIMATORS
from coft_core.conformal.sequence import chain_coverage
from coft_core.conformal.values import CalibrationValues
from coft_core.model.language_model import LanguageModel
from coft_core.text.detection import default_detector
from coft_core.types import Example

BOOTSTRAPS = 2000
"""Resamples of the contexts behind an interval."""

UNMASKED = "nothing masked"
"""Row of the prompts in which no family is masked."""


@dataclass(frozen=True, slots=True)
class Row:
    """A measured coverage."""

    coverage: float
    low: float
    high: float
    n: int
    tokens: int
    interval: str


def row_of(kept: npt.NDArray[np.bool_], contexts: npt.NDArray[np.integer], seed: int = 0) -> Row | None:
    """Coverage over contexts; None without any."""
    if not kept.size:
        return None
    own = np.unique(contexts, return_inverse=True)[1]  # (n,)
    shares = np.bincount(own, kept) / np.bincount(own)  # (K,)
    mean = float(shares.mean())
    if np.isin(shares, (0.0, 1.0)).all():
        low, high = clopper_pearson(round(shares.sum()), shares.size)
        return Row(mean, low, high, shares.size, kept.size, "exact")
    drawn = np.random.default_rng(seed).integers(shares.size, size=(BOOTSTRAPS, shares.size))
    low, high = np.quantile(shares[drawn].mean(1), (0.025, 0.975)).tolist()
    return Row(mean, low, high, shares.size, kept.size, "bootstrap")


def measured(
    calibration: cc.Calibration, values: CalibrationValues, examples: Sequence[Example], seed: int = 0
) -> dict[str, Any]:
    """Coverage of a calibration's thresholds on values of contexts that it does not rest on."""
    positions = calibration.positions
    log_tau = np.array([entry.log_tau for entry in calibration.bins])  # (B,)
    of_bin = positions.bins_of(values.steps)  # (n,)
    kept = values.values >= log_tau[of_bin]  # (n,)

    def part(chosen: npt.NDArray[np.bool_]) -> Row | None:
        return row_of(kept[chosen], values.contexts[chosen], seed)

    def of_rows(numbers: Iterable[int]) -> Row | None:
        return part(np.isin(values.rows, list(numbers)))

    groups: dict[str, list[int]] = {}
    families: dict[str, list[int]] = {}
    detector = default_detector()
    for number in np.unique(values.rows).tolist():
        example = examples[number - 1]
        if example.group is not None:
            groups.setdefault(example.group, []).append(number)
        spans = detector.detect(example.prompt) if example.spans is None else example.spans
        for name in sorted({span.category for span in spans if span.masked}) or [UNMASKED]:
            families.setdefault(name, []).append(number)
    return {
        "overall": row_of(kept, values.contexts, seed),
        "chains": chains_kept(calibration, values, seed),
        "bins": {positions.label(i): part(of_bin == i) for i in np.unique(of_bin).tolist()},
        "steps": {str(step + 1): part(values.steps == step) for step in np.unique(values.steps).tolist()},
        "groups": {name: of_rows(numbers) for name, numbers in sorted(groups.items())},
        "families": {name: of_rows(numbers) for name, numbers in sorted(families.items())},
    }


def chains_kept(calibration: cc.Calibration, values: CalibrationValues, seed: int = 0) -> dict[str, Row | None]:
    """Chains of which every true token reaches the threshold of whole chains, overall and by length."""
    part = calibration.joint
    level = part.shift.level(part.exact_alpha)
    found = chain_coverage(values, calibration.sequence(), level, seed)
    return {row.label: _exact(row) for row in (found.overall, *found.lengths)}


def _exact(row: CoverageRow) -> Row | None:
    if row.coverage is None or row.low is None or row.high is None:
        return None
    return Row(row.coverage, row.low, row.high, row.contexts, row.contexts, "exact")


def calibrated(
    model: LanguageModel, examples: Sequence[Example], options: argparse.Namespace
) -> tuple[cc.Calibration, CalibrationValues]:
    """The calibration that is measured, and the values of the contexts that measure it."""
    if options.calibration is None:
        made = cc.calibrate(
            model, examples, options.lam, options.alpha, options.estimator, options.source, seed=options.seed,
            verification_share=options.share, bin_spacing=options.bin_spacing or BIN_SPACINGS[0],
            bin_width=options.bin_width,
        )  # fmt: skip
        return made, made.joint.verification
    stored = cc.Calibration.load(options.calibration).read(bin_spacing=options.bin_spacing)
    own = stored.fingerprint
    scored = cc.calibrate(
        model, examples, own.lam, stored.alpha, stored.estimator, temperature=own.temperature, top_p=own.top_p,
        top_k=own.top_k,
    )  # fmt: skip
    own.require_equal(scored.fingerprint)
    return stored, CalibrationValues.concat([scored.joint.values, scored.joint.verification])


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--prompts", type=Path, default=assets_path("prompts", "calibration_demo.jsonl"))
    parser.add_argument("--calibration", type=Path, help="a calibration on other prompts' references, to be measured")
    parser.add_argument("--lambda", dest="lam", type=float, default=0.6)
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--estimator", choices=ESTIMATORS, default="hierarchical")
    parser.add_argument("--source", choices=("reference", "rollout"), default="reference")
    parser.add_argument("--bin-spacing", choices=BIN_SPACINGS, help="default: widening, or the calibration's")
    parser.add_argument("--bin-width", type=int, default=8)
    parser.add_argument("--share", type=float, default=0.5, help="share of the contexts that measure (default: 0.5)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="file for the JSON object")
    return parser.parse_args(given)


def _lines(found: dict[str, Any]) -> Iterable[str]:
    for kind, rows in found.items():
        for name, row in rows.items() if isinstance(rows, dict) else (("", rows),):
            text = f"{kind} {name}".strip()
            if row is None:
                yield f"{text:<28} not measured"
            else:
                yield f"{text:<28} {row.coverage:.3f}  [{row.low:.3f}, {row.high:.3f}] {row.interval:<9}  n = {row.n}"


def main(given: list[str] | None = None) -> None:
    """Measures and prints."""
    options = arguments(given)
    torch.set_num_threads(options.threads)
    started = time.monotonic()
    model = cc.load_model(options.model, device=options.device)
    parsed = parse_prompt_set(options.prompts)
    for error in parsed.errors:
        print(f"left out: line {error.line}, {error.column} {error.message}")
    examples = [row.example for row in rows_of(parsed)]
    calibration, values = calibrated(model, examples, options)
    found = measured(calibration, values, examples, options.seed)
    print("\n".join(_lines(found)))
    uneven = [asdict(entry) | {"uneven": entry.uneven} for entry in calibration.joint.evenness]
    print("bins whose steps differ beyond noise:", ", ".join(e["label"] for e in uneven if e["uneven"]) or "none")
    result = {
        "benchmark": "coverage", "model": options.model, "weights": model.weights_digest, "device": str(model.device),
        "prompts": options.prompts.name, "left_out": len(parsed.errors),
        "calibration": options.calibration and options.calibration.name,
        "lambda": calibration.fingerprint.lam, "alpha": calibration.alpha, "estimator": calibration.estimator,
        "source": calibration.source, "bin_spacing": calibration.reading.bin_spacing,
        "bin_width": calibration.reading.bin_width,
        "seed": options.seed, "calibration_contexts": calibration.context_count, "evenness": uneven,
        "seconds": round(time.monotonic() - started), **found,
    }  # fmt: skip
    text = json.dumps(result, default=asdict)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
