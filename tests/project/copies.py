"""Copies of the program, in which features come and go, and programs that try the rest of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LARGE = ("models", "pipelines", "scorer")
"""Folders of assets that are only read."""

SERVE = """
import functools, json, sys, urllib.request
import app.shared.planning as planning
from app.bootstrap import services
from app.audit.service import AuditService
from app.server import build_app, launch_options
from app.settings import Settings
from app.shared.audits import AuditSettings, StartAudit
from coft_core.model.fake import tiny_model
from coft_core.text.lexicon import Lexicons
from coft_core.types import Span

# The spans are given, and to compile the shipped lexicons takes longer than to ask for every page.
planning.SpanDetector = functools.partial(planning.SpanDetector, Lexicons(()))
settings = Settings(database_url=f"sqlite:///{sys.argv[1]}", pipeline="none")
with services(settings, owns_store=True, loader=lambda name, **_: tiny_model()) as wired:
    request = StartAudit("he said", AuditSettings(model="tiny", max_new_tokens=2), (Span(0, 2, "gender"),))
    session = wired[AuditService].start(request).session_id
    steps = len(list(wired[AuditService].run(session)))
    app = build_app(wired)
    _, url, _ = app.launch(prevent_thread_lock=True, quiet=True, server_name="127.0.0.1", **launch_options(wired))
    pages = {page.path: urllib.request.urlopen(url + page.path).read().decode() for page in wired.pages}
    endpoints = sorted(app.get_api_info()["named_endpoints"])
    app.close(verbose=False)
print(json.dumps({"steps": steps, "pages": pages, "endpoints": endpoints}))
"""


def copy_of_the_program(folder: Path) -> Path:
    """The product's own files, with what Python has compiled of them; large assets are links."""
    for name in ("app", "coft_core", "db"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copytree(ROOT / "assets", folder / "assets", ignore=shutil.ignore_patterns(*LARGE))
    for name in LARGE:
        (folder / "assets" / name).symlink_to(ROOT / "assets" / name)
    return folder


def run(folder: Path, *words: str) -> str:
    """What a Python program says that runs in a copy."""
    environment = {**os.environ, "COFT_DATABASE_URL": f"sqlite:///{folder / 'store.sqlite3'}", "PYTHONPATH": ""}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def serve(folder: Path) -> dict[str, Any]:
    """Make an audit of two steps, and ask for every page: the steps, pages by address, and names of endpoints."""
    answer: dict[str, Any] = json.loads(run(folder, "-c", SERVE, str(folder / "store.sqlite3")).splitlines()[-1])
    return answer
