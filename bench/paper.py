"""The paper as one command: how long it takes, and whether its tables are the same after kills.

    python -m bench.paper --data DIR [--limit 50] [--seeds 0,1,2] [--only PART] [--kills 5 --every 300]

One run is left alone. With ``--kills`` a second one goes on beside it, each with half of the processors and a store of
its own. It is killed that often, each time after half to one and a half of ``--every`` seconds, and the same command
goes on. Measured speed is not compared. The last line is JSON.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from app.evaluate.experiments.named import EXPERIMENTS
from app.evaluate.experiments.speed import speed_tables
from app.paper.claims import paper_claims

ROOT = Path(__file__).resolve().parents[1]
SPEED = {table.title for own in EXPERIMENTS.values() for table in speed_tables(own).values()}
TIMED = {name for name, own in EXPERIMENTS.items() if speed_tables(own)}
OF_SPEED = {claim.says for claim in paper_claims() if claim.experiment in TIMED}


def ran(arguments: Sequence[str], folder: Path, threads: int, pauses: Sequence[float] = ()) -> float:
    """Run the command to its end in a folder, killed after each of some pauses; return the seconds it all took."""
    folder.mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    environment["COFT_DATABASE_URL"] = f"sqlite:///{folder / 'paper.sqlite3'}"
    command = [sys.executable, "-m", "app", "paper", *arguments, "--out", str(folder / "out")]
    began = time.perf_counter()
    for pause in (*pauses, None):
        with (folder / "log.txt").open("a", encoding="utf-8") as log:
            run = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True, text=True
            )
            with suppress(subprocess.TimeoutExpired):
                if run.wait(pause):
                    raise RuntimeError(f"The command ended with {run.returncode}; see {folder / 'log.txt'}.")
                if pause is not None:
                    raise RuntimeError("The command ended before it was killed often enough; take a smaller --every.")
        if pause is not None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    return time.perf_counter() - began


def said(folder: Path) -> dict[str, list[dict[str, str]]]:
    """The rows of all tables and claims but those of measured speed, by file."""
    found = {}
    for path in sorted((folder / "out").rglob("*.csv")):
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = list(csv.DictReader(lines))
        found[path.name] = [row for row in rows if row.get("table") not in SPEED and row.get("claim") not in OF_SPEED]
    return found


def main() -> None:
    """Run what was asked for, and print how long it took and what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--limit", default="50")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--every", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments of the kills")
    parser.add_argument("--keep", type=Path, help="an empty or new folder for what is written")
    options = parser.parse_args()
    arguments = [f"--{name}={getattr(options, name)}" for name in ("data", "model", "limit", "seeds")]
    arguments += [f"--only={name}" for name in options.only]
    draw, cores = random.Random(options.seed), os.cpu_count() or 1
    pauses = [draw.uniform(0.5, 1.5) * options.every for _ in range(options.kills)]
    threads = max(cores // (2 if pauses else 1), 1)
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor() as together:
        place = options.keep or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        alone = together.submit(ran, arguments, place / "alone", threads)
        killed = together.submit(ran, arguments, place / "killed", threads, pauses) if pauses else None
        told = {"minutes": round(alone.result() / 60, 1), "threads": threads, "kills": len(pauses)}
        differing = []
        if killed is not None:
            told["minutes killed"] = round(killed.result() / 60, 1)
            one, other = said(place / "alone"), said(place / "killed")
            differing = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
            told |= {"files": len(one), "rows": sum(map(len, one.values())), "differing": differing}
    print(json.dumps(told))
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
