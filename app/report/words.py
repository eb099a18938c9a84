"""A report in plain words: what happened, what is claimed, and what is not."""

from __future__ import annotations

import math
from collections.abc import Sequence

from app.report.document import ReportPart, SummaryPart
from app.shared.bounds import decided_sentence, emitted, is_open_ended, shown_probability
from app.shared.format import listed, probability, shown_token, times_likelier
from app.shared.policies import info_of
from app.shared.step_words import has_threshold
from coft_core.conformal.informative import silence
from coft_core.model.noise import NumericNoise
from coft_core.types import Certificate, Step

DIGITS = 3
"""Of probabilities in reports."""


def printable_token(token: str) -> str:
    """A token's text as pages show it, with control characters made visible too."""
    text = "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in token)
    return shown_token(text)


def strongest(summary: SummaryPart, steps: Sequence[Step]) -> str:
    """The token that differs most between the readings, in a sentence; empty before the first one."""
    if summary.most_sensitive_step is None or summary.largest_log_ratio is None:
        return ""
    step = steps[summary.most_sensitive_step]
    return f"{_quoted(step.token)} at step {step.index + 1}, {times_likelier(summary.largest_log_ratio)}"


def near_threshold(steps: Sequence[Step], noise: NumericNoise) -> str:
    """At which steps rounding alone could turn a certificate, and within which bound; empty where at none."""
    near = [str(step.index + 1) for step in steps if step.near_threshold(noise.nats)]
    if not near:
        return ""
    places = f"{'step' if len(near) == 1 else 'steps'} {listed(near)}"
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
    elif status_word(step) == "undecided":
        sentence = "Whether the threshold holds is undecided."
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
    moved = "How much likelier is not known" if is_open_ended(step) else times_likelier(step.diagnostics.log_ratio)
    return " ".join(filter(None, [f"{sentence}{forced} {_capital(moved)}.", decided_sentence(step)]))


def status_word(step: Step) -> str:
    """A step's state in a word or two, for a column."""
    if step.state in ("none", "mismatch", "uninformative"):
        weak = "too weak" if step.log_tau > -math.inf else "too few texts"
        return {"none": "no threshold", "mismatch": "other policy", "uninformative": weak}[step.state]
    if step.fallback:
        return "missed, fallback"
    if not step.certified:
        row = emitted(step)
        return "undecided" if row is not None and step.is_open(row) else "missed"
    return "held" if step.state == "calibrated" else "borrowed, held"


def shown(step: Step, view: str) -> str:
    """The probability of a step's token in a view."""
    row = emitted(step)
    if row is None:
        return probability(math.exp(getattr(step, f"log_p_{view}")), DIGITS)
    return shown_probability(step, row, view, DIGITS)


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


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
