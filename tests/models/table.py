"""Runs the whole matrix and writes tests/models/classes.md: ``python -m tests.models.table``, or ``make matrix``."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch
import transformers

from tests.models.matrix import Outcome, configurations, examined, with_images

DOCUMENT = Path(__file__).with_name("classes.md")
SECONDS = 60.0
"""Time of one class from which the table says that it is slow."""

MEMORIES = {"slots": "preallocated", "growing": "growing", "states": "states copied at every step"}

HEAD = """# Classes of models

Written by `make matrix` with transformers {version} and PyTorch {torch}. {total} kinds of configuration are mapped to
causal models there: {works} are audited, {refused} are refused when they are loaded, and {untried} were not tried.

For each kind a model with small numbers and random weights is made. Two branches are read and stepped, go back, and are
forked; texts are scored, and a calibration's values are computed. All logits must equal those of forwards over whole
texts without any cache, up to {tolerance} of their spread; in float32, on a processor. Nothing is said of how well a
published checkpoint of such a class works, or of its tokenizer.

*Memory* is how tokens that were read are kept: [engine and speed](../decoding_speed.md) explains the three ways, the
fastest of which is *preallocated*. A class that is refused says so in one sentence before it is used.

"""

IMAGES = """
## Models that also read images

Of some kinds that read images, a text part is mapped to a causal model, which is in the table above. The others are
loaded whole and given text alone: what reads their images takes memory, and is not run. The same was tried with
{total} kinds: {works} are audited, {refused} are refused, and {untried} were not tried.

"""

COLUMNS = """| Kind | Class | Memory, or why it is refused |
| --- | --- | --- |
"""


def written(outcomes: Iterable[Outcome], others: Iterable[Outcome]) -> str:
    """The document, of causal models and of those that also read images."""
    rows = sorted(outcomes, key=_kind)
    counts = {"total": len(rows), **_counted(rows)}
    version, build = transformers.__version__, torch.__version__.split("+")[0]
    head = HEAD.format(version=version, torch=build, tolerance="0.2 %", **counts)
    also = sorted(others, key=_kind)
    return head + _table(rows) + IMAGES.format(total=len(also), **_counted(also)) + _table(also)


def _kind(row: Outcome) -> str:
    return row.model_type


def _counted(rows: Iterable[Outcome]) -> dict[str, int]:
    count = Counter("works" if row.memory else "refused" if row.refusal else "untried" for row in rows)
    return {name: count[name] for name in ("works", "refused", "untried")}


def _table(rows: Iterable[Outcome]) -> str:
    return COLUMNS + "".join(f"| {row.model_type} | {row.architecture} | {_says(row)} |\n" for row in rows)


def _says(row: Outcome) -> str:
    if row.memory:
        says = MEMORIES[row.memory]
        # The rest is in the sentence of an exception, which tells readers of the table nothing.
        why = row.notes.split(" (")[0]
        return f"{says}: {why}" if why else says
    said = f"refused: {row.refusal}" if row.refusal else f"not tried: {row.notes}"
    return said.replace("|", "\\|")


def main(arguments: list[str] | None = None) -> int:
    """Try all kinds, or those that are named; write the document where all were tried."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", help="model types; all if none is given")
    named = parser.parse_args(arguments).kinds
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity(60)
    causal, failures = configurations(), 0
    known, outcomes = causal | with_images(), []
    for kind in named or known:
        started = time.monotonic()
        try:
            outcomes.append(outcome := examined(known[kind]))
        except Exception as error:
            failures += 1
            print(f"{kind}: FAILED, {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
            continue
        seconds = time.monotonic() - started
        slow = f" (slow: {seconds:.0f} s)" if seconds > SECONDS else ""
        print(f"{kind}: {_says(outcome)}{slow}", flush=True)
    if not named and not failures:
        of_text = [outcome for outcome in outcomes if outcome.model_type in causal]
        others = [outcome for outcome in outcomes if outcome.model_type not in causal]
        DOCUMENT.write_text(written(of_text, others), encoding="utf-8")
    print(f"{len(outcomes)} kinds as they should be, {failures} not.")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
