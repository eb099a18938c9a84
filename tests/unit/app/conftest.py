"""What the tests of several services start from."""

from pathlib import Path

import pytest

from app.bootstrap import Services
from app.shared.audits import CalibrationRequest
from tests.conftest import prompt_set_csv


@pytest.fixture
def calibrated(wired: Services, tmp_path: Path) -> int:
    """A calibration of the tiny model with COFT's defaults but ``top_p`` 1, by its number."""
    path = tmp_path / "set.csv"
    path.write_text(prompt_set_csv())
    request = CalibrationRequest(name="set", model="tiny", top_p=1.0)
    job = wired.jobs.wait(wired.calibrations.submit(wired.calibrations.parse(path), request))
    assert job.status == "done", job.error
    return int(job.result["calibration_id"])
