"""The formal report: one page that a reader without the program understands, and annexes for what the law asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from app.report import words
from app.report.bundle import digests_of
from app.report.document import NAME, VERSION, ReportPart, digest_of
from app.report.findings import Finding, counts, finding_of, lead, row_of, together
from app.report.html import environment
from app.report.tables import SessionData
from app.shared.audits import AuditSettings, settings_from_json
from app.shared.computations import session_noise
from app.shared.formal_reports import AuditedBatch, GroupRate, RateTable, Statement
from app.shared.policies import info_of, parameters_line
from app.shared.verdicts import standing
from coft_core.assets import assets_path
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.drift import DriftReport
from coft_core.effects import masked_words, named, visible
from coft_core.messages import Catalogue, catalogue
from coft_core.types import Step
from db.audits import SessionRecord

LONGEST_PROMPT = 500
"""Characters of a prompt that the first page shows; all of it is in the other exports."""
NOT_CLAIMED = ("fair", "threshold", "other_words", "one_prompt", "people", "law")
Row = tuple[str, str, tuple[str, ...]]
"""A provision, what it asks for, and what the audit has of it."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of numbers in an annex, with what must be said of it."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Annex:
    """How an audit stands to a law."""

    title: str
    intro: str
    rows: tuple[Row, ...]
    tables: tuple[Table, ...] = ()


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

    @property
    def say(self) -> Catalogue:
        """The messages in the language that is asked for."""
        return catalogue(self.statement.language)


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
    record, say = data.record, catalogue(statement.language)
    audited = Audited(
        statement, record, tuple(own_steps(data)), finding_of(data), calibration, drift,
        Counter(item.in_words for item in standing(data.log)), record.warnings,
    )  # fmt: skip
    branches = len(data.branches)
    annexes = (
        Annex(say.say("annex.nyc"), say.say("annex.nyc_intro"), _nyc_of_one(audited)),
        Annex(say.say("annex.eu12"), say.say("annex.eu12_intro"), _records_of_one(audited, report, branches)),
        _accuracy(audited),
    )
    subject = say.say("page.subject_session", id=say.whole(record.id), name=visible(record.name))
    return _page(audited, subject, [(say.say("page.prompt"), _shortened(record.prompt))], annexes)


def formal_batch(
    batch: AuditedBatch,
    sessions: Sequence[SessionData],
    calibration: Calibration | None,
    drift: DriftReport | None,
    statement: Statement,
) -> str:
    """The formal report of a batch as HTML that needs nothing else."""
    say = catalogue(statement.language)
    finding = together([finding_of(data) for data in sessions])
    steps = tuple(step for data in sessions for step in own_steps(data))
    warnings = tuple(dict.fromkeys(warning for data in sessions for warning in data.record.warnings))
    first = sessions[0].record
    audited = Audited(statement, first, steps, finding, calibration, drift, batch.verdicts, warnings)
    tables = tuple(_rate_table(table, say) for table in (batch.selection, batch.scoring) if table is not None)
    annexes = (
        Annex(say.say("annex.nyc"), say.say("annex.nyc_intro"), _nyc_of_many(batch, say), tables),
        Annex(say.say("annex.eu12"), say.say("annex.eu12_intro"), _records_of_many(audited, batch, sessions)),
        _accuracy(audited),
    )
    values = {"id": batch.id, "finished": len(batch.sessions), "rows": batch.rows}
    subject = say.say(
        "page.subject_batch", name=visible(batch.name), file=visible(batch.file),
        **{name: say.whole(value) for name, value in values.items()},
    )  # fmt: skip
    return _page(audited, subject, [], annexes, of_many=True)


