"""What the batches page says: rows, how far a batch is, totals by group, and selection rates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from markupsafe import Markup

from app.batch.controls import controls_said
from app.batch.groups import group_control, group_said
from app.batch.impact import Outcomes
from app.batch.rows import BatchQuery, GroupTotals, group_value
from app.batch.service import BatchRequest, BatchService, BatchSummary, BatchView
from app.jobs.service import ENDED
from app.jobs.watch import OF_ANOTHER, job_said, job_status
from app.prompts.rows import BatchRowView
from app.prompts.words import beginning
from app.shared.audits import SENSITIVE
from app.shared.events import Reply
from app.shared.format import (
    count,
    factor_text,
    level,
    plural,
    signed,
)
from app.shared.glossary import explained_titles
from app.shared.impact import SMALL_SHARE, ImpactTable, OutcomeRule, impact_finding
from app.shared.markup import from_file, html, laid_out, scrolled
from app.shared.policies import info_of, parameters_line
from coft_core.controls.result import LEVEL
from coft_core.types import Certificate

COLUMNS = (
    ("Line", "line", "n line", "Line in the file"),
    ("Prompt and continuation", "prompt", "text", "The prompt, and what was written so far; opens the session"),
    ("Group", "group", "group", "Group in the file"),
    ("Steps", "steps", "n", "Tokens written"),
    ("Strongest sensitivity", "max_log_ratio", "n", "Log-ratio of the token that differs most, shown over masked"),
    ("Mean sensitivity", "mean_log_ratio", "n", "How far tokens differ between shown and masked, on average"),
    ("Effect", "effect", "n", "Largest share of the next token's probability that the marked words move"),
    (
        "p-value",
        "effect_p",
        "n",
        "How often a comparable word would have as large an effect by chance, corrected over the text, and how many "
        "words were compared",
    ),
    (
        "Thresholds held",
        "certified_share",
        "n",
        "Share of the tokens that held a threshold; a drawn token is in its set by construction, so look at the sizes",
    ),
    ("Fallbacks", "fallbacks", "n", "Steps at which no token reached its threshold"),
    ("Overruled", "overruled", "n", "Steps at which the likeliest token was refused and another one was not"),
    ("Least margin", "min_margin", "n", "How closely a token cleared the threshold, in nats"),
    ("Verdict", "verdict", "judged", "What reviewers said of the whole session"),
    ("State", "state", "state", "How far the row is"),
)  # fmt: skip
"""Title, what a click sorts by, classes, and what it means."""

EXPLAINED = explained_titles(title for title, *_ in COLUMNS)

FIRST_DOWN = (
    "steps", "certified_share", "fallbacks", "overruled", "mean_log_ratio", "max_log_ratio", "effect",
)  # fmt: skip
"""Orders that begin with the largest; a margin is telling where it is least."""

STATES = {
    "waiting": "waiting",
    "unfinished": "unfinished",
    "finished": "finished",
    "failed": "failed",
    "deleted": "session deleted",
}
NONE = Markup('<span aria-hidden="true">–</span><span class="vh">none</span>')

MEASURES = {
    "max_log_ratio": "Strongest sensitivity",
    "mean_log_ratio": "Mean sensitivity",
    "certified_share": "Share of tokens that held a threshold",
    "fallbacks": "Fallbacks in a text",
    "overruled": "Overruled steps in a text",
    "min_margin": "Least margin, nats",
    "steps": "Steps",
}
"""Measures by name, in the order of the menu."""

DELETED = "The summary goes for good. Its sessions stay in the library."
NO_BATCH = Markup(
    '<p class="sub">No batch yet. Upload prompts or take a sample, choose the settings, and run: every prompt becomes '
    "a session of its own, and the first batch is listed here.</p>"
)
NO_TOTALS = Markup('<p class="sub">Totals by group appear with the first finished row.</p>')
NO_RULE = Markup(
    '<p class="sub">Say which word or phrase in a continuation means that somebody is selected, such as '
    "<b>hired</b> or <b>Yes</b>.</p>"
)


def number(value: float | None, digits: int = 2) -> str:
    """A measure in a cell; a dash where there is none, and ∞ where nothing limits it."""
    if value is None:
        return NONE
    if isinstance(value, int):
        return count(value)
    if math.isinf(value):
        return Markup('<span title="The thresholds let every token pass">∞</span>')
    return signed(value, digits).removeprefix("+")


def percent(value: float | None) -> str:
    """A share in a cell; only a whole one reads 100 %, and only nothing 0 %."""
    if value is None:
        return NONE
    rounded = round(100 * value)
    if rounded == 100 and value < 1:
        return ">99 %"
    return "<1 %" if rounded == 0 and value > 0 else f"{rounded} %"


def measured(measure: str, value: float | None) -> str:
    """A mean in its own unit."""
    return percent(value) if measure == "certified_share" else number(None if value is None else float(value))


def group_name(group: str | None) -> str:
    """A group in a table or a chart."""
    return "no group" if group is None else group


def batch_message(view: BatchView, query: BatchQuery, said: str = "") -> Reply:
    """A batch as the page shows it; a large effect that comparable words have too does not stand out."""
    strong = any((row.max_log_ratio or 0.0) >= SENSITIVE for row in view.rows)
    if view.controls is not None and view.controls.p_value is not None:
        strong = strong and view.controls.p_value <= LEVEL
    return {
        "kind": "batch",
        "batch": view.id,
        "name": view.name,
        "head": batch_head(view),
        "finding": batch_lead(strongest_finding(view.rows), strong),
        "controls": "" if view.controls is None else laid_out("batch/controls.html", said=controls_said(view.controls)),
        "status": batch_status(view),
        "progress": job_said(view.job),
        "running": view.running,
        "finished": view.counts.get("finished", 0),
        "notes": html('{% for note in notes %}<p class="hint">{{ note }}</p>{% endfor %}', notes=view.notes),
        "said": said,
        **rows_message(view, query),
    }


def rows_message(view: BatchView, query: BatchQuery) -> Reply:
    """The asked-for page of a batch's rows: markup, where it stands, and what the filters can be set to."""
    passing = query.filtered(view.rows)
    shown, page, pages = query.paged(passing)
    before, total = (page - 1) * query.size, len(view.rows)
    of = plural(total, "row") if len(passing) == total else f"{plural(len(passing), 'row')} of {count(total)}"
    groups = Counter(row.group for row in sorted(view.rows, key=lambda row: row.line))
    return {
        "rows": rows_table(shown, query) + EXPLAINED if shown else _NOTHING_FOUND,
        "where": of if len(shown) == len(passing) else f"{count(before + 1)}–{count(before + len(shown))} of {of}",
        "page": page,
        "pages": pages,
        "groups": [
            (group_value(group), f"{'No group' if group is None else group} ({count(n)})")
            for group, n in groups.items()
        ],
        "states": [(state, f"{STATES[state].capitalize()} ({count(n)})") for state, n in view.counts.items()],
    }


