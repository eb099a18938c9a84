"""Tunings: the strength of methods is swept on one set, and each one's best point is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from app.jobs.service import JobService, JobView
from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from app.shared.files import write_text
from app.shared.json import job_json
from app.shared.needs import LEAD, READ
from app.shared.operations import Json, OnTerminal, Read, command, operation, record
from app.shared.settings_json import settings_from_json
from app.shared.terminal import PolicyOptions, print_table, wait_for
from app.shared.wiring import Services
from app.tune.runs import TUNABLE, TuningRequest, TuningView, tuning_csv, tuning_json
from app.tune.service import TuningService
from app.tune.words import (
    calibrated_sentence,
    figure_text,
    found_text,
    kept_sentence,
    notes,
    points,
    tuning_finding,
    values_text,
)

USUAL = TuningRequest("", ())

OWN = ("name", "policies", "alphas", "calibration_source")
"""Settings of a tuning that no audit has."""


def _print_list(views: tuple[TuningView, ...]) -> None:
    for view in views:
        print(f"{view.id}: {view.name}, {view.model} on {view.set_name}; {found_text(view)}")
    if not views:
        print("Nothing is tuned yet; see: python -m app tune --help")


def _print(view: TuningView) -> None:
    print(f"{view.name} (tuning {view.id}): {view.model} on {view.set_name}, {view.prompts} graded prompts, "
          f"{view.pairs} pairs; {calibrated_sentence(view)}")  # fmt: skip
    if finding := tuning_finding(view):
        print(finding)
    print_table(
        ("Method", "Strength", ">Gap", ">Accuracy", ""),
        ((name, values_text(point), figure_text(point.gap), figure_text(point.accuracy),
          "chosen" if point.chosen else "") for _, name, point in points(view)),
    )  # fmt: skip
    if view.complete:
        print(f"A point is chosen for its gap among those with an accuracy of at least {view.floor:.3f}.")
    for note in notes(view):
        print(note)


def tuning_request(given: Json | None) -> TuningRequest:
    """A tuning from JSON, which holds its own settings and those of its answers.

    Raises:
        ServiceError: There is no such setting, or one cannot take its value.
    """
    named = dict(given or {})
    settings = settings_from_json({name: value for name, value in named.items() if name not in OWN}, others=OWN)
    own = {name: value for name, value in named.items() if name in OWN and value is not None}
    return record(TuningRequest, own, name="", settings=settings)


def _follow(wired: Services, begun: JobView, quiet: bool) -> TuningView:
    """Wait for a tuning."""
    job = wait_for(wired, begun.id, quiet)
    if job.status != "done":
        kept = next((f" {kept_sentence(view)}" for view in wired[TuningService].list() if view.id == job.id), "")
        raise ServiceError((job.error or f"The tuning was {job.status}.") + kept)
    return wired[TuningService].view(job.id)


def _write(_: Services, view: TuningView, file: Path) -> str:
    """Write all points as CSV to this file."""
    write_text(file, tuning_csv(view))
    return ""


@operation(need=LEAD, json=job_json, answer="job")
def tune(
    wired: Services,
    file: Path,
    settings: Annotated[TuningRequest, Read(tuning_request)] = USUAL,
    calibrate_on: Path | None = None,
) -> JobView:
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
    tuning_set = wired[TuningService].read(file, file.name)
    request = replace(settings, name=settings.name or file.stem)
    return wired[JobService].get(wired[TuningService].submit(tuning_set, request, calibrate_on))


@command("tune", json=tuning_json, wait=_follow, write=_write, text=_print)
def tune_methods(
    wired: Services,
    *,
    prompts: Path,
    policies: Annotated[str, typer.Option("--policies", metavar="NAME[,NAME]")],
    name: str = "",
    calibrate_on: Path | None = None,
    source: Literal["reference", "rollout"] = "reference",
    max_new_tokens: int = AuditSettings().max_new_tokens,
    options: PolicyOptions,
) -> JobView:
    """Sweep the strength of methods and keep each one's best point.

    Args:
        prompts: CSV or JSONL with prompt, answer, others, pair
        policies: methods to tune, as 'policies' lists them, or 'all' that have a strength
        name: name of the run (default: the file's)
        calibrate_on: prompt set on which COFT is calibrated for every lambda (default: tuned uncertified)
        source: where that calibration's contexts come from: the set's references, or rollouts of the policy itself
        max_new_tokens: steps of a rollout at most
    """
    names = (own.key for own in TUNABLE) if policies == "all" else (part.strip() for part in policies.split(","))
    settings = replace(AuditSettings(**options.settings(wired)), lam=AuditSettings().lam, max_new_tokens=max_new_tokens)
    request = TuningRequest(name, tuple(names), settings, calibration_source=source)
    return tune.call(wired, prompts, request, calibrate_on)


@operation(
    need=READ,
    command="tunings",
    json=lambda found: tuning_json(found) if isinstance(found, TuningView) else [tuning_json(view) for view in found],
    text=lambda found: _print(found) if isinstance(found, TuningView) else _print_list(found),
)
def list_tunings(
    wired: Services, run_id: Annotated[int | None, typer.Argument(metavar="NUMBER"), OnTerminal()] = None
) -> TuningView | tuple[TuningView, ...]:
    """List tunings that have ended, or show one.

    Args:
        run_id: number of a tuning

    Returns:
        A list of tunings, newest first: id, name, model, set_name, settings, calibrated_on, calibration_source,
        vanilla, floor, and methods, each with its points: values, accuracy and gap with their 95 % intervals, and
        chosen. A run that ended early has another status than done; complete is then false, points_measured and
        points_planned say how far it came, and nothing of it is chosen.
    """
    return wired[TuningService].list() if run_id is None else wired[TuningService].view(run_id)