def _page(
    audited: Audited,
    subject: str,
    further: Sequence[tuple[str, str]],
    annexes: Sequence[Annex],
    of_many: bool = False,
) -> str:
    say, statement, record = audited.say, audited.statement, audited.first
    given = lambda text: visible(text.strip()) or say.say("page.not_given")  # noqa: E731
    model = say.say("page.model_value", model=_model(record), revision=record.model_revision)
    facts = [
        (say.say("page.auditor"), given(statement.auditor)),
        (say.say("page.date"), statement.day.isoformat()),
        (say.say("page.question"), given(statement.question)),
        (say.say("page.subject"), subject),
        (say.say("page.model"), model),
        (say.say("page.method"), _method(settings_from_json(record.policy_settings["settings"]), say)),
        *further,
    ]
    folder = assets_path("reports")
    return environment(str(folder)).get_template("formal.html.j2").render(
        style=Markup((folder / "formal.css").read_text(encoding="utf-8")),
        say=say.say,
        language=statement.language,
        subject=subject,
        facts=facts,
        lead=lead(audited.finding, say),
        sentences=[text for text in _sentences(audited, of_many) if text],
        tokens=[row_of(token, say) for token in audited.finding.listed],
        of_many=of_many,
        warnings=[say.stored(warning) for warning in audited.warnings],
        not_claimed=[say.say(f"not_claimed.{name}") for name in NOT_CLAIMED],
        annexes=annexes,
        program={"program": NAME, "version": VERSION},
    )  # fmt: skip


def _method(settings: AuditSettings, say: Catalogue) -> str:
    """The method's name with what says how strongly it acts; names of its further parameters are the program's."""
    info = info_of(settings.policy)
    parts = [info.name]
    parts += [say.say(f"method.{settings.mask_layout}")] if len(info.layouts) > 1 else []
    parts += [say.say("method.lam", value=say.number(settings.lam))] if info.fuses else []
    return ", ".join(part for part in [*parts, parameters_line(settings)] if part)


def _model(record: SessionRecord) -> str:
    return visible(str(record.policy_settings["model_label"]))


def _shortened(text: str) -> str:
    return visible(text if len(text) <= LONGEST_PROMPT else f"{text[:LONGEST_PROMPT]}\N{HORIZONTAL ELLIPSIS}")


def _sentences(audited: Audited, of_many: bool) -> list[str]:
    """What is said under the finding: how many tokens, what was masked, thresholds and verdicts."""
    say, words_of_one = audited.say, masked_words(audited.first.prompt, audited.first.spans)
    masked = "" if of_many or not words_of_one else say.say("page.masked", words=named(words_of_one, say))
    return [counts(audited.finding, say), masked, _threshold_line(audited.steps, say), _verdict_line(audited)]


def _threshold_line(steps: Sequence[Step], say: Catalogue) -> str:
    """How often thresholds held; empty without steps."""
    if not steps:
        return ""
    found = Counter(_held(step) for step in steps)
    names = ("held", "borrowed", "missed", "weak", "none")
    counted = {
        "tokens": len(steps),
        "certified": found["held"] + found["borrowed"],
        **{name: found[name] for name in names},
    }
    return say.say("thresholds.line", **{name: say.whole(number) for name, number in counted.items()})


def _held(step: Step) -> str:
    """What became of a token's threshold, in a word of the catalogue's placeholders."""
    if step.state in ("none", "mismatch"):
        return "none"
    if step.state == "uninformative":
        return "weak"
    if not step.certified:
        return "missed"
    return "held" if step.state == "calibrated" else "borrowed"


def _verdict_line(audited: Audited) -> str:
    say, names = audited.say, ("unfair", "fair", "unclear", "disputed")
    if not any(audited.verdicts.get(name) for name in names):
        return say.say("thresholds.no_verdicts")
    return say.say("thresholds.verdicts", **{name: say.whole(audited.verdicts.get(name, 0)) for name in names})


def _row(say: Catalogue, name: str, *answers: str) -> Row:
    return say.say(name), say.say(f"{name}_asks"), answers


def _nyc_of_one(audited: Audited) -> tuple[Row, ...]:
    say = audited.say
    families = [say.say(f"families.{name}") for name in dict.fromkeys(
        span.category for span in sorted(audited.first.spans) if span.masked
    )]  # fmt: skip
    answers = {
        "auditor": say.say("nyc.auditor_answer"),
        "selection": say.say("nyc.selection_one"),
        "scoring": say.say("nyc.scoring_one"),
        "categories": say.say("nyc.categories_one", families=say.listed(families) or say.say("words.none")),
        "unknown": say.say("nyc.unknown_one"),
        "small": say.say("nyc.small_one"),
        "data": say.say("nyc.data_one"),
        "published": say.say("nyc.published_answer"),
    }
    return tuple(_row(say, f"nyc.{name}", answer) for name, answer in answers.items())


