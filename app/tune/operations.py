"""The commands ``tune`` and ``tunings``: sweep methods on one set, and what was found."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from app.bootstrap import Services, services
from app.settings import Settings
from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from app.shared.events import offer, offer_with_files, shown
from app.shared.files import write_text
from app.shared.json import job_json
from app.shared.policies import KNOWN_POLICIES, policy_name
from app.shared.settings_json import settings_from_json
from app.shared.terminal import add_json, add_policy_options, masked, show, wait_for
from app.tune.runs import TunedMethod, TunedPoint, TuningRequest, TuningView, tuning_csv, tuning_json
from app.tune.words import calibrated_sentence, kept_sentence, none_sentence

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
            settings=settings_from_json({name: value for name, value in given.items() if name not in OWN}),
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


def add_tune(commands: Any) -> None:
    """Add the commands."""
    command = commands.add_parser("tune", help="sweep the strength of methods and keep each one's best point")
    command.add_argument("--prompts", type=Path, required=True, help="CSV or JSONL with prompt, answer, others, pair")
    command.add_argument(
        "--policies",
        required=True,
        metavar="NAME[,NAME]",
        help=f"methods to tune, or 'all' that have a strength: {', '.join(_with_strength())}",
    )
    command.add_argument("--name", help="name of the run (default: the file's)")
    command.add_argument(
        "--calibrate-on",
        type=Path,
        metavar="FILE",
        help="prompt set on which COFT is calibrated for every lambda (default: tuned uncertified)",
    )
    command.add_argument(
        "--source",
        choices=("reference", "rollout"),
        default="reference",
        help="where that calibration's contexts come from: the set's references, or rollouts of the policy itself",
    )
    command.add_argument(
        "--max-new-tokens",
        type=int,
        default=AuditSettings().max_new_tokens,
        help="steps of a rollout at most (default: 64)",
    )
    command.add_argument("--out", type=Path, help="write all points as CSV to this file")
    add_policy_options(command)
    command.set_defaults(run=_tune)
    listing = commands.add_parser("tunings", help="list finished tunings, or show one")
    listing.add_argument("run_id", nargs="?", type=int, metavar="NUMBER")
    add_json(listing)
    listing.set_defaults(run=_tunings)


def _with_strength() -> list[str]:
    return [item.key for item in KNOWN_POLICIES if item.fuses or any(own.strength for own in item.parameters)]


def _tune(options: argparse.Namespace) -> None:
    names = _with_strength() if options.policies == "all" else [part.strip() for part in options.policies.split(",")]
    with services(Settings()) as wired:
        settings = AuditSettings(
            model=options.model,
            alpha=options.alpha,
            temperature=options.temperature,
            top_p=options.top_p,
            top_k=options.top_k,
            seed=options.seed,
            max_new_tokens=options.max_new_tokens,
        )
        request = TuningRequest(
            options.name or options.prompts.stem,
            tuple(names),
            masked(settings, wired, options),
            calibration_source=options.source,
        )
        tuning_set = wired.tunings.read(options.prompts)
        job = wait_for(wired, wired.tunings.submit(tuning_set, request, options.calibrate_on), quiet=options.json)
        if job.status != "done":
            kept = next((f" {kept_sentence(view)}" for view in wired.tunings.list() if view.id == job.id), "")
            raise ServiceError((job.error or f"The tuning was {job.status}.") + kept)
        view = wired.tunings.view(job.id)
    if options.out:
        write_text(options.out, tuning_csv(view))
    show(options, tuning_json(view), lambda: _print(view))


def _tunings(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        if options.run_id is not None:
            view = wired.tunings.view(options.run_id)
            show(options, tuning_json(view), lambda: _print(view))
            return
        found = wired.tunings.list()
    show(options, [tuning_json(view) for view in found], lambda: _print_list(found))


def _print_list(found: tuple[TuningView, ...]) -> None:
    for view in found:
        chosen = ", ".join(f"{policy_name(own.policy)} {_values(own.best)}" for own in view.methods if own.best)
        state = "" if view.complete else f"{view.status}, {view.measured} of {view.planned} points; "
        print(f"{view.id}: {view.name}, {view.model} on {view.set_name}; {state}{chosen or 'nothing chosen'}")
    if not found:
        print("Nothing is tuned yet; see: python -m app tune --help")


def _print(view: TuningView) -> None:
    certified = calibrated_sentence(view)
    print(f"{view.name} (tuning {view.id}): {view.model} on {view.set_name}, {view.prompts} graded prompts, "
          f"{view.pairs} pairs; {certified}")  # fmt: skip
    print(f"Vanilla{'':<40}{_figures(view.vanilla)}")
    if view.complete:
        print(f"A point is chosen for its gap among those with an accuracy of at least {view.floor:.3f}.")
    else:
        print(kept_sentence(view))
    for own in view.methods:
        _print_method(own, view.complete, view.floor)


def _print_method(own: TunedMethod, complete: bool, floor: float) -> None:
    if own.error:
        print(f"{policy_name(own.policy)}: left out: {own.error}")
    for point in own.points:
        print(f"{'*' if point.chosen else ' '}{policy_name(own.policy):<28}{_values(point):<18}{_figures(point)}")
    if not complete and not own.error:
        print(f"{policy_name(own.policy)}: {len(own.points)} of {own.planned} points measured.")
    elif sentence := none_sentence(own, floor):
        print(sentence)


def _values(point: TunedPoint | None) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in point.values) if point else ""


def _figures(point: TunedPoint) -> str:
    accuracy, gap = point.accuracy, point.gap
    return (
        f"gap {gap[0]:.3f} [{gap[1]:.3f}, {gap[2]:.3f}]  "
        f"accuracy {accuracy[0]:.3f} [{accuracy[1]:.3f}, {accuracy[2]:.3f}]"
    )
