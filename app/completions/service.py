"""Completions by a policy: one chain a choice, token by token, on the model that the server holds."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from app.completions.requests import Asked, ChatRequest, CompletionRequest, RefusedRequestError
from app.hosting.memory import DeviceMemory
from app.hosting.model_host import ModelHost
from app.hosting.rollouts import RolloutPool
from app.shared.planning import Detectors
from app.shared.policies import policy_of_text
from app.shared.wiring import Services
from coft_core.adapters.shared import SettledText, prompt_log_probabilities
from coft_core.decode.cost import reserved_bytes
from coft_core.decode.loop import ROOT_PATH, Rollout
from coft_core.decode.plan import Plan, plan
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Policy
from coft_core.text.given import Conversation, TemplateSettingError, conversation, prompt_of_ids, prompt_of_text
from coft_core.text.rendering import Rendering, thinking_switch
from coft_core.text.thinking import ChainThinking, Part, named_marks, thinking_marks, thinking_of
from coft_core.types import Step

SEEDS = 2**31
TOLD = "chat_template_kwargs"


@dataclass(frozen=True, slots=True)
class TokenOdds:
    """A token, and what the policy drew it from."""

    token: str
    log_p: float | None
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """What one step adds to a choice."""

    text: str
    step: Step | None = None
    thinking: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """One chain that is to be written."""

    prompt: int
    plan: Plan
    note: str
    stops: tuple[str, ...]
    thinking: ChainThinking | None = None

    def parts(self, steps: Sequence[Step]) -> tuple[Part, ...]:
        """Which part each of its steps belongs to; nothing where all is the answer."""
        return () if self.thinking is None else self.thinking.parts(step.token for step in steps)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a choice ended."""

    reason: str
    steps: tuple[Step, ...]


class CompletionService:
    """Answers requests in the shape of OpenAI's interface by one policy on one model."""

    def __init__(self, services: Services) -> None:
        """Take the settings' model, and the policy that they name; nothing is loaded yet."""
        settings = services.settings
        self._host, self._pool = services[ModelHost], services[RolloutPool]
        self._detector = services[Detectors].default
        self.model_name, self.policy = settings.model, policy_of_text(settings.completions)
        self._marks = named_marks(settings.thinking_marks)
        """Of thinking; they are looked for before the known ones."""

    def completions(self, asked: CompletionRequest) -> list[Choice]:
        """The chains of a completion request, each prompt's next to each other."""
        model = self._model(asked)
        prompts = []
        for given in asked.prompts:
            special = isinstance(given, str)
            prompt = (
                prompt_of_text(model.tokenizer, given, special=True)
                if isinstance(given, str)
                else prompt_of_ids(model.tokenizer, given)
            )
            rendering = Rendering(kept={prompt.text: prompt.tokens}, as_it_stands=not special)
            prompts.append(Conversation(prompt, rendering))
        # Nothing is written where nobody asks for more than the prompt.
        return self._choices(model, asked, prompts, max(asked.max_tokens or 0, 1))

    def chat(self, asked: ChatRequest) -> list[Choice]:
        """The chains of a conversation, their thinking told from their answers."""
        model = self._model(asked)
        turns, told = [message.turn for message in asked.messages], asked.chat_template_kwargs or {}
        try:
            read = conversation(model.tokenizer, turns, datetime.now(), told)
        except TemplateSettingError as error:
            raise RefusedRequestError(f"{TOLD}: {error}", param=TOLD) from error
        others = told.keys() - {thinking_switch(str(model.tokenizer.chat_template))}
        if others and self.policy.applied is not None:
            raise RefusedRequestError(
                f"{TOLD}: {sorted(others)[0]!r} makes other prompts than those of the server's calibration; leave it "
                "out.",
                param=TOLD,
            )
        choices = self._choices(model, asked, [read], asked.most or model.context_length)
        marks = thinking_marks(model.tokenizer, self._marks)
        prompts = [choice.plan.prompt.factual_ids for choice in choices]
        return [
            replace(choice, thinking=thinking_of(model.tokenizer, ids, marks))
            for choice, ids in zip(choices, prompts, strict=True)
        ]

    def _model(self, asked: Asked) -> LanguageModel:
        if asked.model != self.model_name:
            raise RefusedRequestError(
                f"There is no model {asked.model!r} here; the server's is {self.model_name!r}.",
                404,
                "model",
                "model_not_found",
            )
        return self._host.get(self.model_name)

    def _choices(self, model: LanguageModel, asked: Asked, prompts: Sequence[Conversation], most: int) -> list[Choice]:
        controls: dict[str, Any] = {}
        if asked.temperature:
            controls["temperature"] = asked.temperature
        if asked.top_p is not None:
            controls["top_p"] = asked.top_p
        policy = replace(self.policy, **controls)
        seed = secrets.randbelow(SEEDS) if asked.seed is None else asked.seed
        return [
            Choice(
                number,
                self._plan(model.rendered_as(read.rendering), read.prompt.text, policy, seed + turn, most, asked),
                read.note,
                asked.stops,
            )
            for number, read in enumerate(prompts)
            for turn in range(asked.n)
        ]

    def _plan(self, model: LanguageModel, text: str, policy: Policy, seed: int, most: int, asked: Asked) -> Plan:
        further = self._host.further(policy, model)
        make = partial(
            plan,
            model,
            text,
            policy,
            seed=seed,
            greedy=asked.temperature == 0,
            max_new_tokens=most,
            detector=self._detector,
            models=further,
            scorers=self._host.scorers(policy, model),
        )
        size = policy.writing_size(model, further, text)
        return self._host.memory.run(size, make) if size else make()

    def echoed(self, choice: Choice, top: int) -> list[TokenOdds]:
        """What the policy says of each token of a prompt."""
        prepared = choice.plan
        ids, model = prepared.prompt.factual_ids, prepared.model
        odds = [TokenOdds(model.token_text(ids[0]), None)]
        if len(ids) > 1:
            log_p = self._host.memory.run(
                reserved_bytes(prepared, 1), partial(prompt_log_probabilities, prepared)
            )  # (L - 1, V)
            values, places = log_p.topk(max(top, 1), dim=-1)
            for row, token in enumerate(ids[1:]):
                likeliest = zip(places[row].tolist(), values[row].tolist(), strict=True)
                told = tuple((model.token_text(other), value) for other, value in likeliest)
                odds.append(TokenOdds(model.token_text(token), float(log_p[row, token]), told))
        return odds

    def written(self, choice: Choice) -> Iterator[Piece | Ended]:
        """Write a chain; the last thing given says how it ended.

        Between two tokens the chain is idle, so that nobody waits for the reader of the stream.
        """
        memory: DeviceMemory = self._host.memory
        key, steps, finished = object(), tuple[Step, ...](), None
        told = SettledText(choice.plan.model, choice.stops, choice.thinking)
        try:
            while finished is None and not told.stopped:
                build = partial(Rollout, choice.plan, ROOT_PATH, steps, self._host.forwards)
                for attempt in memory.attempts():
                    with attempt, self._pool.taken(key, build) as rollout:
                        rollout.step()
                        steps, finished = rollout.steps, rollout.finished
                settled = told.more([step.token_id for step in steps])
                yield Piece(settled.answer, steps[-1], settled.thinking)
            settled = told.rest()
            yield Piece(settled.answer, thinking=settled.thinking)
            yield Ended("stop" if told.stopped or finished == "end" else "length", steps)
        finally:
            self._pool.drop({key})