_NOTHING_FOUND = Markup(
    '<div class="empty-list pile wide"><p class="sub">No row is like this.</p>'
    '<p><button type="button" class="btn" data-do="reset">Show all rows</button></p></div>'
)


def rows_table(rows: Sequence[BatchRowView], query: BatchQuery) -> Markup:
    """A table of rows; the column that they are sorted by says so."""
    return from_file(
        "batch/rows.html",
        columns=COLUMNS,
        first_down=FIRST_DOWN,
        rows=rows,
        query=query,
        beginning=beginning,
        percent=percent,
        number=number,
        none_=NONE,
        states=STATES,
        marks={"failed": "tri", "deleted": "tri", "finished": "tick"},
    )


def batch_head(view: BatchView) -> Markup:
    """Name, file, settings, and what can be done with the whole batch."""
    read = [Certificate.read(row.certificate) for row in view.rows if row.certificate]
    counted = [claim.steps or (0, 0) for claim in read]
    certified, steps = (sum(part) for part in zip(*counted, strict=True)) if counted else (0, 0)
    claims = Counter(Certificate(claim.kind, claim.reason).at(certified, steps).text for claim in read)
    settings = settings_line(view.request)
    return from_file("batch/head.html", view=view, claims=claims, deleted=DELETED, settings=settings)


def settings_line(request: BatchRequest) -> str:
    """The settings of every session in one line."""
    settings = request.settings
    info, parameters = info_of(settings.policy), parameters_line(settings)
    facts = [settings.model, info.name, *([parameters] if parameters else [])]
    if info.fuses:
        facts.append(f"λ {settings.lam:.2f}")
    if info.certifies:
        facts.append(f"α {level(settings.alpha)}")
    if len(info.layouts) > 1:
        facts.append("one mask for each family" if settings.mask_layout == "factorized" else "one mask")
    drawn = "greedy" if settings.greedy else f"temperature {settings.temperature:g}, top-p {settings.top_p:g}"
    top_k = f", top-k {settings.top_k}" if settings.top_k and not settings.greedy else ""
    seeds = "the same for all" if request.same_seed else "counted up by context"
    facts += [f"{drawn}{top_k}", f"{plural(settings.max_new_tokens, 'step')} at most", f"seed {settings.seed}, {seeds}"]
    if request.group_thresholds:
        facts.append("each row under its own group’s thresholds")
    return ", ".join(facts)


