"""The report as one HTML file that needs nothing else: no network, no fonts, no other files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from app.report import words
from app.report.bundle import digests_of
from app.report.document import BranchPart, ReportPart, SummaryPart
from app.report.drawings import steps_chart, strip
from app.report.findings import beside, counts, finding_of, lead, row_of
from app.report.tables import SessionData
from app.shared.audits import FAMILY_NAMES, SENSITIVE, AuditSettings, preview_from_json, settings_from_json
from app.shared.exported import page
from app.shared.format import moment, probability, signed, table_threshold, times
from app.shared.json import span_state
from app.shared.kept_steps import computations_of, session_noise
from app.shared.policies import info_of, own_parameters, parameters_line, policy_about, policy_name
from app.shared.step_words import counted_claim, set_size, shapes
from app.shared.thinking import thinking_sentence, thinking_view
from app.shared.verdicts import StandingVerdict, reviews, standing, verdict_at
from coft_core.conformal.informative import TOO_WEAK, WHY_WEAK
from coft_core.messages import catalogue
from coft_core.model.served import weights_seen
from coft_core.text.rendering import moment_of
from coft_core.types import VIEWS, Certificate, Span, Step
from db.audits import SessionRecord
from db.verdicts import Target

NOT_SEEN = "A server computed the model, and its weights were not seen: the digest is of what the server says of it."
TALLEST_BAR = 13
_PIXELS_PER_LOG = 10.0


def render(data: SessionData, report: ReportPart) -> str:
    """The report as HTML text; the same session gives the same text."""
    settings = settings_from_json(data.record.policy_settings["settings"])
    verdicts = standing(data.log)
    summaries = {item.branch: item for item in report.summary}
    chains = tuple(
        _chain(data, report, branch, summaries[branch.path], verdicts, settings) for branch in report.branches
    )
    finding, english = finding_of(data), catalogue("en")
    families = () if report.thresholds is None else report.thresholds.families
    return page(
        "report.html.j2",
        ("report.css",),
        report=report,
        prompt=_prompt(data.record.prompt, data.record.spans),
        spans=_spans(data),
        preview=preview_from_json(data.record.policy_settings["preview"]),
        facts=_facts(data, report, settings),
        chains=chains,
        certificate=Certificate.read(data.record.certificate),
        info=info_of(settings.policy),
        method=policy_name(settings.policy),
        empty=words.is_empty(report),
        contexts=max((entry.contexts for family in families for entry in family.bins), default=0),
        limit=f"{math.exp(SENSITIVE):.2f}",
        too_weak=f"{TOO_WEAK}: {WHY_WEAK}",
        verdicts=[(item, _about(item.target, report)) for item in verdicts],
        entries=[(entry, _about(entry.target, report)) for entry in data.log],
        reviews=reviews(data.log),
        settings=_settings(data, settings),
        fingerprint=[(name.replace("_", " "), str(value)) for name, value in data.record.fingerprint.items()],
        digests=digests_of(report),
        lead=lead(finding, english),
        counts=counts(finding, english),
        beside=beside(finding, english),
        strongest=[row_of(token, english) for token in finding.listed],
        stamp=words.stamp(report),
    )


def _chain(
    data: SessionData,
    report: ReportPart,
    branch: BranchPart,
    summary: SummaryPart,
    verdicts: Sequence[StandingVerdict],
    settings: AuditSettings,
) -> dict[str, Any]:
    """A branch as the report shows it."""
    steps = data.chains[branch.id]
    names = {other.id: _branch_name(other) for other in report.branches}
    first = branch.fork_step or 0
    certificate = data.certificates[branch.id]
    origin = ""
    if branch.parent_id is not None:
        origin = f"departs from “{names[branch.parent_id]}” at step {first + 1}; steps before are shared"
    ended = {"length": "the number of steps asked for", "end": "the model's end token", None: "not finished"}
    return {
        "name": names[branch.id],
        "origin": origin,
        "summary": summary,
        "strongest": words.strongest(summary, steps),
        "claim": counted_claim(summary.certificate or ""),
        "parts": _parts_told(data, steps),
        "chain_sentence": "" if certificate is None else certificate.sentence,
        "near_sentence": words.near_threshold(steps, session_noise(data.record)),
        "tokens": [_token(step, step.index < first, settings.policy) for step in steps],
        "heat": strip(steps),
        "chart": steps_chart(steps),
        "rows": [_row(step, verdict_at(verdicts, branch.path, step.index)) for step in steps[first:]],
        "finished": ended.get(branch.finished, "a full context"),
    }


def _parts_told(data: SessionData, steps: Sequence[Step]) -> list[str]:
    """What of a chain is thinking and what the answer; nothing where the model marks no thinking."""
    view = thinking_view(steps, data.record.policy_settings)
    return [] if view is None else [thinking_sentence(view)]


def _branch_name(branch: BranchPart) -> str:
    return words.printable_token(branch.name) if branch.name else branch.path


def _about(target: Target, report: ReportPart) -> str:
    """A verdict's target by the branch's name; a single branch needs none."""
    branch = next((item for item in report.branches if item.path == target.branch), None)
    if branch is None or len(report.branches) == 1:
        return target.named("")
    return target.named(f"“{_branch_name(branch)}”")


def _token(step: Step, shared: bool, policy: str) -> dict[str, Any]:
    """A token of the transcript: its shape, its marks and the height of its sensitivity bar in pixels."""
    ratio = step.diagnostics.log_ratio
    return {
        "text": words.printable_token(step.token),
        "said": f"step {step.index + 1}: {words.step_sentence(step, policy)}",
        "classes": " ".join(shapes(step)),
        "bar": min(TALLEST_BAR, round(abs(ratio) * _PIXELS_PER_LOG)) if math.isfinite(ratio) else TALLEST_BAR,
        "down": ratio < 0,
        "forced": step.forced,
        "fallback": step.fallback,
        "shared": shared,
        "glued": step.index > 0 and not step.token.startswith((" ", "\n")),
    }


def _open_size(step: Step) -> str:
    """The set's size at a step whose threshold says nothing."""
    if step.state != "uninformative":
        return "none"
    return "all" if step.log_tau == -math.inf else f"{step.set_size:,}"


