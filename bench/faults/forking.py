"""Work in a child of a process that has imported and loaded everything, so that a hundred kills take minutes."""

from __future__ import annotations

import functools
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch

import app.shared.planning as planning
from app.audit.service import AuditService
from app.bootstrap import services
from app.settings import Settings
from app.shared.audits import AuditSettings, StartAudit
from app.shared.wiring import Services
from coft_core.model.fake import tiny_model
from coft_core.model.language_model import LanguageModel
from coft_core.types import Span

STORE = "audits.sqlite3"
Say = Callable[[str], None]
Work = Callable[[Path, Say], None]
"""What a child does in a folder; what it says is what its user has been shown."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended."""

    said: tuple[str, ...]
    killed: bool
    failed: bool
    seconds: float


@functools.cache
def model() -> LanguageModel:
    """The model that all children share, loaded in their parent."""
    return tiny_model()


def warm() -> None:
    """Load what takes long before the first child is made.

    One thread computes: a child has no other thread of its parent, and would wait for those that it had.
    """
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    planning.SpanDetector = functools.cache(planning.SpanDetector)  # type: ignore[misc, assignment]
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as wired:
        audits = wired[AuditService]
        settings = AuditSettings(model="tiny", max_new_tokens=2, top_p=1.0)
        list(audits.run(audits.start(StartAudit("He said", settings, (Span(0, 2, "gender"),))).session_id))


def opened(
    folder: Path, owns_store: bool = True, loader: Callable[..., LanguageModel] = lambda name, **_: model()
) -> AbstractContextManager[Services]:
    """The services on the store of a folder, as a server that starts opens them."""
    settings = Settings(database_url=f"sqlite:///{folder / STORE}", pipeline="none")
    return services(settings, owns_store=owns_store, loader=loader)


def run(work: Work, folder: Path, patience: float | None = None) -> Ended:
    """Run work in a child, and kill it after so many seconds."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    begun = time.perf_counter()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _live(work, folder, writing)
    os.close(writing)
    if patience is not None:
        time.sleep(patience)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status)
    # The last line of a killed child may be cut: then nobody has read it.
    lines = said.split("\n")[:-1]
    return Ended(tuple(lines), killed, not killed and os.WEXITSTATUS(status) != 0, time.perf_counter() - begun)


def _live(work: Work, folder: Path, writing: int) -> None:
    code = 0
    try:
        work(folder, lambda line: _say(writing, line))
    except BaseException:
        _say(writing, "ERROR " + " | ".join(traceback.format_exc().strip().splitlines()[-2:]))
        code = 1
    finally:
        os._exit(code)


def _say(pipe: int, line: str) -> None:
    os.write(pipe, f"{line}\n".encode())
