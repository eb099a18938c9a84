"""The command of the gate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, cast

import typer

from app.audit.service import neutral_words
from app.evaluate.service import EvaluationService
from app.gate.baseline import changes, read_baseline
from app.gate.file import Asked, read_check
from app.gate.outputs import (
    CODES,
    SAID,
    changed,
    check_json,
    interval,
    junit,
    left_out,
    markdown,
    number,
    sarif,
    summed_up,
)
from app.gate.prompts import Setting
from app.gate.published import results_of
from app.gate.run import Checked, run_check
from app.hosting.model_host import ModelHost
from app.prompts.sets import parse_prompt_set, refused_rows, require_prompts, rows_of
from app.report.service import ReportService
from app.shared.errors import ServiceError
from app.shared.files import write_bytes, write_text
from app.shared.operations import Progress, command
from app.shared.planning import detector_of
from app.shared.policies import policy_of_text
from app.shared.results.formats import SHARED, SharedFormat
from app.shared.results.publication import Publication
from app.shared.terminal import print_table
from app.shared.wiring import Services
from coft_core.assets import assets_path
from db.prompt_sets import PromptRow

EXAMPLE = ("check", "audit.yaml")


def _print(checked: Checked) -> None:
    rows = [
        (one.claim.text, SAID[one.verdict], number(one.estimate), interval(one), one.observations)
        for one in checked.judged
    ]
    print_table(("Claim", "Verdict", ">Estimate", "Interval", ">Observations"), rows)
    for note in (*changed(checked), *left_out(checked), summed_up(checked)):
        print(note)


def _code(checked: Checked | str) -> int:
    return 0 if isinstance(checked, str) else CODES[checked.verdict]


@command("check", json=check_json, text=_print, code=_code, error_code=3)
def check(
    wired: Services,
    file: Path,
    *,
    init: Annotated[bool, typer.Option("--init")] = False,
    junit_file: Annotated[Path | None, typer.Option("--junit", metavar="FILE")] = None,
    sarif_file: Annotated[Path | None, typer.Option("--sarif", metavar="FILE")] = None,
    baseline: Path | None = None,
    summary: Annotated[Path | None, typer.Option("--summary", metavar="FILE")] = None,
    export: Annotated[list[str] | None, typer.Option("--export", metavar="FORMAT=FILE")] = None,
    publication: Publication | None = None,
    progress: Progress | None = None,
) -> Checked | str:
    """Hold a model against the claims of a file.

    The exit code is 0 if every claim holds, 1 if one does not, 2 if one is undecided, and 3 after an error.

    Args:
        file: the file of the check, YAML
        init: write a commented file and its prompts, to begin with
        junit_file: write JUnit XML, a case for each claim
        sarif_file: write SARIF 2.1.0, a result for each claim that is not a pass
        baseline: the JSON of an earlier check of the same prompts, to compare with
        summary: write a Markdown table
        export: also write the measures as lm-eval, every-eval-ever, hub, card, inspect or signed; may be given several
            times
    """
    if init:
        return _begun(file)
    exports = [_export(text) for text in export or ()]
    asked = read_check(file)
    rows, digest = _prompts(asked)
    host = wired[ModelHost]
    setting = Setting(
        model=host.get(asked.file.model or wired.settings.model),
        policy=policy_of_text(asked.file.method),
        detector=detector_of(wired.settings),
        words=neutral_words(wired.settings),
        room=host.memory.room(),
    )
    suites = [
        wired[EvaluationService].reading(key, asked.data, setting.model, setting.detector, setting.room)
        for key in asked.suites
    ]
    digests = {one.suite.key: one.digest for one in suites}
    before = () if baseline is None else read_baseline(baseline, digest, digests)
    checked = run_check(asked, rows, suites, setting, progress or (lambda share, what: None), digest, before)
    checked = replace(checked, changes=tuple(changes(checked, before)))
    if exports:
        prompts = {row.line: row.example.prompt for row in rows}
        results = results_of(checked, prompts, datetime.now(UTC))
        for form, path in exports:
            write_bytes(path, wired[ReportService].shared(results, form, publication or Publication()))
    if junit_file is not None:
        write_bytes(junit_file, junit(checked))
    if sarif_file is not None:
        write_text(sarif_file, json.dumps(sarif(checked), indent=2))
    if summary is not None:
        write_text(summary, markdown(checked))
    return checked


def _export(text: str) -> tuple[SharedFormat, Path]:
    form, _, path = text.partition("=")
    if form not in SHARED or not path:
        raise ServiceError(f"--export takes FORMAT=FILE, with one of the formats {', '.join(SHARED)}, not {text!r}.")
    return cast("SharedFormat", form), Path(path)


def _prompts(asked: Asked) -> tuple[Sequence[PromptRow], str]:
    """The file's prompts with their digest; nothing where it names none."""
    if not asked.file.prompts:
        return (), ""
    parsed = parse_prompt_set(asked.prompts)
    require_prompts(parsed)
    if parsed.errors:
        raise ServiceError(refused_rows(parsed, parsed.errors))
    return rows_of(parsed), parsed.digest


def _begun(file: Path) -> str:
    prompts = file.with_name("prompts.csv")
    for path in (file, prompts):
        if path.exists():
            raise ServiceError(f"{path} exists already; name another file, or remove it.")
    write_text(prompts, assets_path("prompts", "hiring_pairs.csv").read_text("utf-8"))
    write_text(file, assets_path(*EXAMPLE).read_text("utf-8"))
    return f"{file} and {prompts} are written. Run them with: python -m app check {file}"
