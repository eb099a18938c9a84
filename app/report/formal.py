"""The formal report: one page that a reader without the program understands, and annexes for what the law asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from app.report.bundle import digests_of
from app.report.document import NAME, VERSION, ReportPart, digest_of
from app.report.findings import Finding, beside, counts, finding_of, lead, row_of
from app.report.tables import SessionData
from app.shared.audits import AuditSettings, settings_from_json
from app.shared.errors import ServiceError
from app.shared.exported import page
from app.shared.formal_reports import AuditedBatch, RateTable, Statement
from app.shared.format import moment
from app.shared.kept_steps import session_noise
from app.shared.policies import info_of, parameters_line
from app.shared.requirements import mapped
from app.shared.verdicts import standing
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.drift import DriftReport
from coft_core.effects import masked_words, named, visible
from coft_core.messages import Catalogue, catalogue
from coft_core.model.served import weights_seen
from coft_core.types import Step
from db.audits import SessionRecord

LONGEST_PROMPT = 500
"""Characters of a prompt that the first page shows; all of it is in the other exports."""
PROGRAM = {"program": NAME, "version": VERSION}
DEBIAN_LIBRARIES = ("libpango-1.0-0", "libpangoft2-1.0-0", "libharfbuzz-subset0")
"""Packages of Debian that the library draws text with."""
NOT_CLAIMED = ("fair", "threshold", "other_words", "one_prompt", "people", "law")


@dataclass(frozen=True, slots=True)
class Annex:
    """How an audit stands to a law: the name of its messages, its answers by provision, and its tables of rates."""

    law: str
    answers: Mapping[str, str | Sequence[str]]
    tables: tuple[RateTable, ...] = ()


@dataclass(frozen=True, slots=True)
class Audited:
    """What both kinds of formal reports rest on."""

    statement: Statement
    first: SessionRecord
    steps: tuple[Step, ...]
    finding: Finding
    calibration: Calibration | None
    drift: DriftReport | None
    verdicts: Mapping[str, int]
    warnings: tuple[str, ...]
    blind: tuple[bool, ...] = ()
    """Of each verdict that was given, whether it was given in a blind review."""

    def tell(self, name: str, /, **values: object) -> str:
        """A message in the language that is asked for, with numbers as the language writes them."""
        return told(catalogue(self.statement.language), name, **values)


def told(say: Catalogue, name: str, /, **values: object) -> str:
    """A message with numbers as its language writes them, and with “none” for what there is not."""
    nothing = say.say("words.none")
    return say.say(name, **{key: _written(say, value) or nothing for key, value in values.items()})


def _written(say: Catalogue, value: object) -> str:
    if isinstance(value, int):
        return say.whole(value)
    if isinstance(value, float):
        return say.number(value)
    return moment(value) if isinstance(value, datetime) else str(value or "")


def own_steps(data: SessionData) -> Iterable[Step]:
    """All steps of a session, each once."""
    return (step for branch in data.branches for step in data.chains[branch.id][branch.fork_step or 0 :])


def formal_session(
    data: SessionData,
    report: ReportPart,
    calibration: Calibration | None,
    drift: DriftReport | None,
    statement: Statement,
) -> str:
    """The formal report of a session as HTML that needs nothing else."""
    record = data.record
    verdicts = Counter(item.in_words for item in standing(data.log))
    audited = Audited(
        statement, record, tuple(own_steps(data)), finding_of(data), calibration, drift, verdicts, record.warnings,
        _blind(data),
    )  # fmt: skip
    digests = digests_of(report)
    families = dict.fromkeys(span.category for span in sorted(record.spans) if span.masked)
    masked = catalogue(statement.language).listed([audited.tell(f"families.{name}") for name in families])
    asked = ("selection", "scoring", "categories", "unknown", "small", "data")
    records = _records(
        audited,
        events=audited.tell(
            "eu12.events_one", steps=len(audited.steps), branches=len(data.branches), begun=record.created_at,
            changed=record.updated_at,
        ),
        log=audited.tell("eu12.log_answer", entries=len(report.log), head=report.log_head),
        digests={f"{_served(record)}weights": digests["model_weights"]}
        | {name: digests[name] for name in ("tokenizer", "fingerprint", "calibration", "steps", "prompt")},
        check=audited.tell("eu12.check_one", id=record.id),
    )  # fmt: skip
    subject = audited.tell("page.subject_session", id=record.id, name=visible(record.name))
    nyc = _nyc(audited, {name: audited.tell(f"nyc.{name}_one", families=masked) for name in asked})
    annexes = (nyc, records, _accuracy(audited))
    return _page(audited, subject, annexes, prompt=record.prompt)


def formal_batch(
    batch: AuditedBatch,
    sessions: Sequence[SessionData],
    calibration: Calibration | None,
    drift: DriftReport | None,
    statement: Statement,
) -> str:
    """The formal report of a batch as HTML that needs nothing else."""
    finding = finding_of(*sessions)
    steps = tuple(step for data in sessions for step in own_steps(data))
    warnings = tuple(dict.fromkeys(warning for data in sessions for warning in data.record.warnings))
    first = sessions[0].record
    blind = _blind(*sessions)
    audited = Audited(statement, first, steps, finding, calibration, drift, batch.verdicts, warnings, blind)
    tables = tuple(table for table in (batch.selection, batch.scoring) if table is not None)
    weights, tokenizer = (first.fingerprint.get(name) for name in ("weights", "tokenizer"))
    records = _records(
        audited,
        events=audited.tell("eu12.events_batch", steps=len(steps), sessions=len(sessions), begun=batch.created_at),
        log=audited.tell("eu12.log_batch", entries=sum(len(data.log) for data in sessions)),
        digests={f"{_served(first)}weights": weights, "tokenizer": tokenizer, "sessions": sessions_digest(sessions)},
        check=audited.tell("eu12.check_batch"),
    )
    subject = audited.tell(
        "page.subject_batch", id=batch.id, name=visible(batch.name), finished=len(batch.sessions), rows=batch.rows,
        file=visible(batch.file),
    )  # fmt: skip
    annexes = (_nyc_of_many(audited, batch, tables), records, _accuracy(audited))
    return _page(audited, subject, annexes)


def _blind(*sessions: SessionData) -> tuple[bool, ...]:
    return tuple(entry.blind for data in sessions for entry in data.log if entry.kind == "verdict")


def _evidence(audited: Audited, facts: Mapping[str, str], annexes: Sequence[Annex]) -> dict[str, str | None]:
    """The fields that a map of requirements can name; None where this evidence has nothing to say."""
    say, answers = catalogue(audited.statement.language), {}
    for annex in annexes:
        for name, answer in annex.answers.items():
            answers[f"{annex.law}.{name}"] = answer if isinstance(answer, str) else " ".join(answer)
    rated = {table.kind for annex in annexes for table in annex.tables}
    lacking = {f"nyc.{kind}" for kind in ("selection", "scoring") if kind not in rated}
    lacking |= {"eu15.declared"} if audited.calibration is None else set()
    lacking |= {"eu15.consistent"} if audited.drift is None else set()
    strongest = [
        f"{token['token']}: {token['effect']}" for token in (row_of(one, say) for one in audited.finding.listed)
    ]
    given = audited.statement
    whole = answers | {
        "finding": lead(audited.finding, say),
        "counts": counts(audited.finding, say),
        "strongest": say.listed(strongest),
        "thresholds": None if audited.calibration is None else next(_held_line(audited), None),
        "verdicts": audited.tell("thresholds.verdicts", **_judged(audited)) if any(_judged(audited).values()) else None,
        "blind": audited.tell("map.blind", blind=sum(audited.blind), all=len(audited.blind)) if audited.blind else None,
        "warnings": " ".join(say.stored(warning)[0] for warning in audited.warnings),
        "model": facts["model"],
        "method": facts["method"],
        "date": facts["date"],
        "question": visible(given.question.strip()),
        "auditor": visible(given.auditor.strip()),
    }
    return {name: None if name in lacking else value for name, value in whole.items()}


def _page(audited: Audited, subject: str, annexes: Sequence[Annex], prompt: str | None = None) -> str:
    """The page; of many sessions where no prompt is given."""
    statement, record, say = audited.statement, audited.first, catalogue(audited.statement.language)
    not_given = say.say("page.not_given")
    facts = {
        "auditor": visible(statement.auditor.strip()) or not_given,
        "date": statement.day.isoformat(),
        "question": visible(statement.question.strip()) or not_given,
        "subject": subject,
        "model": audited.tell(f"page.{_served(record)}model_value", **_model(record)),
        "method": _method(settings_from_json(record.policy_settings["settings"]), say),
    }
    if prompt is not None:
        cut = prompt if len(prompt) <= LONGEST_PROMPT else f"{prompt[:LONGEST_PROMPT]}\N{HORIZONTAL ELLIPSIS}"
        facts["prompt"] = visible(cut)
    return page(
        "formal.html.j2",
        ("formal.css",),
        say=say.say,
        told=partial(told, say),
        shown=visible,
        catalogue=say,
        language=statement.language,
        subject=subject,
        facts={say.say(f"page.{name}"): value for name, value in facts.items()},
        lead=lead(audited.finding, say),
        sentences=[text for text in _sentences(audited, of_many=prompt is None) if text],
        tokens=[row_of(token, say) for token in audited.finding.listed],
        of_many=prompt is None,
        warnings=[say.stored(warning) for warning in audited.warnings],
        not_claimed=[say.say(f"not_claimed.{name}") for name in NOT_CLAIMED],
        annexes=annexes,
        maps=mapped(statement, _evidence(audited, facts, annexes)),
        program=PROGRAM,
    )  # fmt: skip


def _method(settings: AuditSettings, say: Catalogue) -> str:
    """The method's name with what says how strongly it acts; names of its further parameters are the program's."""
    info = info_of(settings.policy)
    parts = [info.name]
    parts += [say.say(f"method.{settings.mask_layout}")] if len(info.layouts) > 1 else []
    parts += [say.say("method.lam", value=say.number(settings.lam))] if info.fuses else []
    return ", ".join(part for part in [*parts, parameters_line(settings)] if part)


def _served(record: SessionRecord) -> str:
    """What the names of messages begin with that are about a served model."""
    return "" if weights_seen(record.fingerprint.get("weights")) else "served_"


def _model(record: SessionRecord) -> dict[str, str]:
    return {"model": visible(str(record.policy_settings["model_label"])), "revision": record.model_revision}


def _sentences(audited: Audited, of_many: bool) -> Iterator[str]:
    """What is said under the finding: how many tokens, what was masked, thresholds and verdicts."""
    say, masked = catalogue(audited.statement.language), masked_words(audited.first.prompt, audited.first.spans)
    yield counts(audited.finding, say)
    yield beside(audited.finding, say)
    if masked and not of_many:
        yield say.say("page.masked", words=named(masked, say))
    yield from _held_line(audited)
    verdicts = _judged(audited)
    yield audited.tell("thresholds.verdicts" if any(verdicts.values()) else "thresholds.no_verdicts", **verdicts)


def _held_line(audited: Audited) -> Iterator[str]:
    if audited.steps:
        found = Counter(_held(step) for step in audited.steps)
        counted = {name: found[name] for name in ("held", "borrowed", "missed", "weak", "none")}
        certified = found["held"] + found["borrowed"]
        yield audited.tell("thresholds.line", tokens=len(audited.steps), certified=certified, **counted)


def _judged(audited: Audited) -> dict[str, int]:
    return {name: audited.verdicts.get(name, 0) for name in ("unfair", "fair", "unclear", "disputed")}


def _held(step: Step) -> str:
    """What became of a token's threshold, in a word of the catalogue's placeholders."""
    if step.state in ("none", "mismatch"):
        return "none"
    if step.state == "uninformative":
        return "weak"
    if not step.certified:
        return "missed"
    return "held" if step.state == "calibrated" else "borrowed"


def _nyc(audited: Audited, answers: Mapping[str, str], tables: tuple[RateTable, ...] = ()) -> Annex:
    """The annex on automated employment decisions."""
    first, last = audited.tell("nyc.auditor_answer"), audited.tell("nyc.published_answer")
    return Annex("nyc", {"auditor": first, **answers, "published": last}, tables)


def _nyc_of_many(audited: Audited, batch: AuditedBatch, tables: tuple[RateTable, ...]) -> Annex:
    say = catalogue(audited.statement.language)
    small = dict.fromkeys(visible(row.group) for table in tables for row in table.rows if row.small)
    excluded = bool(small) and any(table.excluded for table in tables)
    rates = {"selection": batch.selection, "scoring": batch.scoring}
    unknown = {name: None if table is None else table.unknown for name, table in rates.items()}
    answers = {name: _rates_answer(audited, table, name) for name, table in rates.items()} | {
        "categories": audited.tell("nyc.categories_batch", groups=say.listed(list(map(visible, batch.groups)))),
        "unknown": audited.tell("nyc.unknown_batch", **unknown),
        "small": audited.tell(f"nyc.small_{'excluded' if excluded else 'kept'}", groups=say.listed(list(small))),
        "data": audited.tell("nyc.data_batch", rows=batch.rows, file=visible(batch.file)),
    }
    return _nyc(audited, answers, tables)


def _rates_answer(audited: Audited, table: RateTable | None, name: str) -> str:
    if table is None:
        return audited.tell(f"nyc.{name}_none")
    outcomes = sum(row.total for row in table.rows)
    return audited.tell(f"nyc.{name}_table", groups=len(table.rows), outcomes=outcomes, median=table.median)


def sessions_digest(sessions: Sequence[SessionData]) -> str:
    """SHA-256 of the tokens and the three log-probabilities of every step of sessions, by their numbers."""
    return digest_of(
        [
            [data.record.id, [[step.token_id, step.log_p_factual, step.log_p_masked, step.log_p_fused]
                              for step in own_steps(data)]]
            for data in sessions
        ]
    )  # fmt: skip


def _records(audited: Audited, events: str, log: str, digests: Mapping[str, object], check: str) -> Annex:
    """The annex on record-keeping."""
    answers = {
        "events": events,
        "log": log,
        "monitoring": audited.tell("eu12.monitoring_answer"),
        "versions": audited.tell("eu12.versions_answer", **PROGRAM, **_model(audited.first)),
        "digests": [audited.tell(f"eu12.digest_{name}", digest=digest) for name, digest in digests.items()],
        "check": check,
    }
    return Annex("eu12", answers)


def _accuracy(audited: Audited) -> Annex:
    """The annex on accuracy and robustness, which is alike for one session and for many."""
    say, nats = catalogue(audited.statement.language), session_noise(audited.first).nats
    near, tokens = sum(step.near_threshold(nats) for step in audited.steps), len(audited.steps)
    answers = {
        "declared": _coverage(audited),
        "consistent": _drift(audited, say),
        "errors": audited.tell("eu15.noise", nats=say.probability(nats), near=near, tokens=tokens),
        "feedback": audited.tell("eu15.feedback_answer"),
        "security": audited.tell("eu15.security_answer"),
    }
    return Annex("eu15", answers)


def _coverage(audited: Audited) -> str:
    """Measured coverage with the number of texts and its interval."""
    calibration = audited.calibration
    if calibration is None:
        return audited.tell("eu15.no_calibration")
    measured, name = calibration.coverage, visible(calibration.name)
    if measured.coverage is None or measured.low is None or measured.high is None:
        return audited.tell("eu15.coverage_none", name=name)
    return audited.tell(
        "eu15.coverage", name=name, level=1 - calibration.alpha, contexts=measured.contexts,
        coverage=measured.coverage, low=measured.low, high=measured.high,
    )  # fmt: skip


def _drift(audited: Audited, say: Catalogue) -> str:
    drift = audited.drift
    if drift is None:
        return audited.tell("eu15.drift_none")
    if drift.two_sample_p is None or drift.status == "unknown":
        return audited.tell("eu15.drift_unknown", audits=drift.audits)
    return audited.tell(
        f"eu15.drift_{drift.status}", audits=drift.audits, baseline=drift.baseline,
        p=say.probability(drift.two_sample_p), peak=drift.peak,
    )  # fmt: skip


def pdf_of(page: str) -> bytes:
    """A page that needs nothing else as a tagged PDF; the same page gives the same bytes."""
    try:
        # Loaded when it is asked for: it needs libraries of the system, and nothing else of the program does.
        from weasyprint import HTML
    except ImportError as error:
        raise ServiceError(
            f"PDF needs the package weasyprint, which cannot be imported ({error}); install requirements.txt, or "
            "choose the formal report as HTML."
        ) from error
    except OSError as error:
        raise ServiceError(
            "PDF needs the library Pango of the system, which is missing; on Debian run apt-get install "
            f"{' '.join(DEBIAN_LIBRARIES)}, or choose the formal report as HTML."
        ) from error
    written: bytes = HTML(string=page).write_pdf(pdf_tags=True)
    return written
