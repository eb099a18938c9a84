"""The ways of decoding that are compared: COFT and vanilla on the engine, and transformers' ``generate``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import StoppingCriteria

from bench.decode import work as works
from bench.decode.work import TOP_P, Work
from coft_core.experiments.speed import decode

Method = Callable[[Work, Callable[[], None]], None]
"""Decodes the work's tokens and calls the second argument after each, all prompts having one more token by then."""


def coft(work: Work, mark: Callable[[], None]) -> None:
    """COFT with its full diagnostics."""
    decode(work.plans(works.coft(work.model)), mark)


def coft_greedy(work: Work, mark: Callable[[], None]) -> None:
    """The same, greedy."""
    decode(work.plans(works.coft(work.model), greedy=True), mark)


def coft_kept(work: Work, mark: Callable[[], None]) -> None:
    """COFT with its full diagnostics, each step's logits being kept as an audit's are."""
    decode(work.plans(works.coft(work.model), keep_logits=True), mark)


def vanilla(work: Work, mark: Callable[[], None]) -> None:
    """Vanilla on the engine, sampled, with candidates and diagnostics of every step."""
    decode(work.plans(works.vanilla()), mark)


def vanilla_greedy(work: Work, mark: Callable[[], None]) -> None:
    """The same, greedy."""
    decode(work.plans(works.vanilla(), greedy=True), mark)


def generated(sample: bool, static: bool = False) -> Method:
    """Transformers' ``generate`` with the same controls, over a growing or a static cache."""

    def method(work: Work, mark: Callable[[], None]) -> None:
        ids = torch.tensor([work.masked.factual_ids] * work.batch, device=work.model.device)  # (G, P)
        torch.manual_seed(0)
        controls: dict[str, Any] = {"do_sample": True, "top_p": TOP_P, "top_k": 0, "temperature": 1.0}
        work.module.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=work.tokens + 1,
            pad_token_id=0,
            stopping_criteria=[_Marking(mark)],
            **(controls if sample else {"do_sample": False}),
            **({"cache_implementation": "static"} if static else {}),
        )

    return method


class _Marking(StoppingCriteria):  # type: ignore[misc]
    """Never stops; ``generate`` asks it after each token."""

    def __init__(self, mark: Callable[[], None]) -> None:
        self._mark = mark

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
        self._mark()
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
