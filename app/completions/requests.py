"""What is asked over HTTP, in the shape of OpenAI's requests, and what of it is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from app.shared.errors import ServiceError
from coft_core.text.turns import Turn

MOST_TOP = 20
"""Likeliest tokens that are told of a position at most."""
MOST_CHAINS = 64
"""Chains of a request at most: its prompts times ``n``."""
WRITTEN = 16
"""Tokens that a completion has where nothing is said, as in OpenAI's interface."""


class RefusedRequestError(ServiceError):
    """A request that cannot be fulfilled."""

    def __init__(self, sentence: str, status: int = 400, param: str | None = None, code: str | None = None) -> None:
        super().__init__(sentence)
        self.status, self.param, self.code = status, param, code


class StreamOptions(BaseModel):
    """Of a streamed answer."""

    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False


Strength = Annotated[float, Field(ge=0.0, le=10.0)]


class Asked(BaseModel):
    """What both kinds of requests have.

    Fields of OpenAI's that change nothing here are taken; those that would change what is written are refused unless
    they stand at the value that changes nothing, and so are unknown ones.
    """

    model_config = ConfigDict(extra="forbid", strict=False)

    model: str
    temperature: Strength | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    n: Annotated[int, Field(ge=1, le=16)] = 1
    stop: str | list[str] | None = None
    seed: int | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None

    @field_validator("presence_penalty", "frequency_penalty", "logit_bias")
    @classmethod
    def _without_effect(cls, value: Any) -> Any:
        if value:
            raise ValueError("only the policy decides what is drawn, so this cannot be set; leave it out")
        return value

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts before which the answer ends."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(text for text in given if text)


class CompletionRequest(Asked):
    """``POST /v1/completions``."""

    prompt: str | list[str] | list[int] | list[list[int]]
    max_tokens: Annotated[int, Field(ge=0)] | None = WRITTEN
    echo: bool = False
    logprobs: Annotated[int, Field(ge=0, le=MOST_TOP)] | None = None
    suffix: str | None = None
    best_of: int | None = None

    @field_validator("prompt")
    @classmethod
    def _few(cls, value: Any, others: ValidationInfo) -> Any:
        prompts = 1 if isinstance(value, str) or (value and isinstance(value[0], int)) else len(value)
        if not 0 < prompts * others.data.get("n", 1) <= MOST_CHAINS:
            raise ValueError(f"give 1 to {MOST_CHAINS} prompts, each counted n times; send others by themselves")
        return value

    @field_validator("suffix")
    @classmethod
    def _no_suffix(cls, value: str | None) -> str | None:
        if value:
            raise ValueError("text is written from its beginning on; leave the suffix out")
        return value

    @field_validator("best_of")
    @classmethod
    def _no_choice(cls, value: int | None) -> int | None:
        if value not in (None, 1):
            raise ValueError("each text is returned as it was drawn; leave best_of out")
        return value

    @property
    def prompts(self) -> tuple[str | tuple[int, ...], ...]:
        """Each prompt, as text or as tokens."""
        given: Any = self.prompt
        if isinstance(given, str):
            return (given,)
        if isinstance(given[0], int):
            return (tuple(given),)
        return tuple(item if isinstance(item, str) else tuple(item) for item in given)


class TextPart(BaseModel):
    """A part of a message."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    @property
    def turn(self) -> Turn:
        """The message as chat templates know it."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return Turn("system" if self.role == "developer" else self.role, text)


class TextFormat(BaseModel):
    """The one form of an answer that there is."""

    type: Literal["text"]


class ChatRequest(Asked):
    """``POST /v1/chat/completions``."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_TOP)] | None = None
    response_format: TextFormat | None = None
    chat_template_kwargs: dict[str, bool | int | float | str | None] | None = None
    """What the chat template is told, by name, as vLLM's servers take it."""

    @property
    def most(self) -> int | None:
        """Tokens at most; None for as many as the context takes."""
        return self.max_completion_tokens or self.max_tokens
