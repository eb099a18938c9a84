"""The picture of a tree: heights are shares, branches do not overlap, and nothing is left out unsaid."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from app.paths.drawing import LEAST_HEIGHT, MOST_COLUMNS, cells_of
from app.paths.runs import analysis_of
from app.paths.sentences import points, result_sentences
from app.paths.types import PathsRequest, PathsView, World, WorldPaths
from app.paths.words import beginning_html, path_thresholds, result_html, tree_html
from app.shared.audits import AuditSettings
from coft_core.paths.sample import Path

WORDS = {1: " he", 2: " she", 3: " left", 4: " ran", 5: " slept", 6: " today"}


def path(seed, *tokens, marks=()):
    words = tuple(WORDS.get(token, f" w{token}") for token in tokens)
    return Path(seed, tokens, words, "".join(words), "length", marks or ("none",) * len(tokens))


def run_of(*worlds, outcomes=None):
    """A run of worlds, each given by its paths' tokens."""
    kept = tuple(
        WorldPaths(
            World(name, name, "Then", (), AuditSettings()),
            "uncertified",
            (),
            tuple(path(number, *tokens) for number, tokens in enumerate(paths)),
            () if outcomes is None else outcomes[place],
        )
        for place, (name, paths) in enumerate(worlds)
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


def test_the_beginning_where_worlds_part_is_marked_and_said(view):
    analysis = analysis_of(view)
    (root, *others) = cells_of(analysis, [0, 1])
    assert root.parting is not None
    assert not any(cell.parting for cell in others)
    (sentence,) = result_sentences(analysis)
    assert sentence.startswith("“as typed” and “masked” part at the first token: total variation 0.60 [")
    assert "“masked” parts here, total variation 0.60" in tree_html(analysis)


def test_a_beginnings_paths_are_listed_by_world_with_what_opens_them(view):
    analysis = analysis_of(view)
    node = next(cell.node for cell in cells_of(analysis, [0, 1]) if cell.text == " she ran today")
    shown = str(beginning_html(analysis, node))
    assert analysis.beginning(node) == " she ran today"
    assert 'data-id="40"' in shown
    assert "path 41 of as typed" in shown
    assert 'data-id="100010"' in shown
    assert "26 more; the table of paths has all." in shown


def test_texts_of_models_are_shown_as_text():
    view = run_of(("<b>", [(1,)] * 3))
    assert "<b>" not in str(result_html(analysis_of(view)))


def test_what_the_thresholds_of_a_path_did_is_said_in_words():
    for marks, said in (
        (("held", "held"), "thresholds held at every step"),
        (("held", "borrowed"), "thresholds held at every step, 1 of them borrowed"),
        (("missed", "weak"), "thresholds missed at 1 step and too weak to say anything at 1 step"),
        (("none", "none"), ""),
    ):
        assert path_thresholds(path(0, 1, 2, marks=marks)) == said


def test_points_have_a_true_minus_and_a_small_difference_never_reads_as_none():
    assert [points(value) for value in (0.214, -0.05, -0.002, -0.0001)] == ["21", "−5", "−0.2", "0"]


def test_the_end_of_a_text_is_said_in_words():
    ended = replace(path(0, 1, 9), finished="end")
    view = run_of(("as typed", [(1, 3)] * 2))
    world = replace(view.worlds[0], paths=(*view.worlds[0].paths, ended))
    analysis = analysis_of(replace(view, worlds=(world,)))
    assert sorted(analysis.beginning(node) for node in range(1, 4)) == [" he", " he (end)", " he left"]
