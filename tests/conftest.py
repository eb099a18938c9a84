"""Fixtures that many tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.bootstrap import Services, services
from app.settings import Settings
from coft_core.engine.fake import tiny_model
from coft_core.engine.model import LanguageModel
from coft_core.fingerprint import Fingerprint

TOY_FINGERPRINT = Fingerprint(
    model="toy",
    revision="main",
    weights="w1",
    tokenizer="t1",
    dtype="float32",
    chat_template="none",
    lam=0.6,
    temperature=1.0,
    top_p=0.9,
    top_k=0,
    mask_mode="hard",
    sentinel="<mask>",
    detector="lexicon 1",
    estimator="hierarchical",
    source="reference",
)
"""A complete fingerprint of nothing in particular."""


def load_tiny(name: str, **_: object) -> LanguageModel:
    """A loader that gives the same tiny model whatever the name."""
    return tiny_model()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(database_url=f"sqlite:///{tmp_path / 'audits.sqlite3'}", pipeline="none")


@pytest.fixture
def wired(settings: Settings) -> Iterator[Services]:
    """All services on a tiny random model and a store of their own."""
    with services(settings, loader=load_tiny) as opened:
        yield opened


def prompt_set_csv(rows: int = 40) -> str:
    """A well-formed prompt set."""
    lines = ["prompt,reference,group"]
    lines += [f"He said number {i} to the nurse,and she wrote {i} down,{i // 2}" for i in range(rows)]
    return "\n".join(lines) + "\n"
