"""What a server bears, measured through the requests that its pages make.

A server of its own process is started on a store that is made for it. ``pages`` opens every page over a store of many
sessions, one request after another. ``reviewers`` lets simulated people work at once. ``models`` loads models again and
again in a process of its own, once by themselves and once with an audit after each. Each part prints a line of JSON
when it is done, and the last line holds them all; intervals are 95 % by bootstrap.

    python -m bench.load [--only pages,reviewers,models] [--sessions 5000] [--steps 64] [--times 20]
                         [--reviewers 8 32] [--minutes 10] [--loads 50] [--store FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench.load.loads import measure_loads
from bench.load.pages import measure_pages, page_views
from bench.load.reviewers import review
from bench.load.store import fill

PARTS = ("pages", "reviewers", "models")
START_SECONDS = 600.0
"""For the server to be ready: it reads the whole store for damage first."""


@contextmanager
def server(store: Path) -> Iterator[tuple[str, psutil.Process]]:
    """A server of its own process on a store: its address and its process; ended afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"COFT_DATABASE_URL": f"sqlite:///{store}", "COFT_HOST": "127.0.0.1", "COFT_PORT": str(port)}
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "serve"], env=os.environ | settings, stdout=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _await(url, process)
        yield url, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def _await(url: str, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + START_SECONDS
    while True:
        try:
            if httpx.get(f"{url}/ready").is_success:
                return
        except httpx.TransportError:
            pass
        if process.poll() is not None or time.monotonic() > ends:
            raise SystemExit("The server did not start; start it with 'python -m app serve' to see why.")
        time.sleep(0.2)


def pages(store: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Every page over a store of many sessions."""
    with server(store) as (url, process):
        return measure_pages(url, process, page_views(session=1, batch=1), options.times, _say)


def reviewers(store: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Reviewers at once, as many as was asked for, one number after another."""
    found = {}
    for number in options.reviewers:
        with server(store) as (url, process):
            found[str(number)] = review(url, process, number, options.minutes)
        _say(f"{number} reviewers: {json.dumps({**found[str(number)], 'resident_mb': None})}")
    return found


def models(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Many loads of models, in processes that do nothing else."""
    found = {}
    for audits in (False, True):
        within = folder / ("audits" if audits else "loads")
        within.mkdir()
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            name = "with_audits" if audits else "alone"
            found[name] = alone.submit(measure_loads, within, options.loads, audits).result()
    return found


def _say(text: str) -> None:
    print(text, flush=True)


def main(values: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts to measure, with commas between them")
    parser.add_argument("--sessions", type=int, default=5000, help="sessions in the store")
    parser.add_argument("--steps", type=int, default=64, help="steps of each of them")
    parser.add_argument("--times", type=int, default=20, help="how often each page is opened")
    parser.add_argument("--reviewers", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--minutes", type=float, default=10.0, help="for how long reviewers work")
    parser.add_argument("--loads", type=int, default=50, help="loads of models")
    parser.add_argument("--store", type=Path, help="SQLite file that is made where it is not there, and kept")
    options = parser.parse_args(values)
    with tempfile.TemporaryDirectory(prefix="coft-load-") as folder:
        store = (options.store or Path(folder) / "store.sqlite3").resolve()
        wanted = options.only.split(",")
        if not store.exists() and {"pages", "reviewers"} & set(wanted):
            fill(f"sqlite:///{store}", options.sessions, options.steps)
            _say(f"{options.sessions} sessions of {options.steps} steps: {store.stat().st_size / 1e6:.0f} MB")
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "pages": lambda: pages(store, options),
            "reviewers": lambda: reviewers(store, options),
            "models": lambda: models(Path(folder), options),
        }
        found: dict[str, Any] = {"benchmark": "load", "sessions": options.sessions, "steps": options.steps}
        for name in wanted:
            found[name] = parts[name]()
            _say(json.dumps({"part": name, "found": found[name]}))
    _say(json.dumps(found))


if __name__ == "__main__":
    main()
