"""Nothing that others rely on changes unnoticed: files, stores, endpoints, commands and settings are as they were kept.

A change that is meant is kept by ``python -m tests.contracts.freeze`` and shows in the difference of ``seen``.
"""

from __future__ import annotations

import difflib
import re

import pytest

from app.report.service import ReportService
from db.sessions import SessionsRepository
from db.verdicts import AnnotationsRepository
from tests.contracts.frozen import BUNDLE, SEEN, STORE, opened, restored, verified, written

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)(?![\w.])")
"""A number that is not whole; whole ones are compared as text."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return restored(STORE, tmp_path_factory.mktemp("contracts") / "kept.db")


@pytest.mark.parametrize("name", sorted(written("")))
def test_what_others_see_is_what_was_kept(name: str, store: str) -> None:
    kept, now = (SEEN / name).read_bytes().decode("utf-8"), written(store)[name]()
    changed = list(difflib.unified_diff(kept.splitlines(), now.splitlines(), "kept", "now", lineterm="", n=1))
    assert alike(kept, now), "\n".join(changed[:40])


def alike(kept: str, now: str) -> bool:
    """Whether texts are the same but for what another processor's arithmetic makes of their numbers."""
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in (kept, now)]
    return NUMBER.sub("", kept) == NUMBER.sub("", now) and numbers[0] == pytest.approx(numbers[1], rel=1e-9, abs=1e-12)


def test_only_what_rounding_changes_counts_as_alike() -> None:
    for other in ('{"p": 0.23456789012345675, "n": 12}', '{"p": 0.234567890123, "n": 12}'):
        assert alike('{"p": 0.23456789012345678, "n": 12}', other)
    for other in ('{"p": 0.23456788, "n": 12}', '{"p": 0.23456789012345678, "n": 13}', '{"q": 0.23456789012345678}'):
        assert not alike('{"p": 0.23456789012345678, "n": 12}', other)


def test_the_kept_store_opens_with_its_chains_and_verdicts_and_its_sessions_are_exported(store: str) -> None:
    with opened(store) as wired:
        for branch in wired[SessionsRepository].branches(1):
            assert wired[SessionsRepository].chain(branch.id)
        log = wired[AnnotationsRepository].history(1)
        assert [(entry.verdict, entry.note) for entry in log] == [("unfair", "why")]
        for kind in ("csv", "json", "html", "zip", "bundle"):
            assert wired[ReportService].content(1, kind), kind


def test_the_kept_evidence_still_verifies() -> None:
    found = verified()
    assert BUNDLE.exists()
    # It was written before bundles were signed.
    assert found.pop("Signature") == "unsigned"
    assert set(found.values()) <= {"passed", "skipped"}, found
