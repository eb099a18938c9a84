"""The benchmark of what a server bears, on a tiny setting: each part measures what it says."""

import random
import sqlite3
import time

import numpy as np
import psutil
import pytest

from app.audit.service import AuditService
from app.bootstrap import services
from app.sessions.service import LibraryQuery, SessionLibrary
from app.settings import Settings
from app.shared.audits import AuditSettings, StartAudit
from bench.load import store
from bench.load.figures import percentiles, slope
from bench.load.loads import after_loads
from bench.load.pages import measure_pages, page_views
from bench.load.reviewers import Reviewer
from bench.load.visitor import Times, Visitor
from tests.browser import served
from tests.conftest import load_tiny

SETTINGS = AuditSettings(model="tiny", max_new_tokens=3)
SESSIONS = 7


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A store of several sessions, two of which were audited, with a fork, a batch, verdicts and tags."""
    path = tmp_path_factory.mktemp("load") / "store.sqlite3"
    settings = Settings(database_url=f"sqlite:///{path}", pipeline="none", faster_steps="off")
    with services(settings, loader=load_tiny) as wired:
        audits = wired[AuditService]
        for number in range(2):
            begun = audits.start(StartAudit(f"The nurse saw {number} and she", SETTINGS))
            list(audits.run(begun.session_id))
        audits.fork(1, audits.view(1).branch_id, 1, audits.view(1).steps[1].candidates[-1].token_id)
    store.copy_sessions(path, SESSIONS)
    with pytest.MonkeyPatch.context() as small, services(settings, loader=load_tiny) as wired:
        small.setattr(store, "BATCH_ROWS", 2)
        small.setattr(store, "JUDGED", 2)
        with wired.database.together():
            store.order(wired, SETTINGS, SESSIONS)
    return path, settings


@pytest.fixture(scope="module")
def url(many):
    with services(many[1], owns_store=True, loader=load_tiny) as wired, served(wired) as address:
        yield address


def test_copied_sessions_read_like_those_that_they_are_copies_of(many):
    path, settings = many
    with services(settings, loader=load_tiny) as wired:
        views = [wired[AuditService].view(number) for number in range(1, SESSIONS + 1)]
        assert [view.steps for view in views] == [views[place % 2].steps for place in range(SESSIONS)]
        assert [len(view.branches) for view in views] == [2, 1, 2, 1, 2, 1, 2]
        assert len({view.branch_id for view in views}) == SESSIONS
        page = wired[SessionLibrary].folded(LibraryQuery())
        assert page.total == SESSIONS
        assert page.row_total == SESSIONS - 1
        assert wired[SessionLibrary].search(LibraryQuery(judged=True)).total == 4
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


@pytest.mark.slow
def test_every_page_answers_and_its_requests_are_told_apart(url):
    told = []
    # One view of each page; to open every view of them takes long.
    views = list({view.path: view for view in page_views(session=2, batch=1)}.values())
    found = measure_pages(url, psutil.Process(), views, 1, told.append)
    assert len(told) == len(found) == len(views)
    for one in found.values():
        assert one["server"]["p95_ms"] <= one["elapsed"]["p95_ms"] + 0.2
        assert "bell" in one["kinds"]
        assert one["processor"]["p50_ms"] > 0
    assert "/sessions find" in found["Sessions, 200 on a page"]["kinds"]


@pytest.mark.slow
def test_a_reviewer_goes_a_whole_round_and_what_she_did_is_stored(url, many):
    times = Times()
    visitor = Visitor(url, times, number=3)
    reviewer = Reviewer("Dana", visitor, random.Random(1), time.monotonic() + 600, think=lambda _: None)
    reviewer.go_round()
    visitor.close()
    assert times.errors == []
    assert len(times.seconds["step"]) == 4
    assert set(times.seconds) == set(times.server)
    with sqlite3.connect(many[0]) as connection:
        verdicts = connection.execute("SELECT reviewer FROM annotations ORDER BY id DESC LIMIT 1").fetchone()
        branches = connection.execute("SELECT count(*) FROM branches WHERE session_id > ?", (SESSIONS,)).fetchone()
    assert verdicts == ("Dana",)
    assert branches == (2,)


@pytest.mark.slow
def test_more_models_than_are_held_are_loaded_each_time(tmp_path):
    loaded = []

    def load(name, **options):
        loaded.append(name)
        return load_tiny(name, **options)

    settings = Settings(database_url=f"sqlite:///{tmp_path / 'store.sqlite3'}", pipeline="none", faster_steps="off")
    with services(settings, loader=load) as wired:
        told = list(after_loads(wired, ["a", "b", "c"], 6, audits=True))
    assert loaded == [name for name, _ in told] == ["a", "b", "c"] * 2
    assert all(megabytes > 1 for _, megabytes in told)


def test_slopes_and_percentiles_are_within_their_intervals():
    generator, at, held = np.random.default_rng(5), np.arange(120), 0
    for _ in range(60):
        # Neighbours depend on each other, as readings of a process's memory do.
        noise = np.convolve(generator.normal(0, 4, 122), np.ones(3) / 3, "valid")
        low, high = slope(at, 100 + 0.5 * at + noise)["interval_95"]
        held += low <= 0.5 <= high
    assert held >= 50
    found = percentiles([number / 1000 for number in range(1, 101)])
    assert (found["n"], found["p50_ms"], found["p95_ms"]) == (100, 50.5, 95.0)
    assert found["p95_interval"][0] <= 95.0 <= found["p95_interval"][1]
