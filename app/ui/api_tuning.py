"""The endpoints for tuning methods that other programs call; their names and arguments stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from app.bootstrap import Services
from app.services.errors import ServiceError
from app.services.plain import job_json
from app.services.tuning.plain import tuning_json
from app.services.views.tuning import TuningRequest
from app.ui.errors import shown
from app.ui.offering import offer, offer_with_files
from app.ui.presenters_api import audit_settings

OWN = ("name", "policies", "alphas", "calibration_source")


class TuningEndpoints:
    """One method per endpoint; docstrings are the interface's documentation."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._tunings = services.tunings
        self._jobs = services.jobs

    @shown
    def tune(
        self, file: str, settings: dict[str, Any] | None = None, calibrate_on: str | None = None
    ) -> dict[str, Any]:
        """Sweep the strength of methods on prompts with right answers, without waiting for it.

        Args:
            file: CSV or JSONL with prompt and answer in each row, and optionally others (wrong answers), pair, spans
                and graded.
            settings: policies (a list of keys that policies lists), and optionally name, model, temperature, top_p,
                top_k, seed, sentinel, mask_mode, mask_hint, whitelist, user_list_id and masked_families; where COFT is
                calibrated for the sweep also calibration_source (reference or rollout), max_new_tokens (steps of a
                rollout), alpha (that of the calibration) and alphas (a list of those that are tried).
            calibrate_on: Prompt set on which COFT is calibrated for every lambda, with references unless
                calibration_source is rollout; without one it is tuned without certification.

        Returns:
            The job: job_id, status, progress and message; ask job how far it is. Its job_id is that of the tuning.
        """
        given = dict(settings or {})
        policies = given.get("policies")
        if not isinstance(policies, list) or not all(isinstance(name, str) for name in policies):
            raise ServiceError("The setting policies must be a list of names; policies lists them.")
        request = TuningRequest(
            name=str(given.get("name") or Path(file).stem),
            policies=tuple(policies),
            settings=audit_settings({name: value for name, value in given.items() if name not in OWN}),
            alphas=_alphas(given.get("alphas")),
            calibration_source=str(given.get("calibration_source", "reference")),
        )
        read = self._tunings.read(Path(file), Path(file).name)
        on = None if calibrate_on is None else Path(calibrate_on)
        return job_json(self._jobs.get(self._tunings.submit(read, request, on)))

    @shown
    def list_tunings(self) -> list[dict[str, Any]]:
        """List tunings that have ended.

        Returns:
            A list of tunings, newest first: id, name, model, set_name, settings, calibrated_on, calibration_source,
            vanilla, floor, and methods, each with its points: values, accuracy and gap with their 95 % intervals, and
            chosen. A run that ended early has another status than done; complete is then false, points_measured and
            points_planned say how far it came, and nothing of it is chosen.
        """
        return [tuning_json(view) for view in self._tunings.list()]


def tuning_endpoints(services: Services, file: gr.File, settings: Component) -> None:
    """Register the endpoints; ``file`` and ``settings`` are hidden components for what is uploaded."""
    calls = TuningEndpoints(services)
    offer(calls.list_tunings)
    calibrate_on = gr.File(label="calibrate_on")
    offer_with_files(calls.tune, [file, settings, calibrate_on], gr.JSON(label="job"))


def _alphas(given: object) -> tuple[float, ...]:
    if given is None:
        return TuningRequest("", ()).alphas
    if not isinstance(given, list) or not all(isinstance(alpha, (int, float)) for alpha in given):
        raise ServiceError("The setting alphas must be a list of numbers, such as [0.05, 0.1].")
    return tuple(float(alpha) for alpha in given)
