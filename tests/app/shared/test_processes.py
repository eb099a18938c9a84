"""A process is gone once it has ended, and never because its number or its computer is another one's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from app.shared.processes import JobProcess


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits until it is told something."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_a_process_comes_back_as_it_was_kept() -> None:
    process = JobProcess.of(os.getpid())
    assert JobProcess.read(process.json) == process
    assert JobProcess.read(None) is None
    assert (process.own, process.visible, process.gone) == (True, True, False)


def test_a_process_is_gone_as_soon_as_it_is_killed(waiting: subprocess.Popen[bytes]) -> None:
    process = JobProcess.of(waiting.pid)
    assert (process.own, process.visible, process.gone) == (False, True, False)
    waiting.kill()
    os.waitid(os.P_PID, waiting.pid, os.WEXITED | os.WNOWAIT)
    assert process.gone, "it has ended, though nobody asked how"
    waiting.wait()
    assert process.gone


def test_another_process_with_the_same_number_is_another_one() -> None:
    assert replace(JobProcess.of(os.getpid()), born=-3600.0).gone


def test_nothing_is_known_of_a_process_of_another_computer() -> None:
    process = replace(JobProcess.of(os.getpid()), machine="another one", number=2**22)
    assert (process.own, process.visible, process.gone) == (False, False, False)
