"""Any method as a model of Inspect: ``inspect eval task.py --model coft/demo -M lam=0.6``."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from threading import Lock
from typing import Any

import anyio.to_thread
from inspect_ai.log import transcript
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    Content,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    Logprob,
    Logprobs,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    StopReason,
    TopLogprob,
)
from inspect_ai.tool import ToolChoice, ToolInfo

from coft_core.adapters.shared import SettledText, chosen_policy
from coft_core.decode.loop import Rollout
from coft_core.decode.plan import plan
from coft_core.errors import InvalidInputError
from coft_core.model.joint import JointForwards
from coft_core.model.load import load_model
from coft_core.step_numbers import finite, step_numbers
from coft_core.text.given import conversation
from coft_core.text.thinking import Divided, Part, thinking_marks, thinking_of
from coft_core.text.turns import Turn
from coft_core.types import Run, Step

SOURCE = "coft"
"""Under which name figures stand in a log."""

AT_ONCE = 8
"""Samples that are decoded beside each other unless told otherwise; their steps share forwards."""

SEEDS = 2**31

REFUSED = ("best_of", "frequency_penalty", "presence_penalty", "logit_bias", "response_schema", "prompt_logprobs")
"""What a policy does not do."""


@dataclass(frozen=True, slots=True)
class _Written:
    """A chain with its answer up to a stop, its thinking, and which part each token belongs to; none without marks."""

    run: Run
    text: str
    stopped: bool
    prompt_tokens: int
    note: str
    thinking: str
    parts: tuple[Part, ...]


class CoftAPI(ModelAPI):
    """A policy on a model, as Inspect asks a model."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008  (as Inspect declares it)
        *,
        policy: str = "coft",
        device: str = "auto",
        dtype: str = "auto",
        revision: str | None = None,
        quantization: str = "none",
        **options: Any,
    ) -> None:
        """Load the model; ``docs/adapters.md`` has the options, and :func:`chosen_policy` those of the policy."""
        super().__init__(model_name, base_url, api_key, [], config)
        self._policy = chosen_policy(policy, options)
        self._model = load_model(model_name, device, dtype, revision, quantization=quantization)
        processor: Any = Lock()
        self._forwards = JointForwards(lambda: processor)

    def max_connections(self) -> int:
        """Samples that are decoded beside each other."""
        return AT_ONCE

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """The next message, with certificates and per-token figures in its metadata."""
        del tool_choice
        if tools:
            raise InvalidInputError("A policy writes text and calls no tools; use a task without tools.")
        for name in REFUSED:
            if getattr(config, name, None):
                raise InvalidInputError(f"A policy decides alone what is drawn, so {name} cannot be set; leave it out.")
        if any(message.role == "tool" for message in input):
            raise InvalidInputError("A policy reads no answers of tools; use a task without tools.")
        turns = [Turn(message.role, message.text) for message in input]
        seed = secrets.randbelow(SEEDS) if config.seed is None else config.seed
        written = [
            await anyio.to_thread.run_sync(self._write, turns, config, seed + number)
            for number in range(config.num_choices or 1)
        ]
        figures = [self._figures(one) for one in written]
        shown: Any = figures
        transcript().info(shown, source=SOURCE)
        read, made = written[0].prompt_tokens, sum(len(one.run.steps) for one in written)
        return ModelOutput(
            model=self.model_name,
            choices=[self._choice(one, config) for one in written],
            usage=ModelUsage(input_tokens=read, output_tokens=made, total_tokens=read + made),
            metadata={SOURCE: figures},
        )

    def _write(self, turns: Sequence[Turn], config: GenerateConfig, seed: int) -> _Written:
        wanted = {"temperature": config.temperature or None, "top_p": config.top_p, "top_k": config.top_k}
        controls: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
        policy = replace(self._policy, **controls)
        read = conversation(self._model.tokenizer, turns, datetime.now())
        prepared = plan(
            self._model.rendered_as(read.rendering),
            read.prompt.text,
            policy,
            seed=seed,
            greedy=config.temperature == 0,
            max_new_tokens=config.max_tokens or self._model.context_length,
        )
        rollout = Rollout(prepared, forwards=self._forwards)
        tokenizer = self._model.tokenizer
        thinking = thinking_of(tokenizer, prepared.prompt.factual_ids, thinking_marks(tokenizer))
        told, pieces = SettledText(prepared.model, config.stop_seqs or (), thinking), list[Divided]()
        try:
            while rollout.finished is None and not told.stopped:
                rollout.step()
                pieces.append(told.more([step.token_id for step in rollout.steps]))
            run = rollout.run()
        finally:
            rollout.close()
        pieces.append(told.rest())
        text, thought = ("".join(getattr(piece, part) for piece in pieces) for part in ("answer", "thinking"))
        parts = () if thinking is None else thinking.parts(step.token for step in run.steps)
        return _Written(run, text, told.stopped, len(prepared.prompt.factual_ids), read.note, thought, parts)

    def _figures(self, written: _Written) -> dict[str, Any]:
        """What may be claimed of a chain, what was masked, and the numbers of each token."""
        run = written.run
        return {
            "certificate": run.certificate,
            "policy": self._policy.name,
            "lam": self._policy.fusion_weight,
            "seed": run.seed,
            "masked": [run.prompt[span.start : span.end] for span in run.spans if span.masked],
            "warnings": [*filter(None, [written.note]), *run.warnings],
            "steps": [
                {**finite(step_numbers(step)), **({"part": written.parts[place]} if written.parts else {})}
                for place, step in enumerate(run.steps)
            ],
        }

    def _choice(self, written: _Written, config: GenerateConfig) -> ChatCompletionChoice:
        reason: StopReason = "stop" if written.stopped or written.run.finished == "end" else "max_tokens"
        if written.run.finished == "context":
            reason = "model_length"
        content: str | list[Content] = written.text
        if written.thinking:
            content = [ContentReasoning(reasoning=written.thinking), ContentText(text=written.text)]
        return ChatCompletionChoice(
            message=ChatMessageAssistant(
                content=content, model=self.model_name, metadata={"certificate": written.run.certificate}
            ),
            stop_reason=reason,
            logprobs=log_probabilities(written.run.steps, config.top_logprobs or 0) if config.logprobs else None,
        )


def log_probabilities(steps: Sequence[Step], top: int) -> Logprobs:
    """The policy's log-probabilities of a chain's tokens, with so many of the likeliest."""
    content = []
    for step in steps:
        likeliest = sorted(step.candidates, key=lambda item: -item.log_p_fused)[:top]
        content.append(
            Logprob(
                token=step.token,
                logprob=step.log_p_fused,
                top_logprobs=[TopLogprob(token=item.token, logprob=item.log_p_fused) for item in likeliest],
            )
        )
    return Logprobs(content=content)
