"""What the tests of several services start from."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.bootstrap import services
from app.calibrate.service import CalibrationService
from app.cli import main
from app.jobs.service import JobService
from app.settings import Settings
from app.shared.audits import CalibrationRequest
from app.shared.wiring import Services
from tests.conftest import flat_sets_say_something, load_tiny, prompt_set_csv


@pytest.fixture(scope="module", autouse=True)
def _random_models_say_something() -> Iterator[None]:
    """The tests of a file meet random models whose sets say something."""
    with flat_sets_say_something():
        yield


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """All services on a tiny model, for the tests of a file together; they count nothing that others may add."""
    folder = tmp_path_factory.mktemp("store")
    settings = Settings(database_url=f"sqlite:///{folder / 'audits.sqlite3'}", pipeline="none")
    with services(settings, loader=load_tiny) as opened:
        yield opened


def calibrated_on(wired: Services, folder: Path, text: str, request: CalibrationRequest) -> int:
    """A finished calibration on a prompt set, by its number."""
    path = folder / "set.csv"
    path.write_text(text, "utf-8")
    job = wired[JobService].wait(wired[CalibrationService].submit(wired[CalibrationService].parse(path), request))
    assert job.status == "done", job.error
    return int(job.result["calibration_id"])


@pytest.fixture
def calibrated(wired: Services, tmp_path: Path) -> int:
    """A calibration of the tiny model with COFT's defaults but ``top_p`` 1, by its number."""
    return calibrated_on(wired, tmp_path, prompt_set_csv(), CalibrationRequest(name="set", model="tiny", top_p=1.0))


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs a command on a store of its own with the tiny model: its exit code, and what it printed to both streams."""
    monkeypatch.setenv("COFT_DATABASE_URL", f"sqlite:///{tmp_path / 'store.sqlite3'}")
    monkeypatch.setenv("COFT_PIPELINE", "none")

    def run(*arguments):
        code = main([str(argument) for argument in arguments], lambda: services(Settings(), loader=load_tiny))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
