"""An empty store of either kind for each test, and samples of what goes into one."""

from __future__ import annotations

import dataclasses
import math
import shutil
from contextlib import contextmanager

import pytest
from sqlalchemy import event

from coft_core.types import Candidate, Diagnostics, FamilyStep, Step
from db.audits import SessionFields
from db.calibrations import CalibrationFields
from db.database import Database
from db.library import LibraryRepository
from db.schema import make_tables
from db.sessions import SessionsRepository
from db.verdicts import AnnotationsRepository

KINDS = ("sqlite", "postgresql")
ON_BOTH = ("test_store_sessions", "test_store_chains", "test_store_verdict_log", "test_store_projects")
"""Modules whose tests always run on both kinds: what is shown must be stored, whole, and be its project's."""


def pytest_collection_modifyitems(items):
    """Leave other tests on PostgreSQL to the slow tests, but for those that name it."""
    for item in items:
        named = any(mark.args[0] == "store_url" for mark in item.iter_markers("parametrize"))
        kind = item.callspec.params.get("store_url") if hasattr(item, "callspec") else None
        if kind == "postgresql" and not named and item.path.parent.name == "db" and item.path.stem not in ON_BOTH:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def stores_made_here(monkeypatch):
    """These tests are about how a store is made: each is made, see ``tests/conftest.py``."""
    monkeypatch.setattr("db.schema.make_tables", make_tables)


@pytest.fixture
def sqlite_url(tmp_path):
    """URL of an SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'audit.db'}"


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory):
    """An SQLite file that has every table and no row: to copy it is quicker than to make them once more."""
    path = tmp_path_factory.mktemp("empty") / "audit.db"
    Database(f"sqlite:///{path}").open().close()
    return path


@pytest.fixture(scope="session")
def empty_template(postgresql):
    """The same of PostgreSQL: the name of a database."""
    name = postgresql.create()
    Database(postgresql.url(name)).open().close()
    return name


@pytest.fixture(params=KINDS)
def store_url(request, sqlite_url, tmp_path):
    """URL of an empty store of either kind, with every table."""
    if request.param == "sqlite":
        shutil.copyfile(request.getfixturevalue("empty_file"), tmp_path / "audit.db")
        yield sqlite_url
        return
    template = request.getfixturevalue("empty_template")
    with request.getfixturevalue("postgresql").fresh(template) as url:
        yield url


@pytest.fixture
def database(store_url):
    """An open, empty store of either kind."""
    with Database(store_url) as opened:
        yield opened


@pytest.fixture
def sessions(database):
    return SessionsRepository(database)


@pytest.fixture
def library(database):
    return LibraryRepository(database)


@pytest.fixture
def annotations(database):
    return AnnotationsRepository(database)


@contextmanager
def statements(database):
    """Lists the statements that are executed inside this block."""
    listed = []

    def note(_connection, _cursor, statement, *_rest):
        listed.append(statement)

    event.listen(database.engine, "before_cursor_execute", note)
    yield listed
    event.remove(database.engine, "before_cursor_execute", note)


def extend(sessions, branch_id, steps):
    for step in steps:
        sessions.append_step(branch_id, step)


def new_session(**changes):
    """Fields of a session without a calibration, every other one with a value of its own."""
    fields = {
        "name": "Night shift",
        "prompt": "The nurse finished rounds and then he",
        "model": "demo",
        "model_revision": "r7",
        "policy": "coft",
        "policy_settings": {"mode": "joint", "weights": [0.25, 0.75]},
        "lam": 0.6,
        "alpha": 0.1,
        "temperature": 0.9,
        "top_p": 0.8,
        "top_k": 40,
        "greedy": True,
        "seed": 2**62 + 1,
        "max_new_tokens": 48,
        # A label without the calibration itself says that it was deleted, and ends the session.
        "calibration_label": "",
        "fingerprint": {"model": "demo", "lam": 0.6},
        "fingerprint_digest": "5ca1ab1e",
        "certificate": "certified",
        "warnings": ("Nothing is masked.", "Short prompt."),
        "status": "running",
    }
    return SessionFields(**(fields | changes))


def new_step(index, **changes):
    """A step, every field with a value of its own."""
    fields = {
        "index": index,
        "token_id": 417 + index,
        "token": f" token{index}",
        "log_p_factual": -0.5,
        "log_p_masked": -1.5,
        "log_p_fused": -1.0,
        "log_tau": -4.25,
        "certified": True,
        "set_size": 12,
        "certified_mass": 0.93,
        "fallback": False,
        "forced": True,
        "policy_token_id": 99,
        "policy_token": " she",
        "state": "inherited",
        "set_size_low": 11,
        "set_size_high": 14,
        "noise": 0.001,
        "candidates": (
            Candidate(417, " he", -0.5, -1.5, -1.0, True),
            Candidate(418, " she", -0.6, -1.4, -0.9, False, ("gender", "race")),
        ),
        "families": (
            FamilyStep("gender", -1.25, -1.5, -4.25, True, "inherited"),
            FamilyStep("race", -1.75, -1.75, -math.inf, False, "uninformative"),
        ),
    }
    figures = (2.1, 2.2, 2.3, 0.04, 0.05, 0.06, -0.7, 0.8, 2.75, 0.07, 0.08)
    diagnostics = dict(zip((field.name for field in dataclasses.fields(Diagnostics)), figures, strict=True))
    diagnostics |= {name: changes.pop(name) for name in set(diagnostics) & set(changes)}
    return Step(**(fields | changes), diagnostics=Diagnostics(**diagnostics))


def new_calibration(**changes):
    """Fields of a calibration run, every one with a value of its own."""
    fields = {
        "name": "BBQ", "model": "demo", "model_revision": "r7", "alpha": 0.1, "lam": 0.6, "estimator": "hierarchical",
        "source": "reference", "bin_width": 8, "max_position": 256, "fingerprint_digest": "5ca1ab1e",
        "fingerprint": {"model": "demo"}, "context_count": 400, "token_count": 9000,
        "verification": {"contexts": 100, "coverage": 0.91}, "coverage": {"low": 0.87, "high": 0.95}, "status": "ready",
        "embedded": True, "mask_layout": "factorized",
    }  # fmt: skip
    return CalibrationFields(**(fields | changes))
