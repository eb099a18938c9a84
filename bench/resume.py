"""Kills an evaluation at random moments, resumes it, and compares what it writes with a run that nobody disturbed.

    python -m bench.resume [--kills 10] [--seed 0] [--suites phantom_gaps,phantom_questions] [--data DIR] [--limit 30]

Each process gets SIGKILL after a random share of what the undisturbed run took; one that ends earlier was not killed,
and its round is compared: ``results.json`` and ``samples.jsonl``, byte by byte. Rounds, each on a store of its own, go
on until there were so many kills. The program ends with an error where bytes differ. The last line is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from app.evaluate.results import BEGUN, RESULTS, SAMPLES


def command(options: argparse.Namespace, folder: Path) -> list[str]:
    """How an evaluation is begun, or gone on with where its folder says which one it is."""
    evaluate = [sys.executable, "-m", "app", "evaluate"]
    if (folder / "out" / BEGUN).is_file():
        return [*evaluate, "--resume", str(folder / "out")]
    own = ["--suites", options.suites, "--method", options.method, "--limit", str(options.limit), "--name", "resumed"]
    data = ["--data", str(options.data)] if options.data else []
    return [*evaluate, *own, *data, "--out", str(folder / "out")]


def run(options: argparse.Namespace, folder: Path, patience: float | None = None) -> bool:
    """Run until it ends or is killed after ``patience`` seconds; gives whether it ended."""
    folder.mkdir(exist_ok=True)
    store = {"COFT_DATABASE_URL": f"sqlite:///{folder / 'store.sqlite3'}"}
    process = subprocess.Popen(
        command(options, folder), env={**os.environ, **store}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        _, said = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return False
    if process.returncode:
        raise RuntimeError(said.decode().strip())
    return True


def written(folder: Path) -> tuple[bytes, bytes]:
    """What an evaluation wrote."""
    return (folder / "out" / RESULTS).read_bytes(), (folder / "out" / SAMPLES).read_bytes()


def main() -> None:
    """Run undisturbed, then kill and resume, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--suites", default="phantom_gaps,phantom_questions")
    parser.add_argument("--method", default="table1")
    parser.add_argument("--limit", type=int, default=30)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as place:
        begun = time.perf_counter()
        run(options, Path(place) / "undisturbed")
        whole = time.perf_counter() - begun
        wanted = written(Path(place) / "undisturbed")
        print(f"undisturbed: {whole:.1f} s, {len(wanted[1])} bytes of items", flush=True)
        kills = rounds = same = 0
        while kills < options.kills:
            rounds += 1
            folder = Path(place) / f"round{rounds}"
            while not run(options, folder, draw.uniform(0, whole) if kills < options.kills else None):
                kills += 1
                print(f"round {rounds}: killed, {kills} of {options.kills}", flush=True)
            same += written(folder) == wanted
    print(json.dumps({"kills": kills, "rounds": rounds, "rounds_with_the_same_bytes": same}))
    sys.exit(same != rounds)


if __name__ == "__main__":
    main()