def _nyc_of_many(batch: AuditedBatch, say: Catalogue) -> tuple[Row, ...]:
    tables = [table for table in (batch.selection, batch.scoring) if table is not None]
    small = dict.fromkeys(row.group for table in tables for row in table.rows if row.small)
    excluded = bool(small) and any(table.excluded for table in tables)
    unknown = lambda table: say.say("words.none") if table is None else say.whole(table.unknown)  # noqa: E731
    answers = {
        "auditor": say.say("nyc.auditor_answer"),
        "selection": _rates_answer(batch.selection, "selection", say),
        "scoring": _rates_answer(batch.scoring, "scoring", say),
        "categories": say.say("nyc.categories_batch", groups=_groups(batch.groups, say)),
        "unknown": say.say("nyc.unknown_batch", selection=unknown(batch.selection), scoring=unknown(batch.scoring)),
        "small": say.say(f"nyc.small_{'excluded' if excluded else 'kept'}", groups=_groups(tuple(small), say)),
        "data": say.say("nyc.data_batch", rows=say.whole(batch.rows), file=visible(batch.file)),
        "published": say.say("nyc.published_answer"),
    }
    return tuple(_row(say, f"nyc.{name}", answer) for name, answer in answers.items())


def _groups(names: Sequence[str], say: Catalogue) -> str:
    return say.listed([visible(name) for name in names]) or say.say("words.none")


def _rates_answer(table: RateTable | None, name: str, say: Catalogue) -> str:
    if table is None:
        return say.say(f"nyc.{name}_none")
    values = {"groups": say.whole(len(table.rows)), "outcomes": say.whole(sum(row.total for row in table.rows))}
    median = {} if table.median is None else {"median": say.number(table.median)}
    return say.say(f"nyc.{name}_table", **values, **median)


def _rate_table(table: RateTable, say: Catalogue) -> Table:
    """Rates and ratios as text, with the rule and all that is left out."""
    column = "selected" if table.kind == "selection" else "above"
    head = ("group", "total", column, "rate", "interval", "ratio")
    left_out = [(name, getattr(table, name)) for name in ("unknown", "undecided", "unfinished")]
    return Table(
        title=say.say(f"rates.{table.kind}"),
        head=tuple(say.say(f"rates.{name}") for name in head),
        rows=tuple(_rate_row(row, say) for row in table.rows),
        notes=(
            *_rule(table, say),
            *(say.counted(f"rates.{name}", number) for name, number in left_out if number),
            *([say.say("rates.nobody")] if not any(row.counted for row in table.rows) else []),
            say.say("rates.dependent"),
        ),
    )


def _rate_row(row: GroupRate, say: Catalogue) -> tuple[str, ...]:
    interval = f"{say.number(row.low, 3)}\N{EN DASH}{say.number(row.high, 3)}"
    ratio = say.say("words.none") if row.ratio is None else say.number(row.ratio)
    return (
        visible(row.group), say.whole(row.total), say.whole(row.counted), say.number(row.rate, 3), interval, ratio
    )  # fmt: skip


def _rule(table: RateTable, say: Catalogue) -> list[str]:
    """How outcomes are read from texts."""
    if table.median is not None:
        median = say.number(table.median)
        if not table.pattern:
            return [say.say("rates.score_number", median=median)]
        return [say.say("rates.score_regex", median=median, pattern=say.quoted(visible(table.pattern)))]
    quoted = {"selected": say.quoted(visible(table.pattern))}
    regex = [say.say("rates.rule_regex")] if table.regex else []
    if not table.other:
        return [say.say("rates.rule", **quoted), *regex]
    return [say.say("rates.rule_other", **quoted, other=say.quoted(visible(table.other))), *regex]


def _records_of_one(audited: Audited, report: ReportPart, branches: int) -> tuple[Row, ...]:
    say, record, digests = audited.say, audited.first, digests_of(report)
    named_digests = {
        "weights": digests["model_weights"], "tokenizer": digests["tokenizer"],
        "fingerprint": digests["fingerprint"], "calibration": digests["calibration"],
        "steps": digests["steps"], "prompt": digests["prompt"],
    }  # fmt: skip
    events = say.say(
        "eu12.events_one", steps=say.whole(len(audited.steps)), branches=say.whole(branches),
        begun=words.moment(record.created_at), changed=words.moment(record.updated_at),
    )  # fmt: skip
    head = report.log_head or say.say("words.none")
    log = say.say("eu12.log_answer", entries=say.whole(len(report.log)), head=head)
    check = say.say("eu12.check_one", id=say.whole(record.id))
    return _records(audited, events, log, _digests(named_digests, say), check)


