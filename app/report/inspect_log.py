"""Stored sessions as a log of Inspect, which its viewer shows and its data frames read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.report.tables import SessionData
from app.shared.json import chain_json, span_json
from app.shared.results.inspect_file import PROVIDER, as_written, encodable, eval_file, eval_scores, inspect_logs
from app.shared.results.record import Result
from app.shared.thinking import step_parts
from app.shared.verdicts import standing
from coft_core.step_numbers import finite, step_numbers
from coft_core.text.turns import ASSISTANT, SYSTEM, USER, Turn, turns_of
from coft_core.types import Certificate, Step
from db.audits import BranchRecord

TOP = 5
"""Likeliest tokens that are kept of each position."""
STRONGEST, HELD = "strongest_sensitivity", "thresholds_held"
"""Scores of a sample: the largest difference, in nats, between what the factual and the masked reading say of a token
that was written; and the share of tokens that are certified, where anything may be certified."""


def inspect_log(sessions: Sequence[SessionData], name: str, results: Sequence[Result] = ()) -> bytes:
    """An ``.eval`` file with a sample a branch, and with figures of them all where there are any."""
    logs = inspect_logs()
    samples = [_sample(data, branch) for data in sessions for branch in data.branches if branch.id in data.chains]
    first = sessions[0].record
    scores = eval_scores(results)
    for key in (STRONGEST, HELD):
        values = [float(sample.scores[key].as_float()) for sample in samples if key in (sample.scores or {})]
        if values:
            mean = logs.EvalMetric(name="mean", value=sum(values) / len(values))
            scores.append(logs.EvalScore(name=key, scorer=key, scored_samples=len(values), metrics={"mean": mean}))
    log = logs.EvalLog(
        status="success",
        eval=logs.EvalSpec(
            eval_id=f"{PROVIDER}-{first.id}",
            run_id=f"{PROVIDER}-{first.id}",
            created=as_written(first.created_at),
            task=name,
            task_id=f"{PROVIDER}-{first.id}",
            dataset=logs.EvalDataset(name=name, samples=len(samples), sample_ids=[sample.id for sample in samples]),
            model=f"{PROVIDER}/{first.model}",
            model_args=_settings(sessions[0]),
            config=logs.EvalConfig(epochs=1),
            metadata={"program": "coft-audit", "sessions": [data.record.id for data in sessions]},
        ),
        results=logs.EvalResults(total_samples=len(samples), completed_samples=len(samples), scores=scores),
        stats=logs.EvalStats(
            started_at=as_written(min(data.record.created_at for data in sessions)),
            completed_at=as_written(max(data.record.updated_at for data in sessions)),
        ),
        samples=samples,
    )
    return eval_file(log)


def _sample(data: SessionData, branch: BranchRecord) -> Any:
    """A branch's whole chain, with what may be claimed of it."""
    import inspect_ai.log as logs
    import inspect_ai.model as models
    from inspect_ai.scorer import Score

    from coft_core.adapters.inspect_provider import log_probabilities

    record, steps = data.record, data.chains[branch.id]
    certificate = Certificate.read(record.certificate).counted(steps)
    read = _read(record.prompt)
    reply = models.ChatMessageAssistant(
        content=_written(data, steps),
        model=record.model,
        source="generate",
        metadata={"certificate": certificate.text},
    )
    choice = models.ChatCompletionChoice(
        message=reply,
        stop_reason="stop" if branch.finished == "end" else "max_tokens",
        logprobs=log_probabilities(steps, TOP),
    )
    figures = {
        "certificate": certificate.text,
        "chain": finite(chain_json(data.certificates.get(branch.id)) or {}),
        "drift": data.drift,
        "spans": [span_json(span) for span in record.spans],
        "warnings": list(record.warnings),
        "steps": [finite(step_numbers(step)) for step in steps],
    }
    return logs.EvalSample(
        id=f"{record.id}.{branch.id}",
        epoch=1,
        input=read if turns_of(record.prompt) else read[0].text,
        target="",
        messages=[*read, reply],
        output=models.ModelOutput(
            model=record.model,
            choices=[choice],
            usage=models.ModelUsage(output_tokens=len(steps), total_tokens=len(steps)),
            metadata={PROVIDER: [figures]},
        ),
        scores={key: Score(value=value) for key, value in _scores(steps, certificate).items()},
        metadata={
            "session": record.id,
            "name": encodable(record.name),
            "branch": branch.path,
            "branch_name": encodable(branch.name),
            "fingerprint": record.fingerprint_digest,
            "seed": record.seed,
            **_settings(data),
            **figures,
            "verdicts": [
                {"target": verdict.target.label, "verdict": verdict.in_words, "notes": encodable(verdict.notes)}
                for verdict in standing(data.log)
                if verdict.target.branch in (None, branch.path)
            ],
        },
    )


def _read(prompt: str) -> list[Any]:
    """What the model read, as messages: the turns of a conversation, or the prompt as the user's."""
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser

    kinds: dict[str, Any] = {SYSTEM: ChatMessageSystem, USER: ChatMessageUser, ASSISTANT: ChatMessageAssistant}
    turns = turns_of(prompt) or (Turn(USER, prompt),)
    return [kinds[turn.role](content=encodable(turn.content), source="input") for turn in turns]


def _written(data: SessionData, steps: Sequence[Step]) -> Any:
    """What the model wrote, its thinking apart where it marks any."""
    from inspect_ai.model import ContentReasoning, ContentText

    told = step_parts(steps, data.record.policy_settings) or ("answer",) * len(steps)
    by_part = {
        part: encodable("".join(step.token for step, its in zip(steps, told, strict=True) if its == part))
        for part in ("thinking", "answer")
    }
    if not by_part["thinking"]:
        return by_part["answer"]
    return [ContentReasoning(reasoning=by_part["thinking"]), ContentText(text=by_part["answer"])]


def _scores(steps: Sequence[Step], certificate: Certificate) -> Mapping[str, float]:
    if not steps:
        return {}
    found = {STRONGEST: max(abs(step.diagnostics.log_ratio) for step in steps)}
    if certificate.certified:
        found[HELD] = sum(step.certified for step in steps) / len(steps)
    return found


def _settings(data: SessionData) -> dict[str, Any]:
    record = data.record
    names = ("policy", "lam", "alpha", "temperature", "top_p", "top_k", "greedy", "max_new_tokens")
    return {name: getattr(record, name) for name in names}
