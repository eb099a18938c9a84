"""The wheel: its size, and the seconds from the start of the installed program to its first page.

    python -m bench.package --runs 20

The wheel is installed into a folder of its own, beside the packages of this environment. The last line is JSON.
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
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from scipy.stats import bootstrap

ROOT = Path(__file__).resolve().parents[1]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def built(folder: Path) -> Path:
    """The wheel of this checkout."""
    subprocess.run(
        [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)], check=True
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def first_page(installed: Path, folder: Path) -> float:
    """Seconds until the first page of a program that was just started has come whole."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": str(installed), "COFT_PORT": str(port)}
    environment["COFT_DATABASE_URL"] = f"sqlite:///{folder}/{port}.sqlite3"
    began = time.perf_counter()
    server = subprocess.Popen(
        [str(installed / "bin/coft-audit")],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/", follow_redirects=True, trust_env=False).raise_for_status()
                return time.perf_counter() - began
            except httpx.HTTPError:
                if server.poll() is not None:
                    raise
                time.sleep(0.05)
    finally:
        server.terminate()
        server.wait(60)


def measured(runs: int) -> dict[str, Any]:
    """The sizes and the times."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        wheel, installed = built(folder), folder / "installed"
        subprocess.run([*PIP, "install", "--no-deps", "--target", str(installed), str(wheel)], check=True)
        first_page(installed, folder)  # Python keeps what it compiles.
        seconds = [first_page(installed, folder) for _ in range(runs)]
        ends = bootstrap((seconds,), np.median, method="percentile", rng=0).confidence_interval
        return {
            "wheel_bytes": wheel.stat().st_size,
            "installed_bytes": sum(path.stat().st_size for path in installed.rglob("*") if path.suffix != ".pyc"),
            "n": runs,
            "median_seconds": float(np.median(seconds)),
            "interval": [float(ends.low), float(ends.high)],
        }


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    print(json.dumps(measured(parser.parse_args().runs)))


if __name__ == "__main__":
    main()
