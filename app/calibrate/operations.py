"""The endpoints for calibrations that other programs call; their names and arguments stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from app.bootstrap import Services
from app.calibrate.json import calibration_json, calibration_summary_json, drift_json
from app.shared.audits import ReadingRequest
from app.shared.events import offer, offer_with_files, shown
from app.shared.json import job_json
from app.shared.settings_json import calibration_request, columns_of


class CalibrationEndpoints:
    """One method per endpoint; docstrings are the interface's documentation."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._calibrations = services.calibrations
        self._jobs = services.jobs

    @shown
    def calibrate(self, file: str, settings: dict[str, Any] | None = None) -> dict[str, Any]:
        """Start a calibration on a prompt set, without waiting for it.

        Args:
            file: CSV or JSONL with a prompt and a reference in each row, and optionally group, context and weight.
            settings: All optional: name, model, alpha, lam, estimator (hierarchical, one_per_context or pooled), draws,
                source (reference or rollout), mask_layout (joint or factorized), alpha_by_family ({"gender": 0.05}),
                masked_families, prompt_format (auto, chat or plain), chat_date, by_group, rho, weighting with
                deployment (a list of prompts), and others; and columns, which says for a field of a prompt set what
                column of the file to read it from ({"prompt": "question"}).

        Returns:
            The job: job_id, status, progress and message; ask job how far it is.
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
        bin_spacing: str | None = None,
    ) -> dict[str, Any]:
        """Read a finished calibration off its stored values, without the model; what is left out is as calibrated.

        Args:
            calibration_id: The calibration.
            alpha: Risk level.
            estimator: hierarchical, one_per_context or pooled.
            bin_width: Steps that share a threshold.
            max_position: Steps beyond belong to the last bin.
            draws: Draws of one_per_context that are averaged.
            rho: Bound on how much likelier a prompt can be in use than in the calibration.
            group: The group whose own thresholds are read.
            family: With factorized masks, the family whose thresholds are read.
            bin_spacing: widening (steps 1, 2, 3-4, 5-8, then bins of bin_width) or even (all of bin_width).

        Returns:
            The reading: settings, bins with their thresholds and contexts, coverage, the smallest alpha, and notes.
        """
        asked = ReadingRequest(
            alpha,
            estimator,
            _whole(bin_width),
            _whole(max_position),
            _whole(draws),
            rho,
            group or None,
            family or None,
            bin_spacing=bin_spacing or None,
        )
        return calibration_json(self._calibrations.view(int(calibration_id), asked))

    @shown
    def drift(self, calibration_id: int) -> dict[str, Any]:
        """Say whether the audits that used a calibration still resemble it.

        Args:
            calibration_id: The calibration.

        Returns:
            status, martingale, p_values, the number of audits, left_out (audits that do not count: session_id, prompt
            and why), and a sentence in plain words.
        """
        return drift_json(self._calibrations.drift(int(calibration_id)))

    @shown
    def list_calibrations(self, model: str = "") -> list[dict[str, Any]]:
        """List finished calibrations.

        Args:
            model: Only those of this model.

        Returns:
            A list of calibrations, newest first: calibration_id, name, model, settings, contexts and others.
        """
        return [calibration_summary_json(item) for item in self._calibrations.list(model or None)]

    @shown
    def job(self, job_id: int) -> dict[str, Any]:
        """Say how far a calibration's job is.

        Args:
            job_id: The job, as calibrate returned it.

        Returns:
            The job: status (queued, running, done, failed, cancelled), progress, message, and result, which names the
            calibration_id once it is done.
        """
        return job_json(self._jobs.get(int(job_id)))


def calibration_endpoints(services: Services, file: gr.File, settings: Component) -> None:
    """Register the endpoints; ``file`` and ``settings`` are hidden components for what is uploaded."""
    calls = CalibrationEndpoints(services)
    for method in (calls.list_calibrations, calls.job, calls.read_calibration, calls.drift):
        offer(method)
    offer_with_files(calls.calibrate, [file, settings], gr.JSON(label="job"))


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
