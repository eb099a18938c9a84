"""Where a model is served; a server's owner lists such models, and reviewers choose them by name."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from coft_core.errors import ModelLoadError

PREFIX = "served:"
"""What the names of served models begin with where a model is chosen."""

DIGEST = "served"
"""Kind of digest that stands for weights that were not seen: it is of what a server says of its model."""


def weights_seen(digest: object) -> bool:
    """Whether a digest is of weights."""
    return not str(digest).startswith(f"{DIGEST}:")


class ServedModel(BaseModel):
    """A model that a server computes.

    Attributes:
        name: What it is called here; it is chosen as ``served:<name>``.
        url: Address of the server, such as ``http://gpu1:8000``.
        kind: ``vllm``, for every server with the same ``/v1/completions``, or ``llama-server``.
        tokenizer: Hub id or folder of the model's tokenizer.
        model: What the server calls it; empty takes the first that it has.
        key_env: Environment variable that holds the server's key; empty sends none.
        context_length: Tokens that a text may have, where the server does not say so or fewer are wanted.
        most_likely: Ask for so many of the most likely tokens; None asks for all, or else for as many as it gives.
        concurrency: Requests that are sent at the same time.
        timeout: Seconds after which a request that is not answered is sent again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    name: str = Field(pattern=r"^[A-Za-z0-9][\w.-]{0,63}$")
    url: str = Field(pattern=r"^https?://[^\s/@?#]+(/[^\s@?#]*)?$")
    kind: Literal["vllm", "llama-server"]
    tokenizer: str = Field(min_length=1)
    model: str = ""
    key_env: str = Field(default="", pattern=r"^([A-Za-z_]\w*)?$")
    context_length: int | None = Field(default=None, ge=32)
    most_likely: int | None = Field(default=None, ge=1)
    concurrency: int = Field(default=4, ge=1)
    timeout: float = Field(default=120.0, gt=0)

    @field_validator("url")
    @classmethod
    def _without_version(cls, url: str) -> str:
        """The address above ``/v1``, which clients of OpenAI's interface are given."""
        return url.rstrip("/").removesuffix("/v1")

    @property
    def title(self) -> str:
        """The name by which it is chosen."""
        return PREFIX + self.name

    @property
    def key(self) -> str | None:
        """The server's key, read anew from the environment."""
        if not self.key_env:
            return None
        if not (key := os.environ.get(self.key_env)):
            raise ModelLoadError(
                f"{self.title!r} needs a key in the environment variable {self.key_env}, which is not set; set it and "
                "start again."
            )
        return key
