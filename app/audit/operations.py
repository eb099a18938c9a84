"""An audit: its spans, its chain token by token and its branches, read again at other settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from app.audit.reread import RereadService
from app.audit.rereading import Rereading, RereadRequest, RereadRow, rereading_json
from app.audit.service import AuditService, stop_sentence, until_from_text
from app.report.service import ReportService
from app.shared.audits import AuditSettings, AuditView, ParameterValue, PolicyInfo, StartAudit
from app.shared.calibrations import CalibrationStore
from app.shared.decoding import DECODING, settings_of
from app.shared.errors import ServiceError
from app.shared.files import decode, plain_json, read_bytes, write_text
from app.shared.format import quoted
from app.shared.json import chain_text, session_json, span_json, span_state, step_json
from app.shared.kept_controls import step_said
from app.shared.needs import LOOK, READ, WORK
from app.shared.operations import Json, command, operation
from app.shared.policies import (
    FACTORIZED,
    KNOWN_POLICIES,
    fitted,
    parameter_values,
    policies_json,
    policy_info,
    policy_name,
)
from app.shared.settings_json import USUAL, Settings, spans_from_json
from app.shared.step_words import certificate_words, counted_claim, finding, set_size
from app.shared.terminal import EMBEDDED, PolicyOptions, calibration_id, options_of, print_table, spans_of
from app.shared.wiring import Services
from app.tune.service import TuningService
from coft_core.conformal.informative import silence
from coft_core.controls.measure import ended
from coft_core.controls.result import Controls, Evidence
from coft_core.decode.contributions import LeaveOneOut
from coft_core.text.turns import conversation_from
from coft_core.types import Span, Step

STATES = {
    "calibrated": "",
    "inherited": "borrowed threshold",
    "uninformative": "says nothing",
    "mismatch": "uncertified: policy mismatch",
    "none": "no calibration",
}


def print_audit(view: AuditView) -> None:
    """The chain as a table, with every reservation that the page would show."""
    print(f"Session {view.session_id}: {view.name}")
    print(f"Model {view.model}; policy {policy_name(view.settings.policy)}; {certificate_words(view.certificate)}")
    for state, otherwise in (("masked", "nothing"), ("suggested", ""), ("kept", "")):
        named = ", ".join(_span(view.prompt, span) for span in view.spans if span_state(span) == state)
        if named or otherwise:
            print(f"{state.capitalize()}: {named or otherwise}")
    if view.preview.masked_count and view.preview.sentinel:
        print(f"Sentinel: {view.preview.sentinel}")
    if view.user_list:
        print(f"Word list: {view.user_list}")
    for warning in view.warnings:
        print(f"Note: {warning}")
    print()
    print_table((">step", "token", ">factual", ">masked", ">fused", ">tau", ">set", "certified"), map(_row, view.steps))
    print(f"\n{view.prompt}{chain_text(view)}")
    if claim := counted_claim(view.certificate):
        print(f"\n{claim}")
    if view.steps:
        strongest = max(view.steps, key=lambda step: abs(step.diagnostics.log_ratio))
        said = finding(strongest, view.masked)
        print(f"\nStrongest at step {strongest.index + 1}, {quoted(strongest.token)}. {said}")


def _span(prompt: str, span: Span) -> str:
    sure = "" if span.score is None else f" {span.score:.2f}"
    return f"“{prompt[span.start : span.end]}” ({span.category}, {span.source}{sure})"


def _row(step: Step) -> tuple[object, ...]:
    mark = "yes" if step.certified else "fallback" if step.fallback else "no"
    reservation = STATES[step.state]
    if step.state == "uninformative":
        reservation = f"{reservation}: {silence(step.log_tau)}"
    told = f"{mark}{f' ({reservation})' if reservation else ''}{' forced' if step.forced else ''}"
    logs = (step.log_p_factual, step.log_p_masked, step.log_p_fused, step.log_tau)
    return step.index + 1, _shown(step.token), *(f"{math.exp(value):.4f}" for value in logs), set_size(step), told


def _print_rereading(rereading: Rereading) -> None:
    """The reading as a table, with every reservation that the page would show."""
    alpha = "no thresholds" if rereading.alpha is None else f"alpha {rereading.alpha:g}"
    print(f"Session {rereading.session_id}, branch {rereading.branch_id}, read at lambda {rereading.lam:g}, {alpha}")
    print(rereading.thresholds.sentence)
    for note in rereading.thresholds.notes:
        print(f"Note: {note}")
    if others := ", ".join(
        f"{offer.lam:g} (“{offer.name}”)" for offer in rereading.offers if offer.lam != rereading.lam
    ):
        print(f"Calibrations for this policy exist at lambda {others}.")
    print()
    head = (">step", "written", "would be", ">fused", ">tau", ">set", "certified then", "now")
    print_table(head, map(_reread_row, rereading.rows))
    print(f"\n{rereading.summary}")


def _reread_row(row: RereadRow) -> tuple[object, ...]:
    then, now = row.then, row.now
    other = _shown(now.policy_token) if row.differs else ""
    figures = [f"{math.exp(value):.4f}" for value in (now.log_p_fused, now.log_tau)]
    certified = ["yes" if step.certified else "no" for step in (then, now)]
    forced = " forced" if then.forced else ""
    return row.index + 1, _shown(then.token), other, *figures, now.set_size, certified[0], f"{certified[1]}{forced}"


def _shown(token: str) -> str:
    text = token.replace("\n", "\\n")
    return text.replace(" ", "·", 1) if text.startswith(" ") else text


def print_policies(known: tuple[PolicyInfo, ...]) -> None:
    """Each method with its source, how it differs, and its parameters."""
    for info in known:
        source = f" ({info.source})" if info.source else ""
        print(f"{info.key}: {info.name}, {info.about}{source}")
        print(f"    Differs from its authors': {info.differs}")
        for parameter in info.parameters:
            print(f"    {parameter.name} = {_default(parameter.default)}: {parameter.help}")


def _default(value: object) -> str:
    """A default in a line; texts are quoted, and an empty one is none."""
    if value in (None, "", ()):
        return "none"
    return " ".join(repr(text) for text in value) if isinstance(value, tuple) else repr(value)


@operation(need=READ, json=lambda spans: [span_json(span) for span in spans])
def detect_spans(wired: Services, text: str, settings: Settings = USUAL) -> tuple[Span, ...]:
    """Find the words of a text that name a protected attribute; nothing is stored.

    Args:
        text: The text, exactly as it would be audited.
        settings: Of the settings of start_audit, masked_families, user_list_id and whitelist count.

    Returns:
        A list of spans, each with start and end (characters), category, source, detail, kept, score and suggested;
        a kept or suggested span is not masked.
    """
    return wired[AuditService].detect(text, settings)


@operation(need=WORK, json=session_json)
def start_audit(
    wired: Services,
    prompt: str = "",
    spans: list[Json] | None = None,
    settings: Settings = USUAL,
    messages: list[Json] | None = None,
) -> AuditView:
    """Begin an audit session without a step.

    Args:
        prompt: The text that the model continues; the prompt of a session that is a conversation does as well.
        spans: Sensitive spans, as detect_spans returns them; of each, start, end and category are needed. Without
            them the detector finds them.
        settings: All optional: model, policy (a key that policies lists; coft), parameters (an object with the
            policy's own parameters by name), calibration_id (without one, nothing is certified), group, lam, alpha,
            temperature, top_p, top_k, greedy, seed, max_new_tokens, sentinel, proceed_uncertified,
            masked_families, user_list_id, mask_layout (joint or factorized), mask_mode (hard or soft), mask_hint,
            whitelist, prompt_format (auto, chat or plain), chat_date (a day such as 2026-11-21, for a chat template
            that prints the date), system_prompt (of prompts that have none), thinking (auto, on or off) and prefill
            (what the answer begins with).
        messages: A conversation in place of the prompt: objects with role (system, user, assistant) and content;
            the answer goes on with a last message of the assistant. Spans are those of the session's prompt, which
            detect_spans takes too.

    Returns:
        The session: session_id, branch_id, prompt, spans, settings, certificate, text, steps, chain, branches,
        warnings and others.
    """
    return wired[AuditService].start(StartAudit(asked_prompt(prompt, messages), settings, spans_from_json(spans)))


@operation(
    need=WORK,
    json=lambda stepped: {"session_id": stepped[0], "step": None if stepped[1] is None else step_json(stepped[1])},
)
def step(wired: Services, session_id: int) -> tuple[int, Step | None]:
    """Write one token on the session's active branch.

    Args:
        session_id: The session.

    Returns:
        session_id, and step with the token, its probabilities, threshold and candidates; step is null when the
        chain is finished.
    """
    return session_id, wired[AuditService].step(session_id)


@operation(need=WORK, json=session_json)
def run_to_end(wired: Services, session_id: int) -> AuditView:
    """Write tokens on the session's active branch until it is finished.

    Args:
        session_id: The session.

    Returns:
        The session with all steps of the branch, see start_audit.
    """
    for _ in wired[AuditService].run(session_id):
        pass
    return wired[AuditService].view(session_id)


@operation(need=WORK, json=session_json)
def fork(wired: Services, session_id: int, branch_id: int, step: int, token: str) -> AuditView:
    """Depart from a branch with another token; the new branch becomes the session's active one.

    Args:
        session_id: The session.
        branch_id: The branch that is departed from; it stays as it is.
        step: The step that gets another token, counted from 1.
        token: The token's text, with its leading space if it has one.

    Returns:
        The session with the chain of the new branch, see start_audit.
    """
    return wired[AuditService].fork(session_id, branch_id, step - 1, token)


def contributions_json(contributions: LeaveOneOut) -> dict[str, Any]:
    """What each masked span contributes to the tokens of a chain; contributions need not sum to the total."""
    return {
        "steps": [step + 1 for step in contributions.steps],
        "token_ids": list(contributions.token_ids),
        "sensitivity": list(contributions.sensitivity),
        "log_ratio": list(contributions.log_ratio),
        "interaction": list(contributions.interaction),
        "spans": [
            {**span_json(span.span), "sensitivity": list(span.sensitivity), "log_ratio": list(span.log_ratio)}
            for span in contributions.spans
        ],
    }


@operation(need=LOOK, json=contributions_json)
def contributions(wired: Services, session_id: int, branch_id: int | None = None) -> LeaveOneOut:
    """Measure what each masked span contributes to each token of a chain; runs the model again.

    Args:
        session_id: The session.
        branch_id: The branch; without one, the active branch.

    Returns:
        steps (counted from 1), and for the whole mask and each span the change of each token; contributions need
        not sum to the total.
    """
    return wired[AuditService].contributions(session_id, branch_id)


def controls_json(controls: Controls | None) -> dict[str, Any] | None:
    """Controls as plain JSON, with the corrected p-value of each step."""
    if controls is None:
        return None
    return {**asdict(controls), "p_values": [controls.p_value(step) for step in range(controls.steps)]}


@operation(need=WORK, json=controls_json)
def compare_words(wired: Services, session_id: int, branch_id: int | None = None) -> Controls | None:
    """Compare the marked words of a chain with comparable ones, and store what that gives.

    Args:
        session_id: The session; its setting controls says with how many words.
        branch_id: The branch; without one, the active branch.

    Returns:
        families (of each: what its marked words do, what neutral words in their place and other words of the prompt
        do, step by step, and p_values), p_values over all families, and evidence (an e-value); null where the session
        compares with nothing.
    """
    return ended(wired[AuditService].comparing(session_id, branch_id))


@operation(need=READ, json=asdict)
def evidence(wired: Services) -> Evidence:
    """Say what all prompts of the project that were audited one by one show together.

    Returns:
        prompts, and product: the product of their e-values. Where marked words do no more than comparable words, at
        most one search in so many ever reaches it.
    """
    return wired[AuditService].evidence


@operation(need=READ, json=policies_json)
def policies(wired: Services) -> tuple[PolicyInfo, ...]:
    """List the decoding methods that an audit can be made with.

    Returns:
        A list of policies, each with key, name, about, source, differs (from what its authors published), kind,
        fuses (whether lam counts), certifies (whether it takes a calibration), certified_in, layouts, group and
        parameters; a parameter has name, kind, default, title, help, low, high, step, choices, strength and
        optional.
    """
    return KNOWN_POLICIES


@command("policies", json=lambda known: [asdict(info) for info in known], text=print_policies)
def list_policies(wired: Services) -> tuple[PolicyInfo, ...]:
    """List the decoding methods and their parameters."""
    return KNOWN_POLICIES


@operation(need=READ, json=rereading_json, command="reread", text=_print_rereading)
def reread_audit(
    wired: Services, session: int, *, lam: float | None = None, alpha: float | None = None, branch: int | None = None
) -> Rereading:
    """Read a stored audit at another lambda or alpha; what is left out stays the audit's own.

    The model runs again where the logits of the audit's steps are not kept.

    Each step is read after the tokens that stand before it, so that what follows the first step with another
    token is a reading of the old text and not what would be written.

    Args:
        session: The session.
        lam: Fusion weight.
        alpha: Risk level.
        branch: The branch; without one, the active branch.

    Returns:
        The steps as they read now.
    """
    return wired[RereadService].read(RereadRequest(session, lam, alpha, branch))


OF_AN_AUDIT = {name: said for name, said in settings_of(AuditSettings).items() if said.help and name not in DECODING}
_OfAnAudit = options_of("_OfAnAudit", OF_AN_AUDIT, AuditSettings)


@dataclass(frozen=True, kw_only=True)
class DecodingOptions(_OfAnAudit, PolicyOptions):
    """Everything that describes how a prompt is decoded, but the policies' names.

    Attributes:
        parameters: a parameter of the policy, as 'policies' lists them; may be given several times
        tuned: take the strength that the newest fitting tuning found
        calibration: number of a calibration, 'embedded' or 'none'
        steps: tokens to generate at most
    """

    parameters: Annotated[list[str], typer.Option("--set", metavar="[POLICY.]NAME=VALUE")] = field(default_factory=list)
    tuned: bool = False
    calibration: str = EMBEDDED
    steps: int = USUAL.max_new_tokens

    def decoding(self, wired: Services, policies: str) -> list[AuditSettings]:
        """The settings of each of the policies that are named, separated by commas.

        Raises:
            ServiceError: There is no such policy, calibration or parameter.
        """
        names = [name.strip() for name in policies.split(",")]
        chosen = [name if name == FACTORIZED else policy_info(name).key for name in names]
        given = [_parameter(text) for text in self.parameters]
        for name, parameter, value in given:
            if name and name not in chosen:
                raise ServiceError(f"--set names the policy {name!r}, which --policy does not; name it there too.")
            if not name and len(chosen) > 1:
                raise ServiceError(f"Several policies are named; write --set POLICY.{parameter}={value}.")
        return [self._of(wired, policy, [item for item in given if item[0] in ("", policy)]) for policy in chosen]

    def _of(self, wired: Services, policy: str, given: Sequence[tuple[str, str, str]]) -> AuditSettings:
        settings = AuditSettings(
            **self.settings(wired),
            policy="coft" if policy == FACTORIZED else policy,
            calibration_id=self._calibration_id(wired, policy),
            max_new_tokens=self.steps,
            **{name: getattr(self, name) for name in OF_AN_AUDIT},
        )
        fitting = fitted(settings, policy)
        if self.tuned and fitting.policy != "vanilla":
            fitting = wired[TuningService].applied(fitting)
        lines: dict[str, list[str]] = {}
        for _, parameter, value in given:
            lines.setdefault(parameter, []).append(value)
        values = parameter_values(
            policy_info(fitting.policy), {name: "\n".join(texts) for name, texts in lines.items()}
        )
        merged: dict[str, ParameterValue] = dict(fitting.parameters) | dict(values)
        return replace(fitting, parameters=tuple(merged.items()))

    def _calibration_id(self, wired: Services, policy: str) -> int | None:
        """The calibration that was asked for; the embedded one only where it can fit, which the session then says."""
        if self.calibration == "none":
            return None
        if self.calibration != EMBEDDED:
            return calibration_id(wired, self.calibration, self.model)
        embedded = any(item.embedded for item in wired[CalibrationStore].list(self.model))
        return calibration_id(wired, EMBEDDED, self.model) if embedded and policy == "coft" else None


def _parameter(text: str) -> tuple[str, str, str]:
    """Policy (empty for the only one), parameter and value of a ``--set``."""
    name, equals, value = text.partition("=")
    policy, _, parameter = name.strip().rpartition(".")
    if not equals or not parameter:
        raise ServiceError(f"--set {text!r} is no NAME=VALUE; write, for instance, --set strength=2.")
    return policy, parameter, value


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """What is audited.

    Attributes:
        prompt: the text to continue
        messages: JSON file with a conversation in place of the prompt: a list of objects with role and content
        name: session name (default: the prompt's beginning)
        policy: a method that 'policies' lists; several, separated by commas, are run beside each other and compared
        spans: sensitive spans as JSON [[start, end, category], ...]; default: detected
        until: stop earlier: at the first fallback, sensitive[:LOG RATIO] or overruled, or after steps:N
    """

    prompt: str = ""
    messages: Path | None = None
    name: str | None = None
    policy: Annotated[str, typer.Option("--policy", metavar="NAME[,NAME]")] = "coft"
    spans: str | None = None
    until: str | None = None

    def request(self, settings: AuditSettings) -> StartAudit:
        """The audit at these settings.

        Raises:
            ServiceError: The spans are no list of spans, or the messages no conversation.
        """
        messages = None if self.messages is None else read_messages(self.messages)
        prompt = asked_prompt(self.prompt, messages)
        return StartAudit(prompt, settings, spans_from_json(spans_of(self.spans)), self.name)


@dataclass(frozen=True, slots=True)
class Audited:
    """An audit whose chain has ended, and why it ended there; empty where it ended by itself."""

    view: AuditView
    why: str
    controls: Controls | None = None


def write_audited(wired: Services, audited: Audited, file: Path) -> str:
    """Write the report as CSV to this file."""
    return f"\nReport: {write_text(file, wired[ReportService].csv(audited.view.session_id))}"


def print_audited(audited: Audited) -> None:
    """The audit beside its controls, and why it ended."""
    print_audit(audited.view)
    strongest = max(audited.view.steps, key=lambda step: abs(step.diagnostics.log_ratio), default=None)
    if strongest is not None and audited.view.masked:
        said = "" if audited.controls is None else step_said(audited.controls, strongest.index)
        print(f"\nStep {strongest.index + 1}, {quoted(strongest.token)}: {said or 'no control.'}")
    if audited.why:
        print(f"\n{audited.why}")


def audited_json(audited: Audited) -> dict[str, Any]:
    """The session with its controls."""
    return {**session_json(audited.view), "controls": controls_json(audited.controls)}


@command("audit", json=audited_json, write=write_audited, text=print_audited)
def audit(wired: Services, *, asked: AuditOptions, options: DecodingOptions) -> Audited:
    """Audit one prompt and write its report."""
    condition = None if asked.until is None else until_from_text(asked.until)
    settings, *further = options.decoding(wired, asked.policy)
    if further:
        raise ServiceError("An audit has one policy; name only one.")
    number = wired[AuditService].start(asked.request(settings)).session_id
    steps = list(wired[AuditService].run(number, until=condition))
    controls = ended(wired[AuditService].comparing(number))
    view = wired[AuditService].view(number)
    why = stop_sentence(condition, steps[-1] if steps else None, len(steps), view.finished)
    return Audited(view, why, controls)


MOST_BYTES = 20_000_000
"""Largest file of messages that is read."""


def asked_prompt(prompt: str, messages: object) -> str:
    """The prompt, or the conversation that is given in its place."""
    if messages is not None and prompt.strip():
        raise ServiceError("A prompt and messages are given; give one of them.")
    if messages is None and not prompt.strip():
        raise ServiceError("The prompt is empty; type at least one word, or give messages.")
    return prompt if messages is None else conversation_from(messages)[0]


def read_messages(file: Path) -> object:
    """What a JSON file with messages holds."""
    try:
        return plain_json(decode(read_bytes(file, file.name, MOST_BYTES), file.name))
    except (ValueError, RecursionError) as error:
        raise ServiceError(f"{file.name} is no JSON ({error}).") from error
