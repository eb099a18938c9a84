"""Word lists: stored whole or not at all, unique by name, never changed."""

from __future__ import annotations

import pytest

from coft_core.types import UserTerm
from db.types import ConflictError, NotFoundError
from db.user_lists import UserListsRepository

TERMS = (
    UserTerm("Zorblax", "name"),
    UserTerm("\x00odd \U0001f469", "race"),
    UserTerm("Black Friday", keep=True),
)


@pytest.fixture
def lists(database):
    return UserListsRepository(database)


def test_a_list_comes_back_term_by_term_in_its_order(lists):
    made = lists.add("hiring", "d1", TERMS)
    assert (made.name, made.digest, made.term_count) == ("hiring", "d1", 3)
    assert lists.get(made.id) == lists.find("hiring") == made
    assert lists.terms(made.id) == list(TERMS)
    assert lists.find("lending") is None


def test_lists_are_listed_by_name(lists):
    second, first = lists.add("b", "d", ()), lists.add("a", "d", TERMS)
    assert lists.list() == [first, second]


def test_a_name_is_taken_once_and_the_second_list_leaves_nothing_behind(lists):
    made = lists.add("hiring", "d1", TERMS)
    with pytest.raises(ConflictError, match="already"):
        lists.add("hiring", "d2", TERMS[:1])
    assert lists.list() == [made]
    assert lists.terms(made.id) == list(TERMS)


def test_replacing_gives_a_new_id_and_drops_the_old_terms(lists):
    old = lists.add("hiring", "d1", TERMS)
    new = lists.add("hiring", "d2", TERMS[:1], replaces=old.id)
    assert new.id > old.id
    assert lists.list() == [new]
    assert lists.terms(new.id) == [TERMS[0]]
    with pytest.raises(NotFoundError, match="word list"):
        lists.terms(old.id)


def test_a_replacement_that_fails_keeps_the_old_list(lists):
    old, other = lists.add("hiring", "d1", TERMS), lists.add("lending", "d2", ())
    with pytest.raises(ConflictError):
        lists.add("lending", "d3", (), replaces=old.id)
    assert lists.list() == [old, other]
    assert lists.terms(old.id) == list(TERMS)


def test_deleting_removes_the_list_and_its_terms(lists):
    made = lists.add("hiring", "d1", TERMS)
    lists.delete(made.id)
    assert lists.list() == []
    with pytest.raises(NotFoundError, match="word list"):
        lists.delete(made.id)