def _row(step: Step, verdict: StandingVerdict | None) -> dict[str, str]:
    diagnostics = step.diagnostics
    limited = step.state not in ("none", "uninformative")
    return {
        "step": str(step.index + 1),
        "token": words.printable_token(step.token),
        **{view: words.shown(step, view) for view in VIEWS},
        "tau": table_threshold(words.tau_of(step)),
        "status": words.status_word(step),
        "size": set_size(step) if limited else _open_size(step),
        "mass": probability(step.certified_mass, words.DIGITS) if limited else "",
        "ratio": signed(diagnostics.log_ratio),
        "times": times(diagnostics.log_ratio),
        "chosen": words.chosen(step),
        "verdict": "" if verdict is None else verdict.in_words,
    }


def _prompt(text: str, spans: Sequence[Span]) -> list[tuple[str, str, str]]:
    """The prompt in runs with family and state, which are empty outside of spans.

    Where spans overlap, the first one is marked and the table lists them all.
    """
    pieces, cursor = [], 0
    for span in sorted(spans):
        if span.start >= cursor:
            family = FAMILY_NAMES.get(span.category, span.category)
            pieces += [(text[cursor : span.start], "", ""), (text[span.start : span.end], family, span_state(span))]
            cursor = span.end
    return [*pieces, (text[cursor:], "", "")]


def _spans(data: SessionData) -> list[tuple[str, str, str, str, str]]:
    parts = []
    for span in data.record.spans:
        source = f"{span.source}, {span.detail}" if span.detail else span.source
        sure = "" if span.score is None else f" ({span.score:.2f})"
        places = f"{span.start + 1}\N{EN DASH}{span.end}"
        family = FAMILY_NAMES.get(span.category, span.category)
        parts.append((data.record.prompt[span.start : span.end], family, span_state(span), f"{source}{sure}", places))
    return parts


def _facts(data: SessionData, report: ReportPart, settings: AuditSettings) -> list[tuple[str, str]]:
    record = data.record
    calibration = record.calibration_label or "none"
    if record.calibration_label and report.thresholds is None:
        calibration += " (deleted since)"
    elif report.thresholds is not None:
        calibration += f", risk level alpha {report.thresholds.alpha:g}"
    return [
        ("Model", f"{record.policy_settings['model_label']}, revision {record.model_revision}"),
        *(() if weights_seen(record.fingerprint.get("weights")) else (("Weights", NOT_SEEN),)),
        ("Policy", method_line(settings)),
        *((("Method", about),) if (about := policy_about(settings.policy)) else ()),
        ("Calibration", calibration),
        ("Thresholds", words.stamp(report)),
        ("Started", moment(record.created_at)),
        ("Last changed", moment(record.updated_at)),
        ("Report", f"session {record.id}, {report.program.name} {report.program.version}"),
    ]


def method_line(settings: AuditSettings) -> str:
    """The method's name with what says how strongly it acts."""
    info = info_of(settings.policy)
    parts = [info.name, *([f"{settings.mask_layout} mask"] if len(info.layouts) > 1 else [])]
    parts += [f"lambda {settings.lam:g}"] if info.fuses else []
    changed = parameters_line(settings)
    return ", ".join([*parts, *([changed] if changed else [])])


def _prompt_format(record: SessionRecord) -> str:
    """How the model read the prompt; empty for sessions of versions that did not keep it."""
    if record.rendering is None:
        return ""
    if not record.rendering["chat"]:
        return "plain text"
    at = moment_of(str(record.fingerprint.get("rendering", "")))
    thinking = str(record.fingerprint.get("thinking", ""))
    asked = f", thinking {thinking}" if thinking else ""
    return "chat template" + (f", which prints the date, as of {at}" if at else "") + asked


def _settings(data: SessionData, settings: AuditSettings) -> list[tuple[str, str]]:
    record = data.record
    return [
        ("seed", str(record.seed)),
        ("decoding", "greedy" if record.greedy else f"sampling{' with shared noise' * settings.shared_noise}"),
        ("steps at most", str(record.max_new_tokens)),
        ("masked families", ", ".join(settings.masked_families or ()) or "none"),
        ("word list", str(record.policy_settings.get("user_list") or "none")),
        ("whitelist", ", ".join(settings.whitelist) or "none"),
        ("group", settings.group or "all contexts together"),
        *((("prompt format", told),) if (told := _prompt_format(record)) else ()),
        *(("computed", item.sentence) for item in computations_of(record)),
        ("numeric noise", f"log-probabilities agree within {session_noise(record).text}"),
        *(
            (f"{title} of the method", f"{value} (default)" if usual else value)
            for title, value, usual in own_parameters(settings)
        ),
    ]
