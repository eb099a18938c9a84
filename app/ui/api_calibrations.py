"""The endpoints for calibrations that other programs call; their names and arguments stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
from gradio.events import api

from app.services.plain import job_json
from app.services.plain_calibrations import calibration_json, drift_json
from app.services.ports import Services
from app.services.views import ReadingRequest
from app.ui.errors import shown
from app.ui.presenters_api import calibration_request, columns_of

AT_ONCE = 4


class CalibrationEndpoints:
    """One method per endpoint; docstrings are the interface's documentation."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._calibrations = services.calibrations
        self._jobs = services.jobs

    @shown
    def calibrate(self, file: str, settings: dict[str, Any] | None) -> dict[str, Any]:
        """Start a calibration on a prompt set (CSV or JSONL) and return its job.

        Settings are those of a calibration request, all optional: alpha, lam, estimator, draws, source ("reference" or
        "rollout"), mask_layout ("joint" or "factorized"), alpha_by_family ({"gender": 0.05}), masked_families,
        by_group, rho, weighting with deployment (a list of prompts), and others; and columns, which says for a field of
        a prompt set what column of the file to read it from ({"prompt": "question"}).
        """
        request = calibration_request(Path(file).stem, settings)
        parsed = self._calibrations.parse(Path(file), Path(file).name, columns_of(settings))
        return job_json(self._jobs.get(self._calibrations.submit(parsed, request)))

    @shown
    def read_calibration(
        self,
        calibration_id: int,
        alpha: float | None = None,
        estimator: str | None = None,
        bin_width: int | None = None,
        max_position: int | None = None,
        draws: int | None = None,
        rho: float | None = None,
        group: str | None = None,
        family: str | None = None,
    ) -> dict[str, Any]:
        """Read a finished calibration off its stored values, without the model; what is left out is as calibrated."""
        asked = ReadingRequest(
            alpha, estimator, _whole(bin_width), _whole(max_position), _whole(draws), rho, group or None, family or None
        )
        return calibration_json(self._calibrations.view(int(calibration_id), asked))

    @shown
    def drift(self, calibration_id: int) -> dict[str, Any]:
        """What the audits that used a calibration say against it: status, martingale, p-values, and a sentence."""
        return drift_json(self._calibrations.drift(int(calibration_id)))


def calibration_endpoints(services: Services, file: gr.File, settings: gr.JSON) -> None:
    """Register the endpoints; ``file`` and ``settings`` are hidden components for what is uploaded."""
    calls = CalibrationEndpoints(services)
    for method in (calls.read_calibration, calls.drift):
        api(method, api_name=method.__name__, api_description=method.__doc__, concurrency_limit=AT_ONCE)
    job, start = gr.JSON(label="job"), gr.Button()
    start.click(
        calls.calibrate, [file, settings], job, api_name="calibrate", api_description=calls.calibrate.__doc__,
        concurrency_limit=AT_ONCE,
    )  # fmt: skip


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
