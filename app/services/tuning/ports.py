"""Tuning as pages and commands see it; see :mod:`app.services.ports`."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from app.services.views import AuditSettings, SamplePromptSet
from app.services.views.tuning import TunedValues, TuningRequest, TuningSet, TuningView


class Tunings(Protocol):
    """Methods swept on one set, each kept at its best point."""

    def samples(self) -> tuple[SamplePromptSet, ...]:
        """The sets to tune on that come with the program."""

    def read(self, path: Path, filename: str | None = None) -> TuningSet:
        """Read a set to tune on; a row that cannot be used refuses it."""

    def submit(self, tuning_set: TuningSet, request: TuningRequest, calibration_set: Path | None = None) -> int:
        """Start a run as a job and return the job's id, which is that of the run."""

    def list(self) -> tuple[TuningView, ...]:
        """Runs that have ended with something measured, newest first; those that ended early say so."""

    def view(self, run_id: int) -> TuningView:
        """A run that has ended with something measured."""

    def tuned(self, settings: AuditSettings) -> TunedValues | None:
        """What the newest run found for the settings' policy, model, sampling and masks; None if none fits."""

    def applied(self, settings: AuditSettings) -> AuditSettings:
        """The settings at the tuned strength of their policy."""

    def write_csv(self, run_id: int, folder: Path) -> Path:
        """Write a run's points into a folder, atomically, and return the path."""
