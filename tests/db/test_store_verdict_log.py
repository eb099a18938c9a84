"""The verdict log: entries come back, every one follows from the one before, and none can be changed or removed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from db.sessions import SessionsRepository
from db.types import ConflictError, NotFoundError, StoreError, utc_now
from db.verdicts import FIRST, AnnotationFields, AnnotationsRepository, entry_digest, first_break
from tests.db.conftest import new_session


@pytest.fixture
def log(database):
    return AnnotationsRepository(database)


@pytest.fixture
def branch(database):
    """A session and its root branch."""
    made = SessionsRepository(database).create(new_session())
    return made.id, made.active_branch_id


def write(log, session_id, count=3):
    return [log.add(AnnotationFields(session_id=session_id, reviewer="A", note=str(i))) for i in range(count)]


def broken(entries):
    return first_break([(entry.content, entry.previous, entry.digest) for entry in entries])


def unguard(database):
    """Take the guards off the table, as someone with the file in his hands would."""
    postgres = database.engine.dialect.name == "postgresql"
    for name in ("annotations_keep",) if postgres else ("annotations_keep", "annotations_stay"):
        change(database, f"DROP TRIGGER {name}" + (" ON annotations" if postgres else ""))


def change(database, sql):
    """Change the table behind the repository's back."""
    with database.writing() as session:
        session.execute(text(sql))


def test_an_entry_comes_back_with_every_field(database, log, branch):
    fields = AnnotationFields(
        session_id=branch[0], reviewer="Å. Osei", kind="adjudication", branch_id=branch[1], step_index=2,
        last_step_index=5, verdict="unfair", note="\x00 why", tag="pronoun \U0001f642", blind=True,
    )  # fmt: skip
    made = log.add(fields)
    (stored,) = log.history(branch[0])
    assert stored == made
    for name in AnnotationFields.__dataclass_fields__:
        assert getattr(stored, name) == getattr(fields, name), name
    assert (stored.entry, stored.branch_path, stored.previous) == (1, "0", FIRST)
    assert stored.digest == entry_digest(stored.content, FIRST)
    assert SessionsRepository(database).get(branch[0]).updated_at == stored.created_at


def test_every_entry_follows_from_the_one_before_and_logs_are_apart_by_session(database, log, branch):
    other = SessionsRepository(database).create(new_session()).id
    log.add(AnnotationFields(session_id=branch[0], reviewer="A"))
    write(log, other)
    log.add(AnnotationFields(session_id=branch[0], reviewer="B"))
    first, second = log.history(branch[0])
    assert (first.entry, second.entry, second.previous) == (1, 2, first.digest)
    assert broken([first, second]) is None
    assert broken(log.history(other)) is None
    assert {session: len(entries) for session, entries in log.histories().items()} == {branch[0]: 2, other: 3}


def test_writers_at_the_same_time_make_one_chain(database, log, branch):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: write(log, branch[0]), range(4)))
    entries = log.history(branch[0])
    assert [entry.entry for entry in entries] == list(range(1, 13))
    assert broken(entries) is None


def test_a_row_changed_behind_the_stores_back_is_found(database, log):
    unguard(database)
    for sql, entry, word in (
        ("UPDATE annotations SET note = 'other' WHERE entry = 2", 2, "changed"),
        ("UPDATE annotations SET reviewer = 'B' WHERE entry = 1", 1, "changed"),
        ("UPDATE annotations SET verdict = 'fair' WHERE entry = 3", 3, "changed"),
        ("UPDATE annotations SET digest = previous WHERE entry = 1", 1, "changed"),
        ("DELETE FROM annotations WHERE entry = 2", 2, "missing"),
        ("DELETE FROM annotations WHERE entry = 1", 1, "missing"),
    ):
        session_id = SessionsRepository(database).create(new_session()).id
        write(log, session_id)
        change(database, f"{sql} AND session_id = {session_id}")
        found = broken(log.history(session_id))
        assert (found.entry, word in found.reason) == (entry, True), sql


