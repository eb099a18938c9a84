"""Answers in the shape of OpenAI's, with what an audit shows under the one extra field ``coft``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from app.completions.requests import ChatRequest, CompletionRequest
from app.completions.service import Choice, CompletionService, Ended, Piece, TokenOdds
from app.shared.json import span_json
from coft_core.step_numbers import finite, step_numbers
from coft_core.types import Step

EXTRA = "coft"
"""The extra field."""

IMPOSSIBLE = -9999.0
"""Stands for a log-probability of minus infinity, as in OpenAI's interface; JSON has no infinities."""

Head = dict[str, Any]


class Shape(ABC):
    """How one request is answered."""

    def __init__(self, service: CompletionService, asked: Any, head: Head) -> None:
        """Answers begin with ``head``."""
        self._service, self.asked, self._head = service, asked, head

    def written(self, choice: Choice) -> Iterator[Piece | Ended]:
        """What is written of a choice."""
        return self._service.written(choice)

    def whole(self, choices: Sequence[Choice], done: Sequence[tuple[list[Piece], Ended]]) -> dict[str, Any]:
        """The answer at once."""
        ends = [ended for _, ended in done]
        listed = [
            self._choice(number, choice, pieces, ended)
            for number, (choice, (pieces, ended)) in enumerate(zip(choices, done, strict=True))
        ]
        extra = self._extra(enumerate(zip(choices, ends, strict=True)))
        return {**self._head, "choices": listed, "usage": self._usage(choices, ends), EXTRA: extra}

    @abstractmethod
    def opening(self, number: int, choice: Choice) -> Iterator[dict[str, Any]]:
        """What a stream begins a choice with."""

    @abstractmethod
    def piece(self, number: int, piece: Piece) -> dict[str, Any]:
        """One part of a stream."""

    def closing(self, number: int, choice: Choice, ended: Ended) -> dict[str, Any]:
        """What a stream ends a choice with: why, and what an audit shows of it."""
        return {**self._last(number, ended), EXTRA: self._extra([(number, (choice, ended))])}

    def usage_chunk(self, choices: Sequence[Choice], ends: Sequence[Ended]) -> dict[str, Any]:
        """The last part of a stream that was asked for it."""
        return {**self._head, "choices": [], "usage": self._usage(choices, ends)}

    @abstractmethod
    def _choice(self, number: int, choice: Choice, pieces: Sequence[Piece], ended: Ended) -> dict[str, Any]:
        """One choice of the answer at once."""

    @abstractmethod
    def _last(self, number: int, ended: Ended) -> dict[str, Any]:
        """The last part of a stream's choice, without what an audit shows."""

    def _usage(self, choices: Sequence[Choice], ends: Sequence[Ended]) -> dict[str, Any]:
        prompts = {choice.prompt: len(choice.plan.prompt.factual_ids) for choice in choices}
        read, written = sum(prompts.values()), sum(len(ended.steps) for ended in ends)
        usage: dict[str, Any] = {
            "prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written
        }  # fmt: skip
        if any(choice.thinking is not None for choice in choices):
            parts = [part for choice, end in zip(choices, ends, strict=True) for part in choice.parts(end.steps)]
            usage["completion_tokens_details"] = {"reasoning_tokens": parts.count("thinking")}
        return usage

    def _extra(self, ended: Any) -> dict[str, Any]:
        """Certificate, masks, warnings and steps of choices."""
        listed = []
        for number, (choice, end) in ended:
            plan, parts = choice.plan, choice.parts(end.steps)
            steps: list[dict[str, Any]] = [finite(step_numbers(step)) for step in end.steps]
            listed.append(
                {
                    "index": number,
                    "certificate": plan.certificate.counted(end.steps).text,
                    "seed": plan.seed,
                    "greedy": plan.greedy,
                    "masked_tokens": len(plan.prompt.positions),
                    "spans": [span_json(span) for span in plan.prompt.spans],
                    "warnings": [*filter(None, [choice.note]), *plan.warnings],
                    "steps": [
                        {**step, **({"part": parts[place]} if parts else {})} for place, step in enumerate(steps)
                    ],
                }
            )
        policy = self._service.policy
        return {"policy": policy.name, "lam": policy.fusion_weight, "choices": listed}


