"""Batches, suites, calibrations and tunings whose rows workers do: what is stored is what one process stores."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from functools import partial

import numpy as np
import pytest

from app.batch.service import BatchRequest, BatchService
from app.bootstrap import services
from app.calibrate.service import CalibrationService
from app.evaluate.methods import methods_from
from app.evaluate.runs import EvaluationRequest
from app.jobs.service import JobService
from app.settings import Settings
from app.shared.audits import AuditSettings, CalibrationRequest
from coft_core.calibrate import task, true_tokens
from tests.app.batch.small_batch import SETTINGS, parsed
from tests.app.evaluate.made_up import evaluations_of
from tests.app.shared.hired import Cluster
from tests.conftest import load_tiny, prompt_set_csv

VARYING = {"seconds", "peak_bytes", "job_id"}
"""Columns that two runs of the same work never share, beside moments: what was measured."""
UNCOUNTED = {"jobs", "ledgers", "alembic_version"}


def stored(folder):
    """All rows of a store but for moments and measured times."""
    with closing(sqlite3.connect(folder / "store.sqlite3")) as connection:
        names = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
        found = {}
        for name in sorted(set(names) - UNCOUNTED):
            cursor = connection.execute(f'select * from "{name}"')
            columns = [column for column, *_ in cursor.description]
            kept = [
                place for place, column in enumerate(columns) if column not in VARYING and not column.endswith("_at")
            ]
            found[name] = [tuple(row[place] for place in kept) for row in cursor]
    return found


def opened(folder):
    folder.mkdir()
    settings = Settings(database_url=f"sqlite:///{folder / 'store.sqlite3'}", pipeline="none")
    return services(settings, loader=load_tiny)


def ran(wired, number):
    job = wired[JobService].wait(number)
    assert job.status == "done", job.error
    return job


def in_both(tmp_path, work, *dies_at):
    """What some work gives in this process, and what it gives where workers do it."""
    with opened(tmp_path / "here") as wired:
        here = work(wired, tmp_path / "here")
    cluster = Cluster(*dies_at)
    with opened(tmp_path / "there") as wired:
        there = work(cluster.shared_out(wired), tmp_path / "there")
    assert cluster.connections == 0
    assert all(worker.dismissed.is_set() for worker in cluster.workers)
    return here, there, cluster


def batch(wired, folder):
    text = "prompt,spans,group\n" + "".join(
        f'{who} number {place} is a nurse,"[[0, {len(who)}, ""gender""]]",{who}\n'
        for place, who in enumerate(("He", "She") * 2)
    )
    number = wired[BatchService].submit(
        parsed(wired, folder, text), BatchRequest("four", replace(SETTINGS, controls=2))
    )
    ran(wired, wired[BatchService].view(number).job.id)
    return stored(folder)


def test_batch_is_stored_alike_although_a_worker_was_lost_in_the_middle(tmp_path):
    here, there, cluster = in_both(tmp_path, batch, 2)
    assert here == there
    assert (len(here["steps"]), len(here["controls"])) == (16, 4)
    assert len(cluster.workers) == 3
    assert len([worker for worker in cluster.workers if worker.given_work]) >= 2


def test_row_that_a_worker_cannot_write_fails_alone_and_the_batch_goes_on(tmp_path, monkeypatch):
    with opened(tmp_path / "there") as wired:
        Cluster().shared_out(wired)
        prompts = parsed(wired, tmp_path / "there", "prompt\nHe left\nShe left\nThey left\n")
        begin = wired[BatchService]._audits.chain_work

        def refusing(session_id, branch_id):
            return partial(int, "no number") if session_id == 2 else begin(session_id, branch_id)

        monkeypatch.setattr(wired[BatchService]._audits, "chain_work", refusing)
        number = wired[BatchService].submit(prompts, BatchRequest("three", SETTINGS))
        job = ran(wired, wired[BatchService].view(number).job.id)
        view = wired[BatchService].view(number)
    assert [row.state for row in view.rows] == ["finished", "failed", "finished"]
    assert "no number" in view.rows[1].error
    assert job.result["failed"] == 1


@pytest.fixture
def one_moment(monkeypatch):
    """Thresholds say when they were fitted: always at the same moment."""

    class Still(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(2026, 11, 23, tzinfo=tz)

    monkeypatch.setattr(task, "datetime", Still)


def evaluation(wired, folder):
    base = AuditSettings(alpha=0.3, top_p=1.0)
    methods = methods_from(("certified=coft:calibrated,lam=0.5", "sdd"), base)
    asked = EvaluationRequest("made up", ("quiz", "prose"), methods, "tiny", (0,), calibration_share=0.3)
    evaluations = evaluations_of(wired)
    number = evaluations.submit(asked)
    ran(wired, evaluations.view(number).job.id)
    return stored(folder)


def test_suites_are_stored_alike_with_their_thresholds(tmp_path, one_moment):
    here, there, _ = in_both(tmp_path, evaluation, 3)
    assert here.keys() == there.keys()
    assert [name for name in here if here[name] != there[name]] == []


def calibration(source, records):
    def work(wired, folder):
        path = folder / "set.csv"
        path.write_text(prompt_set_csv(40))
        request = CalibrationRequest(
            name="set", model="tiny", source=source, max_new_tokens=3, max_iterations=2, record_chains=records
        )
        service = wired[CalibrationService]
        job = ran(wired, service.submit(service.parse(path), request))
        return service.load(job.result["calibration_id"])

    return work


@pytest.mark.parametrize(
    ("source", "records"), [("reference", True), pytest.param("rollout", False, marks=pytest.mark.slow)]
)
def test_calibration_is_alike_to_the_last_bit(tmp_path, monkeypatch, source, records):
    monkeypatch.setattr(true_tokens, "TOKEN_BUDGET", 600)
    here, there, cluster = in_both(tmp_path, calibration(source, records), 2)
    assert replace(here, created="") == replace(there, created="")
    assert np.array_equal(here.joint.values.values, there.joint.values.values)
    assert sum(len(worker.given_work) for worker in cluster.workers) > 2


@pytest.mark.slow
def test_cancelled_batch_keeps_whole_rows_and_is_resumed_by_workers(tmp_path):
    with opened(tmp_path / "there") as wired:
        cluster = Cluster(1, 1, 1, 1, None)
        cluster.shared_out(wired, count=1)
        prompts = parsed(wired, tmp_path / "there", "prompt\nHe left\nShe left\n")
        number = wired[BatchService].submit(prompts, BatchRequest("two", SETTINGS))
        lost = wired[JobService].wait(wired[BatchService].view(number).job.id)
        assert (lost.status, "Two workers were lost" in lost.error) == ("failed", True)
        assert wired[BatchService].view(number).resumable
        cluster._dies_at = iter(())
        ran(wired, wired[BatchService].resume(number))
        assert [row.state for row in wired[BatchService].view(number).rows] == ["finished", "finished"]
