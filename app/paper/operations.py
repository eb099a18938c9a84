"""The command that makes the paper's tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from app.evaluate.runs import EvaluationView
from app.evaluate.service import EvaluationService
from app.evaluate.terminal import print_layout
from app.paper.items import EXAMPLES
from app.paper.outputs import PAGE, Made, claim_rows, shown_items
from app.paper.run import Asked, Part
from app.paper.service import PaperService
from app.shared.errors import ServiceError
from app.shared.format import duration, plural
from app.shared.operations import Json, Tell, command
from app.shared.terminal import pairs, print_table, wait_for_all
from app.shared.wiring import Services
from coft_core.step_numbers import finite


def _json(found: Made | list[Part]) -> Json:
    if isinstance(found, list):
        return {"plan": [asdict(part) for part in found]}
    tables = [
        {"experiment": own.experiment, "model": own.model, "tables": [finite(grid.json()) for grid in own.grids]}
        for own in found.sections
    ]
    items = [{"label": own.item.label, "title": own.item.title, "status": own.status} for own in shown_items(found)]
    skipped = [{"experiment": own.experiment, "model": own.model, "reason": own.reason} for own in found.skipped]
    claims = [row for own in found.claims for row in claim_rows(own)]
    return {"items": items, "tables": tables, "skipped": skipped, "claims": finite(claims)}


def _print(found: Made | list[Part]) -> None:
    if isinstance(found, list):
        _print_plan(found)
        return
    for section in found.of(EXAMPLES):
        for grid in section.grids:
            print(f"\n{grid.title}, {section.model}")
            print_layout(grid.layout)
            print(*(f"- {note}" for note in grid.notes), sep="\n")
    for part in found.skipped:
        print(f"Not made: {part.experiment}, {part.model}: {part.reason}")
    if found.skipped:
        print("Run the same command to try these again. Another folder starts over, but reads nothing twice.")
    tables = sum(len(own.grids) for own in found.sections)
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in sorted(found.verdicts.items()))
    print(f"{plural(tables, 'table')} made. Claims: {verdicts or 'none'}.\nWritten: {found.out / PAGE}")


def _print_plan(parts: Sequence[Part]) -> None:
    print_table(("Part", "Model", "Expected"), [(part.experiment, part.model, _expected(part)) for part in parts])
    print(*(note for part in parts for note in part.notes), _in_all(parts), sep="\n")


def _expected(part: Part) -> str:
    return part.reason or (duration(part.seconds) if part.seconds else "nothing more than earlier parts")


def _in_all(parts: Sequence[Part]) -> str:
    seconds = sum(part.seconds or 0.0 for part in parts)
    return f"{duration(seconds).capitalize()} of the model's time, without fitting thresholds and measuring speed."


def _code(found: Made | list[Part]) -> int:
    """1 where nothing could be made."""
    return int(isinstance(found, Made) and not found.sections)


@command("paper", json=_json, text=_print, code=_code)
def paper(
    wired: Services,
    *,
    out: Path,
    model: Annotated[list[str] | None, typer.Option("--model", metavar="NAME")] = None,
    data: str = "",
    limit: int | None = None,
    seeds: Annotated[str, typer.Option("--seeds", metavar="SEED[,SEED]")] = "",
    only: Annotated[list[str] | None, typer.Option("--only", metavar="PART")] = None,
    run: Annotated[list[int] | None, typer.Option("--run", metavar="NUMBER")] = None,
    judges: Annotated[str | None, typer.Option("--judges", metavar="NAME=SOURCE,...")] = None,
    given: Annotated[str | None, typer.Option("--set", metavar="POLICY.PARAMETER=VALUE,...")] = None,
    share: float = 0.0,
    plan: bool = False,
    tell: Tell | None = None,
) -> Made | list[Part]:
    """Make every table and figure of the paper in its order, beside its own numbers, and check its claims.

    Killed or interrupted, the same command goes on where it stopped.

    Args:
        out: folder for the page, the tables and the figures
        model: 'demo', a hub id, or a folder; may be given several times (default: COFT_MODEL)
        data: folder with the suites' files (default: COFT_DATA)
        limit: whole units of each suite are drawn until there are so many items
        seeds: seeds of the runs (default: 0,1,2)
        only: a part, such as table1 or worked_examples; may be given several times
        run: number of an evaluation of another day, whose tables are taken as they are; may be given several times
        judges: what judges written texts, e.g. toxicity=embedded,sentiment=FOLDER
        given: what methods need, such as cda.checkpoint=FOLDER
        share: share of the items on which thresholds are fitted at least (default: as each part has it, mostly 0.15)
        plan: only say what each part will take
    """
    judged, told = (tuple((pairs(*one) or {}).items()) for one in (("--judges", judges), ("--set", given)))
    try:
        numbers = tuple(int(seed) for seed in seeds.split(",") if seed.strip()) or None
    except ValueError as error:
        raise ServiceError(f"--seeds has {seeds!r}; write whole numbers, separated by commas.") from error
    asked = Asked(data, limit, numbers, judged, told, share)
    models = model or ([] if run else [wired.settings.model])
    begun = wired[PaperService].begin(out, asked, models, only or (), run or ())
    if plan:
        return list(begun.planned())
    say = tell or (lambda remark: None)
    if begun.is_new:
        expected = []
        for part in begun.planned():
            expected.append(part)
            for sentence in (f"{part.experiment}, {part.model}: {_expected(part)}", *part.notes):
                say(sentence)
        say(_in_all(expected))
    parts = begun.run(lambda view: _wait(wired, view, out, quiet=tell is None), say)
    return wired[PaperService].made(begun, parts, say)


def _wait(wired: Services, view: EvaluationView, out: Path, quiet: bool) -> None:
    """Wait for a running evaluation; an interruption keeps what is done."""
    if view.job is not None:
        cancel = lambda: wired[EvaluationService].cancel(view.id)  # noqa: E731
        wait_for_all(wired, [view.job.id], cancel, f"paper --out {out} and the same options", "The evaluation", quiet)
