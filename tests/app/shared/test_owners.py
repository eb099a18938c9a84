"""A process is gone once it has ended, and never because its number or its computer is another one's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from app.shared.owners import Owner


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits until it is told something."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_an_owner_comes_back_as_it_was_kept() -> None:
    owner = Owner.of(os.getpid())
    assert Owner.read(owner.json) == owner
    assert Owner.read(None) is None
    assert (owner.own, owner.visible, owner.gone) == (True, True, False)


def test_a_process_is_gone_as_soon_as_it_is_killed(waiting: subprocess.Popen[bytes]) -> None:
    owner = Owner.of(waiting.pid)
    assert (owner.own, owner.visible, owner.gone) == (False, True, False)
    waiting.kill()
    os.waitid(os.P_PID, waiting.pid, os.WEXITED | os.WNOWAIT)
    assert owner.gone, "it has ended, though nobody asked how"
    waiting.wait()
    assert owner.gone


def test_another_process_with_the_same_number_is_not_the_owner() -> None:
    assert replace(Owner.of(os.getpid()), born=-3600.0).gone


def test_nothing_is_known_of_a_process_of_another_computer() -> None:
    owner = replace(Owner.of(os.getpid()), machine="another one", process=2**22)
    assert (owner.own, owner.visible, owner.gone) == (False, False, False)
