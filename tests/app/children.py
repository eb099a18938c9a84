"""Child processes that are forked from the test process, so that they need no imports."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import TextIO


@dataclass(frozen=True)
class Child:
    """A process with what it reads and writes."""

    process: BaseProcess
    stdin: TextIO
    stdout: TextIO


@contextmanager
def child(work: Callable[[], object]) -> Iterator[Child]:
    """A process that does something, with the streams of this one's ends; it is killed where it has not ended."""
    (asked, asking), (heard, saying) = os.pipe(), os.pipe()

    def working() -> None:
        # What the copy does not use must stay open: to close a copied store would end it for its owner.
        gc.freeze()
        os.close(asking)
        os.close(heard)
        sys.stdin, sys.stdout = os.fdopen(asked), os.fdopen(saying, "w", buffering=1)
        work()
        sys.stdout.flush()

    process = multiprocessing.get_context("fork").Process(target=working)
    process.start()
    os.close(asked)
    os.close(saying)
    with os.fdopen(asking, "w", buffering=1) as stdin, os.fdopen(heard) as stdout:
        try:
            yield Child(process, stdin, stdout)
        finally:
            process.kill()
            process.join()