def test_an_entry_written_anew_breaks_the_next_link_and_a_log_moved_to_another_session_does_not_hold(log, branch):
    entries = write(log, branch[0])
    forged = replace(entries[0], note="forged")
    forged = replace(forged, digest=entry_digest(forged.content, forged.previous))
    found = broken([forged, *entries[1:]])
    assert (found.entry, "replaced" in found.reason) == (2, True)
    assert broken([replace(entry, session_id=branch[0] + 1) for entry in entries]).entry == 1


def test_the_store_itself_refuses_to_change_or_remove_an_entry_or_its_branch_singly(database, log, branch):
    log.add(AnnotationFields(session_id=branch[0], branch_id=branch[1], reviewer="A"))
    entries = log.history(branch[0])
    branch_away = f"DELETE FROM branches WHERE id = {branch[1]}"
    for sql in ("UPDATE annotations SET note = 'x'", "DELETE FROM annotations", branch_away):
        with pytest.raises(StoreError, match="append-only"):
            change(database, sql)
    assert log.history(branch[0]) == entries


def test_a_deleted_session_takes_its_log_along_and_leaves_its_length_and_head(database, log, branch):
    sessions = SessionsRepository(database)
    other, empty = (sessions.create(new_session()).id for _ in range(2))
    write(log, branch[0])
    last = log.add(AnnotationFields(session_id=branch[0], branch_id=branch[1], reviewer="A"))
    kept = write(log, other, 1)
    sessions.delete(branch[0])
    sessions.delete(empty)
    with pytest.raises(NotFoundError):
        log.history(branch[0])
    assert log.history(other) == kept
    with database.reading() as session:
        assert session.scalar(text("SELECT count(*) FROM annotations")) == 1
    (left,) = log.tombstones()
    assert (left.session_id, left.entries, left.head) == (branch[0], 4, last.digest)
    assert last.created_at <= left.deleted_at <= utc_now() + timedelta(seconds=1)
    for sql in ("UPDATE verdict_tombstones SET entries = 0", "DELETE FROM verdict_tombstones"):
        with pytest.raises(ConflictError):
            change(database, sql)
    assert log.tombstones() == [left]
    # A session that is deleted behind the program's back leaves it too.
    change(database, "DELETE FROM audit_sessions")
    assert [left.head for left in log.tombstones()] == [last.digest, kept[0].digest]


def test_entries_that_point_nowhere_are_refused(database, log, branch):
    other = SessionsRepository(database).create(new_session())
    session_id, branch_id = branch
    with pytest.raises(NotFoundError):
        log.add(AnnotationFields(session_id=404, verdict="fair"))
    with pytest.raises(ConflictError, match="not a branch of"):
        log.add(AnnotationFields(session_id=session_id, branch_id=other.active_branch_id))
    with pytest.raises(ConflictError, match="needs the branch"):
        log.add(AnnotationFields(session_id=session_id, step_index=1, last_step_index=1))
    for wrong in (
        {"verdict": "great"},
        {"kind": "rumour"},
        {"branch_id": branch_id, "step_index": 3},
        {"branch_id": branch_id, "step_index": 3, "last_step_index": 2},
    ):
        with pytest.raises(ConflictError):
            log.add(AnnotationFields(session_id=session_id, **wrong))
    assert log.history(session_id) == []


def test_digests_depend_on_every_part_of_an_entry():
    content = {"session": 1, "entry": 1, "note": "a", "verdict": None, "blind": False}
    digests = {entry_digest(content, FIRST), entry_digest(content, "1" * 64)}
    digests |= {entry_digest({**content, name: "other"}, FIRST) for name in content}
    assert len(digests) == 7


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_log_cannot_be_emptied_as_a_whole(database, log, branch):
    write(log, branch[0])
    for what in ("annotations", "audit_sessions CASCADE", "verdict_tombstones"):
        with pytest.raises(StoreError, match=r"only ever added|append-only"):
            change(database, f"TRUNCATE {what}")
    assert len(log.history(branch[0])) == 3
