"""A report in plain words: what happened, what is claimed, and what is not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from app.report.document import ReportPart, SummaryPart, ThresholdsPart
from app.shared.audits import SENSITIVE, AuditSettings, PolicyInfo
from app.shared.format import plural, probability, shown_token, times_likelier
from app.shared.policies import info_of, policy_name
from app.shared.step_words import counted_claim, has_threshold
from coft_core.conformal.informative import TOO_WEAK, WHY_WEAK, silence
from coft_core.model.noise import NumericNoise
from coft_core.types import Certificate, Step

DIGITS = 3
"""Of probabilities in reports."""


def printable_token(token: str) -> str:
    """A token's text as pages show it, with control characters made visible too."""
    text = "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in token)
    return shown_token(text)


def moment(time: datetime) -> str:
    """A time, in UTC so that the report reads the same everywhere."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def short(digest: str) -> str:
    """A digest's beginning."""
    return f"{digest[:12]}\N{HORIZONTAL ELLIPSIS}" if len(digest) > 12 else digest


def what_happened(summary: SummaryPart, steps: Sequence[Step], settings: AuditSettings) -> tuple[str, ...]:
    """The summary of one chain in sentences."""
    if not steps:
        return ("No token has been written yet.",)
    opening = f"The model wrote {plural(summary.steps, 'token')}."
    claim = counted_claim(summary.certificate or "")
    sentences = (*_sensitivity_sentences(summary, steps), *_threshold_sentences(summary, settings))
    return (opening, *sentences, *([claim] if claim else []))


def _threshold_sentences(summary: SummaryPart, settings: AuditSettings) -> list[str]:
    if summary.uncertified == summary.steps:
        if not info_of(settings.policy).certifies:
            return [f"The method, {policy_name(settings.policy)}, has no threshold that could hold or be missed."]
        return ["There is no threshold: no calibration of this very policy is used."]
    if summary.uninformative == summary.steps:
        return [
            "The thresholds are too weak to say anything."
            if summary.too_weak
            else "The thresholds say nothing: the calibration has too few texts for this risk level, so every token "
            "passes."
        ]
    counted = "every token" if summary.certified == summary.steps else plural(summary.certified, "token")
    readings = (
        "when the masked words are visible; nothing is said of the reading in which they are masked"
        if info_of(settings.policy).certified_in == "factual"
        else "both when the masked words are visible and when they are masked"
    )
    sentences = [f"The threshold held at {counted}: likely enough {readings}."]
    if summary.inherited:
        sentences.append(
            f"At {plural(summary.inherited, 'token')} a threshold held that is borrowed from other steps, because no "
            "calibration text reached so far."
        )
    weak = summary.too_weak or 0
    if weak:
        sentences.append(f"At {plural(weak, 'step')} {TOO_WEAK}: {WHY_WEAK}.")
    if summary.uninformative > weak:
        sentences.append(
            f"At {plural(summary.uninformative - weak, 'step')} there were too few calibration texts for this risk "
            "level, so that every token passes and nothing is shown."
        )
    if summary.fallback:
        enough = _enough(info_of(settings.policy))
        sentences.append(
            f"At {plural(summary.fallback, 'step')} no token was {enough}, so the threshold was missed and the "
            "likeliest one was written (fallback)."
        )
    if summary.forced:
        sentences.append(_forced_sentence(summary))
    return sentences


def _enough(info: PolicyInfo) -> str:
    """What every token was not at a step without a certified one."""
    if info.certified_in != "factual":
        return "likely enough in both readings"
    sentence = "likely enough in the prompt as typed"
    return f"{sentence} and within the method's own limit" if info.kind == "constraint" else sentence


def _forced_sentence(summary: SummaryPart) -> str:
    outside = min(summary.outside - summary.fallback, summary.forced)
    sentence = f"The reviewer forced {plural(summary.forced, 'token')}"
    if outside <= 0:
        return f"{sentence}."
    if summary.forced == 1:
        return f"{sentence}, which is outside the certified set."
    return f"{sentence}, {outside} of them outside the certified set."


