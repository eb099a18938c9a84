"""What leaves the program of decisions that were made elsewhere: tables, data, a page, a formal report, evidence."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from functools import partial

from markupsafe import Markup

from app.report.bundle import KIND, MANIFEST, pack, verifiers
from app.report.bundle import VERSION as BUNDLE_VERSION
from app.report.document import canonical, digest_of
from app.report.formal import PROGRAM, Annex, told
from app.shared.decisions import (
    DecidedRun,
    compared_said,
    control_said,
    decisions_csv,
    finding,
    notes,
    rates_csv,
    run_json,
)
from app.shared.exported import fragment, page
from app.shared.formal_reports import RateTable, Statement
from app.shared.requirements import mapped
from coft_core.controls.result import LEVEL
from coft_core.effects import visible
from coft_core.messages import catalogue

LEAST_WIDE, WIDEST = 1.25, 2.0
"""The largest impact ratio that the picture has room for, at least and at most; intervals that go on are cut."""
DECISIONS, ROWS, RATES = "decisions.json", "decisions.csv", "rates.csv"


def decided_files(run: DecidedRun) -> dict[str, bytes]:
    """Everything of a run by file: as data, its rows, and its rates."""
    texts = {DECISIONS: canonical(run_json(run), indent=1) + "\n", ROWS: decisions_csv(run), RATES: rates_csv(run)}
    # A lone surrogate has no UTF-8; the JSON file keeps it exactly.
    return {name: text.encode("utf-8", "replace") for name, text in texts.items()}


def decided_digests(run: DecidedRun) -> dict[str, str]:
    """Digests of the file that was read, and of the rows."""
    return {"file": run.sha256, "decisions": digest_of([asdict(row) for row in run.decisions])}


def decided_bundle(run: DecidedRun, sign: Callable[[dict[str, object]], object]) -> bytes:
    """The evidence bundle; the same run and key give the same bytes."""
    files = {**decided_files(run), **verifiers()}
    stated: dict[str, object] = {
        "kind": KIND,
        "version": BUNDLE_VERSION,
        "program": PROGRAM,
        "decisions": {"id": run.id, "name": run.name},
        "digests": decided_digests(run),
        "files": {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
            for name, data in sorted(files.items())
        },
        "signatures": [],
    }
    manifest = canonical({**stated, "signatures": [sign(stated)]}, indent=1) + "\n"
    return pack({MANIFEST: manifest.encode("ascii"), **files})


def decided_html(run: DecidedRun) -> str:
    """A page for people: the finding, the picture, and what it is compared with."""
    return page("decided.html.j2", ("report.css", "../pages/decisions.css"), run=run, program=PROGRAM, **parts_of(run))


def decided_fragment(run: DecidedRun) -> Markup:
    """The same without its head, for a page of the program."""
    return fragment("decided_body.html.j2", run=run, **parts_of(run))


def parts_of(run: DecidedRun) -> dict[str, object]:
    """What a page says of a run: the finding, the groups with their intervals, the comparisons and the notes."""
    found, say = run.found, catalogue("en")
    low = found.table.lowest is not None and found.table.lowest.below_four_fifths
    return {
        "finding": finding(found, say),
        "strong": low and found.headline is not None and found.headline.adjusted <= LEVEL,
        "rows": found.table.rows,
        "ratios": found.ratios,
        "most": min(WIDEST, max([LEAST_WIDE, *(ends[1] for ends in found.ratios.values() if ends is not None)])),
        "compared": compared_said(found, say),
        "control": control_said(found, say),
        "notes": notes(run, say),
        "tests": found.tests,
        "paired": found.paired,
    }


def _evidence(statement: Statement, facts: dict[str, str], answers: dict[str, str], told: str) -> dict[str, str | None]:
    """The fields that a map of requirements can name; None where outcomes without probabilities say nothing."""
    given = {name: facts[f"page.{name}"] for name in ("date", "model", "method")}
    given |= {"finding": told, "auditor": visible(statement.auditor.strip())}
    given |= {"question": visible(statement.question.strip())}
    answered = {f"nyc.{name}": answer for name, answer in answers.items() if name != "scoring"}
    return {**given, **answered}


def formal_decided(run: DecidedRun, statement: Statement) -> str:
    """The formal report as HTML that needs nothing else."""
    found, say, table = run.found, catalogue(statement.language), run.found.table
    not_given, rows, file = say.say("page.not_given"), say.whole(len(run.decisions)), visible(run.file)
    subject = say.say("decisions.subject", id=run.id, name=visible(run.name), rows=rows, file=file)
    facts = {
        "page.auditor": visible(statement.auditor.strip()) or not_given,
        "page.date": statement.day.isoformat(),
        "page.question": visible(statement.question.strip()) or not_given,
        "page.subject": subject,
        "decisions.file": f"{file}, SHA-256 {run.sha256}",
        "page.model": visible(run.rule.model) or say.say("decisions.model_value"),
        "page.method": say.say("decisions.method", form=run.form),
    }
    rates = RateTable(
        kind="selection", rows=table.rows, unknown=table.unknown, undecided=len(found.undecided),
        unfinished=len(run.left_out), excluded=table.excluded, pattern=run.rule.selected or say.say("decisions.yes"),
        other=run.rule.other, regex=run.rule.regex, dependent=False,
    )  # fmt: skip
    small = [visible(row.group) for row in table.rows if row.small]
    outcomes = sum(row.total for row in table.rows)
    answers = {
        "auditor": say.say("nyc.auditor_answer"),
        "selection": told(say, "nyc.selection_table", groups=len(table.rows), outcomes=outcomes),
        "scoring": say.say("nyc.scoring_none"),
        "categories": say.say("nyc.categories_batch", groups=say.listed([visible(row.group) for row in table.rows])),
        "unknown": told(say, "nyc.unknown_batch", selection=table.unknown, scoring=None),
        "small": told(say, f"nyc.small_{'excluded' if small and table.excluded else 'kept'}", groups=say.listed(small)),
        "data": say.say("decisions.data", rows=rows, file=file),
        "published": say.say("nyc.published_answer"),
    }
    return page(
        "formal.html.j2",
        ("formal.css",),
        say=say.say,
        told=partial(told, say),
        shown=visible,
        catalogue=say,
        language=statement.language,
        subject=subject,
        facts={say.say(name): value for name, value in facts.items()},
        lead=finding(found, say),
        sentences=[*compared_said(found, say), control_said(found, say), *notes(run, say)],
        tokens=None,
        of_many=False,
        warnings=[],
        not_claimed=[say.say(f"decisions.not_claimed_{name}") for name in ("fair", "cause", "others", "law")],
        annexes=[Annex("nyc", answers, (rates,))],
        maps=mapped(statement, _evidence(statement, facts, answers, finding(found, say))),
        program=PROGRAM,
    )
