"""A batch of four prompts, and how tests run it to its end."""

from pathlib import Path

from app.batch.service import BatchRequest, BatchService
from app.jobs.service import JobService
from app.prompts.sets import ParsedPromptSet
from app.shared.audits import AuditSettings
from app.shared.wiring import Services

SETTINGS = AuditSettings(model="tiny", max_new_tokens=4, top_p=1.0, seed=5, controls=0)
REQUEST = BatchRequest("hiring", SETTINGS)
SET = """prompt,spans,group,context,reference
He is a nurse,"[[0, 2, ""gender""]]",men,1,
She is a nurse,,women,1,
=He left,,men,2,x
Nobody left,,,,
"""


def parsed(wired: Services, tmp_path: Path, text: str = SET) -> ParsedPromptSet:
    """The prompts of a file with this text."""
    path = tmp_path / "prompts.csv"
    path.write_text(text)
    return wired[BatchService].parse(path)


def run(wired: Services, tmp_path: Path, request: BatchRequest = REQUEST, text: str = SET) -> int:
    """The number of a batch that has run to its end."""
    batch_id = wired[BatchService].submit(parsed(wired, tmp_path, text), request)
    job = wired[JobService].wait(wired[BatchService].view(batch_id).job.id)
    assert job.status == "done", job.error
    return batch_id
