"""Held-out loss, and the planted probabilities as the model learnt them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import LlamaForCausalLM

from bench.demo_model.facts import Fact, Spans, planted_facts
from bench.demo_model.tokenizer import CONTEXT_LENGTH, END_ID, MASK_ID, PAD_ID


@dataclass(frozen=True)
class HeldOutLoss:
    """Cross-entropy on held-out documents, each read from its beginning."""

    documents: int
    tokens: int
    nats_per_token: float
    perplexity: float
    nats_per_character: float


@dataclass(frozen=True)
class Reading:
    """What the model says where a probability was planted."""

    fact: Fact
    factual: tuple[float, ...]
    masked: tuple[float, ...]
    mass: float


def masked_ids(tokenizer: Tokenizer, text: str, spans: Spans) -> tuple[int, ...]:
    """Token ids of a text in which every token that overlaps a span is the sentinel."""
    encoding = tokenizer.encode(text)
    return tuple(
        MASK_ID if any(left < end and right > start for start, end in spans) else token
        for token, (left, right) in zip(encoding.ids, encoding.offsets, strict=True)
    )


@torch.inference_mode()
def token_losses(model: LlamaForCausalLM, rows: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """Cross-entropy in nats of every token after the first, a tensor of shape (length - 1,) a row."""
    result: list[torch.Tensor] = []
    for begin in range(0, len(rows), 32):
        part = rows[begin : begin + 32]
        longest = max(map(len, part))
        ids = torch.tensor([[*row, *[PAD_ID] * (longest - len(row))] for row in part])  # (B, T)
        log_p = functional.log_softmax(model(input_ids=ids).logits[:, :-1].float(), dim=-1)  # (B, T - 1, V)
        losses = -log_p.gather(-1, ids[:, 1:, None]).squeeze(-1)  # (B, T - 1)
        result += [loss[: len(row) - 1] for loss, row in zip(losses, part, strict=True)]
    return result


def held_out_loss(model: LlamaForCausalLM, tokenizer: Tokenizer, texts: Sequence[str]) -> HeldOutLoss:
    """Measures the loss on held-out texts; a text longer than the context is cut."""
    rows = [[*encoding.ids, END_ID][:CONTEXT_LENGTH] for encoding in tokenizer.encode_batch(list(texts))]
    losses = token_losses(model, rows)
    total, tokens = sum(float(loss.sum()) for loss in losses), sum(len(loss) for loss in losses)
    characters = sum(len(tokenizer.decode(row, skip_special_tokens=True)) for row in rows)
    return HeldOutLoss(len(rows), tokens, total / tokens, math.exp(total / tokens), total / characters)


def _outcome_log_probabilities(
    model: LlamaForCausalLM, tokenizer: Tokenizer, pairs: Sequence[tuple[tuple[int, ...], str]]
) -> list[float]:
    """Log-probability of each phrase after its prompt."""
    rows, lengths = [], []
    for prompt, phrase in pairs:
        ids = tokenizer.encode(phrase).ids
        rows.append([*prompt, *ids])
        lengths.append(len(ids))
    losses = token_losses(model, rows)
    return [-float(loss[-length:].sum()) for loss, length in zip(losses, lengths, strict=True)]


def read_facts(model: LlamaForCausalLM, tokenizer: Tokenizer) -> list[Reading]:
    """Reads every planted probability off the model, in the factual and in the masked view."""
    facts = planted_facts(lambda text, spans: masked_ids(tokenizer, text, spans))
    pairs = []
    for fact in facts:
        for spans in ((), fact.spans):
            prompt = masked_ids(tokenizer, fact.prompt, spans)
            pairs += [(prompt, outcome) for outcome in fact.outcomes]
    values = iter(_outcome_log_probabilities(model, tokenizer, pairs))
    readings = []
    for fact in facts:
        views = [[math.exp(next(values)) for _ in fact.outcomes] for _ in range(2)]
        shares = [tuple(value / sum(view) for value in view) for view in views]
        readings.append(Reading(fact, shares[0], shares[1], sum(views[0])))
    return readings


def mean_error(readings: Sequence[Reading], masked: bool) -> float:
    """Mean absolute difference between planted and read probability of the first outcome."""
    pairs = [(r.fact.masked[0], r.masked[0]) if masked else (r.fact.factual[0], r.factual[0]) for r in readings]
    return sum(abs(planted - read) for planted, read in pairs) / len(pairs)
