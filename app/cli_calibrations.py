"""The command ``calibrations``: finished calibrations listed, read, compared, exported, reweighted and deleted."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from app.bootstrap import services
from app.cli_calibrate import SPACING_HELP, deployment_prompts, levels_by_family
from app.cli_options import add_json, calibration_id, show
from app.cli_output_calibrations import print_calibration, print_calibrations, print_comparison, print_drift
from app.services.calibration.plain import calibration_json, calibration_summary_json, compared_json, drift_json
from app.services.views import ReadingRequest
from app.settings import Settings
from coft_core.conformal.stepwise import BIN_SPACINGS


def add_calibrations(commands: Any) -> None:
    """Add the command with its own commands."""
    parser = commands.add_parser("calibrations", help="list, show, compare, export, reweight or delete calibrations")
    own = parser.add_subparsers(required=True, metavar="ACTION")
    listed = own.add_parser("list", help="list finished calibrations, newest first")
    listed.add_argument("--model", help="only those of this model")
    add_json(listed)
    listed.set_defaults(run=_list)
    shown = own.add_parser("show", help="thresholds, coverage and what can be certified, read as asked")
    _add_id(shown)
    _add_reading(shown)
    shown.set_defaults(run=_show)
    compared = own.add_parser("compare", help="two calibrations side by side")
    compared.add_argument("first", help="number of a calibration, or 'embedded'")
    compared.add_argument("second", help="number of another one")
    _add_reading(compared)
    compared.set_defaults(run=_compare)
    drift = own.add_parser("drift", help="what the audits so far say against a calibration")
    _add_id(drift)
    add_json(drift)
    drift.set_defaults(run=_drift)
    exported = own.add_parser("export", help="write a calibration as a file that the library loads")
    _add_id(exported)
    exported.add_argument("--out", type=Path, help="file to write (default: calibration-ID.zip here)")
    exported.set_defaults(run=_export)
    reweighted = own.add_parser("reweight", help="store a calibration anew, weighted to prompts like those in use")
    _add_id(reweighted)
    reweighted.add_argument("--prompts", type=Path, required=True, help="CSV or JSONL of prompts like those in use")
    reweighted.add_argument("--name", default="", help="name of the new calibration (default: the old one, weighted)")
    add_json(reweighted)
    reweighted.set_defaults(run=_reweight)
    deleted = own.add_parser("delete", help="delete a calibration; audits that used it keep its name")
    _add_id(deleted)
    deleted.set_defaults(run=_delete)


def _add_id(command: Any) -> None:
    command.add_argument("calibration", help="number of a calibration, or 'embedded'")


def _add_reading(command: Any) -> None:
    command.add_argument("--alpha", type=float, help="risk level (default: as calibrated, here and below)")
    command.add_argument("--estimator", choices=("hierarchical", "one_per_context", "pooled"))
    command.add_argument("--draws", type=int, help="draws of one_per_context that are averaged")
    command.add_argument("--bin-width", type=int, help="steps that share a threshold")
    command.add_argument("--bin-spacing", choices=BIN_SPACINGS, help=SPACING_HELP)
    command.add_argument("--max-position", type=int, help="steps beyond belong to the last bin")
    command.add_argument("--rho", type=float, help="bound on how much likelier a prompt can be in use")
    command.add_argument("--group", help="the group whose own thresholds are read")
    command.add_argument("--family", help="with factorized masks, the family whose thresholds are shown")
    command.add_argument(
        "--alpha-by-family", metavar="FAMILY=ALPHA,...", help="with factorized masks, each family's share of alpha"
    )
    add_json(command)


def _reading(options: argparse.Namespace) -> ReadingRequest:
    return ReadingRequest(
        alpha=options.alpha,
        estimator=options.estimator,
        bin_width=options.bin_width,
        max_position=options.max_position,
        draws=options.draws,
        rho=options.rho,
        group=options.group,
        family=options.family,
        alpha_by_family=levels_by_family(options.alpha_by_family),
        bin_spacing=options.bin_spacing,
    )


def _list(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        found = wired.calibrations.list(options.model)
        show(options, [calibration_summary_json(item) for item in found], lambda: print_calibrations(found))


def _show(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        number = calibration_id(wired, options.calibration)
        view, drift = wired.calibrations.view(number, _reading(options)), wired.calibrations.drift(number)
        data = {**calibration_json(view), "drift": drift_json(drift)}
        show(options, data, lambda: print_calibration(view, drift))


def _compare(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        first, second = (
            wired.calibrations.view(calibration_id(wired, text), _reading(options))
            for text in (options.first, options.second)
        )
        show(options, compared_json(first, second), lambda: print_comparison(first, second))


def _drift(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        report = wired.calibrations.drift(calibration_id(wired, options.calibration))
        show(options, drift_json(report), lambda: print_drift(report))


def _export(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        number = calibration_id(wired, options.calibration)
        if options.out is None:
            print(wired.calibrations.export(number, Path()))
        else:
            wired.calibrations.load(number).save(options.out)
            print(options.out)


def _reweight(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        number = calibration_id(wired, options.calibration)
        made = wired.calibrations.reweight(number, deployment_prompts(wired, options.prompts), options.name)
        view = wired.calibrations.view(made)
        show(options, calibration_json(view), lambda: print_calibration(view))


def _delete(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        number = calibration_id(wired, options.calibration)
        wired.calibrations.delete(number)
        print(f"Calibration {number} deleted.")
