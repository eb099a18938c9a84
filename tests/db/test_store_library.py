"""The library of sessions: what is asked for is found, and ordering a session changes nothing that it says."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import event

from coft_core.types import Example
from db.audits import BatchPlace
from db.batches import BatchesRepository
from db.library import BatchFoldRecord, SessionFilter
from db.prompt_sets import PromptRow, PromptSetsRepository
from db.types import ConflictError, NotFoundError
from db.verdicts import AnnotationFields
from tests.db.conftest import new_session, new_step


@pytest.fixture
def three(sessions):
    return [
        sessions.create(new_session(name="Night shift", prompt="The nurse said he", policy="coft", model="demo")),
        sessions.create(
            new_session(
                name="élan", prompt="100% sure_thing", policy="vanilla", certificate="uncertified: vanilla decoding"
            )
        ),
        sessions.create(
            new_session(name="bold", prompt="A", model="big", certificate="uncertified: policy mismatch (lam)")
        ),
    ]


def found(library, **wanted):
    return [entry.id for entry in library.search(SessionFilter(**wanted), "created", descending=False)]


def test_every_filter_finds_what_it_names_and_nothing_else(library, annotations, three):
    first, second, third = (record.id for record in three)
    library.add_tag([second], "Urgent")
    annotations.add(AnnotationFields(session_id=third, note="reads odd", verdict="unfair"))
    assert found(library) == [first, second, third]
    assert found(library, text=" NURSE ") == [first]
    assert found(library, text="ÉLAN") == [second]
    assert found(library, text="%") == [second]
    assert found(library, text="e_t") == [second]
    assert found(library, text="urgent") == [second]
    assert found(library, text="odd") == [third]
    assert found(library, policy="vanilla") == [second]
    assert found(library, model="big") == [third]
    assert found(library, certificate="certified") == [first]
    assert found(library, certificate="mismatch") == [third]
    assert found(library, certificate="uncertified") == [second, third]
    assert found(library, tag="URGENT") == [second]
    assert found(library, judged=True) == [third]
    assert found(library, judged=False) == [first, second]
    assert found(library, text="reads", policy="vanilla") == []
    moment = library.entries([third])[0].updated_at
    assert found(library, since=moment) == [third]
    assert found(library, before=moment) == [first, second]
    assert found(library, before=moment + timedelta(microseconds=1)) == [first, second, third]
    assert library.ids(SessionFilter(certificate="uncertified")) == [second, third]


def test_a_withdrawn_verdict_does_not_stand_and_each_target_counts_once(library, sessions, annotations, three):
    session, other = three[0], three[1]
    sessions.append_step(session.active_branch_id, new_step(0))
    target = AnnotationFields(
        session_id=session.id, branch_id=session.active_branch_id, step_index=0, last_step_index=0, verdict="fair"
    )
    annotations.add(replace(target, reviewer="A"))
    annotations.add(replace(target, reviewer="B", verdict="unfair"))
    annotations.add(replace(target, reviewer="C", verdict="unfair", kind="adjudication"))
    annotations.add(AnnotationFields(session_id=session.id, verdict="unclear"))
    annotations.add(AnnotationFields(session_id=other.id, reviewer="A", verdict="fair"))
    annotations.add(AnnotationFields(session_id=other.id, reviewer="A", verdict=None))
    annotations.add(AnnotationFields(session_id=other.id, kind="review_finished"))
    counts = {entry.id: entry.verdict_count for entry in library.search(SessionFilter())}
    assert counts == {session.id: 2, other.id: 0, three[2].id: 0}
    assert found(library, judged=True) == [session.id]
    annotations.add(AnnotationFields(session_id=other.id, reviewer="B", verdict="fair"))
    assert found(library, judged=True) == [session.id, other.id]


def test_each_session_counts_the_tokens_of_its_own_branches_alone(library, sessions, three):
    first, second, _ = (record.active_branch_id for record in three)
    sessions.append_step(first, new_step(0, log_ratio=0.5))
    fork = sessions.add_branch(three[0].id, first, 1, "0/1:417").id
    sessions.append_step(fork, new_step(1, certified=False, log_ratio=-2.5))
    sessions.append_step(second, new_step(0, state="uninformative", log_ratio=4.0))
    counted = {
        entry.id: (entry.held_count, entry.missed_count, entry.weak_count, entry.strongest)
        for entry in library.search(SessionFilter(), "strongest")
    }
    assert counted == {three[1].id: (0, 0, 1, 4.0), three[0].id: (1, 1, 0, 2.5), three[2].id: (0, 0, 0, None)}
    assert list(counted) == [three[1].id, three[0].id, three[2].id]


def test_a_batch_is_one_row_where_its_first_session_stands_and_counts_what_is_wanted_of_it(database, library, sessions):
    prompts = PromptSetsRepository(database).add(
        "set", "set.csv", "d", [PromptRow(n, Example(f"p{n}")) for n in (2, 3)]
    )
    batch = BatchesRepository(database).add("Spring", prompts.id, {}, [2, 3]).id
    first = sessions.create(new_session(name="a", prompt="The nurse", batch=BatchPlace(batch, 2)))
    sessions.create(new_session(name="b", prompt="The cook", certificate="uncertified: vanilla decoding"))
    last = sessions.create(new_session(name="c", prompt="The cook", batch=BatchPlace(batch, 3)))
    sessions.append_step(first.active_branch_id, new_step(0, log_ratio=0.2))
    sessions.append_step(last.active_branch_id, new_step(0, log_ratio=-1.5, certified=False))

    def rows(**asked):
        found = library.folded(SessionFilter(), **asked)
        return [row.name for row in found if isinstance(row, BatchFoldRecord) or row.batch_id is None]

    assert rows(order="created", descending=False) == ["Spring", "b"]
    assert rows(order="name", descending=False) == ["Spring", "b"]
    assert rows(order="name", descending=True) == ["Spring", "b"]
    assert rows(order="created", limit=1, offset=1) == ["b"]
    assert (library.folded_count(SessionFilter()), library.count(SessionFilter())) == (2, 3)
    (fold,) = library.folded(SessionFilter(batch_id=batch), sensitive=1.0)
    counts = (fold.session_count, fold.sensitive_count, fold.uncertified_count, fold.held_count, fold.missed_count)
    assert (*counts, fold.step_count, fold.strongest) == (2, 1, 0, 1, 1, 2, 1.5)
    (part,) = library.folded(SessionFilter(text="nurse"), sensitive=1.0)
    assert (part.session_count, part.sensitive_count, part.strongest) == (1, 0, 0.2)


def test_pages_follow_each_other_in_the_order_that_was_asked_for(library, sessions, three):
    for index in range(2):
        sessions.append_step(three[1].active_branch_id, new_step(index))

    def names(order, descending):
        pages = [library.search(SessionFilter(), order, descending, limit=2, offset=at) for at in (0, 2)]
        assert [len(page) for page in pages] == [2, 1]
        return [entry.name for page in pages for entry in page]

    assert names("name", False) == ["bold", "Night shift", "élan"]
    assert names("updated", True)[0] == "élan"
    assert names("steps", True)[0] == "élan"
    assert names("created", True) == ["bold", "élan", "Night shift"]
    assert names("prompt", False)[0] == "élan"


def test_tags_keep_their_first_spelling_and_are_counted(library, three):
    ids = [record.id for record in three]
    assert library.add_tag(ids[:1], "Urgent") == 1
    assert library.add_tag(ids[:2], "urgent") == 1
    library.add_tag(ids[:1], "alpha")
    assert [entry.tags for entry in library.entries(ids)] == [("alpha", "Urgent"), ("Urgent",), ()]
    assert library.choices().tags == (("alpha", 1), ("Urgent", 2))
    assert library.choices().policies == (("coft", 2), ("vanilla", 1))
    assert library.remove_tag(ids, "URGENT") == 2
    assert library.remove_tag(ids, "URGENT") == 0
    with pytest.raises(ConflictError):
        library.add_tag([999], "x")


def test_archived_sessions_are_out_of_the_way_and_unchanged(library, sessions, three):
    ids = [record.id for record in three]
    assert library.set_archived([*ids[:2], 999], True) == 2
    assert library.set_archived(ids[:1], True) == 0
    assert found(library) == ids[2:]
    assert found(library, archived=True) == ids[:2]
    assert found(library, archived=None) == ids
    assert sessions.get(ids[0]) == three[0]
    assert library.set_archived(ids, False) == 2
    assert found(library) == ids


@pytest.fixture
def tree(sessions):
    """A root of three steps, a fork of it with one step, a fork of that fork, and a second fork of the root."""
    session = sessions.create(new_session(), root_name="main")
    root = session.active_branch_id
    for index in range(3):
        sessions.append_step(root, new_step(index))
    fork = sessions.add_branch(session.id, root, 1, "0/1:5", "he")
    sessions.append_step(fork.id, new_step(1))
    inner = sessions.add_branch(session.id, fork.id, 2, "0/1:5/2:6", "she")
    sessions.append_step(inner.id, new_step(2))
    sessions.append_step(inner.id, new_step(3))
    other = sessions.add_branch(session.id, root, 2, "0/2:7", "they")
    return session, [root, fork.id, inner.id, other.id]


def test_pruning_takes_the_descendants_along_and_leaves_the_rest(library, sessions, tree):
    session, (root, fork, inner, other) = tree
    sessions.set_active_branch(session.id, inner)
    before = sessions.chain(root)
    extent = library.extent(session.id, fork)
    assert (extent.branch_ids, extent.names, extent.steps, extent.verdicts) == ((fork, inner), ("he", "she"), 3, 0)
    assert library.prune(session.id, fork) == extent
    assert [branch.id for branch in sessions.branches(session.id)] == [root, other]
    assert sessions.get(session.id).active_branch_id == root
    assert sessions.chain(root) == before
    with pytest.raises(NotFoundError):
        sessions.branch(inner)


def test_outlines_tell_length_and_departing_token_of_every_branch_whatever_its_name(library, sessions, tree):
    session, (root, fork, inner, other) = tree
    library.rename_branch(session.id, fork, "as a man")
    found = sessions.outlines(session.id)
    assert [(own.id, own.length, own.token) for own in found] == [
        (root, 3, None), (fork, 2, " token1"), (inner, 4, " token2"), (other, 2, found[-1].name),
    ]  # fmt: skip
    assert all(own.length == len(sessions.chain(own.id)) for own in found)


def test_pruning_a_branch_that_is_not_shown_keeps_the_shown_one(library, sessions, tree):
    session, (_, fork, inner, other) = tree
    sessions.set_active_branch(session.id, other)
    library.prune(session.id, inner)
    assert sessions.get(session.id).active_branch_id == other
    assert [branch.id for branch in sessions.branches(session.id)] == [tree[1][0], fork, other]


def test_a_branch_that_the_verdict_log_speaks_of_stays(library, sessions, annotations, tree):
    session, (root, fork, inner, other) = tree
    annotations.add(AnnotationFields(session_id=session.id, branch_id=inner, verdict="fair"))
    assert library.extent(session.id, fork).verdicts == 1
    with pytest.raises(ConflictError, match="append-only"):
        library.prune(session.id, fork)
    assert len(sessions.branches(session.id)) == 4
    library.prune(session.id, other)
    with pytest.raises(ConflictError, match="main branch"):
        library.prune(session.id, root)


def test_branches_are_renamed_within_their_own_session(library, sessions, tree):
    session, (_, fork, *_) = tree
    assert library.rename_branch(session.id, fork, "a man").name == "a man"
    assert sessions.branch(fork).name == "a man"
    stranger = sessions.create(new_session())
    for act in (lambda: library.rename_branch(stranger.id, fork, "x"), lambda: library.prune(stranger.id, fork)):
        with pytest.raises(ConflictError, match="not a branch"):
            act()


def test_sorting_by_the_strongest_token_reads_no_whole_row_of_a_step(database, library, three):
    if database.engine.dialect.name != "sqlite":
        pytest.skip("PostgreSQL plans by what it knows of the rows, of which there are too few here")
    asked = []
    event.listen(database.engine, "before_cursor_execute", lambda *told: asked.append(told[2:4]))
    library.folded(SessionFilter(), "strongest", limit=0)
    sorting, values = next(one for one in asked if "row_number" in one[0].lower())
    with database.reading() as connection:
        plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sorting}", values)]
    assert {line for line in plan if " steps " in line} == {
        "SEARCH steps USING COVERING INDEX ix_steps_branch_id_log_ratio_state_certified (branch_id=?)"
    }
