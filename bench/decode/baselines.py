"""COFT as one would write it without an engine: two branches, their caches, and every figure where it is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from bench.decode.work import LAM, TOP_P, Work
from coft_core.experiments.speed import LOG_TAU

CANDIDATES = 24


def two_forwards(work: Work, mark: Callable[[], None]) -> None:
    """A cache and a forward for each branch."""
    _decode(work, mark, [work.masked.factual_ids, work.masked.masked_ids])


def one_batch(work: Work, mark: Callable[[], None], greedy: bool = False) -> None:
    """Both branches as rows of one batch over one cache."""
    _decode(work, mark, [(work.masked.factual_ids, work.masked.masked_ids)], greedy)


@torch.inference_mode()
def _decode(work: Work, mark: Callable[[], None], passes: list[Any], greedy: bool = False) -> None:
    model, device = work.module, work.model.device
    inputs = [torch.tensor(rows, device=device).view(-1, len(work.masked.factual_ids)) for rows in passes]  # (r, P)
    inputs = [rows.repeat_interleave(work.batch, dim=0) for rows in inputs]  # (r * G, P)
    caches = [DynamicCache() for _ in inputs]
    torch.manual_seed(0)
    for _ in range(work.tokens + 1):
        outputs = [
            model(input_ids=rows, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1].float()
            for rows, cache in zip(inputs, caches, strict=True)
        ]
        factual, masked = torch.cat(outputs).chunk(2)  # (G, V) each
        chosen = _step(factual, masked, greedy)[:, None]  # (G, 1)
        inputs = [chosen.repeat(len(rows) // work.batch, 1) for rows in inputs]
        mark()


def _step(factual: Tensor, masked: Tensor, greedy: bool) -> Tensor:
    """Fuse, certify, measure and choose, ``(G,)``; what an audit shows is taken to the host."""
    log_p, log_p_factual, log_p_masked = (
        torch.log_softmax(logits, dim=-1) for logits in ((1 - LAM) * factual + LAM * masked, factual, masked)
    )  # (G, V) each
    certified = torch.minimum(log_p, log_p_masked) >= LOG_TAU  # (G, V)
    p, p_factual, p_masked = log_p.exp(), log_p_factual.exp(), log_p_masked.exp()
    entropies = [
        -(q * log_q).sum(-1) for q, log_q in ((p, log_p), (p_factual, log_p_factual), (p_masked, log_p_masked))
    ]
    divergences = [(p * (log_p - log_q)).sum(-1) for log_q in (log_p_masked, log_p_factual)]
    distance = 0.5 * (p - p_factual).abs().sum(-1)
    on_set, on_set_masked = p * certified, p_masked * certified
    mass = on_set.sum(-1)
    restricted = 0.5 * (on_set / mass[:, None] - on_set_masked / on_set_masked.sum(-1, keepdim=True)).abs().sum(-1)
    chosen = torch.where(mass > 0, on_set.argmax(-1), p.argmax(-1)) if greedy else _drawn(p, on_set, mass)
    rows = torch.maximum(torch.maximum(p, p_factual), p_masked).topk(CANDIDATES, dim=-1).indices  # (G, K)
    table = [view.gather(-1, rows).tolist() for view in (log_p_factual, log_p_masked, log_p, certified)]
    own = [view.gather(-1, chosen[:, None])[:, 0].tolist() for view in (log_p_factual, log_p_masked, log_p)]
    gap = (factual - masked).gather(-1, chosen[:, None])[:, 0].tolist()
    figures = [figure.tolist() for figure in (*entropies, *divergences, distance, restricted, mass, certified.sum(-1))]
    # Held as a list of steps would be, so that making them counts.
    _ = (rows.tolist(), table, own, gap, figures, chosen.tolist())
    return chosen


def _drawn(p: Tensor, on_set: Tensor, mass: Tensor) -> Tensor:
    """Nucleus sampling on the set; the likeliest token where it is empty, ``(G,)``."""
    allowed = torch.where(mass[:, None] > 0, on_set / mass[:, None], p)  # (G, V)
    ordered, order = allowed.sort(dim=-1, descending=True)
    kept = torch.where(ordered.cumsum(-1) - ordered < TOP_P, ordered, 0.0)
    rank = torch.multinomial(kept, 1)  # (G, 1)
    return torch.where(mass > 0, order.gather(-1, rank)[:, 0], order[:, 0])
