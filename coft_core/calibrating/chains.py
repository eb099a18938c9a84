"""Chains that the deployed policy writes on calibration prompts, many prompts in one batch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coft_core.certify import joint_support
from coft_core.conformal.values import CalibrationValues
from coft_core.decode import ROOT_PATH
from coft_core.engine.branches import BranchBatch
from coft_core.engine.model import LanguageModel
from coft_core.errors import InvalidInputError, PromptTooLongError
from coft_core.masking.masker import MaskedPrompt
from coft_core.policies.base import Policy
from coft_core.sampling import choose, keyed_uniform

BATCH_PROMPTS = 16
"""Prompts of one batch; each has a row for every branch."""

TRUTH_PATH = "factual draw"
"""Key of the draws of the true next token, apart from those of the chain."""

Progress = Callable[[int, int], None]
"""Called with (prompts done, prompts in all); raising from it ends the calibration."""


@dataclass(frozen=True, slots=True)
class ChainPrompt:
    """A prompt to continue.

    Attributes:
        prompt: The masked prompt.
        context: Number of its context.
        row: Number of its row in the prompt set, part of the key of its draws.
    """

    prompt: MaskedPrompt
    context: int
    row: int


@dataclass(frozen=True, slots=True)
class Chains:
    """Chains of many prompts.

    Attributes:
        truth: Joint support of the true next token at every step: a draw from the factual branch, given the prefix
            that the policy wrote, under the policy's own sampling controls.
        chosen: Joint support of the tokens that the policy chose.
        tokens: Chosen tokens of each prompt, in the prompts' order.
    """

    truth: CalibrationValues
    chosen: CalibrationValues
    tokens: tuple[tuple[int, ...], ...]


def chain_seed(seed: int, row: int) -> int:
    """Seed of one row's chain; generating the prompt with it under the same policy writes the same chain."""
    digest = hashlib.blake2b(f"{seed}|chain|{row}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big")


@torch.inference_mode()
def generate_chains(
    model: LanguageModel,
    policy: Policy,
    prompts: Sequence[ChainPrompt],
    max_new_tokens: int,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    batch_prompts: int = BATCH_PROMPTS,
) -> Chains:
    """Let a policy continue prompts, and draw at every step what the factual branch would have written there.

    Args:
        model: The model.
        policy: The deployed policy, thresholds included.
        prompts: The prompts.
        max_new_tokens: Steps of a chain at most; it also ends with an end token or a full context.
        seed: Seed of the draws.
        progress: Called after each batch with the prompts that it held.
        batch_prompts: Prompts of one batch at most.

    Raises:
        InvalidInputError: There are no steps to take, or the model returned NaN.
        PromptTooLongError: A prompt fills the model's context; the text names its row.
    """
    if max_new_tokens < 1:
        raise InvalidInputError(f"The number of steps is {max_new_tokens}; ask for at least one.")
    found: dict[int, tuple[list[float], list[float], list[int]]] = {}
    for batch in _batches(model, prompts, max_new_tokens, batch_prompts):
        rows = _continue([prompts[i] for i in batch], model, policy, max_new_tokens, seed)
        found.update(zip(batch, rows, strict=True))
        if progress:
            progress(len(batch))
    ordered = [found[i] for i in range(len(prompts))]
    return Chains(
        truth=_collect(prompts, [truth for truth, _, _ in ordered]),
        chosen=_collect(prompts, [chosen for _, chosen, _ in ordered]),
        tokens=tuple(tuple(tokens) for _, _, tokens in ordered),
    )


def _batches(model: LanguageModel, prompts: Sequence[ChainPrompt], steps: int, size: int) -> Iterator[list[int]]:
    """Indices of prompts of similar lengths; a prompt that the context cuts short goes alone and cuts no other."""
    lengths = [len(p.prompt.factual_ids) for p in prompts]
    for prompt, length in zip(prompts, lengths, strict=True):
        if length >= model.context_length:
            raise PromptTooLongError(
                f"Example {prompt.row} has {length:,} tokens and the model takes {model.context_length:,}; shorten it."
            )
    order = sorted(range(len(prompts)), key=lambda i: lengths[i])
    fitting = [i for i in order if lengths[i] + steps <= model.context_length]
    yield from (fitting[start : start + size] for start in range(0, len(fitting), size))
    yield from ([i] for i in order[len(fitting) :])


def _continue(
    prompts: Sequence[ChainPrompt], model: LanguageModel, policy: Policy, steps: int, seed: int
) -> list[tuple[list[float], list[float], list[int]]]:
    """Joint support of true and of chosen tokens, and the chosen tokens, for each prompt of a batch."""
    branches = [policy.branches(p.prompt) for p in prompts]
    width = len(branches[0])
    batch = BranchBatch(model, [branch.input_ids for row in branches for branch in row])
    seeds = [chain_seed(seed, p.row) for p in prompts]
    rows: list[tuple[list[float], list[float], list[int]]] = [([], [], []) for _ in prompts]
    alive = set(range(len(prompts)))
    for step in range(min(steps, batch.room)):
        logits = batch.logits().view(len(prompts), width, -1)  # (G, B, V)
        truth, chosen, tokens = _step(policy, logits, step, seeds)  # (G,) each
        # One transfer a step: float64 holds token ids and float32 values exactly.
        host = torch.stack([truth.double(), chosen.double(), tokens.double()], dim=-1).tolist()
        for index in sorted(alive):
            true_support, chosen_support, token = host[index]
            supports_true, supports_chosen, written = rows[index]
            supports_true.append(true_support)
            supports_chosen.append(chosen_support)
            written.append(int(token))
            if int(token) in model.end_token_ids:
                alive.discard(index)
        if not alive:
            break
        batch.append(tokens.repeat_interleave(width))
    batch.close()
    return rows


def _step(policy: Policy, logits: Tensor, step: int, seeds: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    views = policy.views(logits, step)
    draws = [
        torch.tensor([keyed_uniform(own, path, step) for own in seeds], dtype=torch.float64, device=logits.device)
        for path in (ROOT_PATH, TRUTH_PATH)
    ]
    chosen = choose(views.log_p_fused, views.certified, policy.sampling, draws[0]).token_ids  # (G,)
    truth = choose(views.log_p_factual, None, policy.sampling, draws[1]).token_ids  # (G,)
    joint = joint_support(views.log_p_fused, views.log_p_masked)  # (G, V)
    return joint.gather(-1, truth[:, None])[:, 0], joint.gather(-1, chosen[:, None])[:, 0], chosen


def _collect(prompts: Sequence[ChainPrompt], supports: Sequence[Sequence[float]]) -> CalibrationValues:
    lengths = [len(support) for support in supports]
    return CalibrationValues(
        values=np.array([value for support in supports for value in support], dtype=np.float64),
        steps=np.array([step for length in lengths for step in range(length)], dtype=np.int32),
        contexts=np.repeat(np.array([p.context for p in prompts], dtype=np.int32), lengths),
    )
