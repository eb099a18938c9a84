"""Accounts, attempts and the trail: the same on either kind of store, and with many writers at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import text

from db.accounts import AccountsRepository, SignInsRepository, TokensRepository
from db.trail import TrailFields, TrailRepository
from db.types import ConflictError, NotFoundError, StoreError, utc_now
from db.verdicts import first_break


def test_entries_of_many_writers_make_one_chain_that_nobody_changes(database):
    trail = TrailRepository(database)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: trail.add(TrailFields(actor=f"{number}", action="é\0")), range(24)))
    entries = trail.list()
    assert {entry.actor for entry in entries} == {str(number) for number in range(24)}
    assert first_break([(entry.content, entry.previous, entry.digest) for entry in entries]) is None
    assert [entry.entry for entry in trail.list(newest=2)] == [23, 24]
    for statement in ("UPDATE audit_trail SET actor = 'x'", "DELETE FROM audit_trail"):
        with pytest.raises(StoreError, match="only ever added"), database.writing() as connection:
            connection.execute(text(statement))
    assert trail.list() == entries


def test_of_many_attempts_at_once_no_more_are_let_through_than_the_limit(database):
    sign_ins, since = SignInsRepository(database), utc_now() - timedelta(minutes=15)
    with ThreadPoolExecutor(8) as pool:
        full = list(pool.map(lambda _: sign_ins.attempt({"account:a": 5, "address:b": 100}, since), range(24)))
    assert full.count([]) == 5
    assert full.count(["account:a"]) == 19
    sign_ins.succeeded(["account:a"])
    assert sign_ins.attempt({"account:a": 5}, since) == []


def test_accounts_are_one_of_a_name_and_one_of_a_person_and_the_last_admin_stays(database):
    accounts = AccountsRepository(database)
    admin = accounts.add("Élan", "admin", "hash")
    person = accounts.add("B", "viewer", None, "https://a.example", "1")
    for taken in (
        lambda: accounts.add("élan", "viewer", None),
        lambda: accounts.add("C", "viewer", None, "https://a.example", "1"),
    ):
        with pytest.raises(ConflictError):
            taken()
    assert accounts.named("ÉLAN") == admin
    assert accounts.at_provider("https://a.example", "1") == person
    assert accounts.at_provider("https://b.example", "1") is None
    with pytest.raises(ConflictError, match="No admin would be left"):
        accounts.disable(admin.id)
    accounts.change_role(person.id, "admin")
    accounts.disable(admin.id)
    assert accounts.has_admin()
    with pytest.raises(NotFoundError):
        accounts.change_role(99, "lead")
    token = TokensRepository(database).add(person.id, "a program", "d" * 64, None)
    assert TokensRepository(database).holding("d" * 64, utc_now()) == token


def test_sign_ins_end_by_their_time_by_not_being_used_singly_and_all_but_one(database):
    sign_ins, now = SignInsRepository(database), utc_now()
    account = AccountsRepository(database).add("Bo", "viewer", None).id
    another = AccountsRepository(database).add("Cy", "viewer", None).id
    until = now + timedelta(hours=1)
    for digest, whose in (("a", account), ("b", account), ("c", account), ("d", another)):
        sign_ins.add(whose, digest * 64, until, address="10.0.0.1", browser="a browser")
    kept = sign_ins.list(account, now)
    assert [one.digest[0] for one in kept] == ["c", "b", "a"]
    assert {(one.address, one.browser, one.used_at) for one in kept} == {("10.0.0.1", "a browser", None)}
    later = now + timedelta(minutes=40)
    sign_ins.mark_used(kept[0].id, now + timedelta(minutes=30))
    assert [one.digest[0] for one in sign_ins.list(account, later, later - timedelta(minutes=20))] == ["c"]
    assert sign_ins.holding("a" * 64, later, later - timedelta(minutes=20)) is None
    assert sign_ins.holding("a" * 64, until) is None
    assert sign_ins.end_of(another, kept[0].id) == 0
    assert sign_ins.end_of(account, kept[0].id) == 1
    assert sign_ins.end_of(account, but="a" * 64) == 1
    assert [one.digest[0] for one in (*sign_ins.list(account, now), *sign_ins.list(another, now))] == ["a", "d"]