def _records_of_many(audited: Audited, batch: AuditedBatch, sessions: Sequence[SessionData]) -> tuple[Row, ...]:
    say, fingerprint = audited.say, audited.first.fingerprint
    named_digests = {
        "weights": fingerprint.get("weights"),
        "tokenizer": fingerprint.get("tokenizer"),
        "sessions": sessions_digest(sessions),
    }
    events = say.say(
        "eu12.events_batch", steps=say.whole(len(audited.steps)), sessions=say.whole(len(sessions)),
        begun=words.moment(batch.created_at),
    )  # fmt: skip
    log = say.say("eu12.log_batch", entries=say.whole(sum(len(data.log) for data in sessions)))
    return _records(audited, events, log, _digests(named_digests, say), say.say("eu12.check_batch"))


def sessions_digest(sessions: Sequence[SessionData]) -> str:
    """SHA-256 of the tokens and the three log-probabilities of every step of sessions, by their numbers."""
    return digest_of(
        [
            [data.record.id, [[step.token_id, step.log_p_factual, step.log_p_masked, step.log_p_fused]
                              for step in own_steps(data)]]
            for data in sessions
        ]
    )  # fmt: skip


def _records(audited: Audited, events: str, log: str, digests: Sequence[str], check: str) -> tuple[Row, ...]:
    say, record = audited.say, audited.first
    versions = say.say(
        "eu12.versions_answer", program=NAME, version=VERSION, model=_model(record), revision=record.model_revision
    )
    return (
        _row(say, "eu12.events", events),
        _row(say, "eu12.log", log),
        _row(say, "eu12.monitoring", say.say("eu12.monitoring_answer")),
        _row(say, "eu12.versions", versions),
        _row(say, "eu12.digests", *digests),
        _row(say, "eu12.check", check),
    )


def _digests(named_digests: Mapping[str, object], say: Catalogue) -> list[str]:
    return [
        say.say(f"eu12.digest_{name}", digest=str(digest or say.say("words.none")))
        for name, digest in named_digests.items()
    ]


def _accuracy(audited: Audited) -> Annex:
    """The annex on accuracy and robustness, which is alike for one session and for many."""
    say = audited.say
    return Annex(
        say.say("annex.eu15"),
        say.say("annex.eu15_intro"),
        (
            _row(say, "eu15.declared", _coverage(audited.calibration, say)),
            _row(say, "eu15.consistent", _drift(audited.drift, say)),
            _row(say, "eu15.errors", _noise(audited)),
            _row(say, "eu15.feedback", say.say("eu15.feedback_answer")),
            _row(say, "eu15.security", say.say("eu15.security_answer")),
        ),
    )


def _coverage(calibration: Calibration | None, say: Catalogue) -> str:
    """Measured coverage with the number of texts and its interval."""
    if calibration is None:
        return say.say("eu15.no_calibration")
    measured, name = calibration.coverage, visible(calibration.name)
    if measured.coverage is None or measured.low is None or measured.high is None:
        return say.say("eu15.coverage_none", name=name)
    return say.say(
        "eu15.coverage", name=name, level=say.number(1 - calibration.alpha), contexts=say.whole(measured.contexts),
        coverage=say.number(measured.coverage), low=say.number(measured.low), high=say.number(measured.high),
    )  # fmt: skip


def _drift(drift: DriftReport | None, say: Catalogue) -> str:
    if drift is None:
        return say.say("eu15.drift_none")
    if drift.two_sample_p is None or drift.status == "unknown":
        return say.say("eu15.drift_unknown", audits=say.whole(drift.audits))
    return say.say(
        f"eu15.drift_{drift.status}", audits=say.whole(drift.audits), baseline=say.whole(drift.baseline),
        p=say.probability(drift.two_sample_p), peak=say.number(drift.peak),
    )  # fmt: skip


def _noise(audited: Audited) -> str:
    """How far runs may differ, and at how many steps that matters."""
    say, nats = audited.say, session_noise(audited.first).nats
    near = sum(step.near_threshold(nats) for step in audited.steps)
    tokens = say.whole(len(audited.steps))
    return say.say("eu15.noise", nats=say.probability(nats), near=say.whole(near), tokens=tokens)
