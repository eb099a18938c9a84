"""Kills at random moments, a full disk, a torn file and damaged weights lose nothing; the bench tries that often."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("times", [4])
def test_a_few_kills_a_full_disk_a_torn_file_and_damaged_weights_lose_nothing(times):
    # In a process of its own: its children are copies of it, and must have no threads of other tests.
    only = "runs,full disk,torn file,damaged weights"
    command = [sys.executable, "-m", "bench.faults", "--kills", str(times), "--times", str(times), "--only", only]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    for fault in ("full disk", "damaged weights"):
        assert f'"{fault}": {{"tried": {times}, "told": {times}, "lost": 0}}' in done.stdout