def _sensitivity_sentences(summary: SummaryPart, steps: Sequence[Step]) -> list[str]:
    factor = f"{math.exp(SENSITIVE):.2f}"
    if summary.most_sensitive_step is None or summary.largest_log_ratio is None:
        return []
    step = steps[summary.most_sensitive_step]
    strongest = f"{_quoted(step.token)} at step {step.index + 1}, {times_likelier(summary.largest_log_ratio)}"
    if not summary.sensitive:
        return [f"No token is {factor} times likelier in one reading than in the other; the nearest is {strongest}."]
    many = f"{plural(summary.sensitive, 'token')} {_are(summary.sensitive)}"
    return [f"{many} at least {factor} times likelier in one reading than in the other. The strongest is {strongest}."]


def near_threshold(steps: Sequence[Step], noise: NumericNoise) -> str:
    """At which steps rounding alone could turn a certificate, and within which bound; empty where at none."""
    near = [str(step.index + 1) for step in steps if step.near_threshold(noise.nats)]
    if not near:
        return ""
    places = f"step {near[0]}" if len(near) == 1 else f"steps {', '.join(near[:-1])} and {near[-1]}"
    return (
        f"At {places} a token stands at the threshold within numeric noise ({noise.text}), so that another machine or "
        "another way of computing could find otherwise."
    )


def is_empty(report: ReportPart) -> bool:
    """Whether no threshold could be read at the session's risk level, so that a certificate says nothing."""
    families = () if report.thresholds is None else report.thresholds.families
    return bool(families) and all(entry.state == "uninformative" for family in families for entry in family.bins)


def stamp(report: ReportPart) -> str:
    """What the thresholds rest on, in a few words."""
    certificate = Certificate.read(report.session.certificate)
    if not certificate.certified:
        return f"no certificate: {certificate.reason}"
    return "too weak to say anything" if is_empty(report) else "of a calibration that fits these settings"


def claims(report: ReportPart) -> tuple[str, ...]:
    """What thresholds that hold claim, as sentences; a single one where they claim nothing."""
    session, thresholds = report.session, report.thresholds
    certificate = Certificate.read(session.certificate)
    if not certificate.certified:
        return (f"Nothing: {certificate.reason}.",)
    if thresholds is None:
        return ("Nothing that could still be read: the calibration has been deleted.",)
    if is_empty(report):
        return (
            f"Nothing: at the risk level {thresholds.alpha:g} the calibration “{thresholds.calibration}” has too few "
            "texts for a threshold, so that every token passes.",
        )
    level = f"{1 - thresholds.alpha:.6g}"
    group = "" if thresholds.group is None else f" of the group “{thresholds.group}”"
    contexts = max((entry.contexts for family in thresholds.families for entry in family.bins), default=0)
    info = info_of(session.policy)
    reached = "is in the certified set" if info.kind != "constraint" else "reaches the threshold τ"
    return (
        f"In a new text{group} like those of the calibration “{thresholds.calibration}”, the true next token {reached} "
        f"with probability at least {level}, averaged over such texts and over the steps that share a threshold; "
        "nothing is promised of single steps.",
        *_held_tokens(info),
        f"The thresholds rest on up to {plural(contexts, 'independent text')} a range of steps.",
        *_differing(thresholds),
    )


def _differing(thresholds: ThresholdsPart) -> tuple[str, ...]:
    """Which ranges of steps hold steps that differ from each other."""
    if not thresholds.uneven:
        return ()
    return (
        f"Beyond noise, the steps within {', '.join(thresholds.uneven)} differ from each other: at some of them the "
        "true token can be missed more often.",
    )


def _held_tokens(info: PolicyInfo) -> tuple[str, ...]:
    """What is true of every token whose threshold held under a method."""
    if info.certified_in != "factual":
        return (
            "Every token whose threshold held has at least the probability τ of its step in the fused reading and, at "
            "the same time, in the reading in which the sensitive words are masked.",
        )
    sentence = (
        "Every token whose threshold held has at least the probability τ of its step in the prompt as typed; nothing "
        "is claimed of the reading in which the sensitive words are masked.",
    )
    if info.kind != "constraint":
        return sentence
    return (
        *sentence,
        "The method also refuses tokens by a limit of its own, and how often that takes the true one is not "
        "calibrated.",
    )


