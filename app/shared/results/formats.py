"""The formats in which results leave the program for other programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from app.shared.errors import ServiceError
from app.shared.files import write_bytes
from app.shared.results.every_eval_ever import every_eval_ever_json
from app.shared.results.hub import eval_results_yaml, model_card
from app.shared.results.inspect_file import inspect_results
from app.shared.results.lm_eval import lm_eval_json
from app.shared.results.publication import Publication
from app.shared.results.record import Results
from coft_core.step_numbers import finite

SharedFormat = Literal["lm-eval", "every-eval-ever", "hub", "card", "inspect", "signed"]


class Shared(NamedTuple):
    """A format: how its files end, and its name on pages."""

    suffix: str
    title: str


SHARED: Mapping[SharedFormat, Shared] = {
    "lm-eval": Shared("-lm-eval.json", "lm-eval JSON"),
    "every-eval-ever": Shared("-every-eval-ever.json", "Every Eval Ever JSON"),
    "hub": Shared("-eval-results.yaml", "Hub result (YAML)"),
    "card": Shared("-card.md", "Model card section"),
    "inspect": Shared(".eval", "Inspect log"),
    "signed": Shared("-signed.zip", "Signed results (zip)"),
}
BINARY = ("inspect", "signed")
"""Formats that are not text."""
SIGNED = ("signed", "hub", "card")
"""Formats that are signed, or name the digest of what is."""
WITH_SAMPLES = ("inspect", *SIGNED)
"""Formats that hold every item, or name the digest of a file that does."""


def shared_text(results: Results, form: SharedFormat, told: Publication, version: str, digest: str) -> bytes:
    """A file's content; ``digest`` is that of the signed results."""
    if form == "inspect":
        return inspect_results(results)
    if form == "lm-eval":
        text = _json(lm_eval_json(results))
    elif form == "every-eval-ever":
        text = _json(every_eval_ever_json(results, told, version, datetime.now(UTC)))
    else:
        text = (eval_results_yaml if form == "hub" else model_card)(results, told, digest)
    return text.encode("utf-8", "replace")


def deliver(content: bytes, stem: str, form: SharedFormat, out: Path | None, folder: Path | None) -> Path | None:
    """Write a file where it is asked for: as ``out``, into a folder by its own name, or to standard output."""
    if out is None and folder is None:
        if form in BINARY:
            raise ServiceError(f"The format {form} is written to a file; name it with --out.")
        sys.stdout.write(content.decode("utf-8"))
        return None
    return write_bytes(out or (folder or Path()) / f"{stem}{SHARED[form].suffix}", content)


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(finite(content), ensure_ascii=False, allow_nan=False, indent=2) + "\n"
