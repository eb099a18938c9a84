"""Nothing that others rely on changes unnoticed: files, stores, endpoints, commands and settings are as they were kept.

A change that is meant is kept by ``python -m tests.contracts.freeze`` and shows in the difference of ``seen``.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

from app.report.service import ReportService
from db.database import Database
from db.sessions import SessionsRepository
from db.verdicts import AnnotationsRepository
from tests.contracts.frozen import BUNDLE, SEEN, STORES, opened, restored, verified, written

NEWEST = max(STORES.glob("*.gz"))
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)(?![\w.])")
"""A number that is not whole; whole ones are compared as text."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return restored(NEWEST, tmp_path_factory.mktemp("contracts") / "kept.db")


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


@pytest.mark.parametrize("path", sorted(STORES.glob("*.gz")), ids=lambda path: path.name[:4])
def test_the_store_of_every_earlier_version_opens_with_its_chains_and_verdicts(path: Path, tmp_path: Path) -> None:
    with (
        Database(restored(NEWEST, tmp_path / "newest.db")) as newest,
        Database(restored(path, tmp_path / "earlier.db")) as earlier,
    ):
        for branch in SessionsRepository(newest).branches(1):
            chains = [SessionsRepository(own).chain(branch.id) for own in (newest, earlier)]
            assert chains[0]
            for name in ("index", "token_id", "token", "log_p_factual", "log_p_masked", "log_p_fused", "forced"):
                assert len({tuple(getattr(step, name) for step in chain) for chain in chains}) == 1, name
        logs = [AnnotationsRepository(own).history(1) for own in (newest, earlier)]
        assert [[(entry.verdict, entry.note) for entry in log] for log in logs] == [[("unfair", "why")]] * 2


def test_sessions_of_earlier_versions_are_exported(tmp_path: Path) -> None:
    # The store itself of every version is opened above.
    for path in sorted(STORES.glob("*.gz"))[::6]:
        with opened(restored(path, tmp_path / f"{path.name[:4]}.db")) as wired:
            for kind in ("csv", "json", "html", "zip", "bundle"):
                assert wired[ReportService].content(1, kind), (path.name, kind)


def test_the_kept_evidence_still_verifies() -> None:
    found = verified()
    assert BUNDLE.exists()
    # It is signed by a key of its own, which no other server knows.
    assert found.pop("Signature") == "unknown"
    assert set(found.values()) <= {"passed", "skipped"}, found
