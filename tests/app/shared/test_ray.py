"""Jobs on a real Ray cluster of this computer: the same bytes as one process, also where a worker is killed."""

import os
import signal
from contextlib import suppress

import psutil
import pytest

pytest.importorskip("ray", reason="Ray is not installed; pip install -r requirements-ray.txt")

from app.batch.service import BatchRequest, BatchService
from app.bootstrap import services
from app.evaluate.methods import methods_from
from app.evaluate.runs import EvaluationRequest
from app.jobs.service import JobService
from app.settings import Settings
from app.shared.audits import AuditSettings
from tests.app.batch.small_batch import parsed
from tests.app.evaluate.made_up import evaluations_of
from tests.app.shared.test_shared_out_jobs import one_moment, ran, stored  # noqa: F401 - a fixture

PROMPTS = "prompt,spans,group\n" + "".join(
    f'{who} number {place} is a nurse,"[[0, {len(who)}, ""gender""]]",{who}\n'
    for place, who in enumerate(("He", "She") * 3)
)


@pytest.fixture
def opened(tmp_path):
    """Services on the embedded model with a store of their own, on Ray or not."""

    def of(name, ray_address=""):
        (tmp_path / name).mkdir()
        url = f"sqlite:///{tmp_path / name / 'store.sqlite3'}"
        return services(Settings(database_url=url, pipeline="none", ray_address=ray_address, ray_workers=2))

    return of


def begun(wired, folder, tokens):
    request = BatchRequest("six", AuditSettings(max_new_tokens=tokens, seed=5))
    folder.mkdir(exist_ok=True)
    number = wired[BatchService].submit(parsed(wired, folder, PROMPTS), request)
    return wired[BatchService].view(number).job.id


def evaluated(wired):
    methods = methods_from(("Vanilla=vanilla", "certified=coft:calibrated,lam=0.5"), AuditSettings(alpha=0.3))
    asked = EvaluationRequest("made up", ("quiz", "prose"), methods, "demo", (0,), calibration_share=0.3)
    evaluations = evaluations_of(wired)
    ran(wired, evaluations.view(evaluations.submit(asked)).job.id)


def actors():
    """Processes of workers on this computer."""
    found = psutil.Process().children(recursive=True)
    return [process for process in found if "Bench" in " ".join(process.cmdline())]


def test_batch_and_suite_are_stored_as_by_one_process(opened, tmp_path, one_moment):  # noqa: F811
    found = {}
    for name, address in (("here", ""), ("ray", "local")):
        with opened(name, address) as wired:
            ran(wired, begun(wired, tmp_path / name, 6))
            evaluated(wired)
        found[name] = stored(tmp_path / name)
    assert found["here"].keys() == found["ray"].keys()
    assert [table for table in found["here"] if found["here"][table] != found["ray"][table]] == []
    assert len(found["ray"]["steps"]) >= 6


def await_first_row(wired, job):
    """Wait until a row is stored and others are under way."""
    while wired[JobService].get(job).message[:4] not in ("1 of", "2 of", "3 of"):
        with suppress(TimeoutError):
            assert wired[JobService].wait(job, 0.05).active


def test_killed_worker_s_rows_are_written_by_another_one(opened, tmp_path):
    with opened("here") as wired:
        ran(wired, begun(wired, tmp_path / "here", 48))
    with opened("ray", "local") as wired:
        job = begun(wired, tmp_path / "ray", 48)
        await_first_row(wired, job)
        os.kill(actors()[0].pid, signal.SIGKILL)
        ran(wired, job)
    assert stored(tmp_path / "here") == stored(tmp_path / "ray")


def test_cancelling_leaves_no_worker_behind(opened, tmp_path):
    with opened("ray", "local") as wired:
        job = begun(wired, tmp_path / "ray", 96)
        await_first_row(wired, job)
        assert len(actors()) == 2
        wired[JobService].cancel(job)
        assert wired[JobService].wait(job).status == "cancelled"
    assert actors() == []