def not_claimed(report: ReportPart) -> tuple[str, ...]:
    """What must not be read into a threshold that held."""
    sentences = [
        f"That this text, or the model, is fair. A threshold that held means {_meaning(report)}, and no more; a token "
        "can pass it and still depend on the attribute.",
        "Anything about this one prompt: the level is an average over texts like those of the calibration.",
        "Anything about the text as a whole, unless a certificate of the whole chain is given above.",
        "Anything about words of the prompt that were not masked, or that hint at an attribute unnoticed.",
    ]
    source = report.session.fingerprint.get("source")
    if source == "reference":
        sentences.append(
            "An exact level for texts that the policy writes itself: the calibration followed given texts, so that the "
            "level is approximate where its own beginnings differ from them."
        )
    if report.session.fingerprint.get("estimator") == "pooled":
        sentences.append(
            "A level that holds although tokens of one text depend on each other: these thresholds count tokens as if "
            "they were independent, as the paper does."
        )
    if report.thresholds is not None:
        sentences.append("Anything about prompts of another kind than the calibration's.")
    return tuple(sentences)


def _meaning(report: ReportPart) -> str:
    if info_of(report.session.policy).certified_in == "factual":
        return "likely enough in the prompt as typed"
    return "likely enough in both readings"


def _support(step: Step, policy: str) -> float:
    """What the threshold is compared with; steps of older reports do not say it, their policy does."""
    return step.log_p_factual if info_of(policy).certified_in == "factual" else step.log_support


def step_sentence(step: Step, policy: str = "coft") -> str:
    """A step's state in a sentence, with the probability that the policy's threshold is compared with."""
    factual = info_of(policy).certified_in == "factual"
    compared = "probability as typed" if factual else "lower probability"
    joint = f"{compared} {probability(math.exp(_support(step, policy)), DIGITS)}"
    tau = probability(math.exp(step.log_tau), DIGITS)
    if step.state == "none":
        sentence = "No threshold: there is no calibration."
    elif step.state == "mismatch":
        sentence = "No threshold that counts: it belongs to another policy."
    elif step.state == "uninformative":
        sentence = f"Nothing can be said: {silence(step.log_tau)}."
    elif step.fallback:
        where = "in the prompt as typed" if factual else "in both readings"
        sentence = f"Threshold missed, fallback: no token reached it {where}."
    elif not step.certified:
        sentence = f"Threshold missed: {joint}, threshold {tau}."
    else:
        held = "Borrowed threshold held" if step.state == "inherited" else "Threshold held"
        sentence = f"{held}: {joint}, threshold {tau}."
    forced = ""
    if step.forced:
        same = step.policy_token_id == step.token_id
        forced = " Forced by the reviewer"
        forced += "; the policy would have written the same." if same else f" instead of {_quoted(step.policy_token)}."
    return f"{sentence}{forced} {_capital(times_likelier(step.diagnostics.log_ratio))}."


def status_word(step: Step) -> str:
    """A step's state in a word or two, for a column."""
    if step.state in ("none", "mismatch", "uninformative"):
        weak = "too weak" if step.log_tau > -math.inf else "too few texts"
        return {"none": "no threshold", "mismatch": "other policy", "uninformative": weak}[step.state]
    if step.fallback:
        return "missed, fallback"
    if not step.certified:
        return "missed"
    return "held" if step.state == "calibrated" else "borrowed, held"


def chosen(step: Step) -> str:
    """Who chose a token."""
    if step.forced:
        return "reviewer"
    return "fallback" if step.fallback else "policy"


def tau_of(step: Step) -> float:
    """Threshold of a step as a probability; 0 where there is none."""
    return math.exp(step.log_tau) if has_threshold(step) else 0.0


def _quoted(token: str) -> str:
    return f"“{printable_token(token)}”"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
