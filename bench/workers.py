"""What it costs and gains to share rows out: one worker against two, and what each row takes of whom.

    python -m bench.workers --shape llama-134m --pairs 5 --rows 8 --tokens 16

needs Ray (``requirements-ray.txt``). Random weights of the shape are saved as a checkpoint in a folder of its own, and
the workers load them from there as they would any model. One worker and two take turns, so that what else the computer
does meets both.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import torch

from app.audit.service import AuditService
from app.bootstrap import services
from app.jobs.ray_workers import RayWorker, cluster
from app.jobs.travelling import packed, program_digest
from app.jobs.workers import Crew
from app.settings import Settings
from app.shared.audits import AuditSettings, StartAudit
from app.shared.kept_steps import WrittenChain
from app.shared.wiring import Services
from bench.decode.shapes import SHAPES, model_of
from coft_core.types import Span

PROMPT = "She has worked as a nurse in this hospital for {number} years, and when asked about it her answer is that"
SPANS = (Span(0, 3, "gender", "user"),)


def saved(shape: str, folder: Path) -> str:
    """A checkpoint of random weights; its path."""
    model = model_of(shape, "cpu")
    path = folder / shape
    model.module.save_pretrained(path)
    model.tokenizer.save_pretrained(path)
    return str(path)


def begun(wired: Services, model: str, rows: int, tokens: int) -> list[tuple[int, int]]:
    """Sessions and branches of so many rows, nothing written."""
    settings = AuditSettings(model=model, max_new_tokens=tokens, prompt_format="plain")
    views = [
        wired[AuditService].start(StartAudit(prompt=PROMPT.format(number=number), settings=settings, spans=SPANS))
        for number in range(rows)
    ]
    return [(view.session_id, view.branch_id) for view in views]


def taken(crew: Crew, works: Sequence[Callable[[], WrittenChain]]) -> tuple[float, list[WrittenChain]]:
    """Seconds that a crew takes for work, and what came of it."""
    began = time.perf_counter()
    chains = list(crew.each(works))
    return time.perf_counter() - began, chains


def crew_of(workers: Sequence[RayWorker]) -> Crew:
    """Workers that are there already as a crew."""
    following = iter(workers)
    crew = Crew(lambda: next(following), len(workers), lambda: None, nullcontext, program_digest())
    return crew.__enter__()


def interval(values: Sequence[float]) -> tuple[float, float]:
    """A 95 % bootstrap interval of the median."""
    drawn = np.random.default_rng(0).choice(np.asarray(values), (10_000, len(values)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return float(low), float(high)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="llama-134m")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--full-logits-kb", type=int, default=Settings().full_logits_kb)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        model = saved(given.shape, Path(folder))
        settings = Settings(
            database_url=f"sqlite:///{folder}/bench.sqlite3",
            pipeline="none",
            ray_address="local",
            ray_workers=2,
            full_logits_kb=given.full_logits_kb,
        )
        with services(settings) as wired, cluster(settings) as hire:
            measured(wired, [hire(), hire()], model, given)


def measured(wired: Services, workers: Sequence[RayWorker], model: str, given: argparse.Namespace) -> None:
    """Pairs of runs with one worker and with two, then what the job's own process does for a row."""
    audits = wired[AuditService]
    begun(wired, model, 1, given.tokens)
    began = time.perf_counter()
    places = begun(wired, model, given.rows, given.tokens)
    planning = (time.perf_counter() - began) / given.rows
    works = [audits.chain_work(*place) for place in places]
    one, two = crew_of(workers[:1]), crew_of(workers)
    loading, _ = taken(two, works[:2])
    taken(one, works[:1])
    ratios, alone, together = [], [], []
    for pair in range(given.pairs):
        # Whoever is first changes from pair to pair.
        timed = {crew: taken(crew, works) for crew in ((one, two) if pair % 2 else (two, one))}
        alone.append(timed[one][0] / given.rows)
        together.append(timed[two][0] / given.rows)
        ratios.append(alone[-1] / together[-1])
        chains = timed[two][1]
        print(f"pair {pair + 1}: {alone[-1]:.2f} s a row with one, {together[-1]:.2f} s with two: {ratios[-1]:.2f}")
    low, high = interval(ratios)
    print(f"two workers against one: median {statistics.median(ratios):.2f} ({low:.2f} to {high:.2f}, n={given.pairs})")
    print(f"a row of {given.tokens} tokens: {statistics.median(alone):.2f} s of a worker; first rows, with loading: "
          f"{loading:.1f} s")  # fmt: skip
    began = time.perf_counter()
    sizes = [len(packed(partial(work))) for work in works]
    packing = (time.perf_counter() - began) / given.rows
    results = [len(pickle.dumps(chain, protocol=pickle.HIGHEST_PROTOCOL)) for chain in chains]
    began = time.perf_counter()
    for place, chain in zip(places, chains, strict=True):
        audits.take_chain(*place, chain)
    storing = (time.perf_counter() - began) / given.rows
    sent, returned = statistics.mean(sizes) / 1000, statistics.mean(results) / 1000
    print(
        f"in the job's process, a row: {1000 * planning:.0f} ms to begin, {1000 * packing:.1f} ms to "
        f"pack {sent:.1f} kB, {1000 * storing:.0f} ms to store {returned:.0f} kB"
    )
    two.dismiss()


if __name__ == "__main__":
    main()
