"""Audit sessions: what is stored comes back, is found and listed, and is deleted whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import func, select

from coft_core.types import Span
from db.audits import SessionFields
from db.calibrations import CalibrationsRepository
from db.chains import StepSupport
from db.tables import METADATA
from db.types import ConflictError, NotFoundError
from db.verdicts import AnnotationFields, AnnotationsRepository
from tests.db.conftest import extend, new_calibration, new_session, new_step, statements


def row_counts(database):
    with database.reading() as session:
        return {
            name: session.scalars(select(func.count()).select_from(table)).one()
            for name, table in METADATA.tables.items()
        }


def test_a_session_comes_back_with_every_field(sessions):
    spans = (
        Span(29, 31, "gender", "lexicon", "pronouns", False),
        Span(4, 9, "other", "user", "", True),
        Span(10, 18, "family", "pipeline", "FAMILY", False, score=0.625, suggested=True),
    )
    fields = new_session()
    made = sessions.create(fields, spans, root_path="7")
    stored = sessions.get(made.id)
    assert stored == made
    for name in SessionFields.__dataclass_fields__:
        assert getattr(stored, name) == getattr(fields, name), name
    assert stored.spans == spans
    (root,) = sessions.branches(made.id)
    assert (root.id, root.path, root.parent_id, root.fork_step) == (stored.active_branch_id, "7", None, None)
    assert root.finished is None
    assert stored.created_at == stored.updated_at == root.created_at


def test_beginnings_are_the_first_steps_of_root_branches_oldest_first_in_one_query(database, sessions):
    calibrations = CalibrationsRepository(database)
    run, other = (calibrations.add(new_calibration(), (), b"v") for _ in range(2))
    settings = {"settings": {"group": "women", "whitelist": []}}
    made = [
        sessions.create(new_session(calibration_id=run.id, prompt="first")),
        sessions.create(new_session(calibration_id=run.id, greedy=False, alpha=0.3, policy_settings=settings)),
        sessions.create(new_session(calibration_id=other.id)),
        sessions.create(new_session(calibration_id=run.id, prompt="no step")),
    ]
    roots = [session.active_branch_id for session in made]
    # The newest steps of the oldest session come last: the order is that of the sessions.
    extend(sessions, roots[1], [new_step(i, log_p_fused=-0.25 / (i + 1)) for i in range(2)])
    extend(sessions, roots[0], [new_step(i, log_p_masked=-1.0 - i, forced=i == 1) for i in range(5)])
    extend(sessions, roots[2], [new_step(0)])
    fork = sessions.add_branch(made[0].id, roots[0], 1, "0/1:417")
    extend(sessions, fork.id, [new_step(1, token="forked")])
    with statements(database) as asked:
        first, second = sessions.beginnings(run.id, 3)
    assert sum(sql.lstrip().startswith("SELECT") for sql in asked) == 1
    assert first.steps == tuple(
        StepSupport(step.forced, step.log_p_masked, step.log_p_fused) for step in sessions.chain(roots[0])[:3]
    )
    assert [step.log_p_fused for step in second.steps] == [-0.25, -0.125]
    assert (first.session_id, first.prompt, first.alpha, first.greedy) == (made[0].id, "first", 0.1, True)
    assert (first.group, second.group, second.alpha, second.greedy) == (None, "women", 0.3, False)
    assert first.certificate == "certified"


def test_sessions_are_listed_last_changed_first_and_in_pages(sessions):
    made = [sessions.create(new_session(name=f"audit {i}")) for i in range(4)]
    sessions.append_step(made[1].active_branch_id, new_step(0))
    order = [made[i].id for i in (1, 3, 2, 0)]
    assert [item.id for item in sessions.list()] == order
    assert [item.id for item in sessions.list(limit=2, offset=1)] == order[1:3]
    summary = sessions.list()[0]
    assert (summary.name, summary.model, summary.policy, summary.steps) == ("audit 1", "demo", "coft", 1)
    assert summary.certificate == "certified"
    assert summary.updated_at > summary.created_at == made[1].created_at


def test_search_reads_name_prompt_and_model_literally_in_any_case(sessions):
    ids = {
        key: sessions.create(new_session(**fields)).id
        for key, fields in {
            "accent": {"name": "Élan vital"},
            "percent": {"prompt": "about 100% of the_nurses \\ doctors"},
            "model": {"model": "Qwen/Qwen2.5"},
            "nul": {"prompt": "a\x00b"},
        }.items()
    }

    def found(text):
        assert sessions.count(text) == len(sessions.list(text))
        return {item.id for item in sessions.list(text)}

    assert found("éLAN") == {ids["accent"]}
    assert found("100%") == found("the_n") == found(" \\ d") == {ids["percent"]}
    assert found("theXn") == found("1%0") == set()
    assert found("qwen2.5") == {ids["model"]}
    assert found("a\x00b") == {ids["nul"]}
    assert found("  ") == set(ids.values())


def test_renaming_changes_that_alone_and_a_branch_remembers_why_it_ended(sessions):
    made = sessions.create(new_session())
    sessions.rename(made.id, "Renamed")
    stored = sessions.get(made.id)
    assert stored == replace(made, name="Renamed", updated_at=stored.updated_at)
    assert stored.updated_at > made.updated_at
    for reason in ("length", None):
        sessions.set_finished(made.active_branch_id, reason)
        assert sessions.branch(made.active_branch_id).finished == reason


def test_deleting_a_session_removes_everything_of_it_but_a_tombstone_and_nothing_else(database, sessions):
    annotations = AnnotationsRepository(database)

    def make():
        session = sessions.create(new_session(), [Span(0, 3)])
        extend(sessions, session.active_branch_id, [new_step(0), new_step(1)])
        fork = sessions.add_branch(session.id, session.active_branch_id, 1, "0/1:1").id
        extend(sessions, fork, [new_step(1)])
        sessions.set_active_branch(session.id, fork)
        place = {"branch_id": fork, "step_index": 1, "last_step_index": 1}
        annotations.add(AnnotationFields(session_id=session.id, verdict="unfair", **place))
        return session.id

    kept = make()
    before = row_counts(database)
    assert (before["steps"], before["candidates"], before["branches"]) == (3, 6, 2)
    sessions.delete(make())
    assert row_counts(database) == {**before, "verdict_tombstones": 1}
    assert sessions.get(kept).id == kept
    sessions.delete(kept)
    left = {name: count for name, count in row_counts(database).items() if count}
    assert left == {"projects": 1, "verdict_tombstones": 2}


def test_a_deleted_sessions_id_is_not_given_again_and_what_does_not_exist_is_missing(sessions):
    first = sessions.create(new_session()).id
    sessions.delete(first)
    assert sessions.create(new_session()).id > first
    for call in (
        sessions.get, sessions.delete, sessions.branches, sessions.branch, sessions.chain,
        lambda number: sessions.rename(number, "x"), lambda number: sessions.append_step(number, new_step(0)),
    ):  # fmt: skip
        with pytest.raises(NotFoundError, match="id 404"):
            call(404)
    with pytest.raises(NotFoundError, match=f"id {first}"):
        sessions.get(first)


def test_an_empty_or_outlying_span_is_refused_and_no_session_is_made(sessions):
    for span in (Span(3, 3), Span(5, 2), Span(-1, 2)):
        with pytest.raises(ConflictError):
            sessions.create(new_session(), [span])
    assert sessions.list() == []