def strongest_finding(rows: Sequence[BatchRowView]) -> str:
    """How far the two readings of a prompt differ at most, in one sentence; empty without tokens."""
    found = [(row.max_log_ratio, row) for row in rows if row.max_log_ratio is not None]
    if not found:
        return ""
    ratio, row = max(found, key=lambda pair: (pair[0], -pair[1].line))
    among = plural(len(found), "prompt")
    if (factor := factor_text(ratio)) is None:
        return f"Masking the marked words hardly changes the probability of any token of {among}."
    return (
        f"Masking the marked words changes the probability of a token by a factor of {factor} in line "
        f"{count(row.line)}, the largest effect in {among}."
    )


def batch_lead(finding: str, strong: bool = False, ratio: bool = False) -> Markup:
    """The finding with which the batch begins; empty where there is none yet."""
    return laid_out("batch/lead.html", finding=finding, strong=strong, ratio=ratio)


def batch_status(view: BatchView) -> Markup:
    """How far it is, with the button that stops it or goes on."""
    sentence, stopped = _ending(view)
    status = job_status(view.job, BatchService.kept if view.own else OF_ANOTHER)
    return laid_out("batch/status.html", view=view, status=status, sentence=sentence, stopped=stopped)


def _ending(view: BatchView) -> tuple[str, bool]:
    """How it ended, and whether something is left."""
    failed, job = view.counts.get("failed", 0), view.job
    done = f"{count(view.counts.get('finished', 0))} of {plural(len(view.rows), 'prompt')} finished"
    if failed:
        done += f", {count(failed)} failed; the rows say why"
    if job is not None and job.status in ENDED:
        why = f" {job.error}" if job.error else ""
        return f"The run {ENDED[job.status]}: {done}.{why} What is done is kept.", True
    return f"{done}.", bool(failed) or view.resumable


def batches_list(batches: Sequence[BatchSummary]) -> Markup:
    """All batches, newest first."""
    if not batches:
        return NO_BATCH
    return from_file("batch/list.html", batches=batches, deleted=DELETED, progress=_progress)


def _progress(batch: BatchSummary) -> str:
    if batch.job is None:
        return ""
    part = f"{round(100 * batch.job.progress)} %"
    if batch.job.active:
        return f", {part}"
    return f", {ENDED[batch.job.status]} at {part}" if batch.job.status in ENDED else ", finished"


def totals_table(groups: Sequence[GroupTotals]) -> str:
    """Every measure of every group with its interval."""
    if not groups:
        return ""
    shown = laid_out("batch/totals_table.html", groups=groups, measures=MEASURES, measured=measured, name=group_name)
    return scrolled("Totals by group", shown)


def impact_message(
    view: BatchView, rule: OutcomeRule, outcomes: Outcomes | str | None, impact: ImpactTable | str | None
) -> Reply:
    """The preview of a rule and its table, or the sentence that refuses the rule."""
    found = impact if isinstance(impact, ImpactTable) else None
    low = found is not None and found.lowest is not None and bool(found.lowest.below_four_fifths)
    return {
        "kind": "impact",
        "finding": batch_lead("" if found is None else impact_finding(found), strong=low, ratio=True),
        "preview": _preview(rule, outcomes),
        "report": _report(view, rule, outcomes, impact),
        "exports": isinstance(impact, ImpactTable),
    }


def impact_rows(impact: ImpactTable) -> Markup:
    """The table itself."""
    shown = laid_out("batch/impact_rows.html", rows=impact.rows, small=f"{SMALL_SHARE:.0%}")
    return scrolled("Selection rates and impact ratios", shown)


def _refused(sentence: str) -> Markup:
    return html('<p class="caution abreast">{{ icon("tri") }}<span>{{ sentence }}</span></p>', sentence=sentence)


def _preview(rule: OutcomeRule, outcomes: Outcomes | str | None, most: int = 12) -> Markup:
    if outcomes is None:
        return NO_RULE
    if isinstance(outcomes, str):
        return _refused(outcomes)
    selected, undecided = sum(chosen for _, chosen in outcomes.pairs), outcomes.undecided
    counts = [("selected", selected), ("not selected", len(outcomes.pairs) - selected)]
    if rule.other.strip():
        counts.append(("undecided", len(undecided)))
    if outcomes.unfinished:
        counts.append(("not finished", len(outcomes.unfinished)))
    lines = ", ".join(count(line) for line in undecided[:most])
    return laid_out("batch/preview.html", counts=counts, undecided=len(undecided), most=most, lines=lines)


def _report(
    view: BatchView, rule: OutcomeRule, outcomes: Outcomes | str | None, impact: ImpactTable | str | None
) -> str:
    if impact is None or not isinstance(outcomes, Outcomes):
        return ""
    if isinstance(impact, str):
        return _refused(impact)
    return from_file(
        "batch/report.html",
        rule=rule,
        rows=impact_rows(impact),
        finding=impact_finding(impact),
        notes=(*group_said(group_control(impact, outcomes)), *impact.notes, *outcomes.notes),
        view=view,
        settings=settings_line(view.request),
    )
