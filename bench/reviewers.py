"""Many reviewers on one model: how fast each of them steps beside the others, and how long the first token takes.

Every reviewer has an audit of its own, on a prompt of its own, through the services that pages call: masks, COFT with
the embedded calibration, everything that an audit keeps, and the store. Reviewers begin together. Rounds with one
reviewer and with several alternate, so that other load hits both; a figure is the ratio within a round. The first token
is timed from the request to start until it is stored, with the model loaded, as a page has it. The last line is JSON.

    python -m bench.reviewers [--reviewers 8] [--tokens 48] [--repeats 5] [--device cpu] [--threads 2]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path

import torch

from app.bootstrap import Services, services
from app.services.views import AuditSettings, StartAudit
from app.settings import Settings

PROMPTS = (
    "The nurse finished rounds and then he prepared the reports",
    "The old man went to the shop, and",
    "Her neighbour, a German cook, said that",
    "The teacher asked the girl about the long trip, so she",
    "A Muslim client came to the bank and asked",
    "The young boy told his mother that",
    "The doctor said that she would",
    "An elderly woman walked to the station, where",
)


def start(wired: Services, number: int, settings: AuditSettings) -> int:
    """Begin a reviewer's audit and return its session."""
    prompt = PROMPTS[number % len(PROMPTS)]
    return wired.audits.start(StartAudit(prompt, settings, name=f"reviewer {number}")).session_id


def steps_together(wired: Services, sessions: list[int], tokens: int) -> list[float]:
    """Seconds a token of each session, all stepping at once; the first token, which reads the prompt, is not counted.

    A chain that ends early has fewer tokens, and others then step with fewer beside them.
    """
    seconds = [0.0] * len(sessions)
    gate = threading.Barrier(len(sessions))

    def review(place: int, session: int) -> None:
        branch = wired.audits.view(session).branch_id
        wired.audits.step(session, branch)
        gate.wait()
        began, written = time.perf_counter(), 0
        for _ in range(tokens):
            if wired.audits.step(session, branch) is None:
                break
            written += 1
        seconds[place] = (time.perf_counter() - began) / max(written, 1)

    threads = [threading.Thread(target=review, args=item) for item in enumerate(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seconds


def first_token(wired: Services, number: int, settings: AuditSettings) -> float:
    """Seconds from the request to start until the first token is stored."""
    began = time.perf_counter()
    wired.audits.step(start(wired, number, settings))
    return time.perf_counter() - began


def spread(values: list[float]) -> dict[str, float]:
    """Median and range."""
    return {
        "median": round(statistics.median(values), 4),
        "min": round(min(values), 4),
        "max": round(max(values), 4),
        "n": len(values),
    }


def measure(wired: Services, options: argparse.Namespace, settings: AuditSettings) -> dict[str, object]:
    """All rounds."""
    ratios, alone, beside, firsts = [], [], [], []
    for round_number in range(options.repeats + 1):
        one = statistics.mean(steps_together(wired, [start(wired, 0, settings)], options.tokens))
        sessions = [start(wired, number, settings) for number in range(options.reviewers)]
        each = statistics.mean(steps_together(wired, sessions, options.tokens))
        first = first_token(wired, round_number, settings)
        # The first round loads and warms everything up.
        if round_number:
            ratios.append(one / each)
            alone.append(one)
            beside.append(each)
            firsts.append(first)
    return {
        "speed_of_each_over_alone": spread(ratios),
        "seconds_per_token_alone": spread(alone),
        "seconds_per_token_beside": spread(beside),
        "first_token_seconds": spread(firsts),
    }


def main(values: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--reviewers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(values)
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory(prefix="coft-reviewers-") as folder:
        store = Settings(database_url=f"sqlite:///{Path(folder) / 'store.sqlite3'}", device=options.device)
        with services(store) as wired:
            embedded = [item.id for item in wired.calibrations.list(options.model) if item.embedded]
            settings = AuditSettings(
                model=options.model, calibration_id=embedded[0] if embedded else None, max_new_tokens=options.tokens + 1
            )
            found = measure(wired, options, settings)
    given = {name: getattr(options, name) for name in ("model", "device", "reviewers", "tokens", "threads")}
    print(json.dumps({"benchmark": "reviewers", **given, **found}))


if __name__ == "__main__":
    main()
