"""Word lists: stored whole or not at all, unique by name, never changed."""

from __future__ import annotations

import pytest

from coft_core.types import UserTerm
from db.types import ConflictError, NotFoundError
from db.user_lists import UserListsRepository

TERMS = (
    UserTerm("Zorblax", "name"), UserTerm("\x00odd \U0001f469", "race"), UserTerm("Black Friday", keep=True),
)  # fmt: skip


@pytest.fixture
def lists(database):
    return UserListsRepository(database)


def test_a_list_comes_back_term_by_term_in_its_order_and_is_deleted_whole(lists):
    made = lists.add("hiring", "d1", TERMS)
    assert (made.name, made.digest, made.term_count) == ("hiring", "d1", 3)
    assert lists.get(made.id) == lists.find("hiring") == made
    assert lists.terms(made.id) == list(TERMS)
    assert lists.find("lending") is None
    first = lists.add("a", "d", TERMS)
    assert lists.list() == [first, made], "by name"
    lists.delete(made.id)
    assert lists.list() == [first]
    with pytest.raises(NotFoundError, match="word list"):
        lists.delete(made.id)


def test_a_name_is_taken_once_and_a_list_that_fails_or_replaces_leaves_nothing_behind_or_all_as_it_was(lists):
    old, other = lists.add("hiring", "d1", TERMS), lists.add("lending", "d2", ())
    for name, replaced in (("hiring", None), ("lending", old.id)):
        with pytest.raises(ConflictError, match="already"):
            lists.add(name, "d3", TERMS[:1], replaces=replaced)
        assert lists.list() == [old, other]
        assert lists.terms(old.id) == list(TERMS)
    new = lists.add("hiring", "d2", TERMS[:1], replaces=old.id)
    assert new.id > old.id
    assert lists.list() == [new, other]
    assert lists.terms(new.id) == [TERMS[0]]
    with pytest.raises(NotFoundError, match="word list"):
        lists.terms(old.id)
