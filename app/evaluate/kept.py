"""Outcomes of evaluations as they were last read: tables, lists and exports ask for the same ones again and again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from app.evaluate.items import outcome_from
from app.shared.project_cache import ProjectCache
from coft_core.suites.base import Outcome
from db.evaluations import EvaluationsRepository

OUTCOMES_KEPT = 100_000
"""Outcomes that are kept in memory, of all evaluations together."""

SuiteContents = Mapping[str, tuple[Outcome, ...]]
"""Outcomes of a suite by method, those of a method by seed and then in the suite's order."""


class KeptOutcomes:
    """Reads outcomes from the store; those of a suite that nothing was added to are not read again."""

    def __init__(self, store: EvaluationsRepository, most: int = OUTCOMES_KEPT) -> None:
        """Nothing is read yet; at most ``most`` outcomes stay in memory."""
        self._store = store
        self._kept: ProjectCache[tuple[int, str, int], SuiteContents] = ProjectCache(most, _size)

    def of(self, evaluation_id: int, suite: str) -> SuiteContents:
        """The outcomes of a suite that are done; methods without one are left out."""
        key = evaluation_id, suite, self._store.done(evaluation_id, suite)
        return self._kept.once(key, lambda: self._read(evaluation_id, suite))

    def _read(self, evaluation_id: int, suite: str) -> SuiteContents:
        rows, contents = self._store.outcomes(evaluation_id, suite)
        # What seeds or methods have in common is read once.
        read = {key: outcome_from(content, 0) for key, content in contents.items()}
        found: dict[str, list[Outcome]] = {}
        for method, seed, key in rows:
            found.setdefault(method, []).append(replace(read[key], seed=seed) if seed else read[key])
        return {method: tuple(outcomes) for method, outcomes in found.items()}


def _size(contents: SuiteContents) -> int:
    return sum(map(len, contents.values()))