class CompletionShape(Shape):
    """``/v1/completions``."""

    asked: CompletionRequest

    def written(self, choice: Choice) -> Iterator[Piece | Ended]:
        """What is written of a choice; nothing where a prompt is only echoed."""
        if self.asked.max_tokens == 0:
            return iter([Ended("length", ())])
        return super().written(choice)

    def _choice(self, number: int, choice: Choice, pieces: Sequence[Piece], ended: Ended) -> dict[str, Any]:
        text = "".join(piece.text for piece in pieces)
        before = choice.plan.prompt.factual_text if self.asked.echo else ""
        odds = [*self._echo(choice), *(_odds_of(step, self.asked.logprobs) for step in ended.steps)]
        return {
            "index": number,
            "text": before + text,
            "logprobs": None if self.asked.logprobs is None else _legacy(odds),
            "finish_reason": ended.reason,
        }

    def _echo(self, choice: Choice) -> list[TokenOdds]:
        if not self.asked.echo or self.asked.logprobs is None:
            return []
        return self._service.echoed(choice, self.asked.logprobs)

    def opening(self, number: int, choice: Choice) -> Iterator[dict[str, Any]]:
        """The prompt, where it is echoed."""
        if self.asked.echo:
            logprobs = None if self.asked.logprobs is None else _legacy(self._echo(choice))
            yield self._part(number, choice.plan.prompt.factual_text, logprobs, None)

    def piece(self, number: int, piece: Piece) -> dict[str, Any]:
        """Text with the token that settled it."""
        odds = [] if piece.step is None else [_odds_of(piece.step, self.asked.logprobs)]
        return self._part(number, piece.text, None if self.asked.logprobs is None else _legacy(odds), None)

    def _last(self, number: int, ended: Ended) -> dict[str, Any]:
        return self._part(number, "", None, ended.reason)

    def _part(self, number: int, text: str, logprobs: Any, reason: str | None) -> dict[str, Any]:
        choice = {"index": number, "text": text, "logprobs": logprobs, "finish_reason": reason}
        return {**self._head, "choices": [choice]}


class ChatShape(Shape):
    """``/v1/chat/completions``."""

    asked: ChatRequest

    def _choice(self, number: int, choice: Choice, pieces: Sequence[Piece], ended: Ended) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(piece.text for piece in pieces)}
        if thinking := "".join(piece.thinking for piece in pieces):
            message["reasoning_content"] = thinking
        return {
            "index": number,
            "message": {**message, "refusal": None},
            "logprobs": self._logprobs(ended.steps),
            "finish_reason": ended.reason,
        }

    def _logprobs(self, steps: Sequence[Step]) -> Any:
        if not self.asked.logprobs:
            return None
        listed = []
        for step in steps:
            odds = _odds_of(step, self.asked.top_logprobs)
            told = [_chat_token(token, value) for token, value in odds.top[: self.asked.top_logprobs or 0]]
            listed.append({**_chat_token(odds.token, odds.log_p or 0.0), "top_logprobs": told})
        return {"content": listed, "refusal": None}

    def opening(self, number: int, choice: Choice) -> Iterator[dict[str, Any]]:
        """Who speaks."""
        yield self._part(number, {"role": "assistant", "content": ""}, None, None)

    def piece(self, number: int, piece: Piece) -> dict[str, Any]:
        """Text with the token that settled it."""
        steps = [] if piece.step is None else [piece.step]
        thought = {"reasoning_content": piece.thinking} if piece.thinking else {}
        delta = thought if thought and not piece.text else {**thought, "content": piece.text}
        return self._part(number, delta, self._logprobs(steps), None)

    def _last(self, number: int, ended: Ended) -> dict[str, Any]:
        return self._part(number, {}, None, ended.reason)

    def _part(self, number: int, delta: dict[str, str], logprobs: Any, reason: str | None) -> dict[str, Any]:
        choice = {"index": number, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return {**self._head, "choices": [choice]}


def _odds_of(step: Step, top: int | None) -> TokenOdds:
    """A written token with the likeliest ones of the policy's distribution."""
    likeliest = sorted(step.candidates, key=lambda item: -item.log_p_fused)[: max(top or 0, 1)]
    return TokenOdds(step.token, step.log_p_fused, tuple((item.token, item.log_p_fused) for item in likeliest))


def _legacy(odds: Sequence[TokenOdds]) -> dict[str, Any]:
    """Log-probabilities as completions have them: lists beside each other."""
    return {
        "tokens": [item.token for item in odds],
        "token_logprobs": [None if item.log_p is None else _told(item.log_p) for item in odds],
        # Several tokens may have the same text; the likeliest of them stands for it.
        "top_logprobs": [
            None if item.log_p is None else {token: _told(value) for token, value in reversed(item.top)}
            for item in odds
        ],
        "text_offset": list(accumulate((len(item.token) for item in odds), initial=0))[:-1],
    }


def _told(log_p: float) -> float:
    return max(log_p, IMPOSSIBLE)


def _chat_token(token: str, log_p: float) -> dict[str, Any]:
    return {"token": token, "logprob": _told(log_p), "bytes": list(token.encode("utf-8", "replace"))}
