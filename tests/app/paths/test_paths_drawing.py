"""The picture of a tree: heights are shares, branches do not overlap, and nothing is left out unsaid."""

import itertools
from datetime import UTC, datetime

import pytest

from app.paths.drawing import LEAST_HEIGHT, MOST_COLUMNS, cells_of
from app.paths.runs import analysis_of
from app.paths.types import PathsRequest, PathsView, World, WorldPaths
from app.shared.audits import AuditSettings
from coft_core.paths.sample import Path

WORDS = {1: " he", 2: " she", 3: " left", 4: " ran", 5: " slept", 6: " today"}


def path(seed, tokens):
    words = tuple(WORDS.get(token, f" w{token}") for token in tokens)
    return Path(seed, tokens, words, "".join(words), "length", ("none",) * len(tokens))


def run_of(*worlds):
    """A run of worlds, each given by its paths' tokens."""
    kept = tuple(
        WorldPaths(
            World(name, name, "Then", (), AuditSettings()), "uncertified", (), tuple(map(path, range(100), paths)), ()
        )
        for name, paths in worlds
    )
    return PathsView(1, "Then", "done", datetime(2026, 1, 1, tzinfo=UTC), PathsRequest("Then"), kept)


TYPED = [(1, 3, 6)] * 40 + [(2, 4, 6)] * 10
MASKED = [(1, 3, 6)] * 10 + [(2, 4, 6)] * 38 + [(7, 5)] * 2


@pytest.fixture
def view():
    return run_of(("as typed", TYPED), ("masked", MASKED))


def test_heights_are_mean_shares_and_tokens_that_every_path_goes_along_are_one_cell(view):
    analysis = analysis_of(view)
    cells = cells_of(analysis, [0, 1])
    for cell in cells:
        if cell.node is not None:
            assert cell.height == pytest.approx(sum(analysis.shares(cell.node)) / 2)
    first = [cell for cell in cells if cell.column == 1]
    assert sum(cell.height for cell in first) == pytest.approx(1.0)
    for before, after in itertools.pairwise(first):
        assert after.top == pytest.approx(before.top + before.height)
    assert [cell.text for cell in first if cell.node is not None] == [" he left today", " she ran today"]


def test_small_branches_are_summed_up_and_no_cell_is_too_low_or_beyond_the_last_column():
    view = run_of(("as typed", [(1, 3)] * 97 + [(7,), (8,), (9,)]))
    rest = [cell for cell in cells_of(analysis_of(view), [0]) if cell.node is None]
    assert [(cell.others, cell.height) for cell in rest] == [(3, pytest.approx(0.03))]
    view = run_of(("as typed", [(1,) * depth + (2,) for depth in range(12) for _ in range(8)]))
    cells = cells_of(analysis_of(view), [0])
    assert all(cell.height >= LEAST_HEIGHT for cell in cells if cell.node is not None)
    assert max(cell.column for cell in cells) == MOST_COLUMNS
