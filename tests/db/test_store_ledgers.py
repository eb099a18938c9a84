"""Ledgers of jobs: replaced whole, handed over, and gone with their job's prompt set."""

from __future__ import annotations

import pytest

from db.jobs import JobsRepository, LedgersRepository
from db.prompt_sets import PromptSetsRepository
from db.types import ConflictError


@pytest.fixture
def ledgers(database):
    return LedgersRepository(database)


@pytest.fixture
def job_id(database):
    return JobsRepository(database).add("calibration", "t").id


@pytest.fixture
def prompt_set_id(database):
    return PromptSetsRepository(database).add("a", "a", "d", ()).id


def test_the_last_ledger_of_a_job_counts_and_goes_with_its_prompt_set(database, ledgers, job_id, prompt_set_id):
    assert ledgers.load(job_id) is None
    for wrong in ((404, prompt_set_id), (job_id, 404)):
        with pytest.raises(ConflictError):
            ledgers.save(*wrong, b"")
    assert ledgers.load(job_id) is None
    for data in (bytes(range(256)), b"", b"last"):
        ledgers.save(job_id, prompt_set_id, data)
        assert ledgers.load(job_id) == data
    for _ in range(2):
        ledgers.delete(job_id)
    assert ledgers.load(job_id) is None
    ledgers.save(job_id, prompt_set_id, b"half")
    PromptSetsRepository(database).delete(prompt_set_id)
    assert ledgers.load(job_id) is None
    assert JobsRepository(database).get(job_id).id == job_id


def test_a_ledger_is_handed_over_to_the_job_that_resumes(database, ledgers, job_id, prompt_set_id):
    ledgers.save(job_id, prompt_set_id, b"half")
    heir = JobsRepository(database).add("calibration", "t").id
    ledgers.move(job_id, heir)
    assert (ledgers.load(job_id), ledgers.load(heir)) == (None, b"half")
    ledgers.save(job_id, prompt_set_id, b"other")
    with pytest.raises(ConflictError, match="ledger of its own"):
        ledgers.move(job_id, heir)
    ledgers.move(404, JobsRepository(database).add("calibration", "t").id)
