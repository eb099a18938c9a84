"""Servers that are told to end at random moments: while they start, and in the seconds after their first page."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from coft_core.conformal.coverage import clopper_pearson

PATIENCE = 10.0
"""Seconds that a process is given to end: what stops containers kills then."""
AFTER = 5.0
"""Seconds after the first page within which every second server is told to end."""


@dataclass(frozen=True, slots=True)
class Stops:
    """How often a server ended in time."""

    tried: int
    lost: tuple[str, ...]
    seconds: tuple[float, ...]

    @property
    def json(self) -> dict[str, object]:
        """As the last line of the program has it: the share that ended in time has a Clopper-Pearson interval."""
        low, high = clopper_pearson(self.tried - len(self.lost), self.tried)
        return {
            "tried": self.tried,
            "lost": len(self.lost),
            "low": round(low, 4),
            "high": round(high, 4),
            "longest": max((round(took, 2) for took in self.seconds if took <= PATIENCE), default=None),
        }


def stop_often(times: int, place: Path, seed: int, tell: Callable[[str], None]) -> Stops:
    """Start servers on a store of their own and send each SIGTERM at a random moment.

    Every second one is told while it starts, the others after their first page.
    """
    draw = random.Random(seed)
    _, starting = _stopped(place, 0.0, shown=True)
    lost, seconds = list[str](), list[float]()
    for number in range(1, times + 1):
        shown = number % 2 == 0
        wait = draw.uniform(0.0, AFTER if shown else starting)
        took, began = _stopped(place, wait, shown)
        starting = began if shown else starting
        seconds.append(took)
        said = f"{number}: told to end {wait:.2f} s after its {'first page' if shown else 'start'}, took {took:.2f} s"
        tell(said)
        if took > PATIENCE:
            lost.append(said)
    return Stops(times, tuple(lost), tuple(seconds))


def _stopped(place: Path, wait: float, shown: bool) -> tuple[float, float]:
    """Seconds that a server takes to end, and to show its first page where that is waited for."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "COFT_DATABASE_URL": f"sqlite:///{place / 'audits.sqlite3'}"}
    command = [sys.executable, "-m", "app", "serve", "--port", str(port)]
    begun = time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        if shown:
            _see(f"http://127.0.0.1:{port}/", server)
        began = time.perf_counter() - begun
        time.sleep(wait)
        told = time.perf_counter()
        server.terminate()
        try:
            server.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            server.kill()
            return float("inf"), began
        return time.perf_counter() - told, began


def _see(address: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until a page is there."""
    while True:
        try:
            with urllib.request.urlopen(address) as page:
                page.read()
            return
        except OSError:
            if server.poll() is not None:
                raise RuntimeError(f"The server ended with code {server.returncode} before its first page.") from None
            time.sleep(0.02)
