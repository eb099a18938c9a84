"""Faults of the machine, each with the number tried and what was lost.

    python -m bench.faults [--kills 100] [--times 20] [--stops 200] [--only runs,batches,...] [--seed 0]

The last line is a JSON object. The program ends with an error where anything was lost.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.faults.circumstances import CIRCUMSTANCES, tear_often, try_often
from bench.faults.forking import warm
from bench.faults.kills import kill_often
from bench.faults.stops import stop_often
from bench.faults.weights import damage_often
from bench.faults.works import TASKS


def main() -> None:
    """Try what was asked for, and print what was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--stops", type=int, default=200)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    wanted = [part for part in options.only.split(",") if part]
    if wanted != ["stops"]:
        warm()
    results: dict[str, dict[str, Any]] = {}
    for task in TASKS:
        if wanted and task.name not in wanted:
            continue
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            told = kill_often(task, options.kills, Path(folder), options.seed, lambda said: print(said, flush=True))
        took = time.perf_counter() - begun
        print(f"{told.name}: {told.kills} kills, {told.shown} lines shown, {len(told.lost)} lost ({took:.0f} s)")
        print(*(f"  {what}" for what in told.lost[:10]), sep="\n", flush=True)
        results[task.name] = {"tried": told.kills, "shown": told.shown, "lost": len(told.lost)}
    for name in CIRCUMSTANCES:
        if not wanted or name in wanted:
            with tempfile.TemporaryDirectory() as folder:
                said, lost = try_often(name, options.times, Path(folder), options.seed)
            print(f"{name}: {options.times} times, told in a sentence {said} times, {len(lost)} lost")
            print(*(f"  {what}" for what in lost[:10]), sep="\n", flush=True)
            results[name] = {"tried": options.times, "told": said, "lost": len(lost)}
    if not wanted or "torn file" in wanted:
        with tempfile.TemporaryDirectory() as folder:
            refused, harmless, lost = tear_often(options.times, Path(folder), options.seed)
        print(f"torn file: {options.times} times, refused {refused}, harmless {harmless}, {len(lost)} lost")
        print(*(f"  {what}" for what in lost[:10]), sep="\n", flush=True)
        results["torn file"] = {"tried": options.times, "refused": refused, "lost": len(lost)}
    if not wanted or "damaged weights" in wanted:
        with tempfile.TemporaryDirectory() as folder:
            said, lost = damage_often(options.kills, Path(folder), options.seed)
        print(f"damaged weights: {options.kills} times, told in a sentence {said} times, {len(lost)} lost")
        print(*(f"  {what}" for what in lost[:10]), sep="\n", flush=True)
        results["damaged weights"] = {"tried": options.kills, "told": said, "lost": len(lost)}
    if not wanted or "stops" in wanted:
        with tempfile.TemporaryDirectory() as folder:
            stops = stop_often(options.stops, Path(folder), options.seed, lambda said: print(said, flush=True))
        results["stops"] = stops.json
    print(json.dumps(results))
    sys.exit(any(item["lost"] for item in results.values()))


if __name__ == "__main__":
    main()
