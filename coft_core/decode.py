"""The heart: one loop for generating, stepping, going back, forking and scoring under any policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from coft_core.engine.branches import BranchBatch
from coft_core.engine.model import LanguageModel
from coft_core.engine.scoring import teacher_forced_logits
from coft_core.errors import InvalidInputError
from coft_core.keeping import Keeper
from coft_core.masking.continuation import continuation_ids
from coft_core.masking.spans import SpanDetector
from coft_core.planning import NOTHING_MASKED, Plan, plan
from coft_core.policies.base import Policy
from coft_core.sampling import choose, keyed_uniform
from coft_core.steps import StepContext, pack_step, unpack_step
from coft_core.types import Run, Span, Step

__all__ = ["NOTHING_MASKED", "ROOT_PATH", "Plan", "Rollout", "fork_path", "generate", "path_at", "plan", "score"]

ROOT_PATH = "0"


class Rollout:
    """A chain that can be stepped, taken back, forked and closed.

    All branches are rows of one batch; a step is one forward and one device-to-host transfer.
    """

    def __init__(self, plan: Plan, path: str = ROOT_PATH, steps: Sequence[Step] = ()) -> None:
        """Begin a chain, or take one up where it was left.

        Args:
            plan: What to decode.
            path: The branch's path, part of the key of its draws.
            steps: Steps taken earlier; their tokens are fed with the prompt when the next step is asked for.

        Raises:
            PromptTooLongError: The prompt fills the model's context.
        """
        branches = plan.policy.branches(plan.prompt)
        if any(branch.model != "base" for branch in branches):
            raise InvalidInputError(f"The policy {plan.policy.name!r} needs a model that is not loaded.")
        self.plan = plan
        self.path = path
        self._steps: list[Step] = list(steps)
        self._branches = tuple(branch.name for branch in branches)
        self._batch = BranchBatch(plan.model, [branch.input_ids for branch in branches])
        for step in steps:
            self._append(step.token_id)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The chain so far."""
        return tuple(self._steps)

    @property
    def finished(self) -> str | None:
        """None while the chain can go on, else ``"end"``, ``"length"`` or ``"context"``."""
        if self._steps and self._steps[-1].token_id in self.plan.model.end_token_ids:
            return "end"
        if len(self._steps) >= self.plan.max_new_tokens:
            return "length"
        return "context" if self._batch.room <= 0 else None

    @property
    def text(self) -> str:
        """Text of the chain without special tokens."""
        return self.plan.model.continuation_text([step.token_id for step in self._steps])

    def step(self, token_id: int | None = None) -> Step:
        """Take one step.

        Args:
            token_id: A token to force; None lets the policy choose.

        Raises:
            InvalidInputError: The chain is finished, or the token is not in the vocabulary.
            RolloutClosedError: The rollout is closed.
        """
        return self._step(token_id)

    def _step(self, token_id: int | None) -> Step:
        if self.finished:
            raise InvalidInputError("This chain is finished; fork from an earlier step to go on.")
        index = len(self._steps)
        logits = self._batch.logits()[None]  # (1, B, V)
        uniform = keyed_uniform(self.plan.seed, path_at(self.path, index), index)
        step = _decide(self.plan, logits, self._branches, index, token_id, uniform, self.plan.greedy)
        self._append(step.token_id)
        self._steps.append(step)
        return step

    def back(self, count: int = 1) -> None:
        """Take back the last steps; taking them again without forcing gives the same tokens.

        Raises:
            InvalidInputError: There are fewer steps than that.
        """
        keep = len(self._steps) - count
        self._batch.crop(keep)
        del self._steps[keep:]

    def fork(self, index: int, token_id: int) -> Rollout:
        """A second rollout that departs at a step with another token; this one stays as it is.

        Args:
            index: Step at which to depart, 0-based, at most the chain's length.
            token_id: The token to force there.

        Returns:
            A rollout whose last step is the forced one; its cache is a cut copy, not recomputed.
        """
        batch = self._batch.fork(index)
        other = object.__new__(Rollout)
        other.plan, other.path = self.plan, fork_path(self.path, index, token_id)
        other._branches = self._branches
        other._steps, other._batch = self._steps[:index], batch
        other._step(token_id)
        return other

    def release_logits(self) -> None:
        """Forget the kept logits of the steps so far, for a caller who has stored them; nothing else changes."""
        self._steps = [step if step.logits is None else replace(step, logits=None) for step in self._steps]

    def close(self) -> None:
        """Release the key-value memory."""
        self._batch.close()

    def _append(self, token_id: int) -> None:
        self._batch.append(torch.full((self._batch.row_count,), token_id))


def fork_path(path: str, index: int, token_id: int) -> str:
    """Path of the branch that departs from ``path`` at a step with a token."""
    return f"{path}/{index}:{token_id}"


def path_at(path: str, index: int) -> str:
    """Path whose key draws a step of a branch's chain: up to and at its fork, the chain is its parent's.

    The draw at the fork itself says what the parent's chain writes there when left alone.

    Args:
        path: Path of the branch.
        index: The step, 0-based.
    """
    parent, separator, fork = path.rpartition("/")
    if separator and index <= int(fork.partition(":")[0]):
        return path_at(parent, index)
    return path


def generate(
    model: LanguageModel,
    text: str,
    policy: Policy,
    spans: Sequence[Span] | None = None,
    max_new_tokens: int = 64,
    seed: int = 0,
    greedy: bool = False,
    detector: SpanDetector | None = None,
    keep_logits: bool = False,
) -> Run:
    """Generate a continuation under a policy, with everything that an audit shows of each token.

    Args:
        model: The model.
        text: The reviewer's text.
        policy: The policy.
        spans: Sensitive spans; None detects them. Suggested and kept ones are never masked.
        max_new_tokens: Steps at most; the chain also ends with the model's end token or a full context.
        seed: Seed of the keyed draws.
        greedy: Take the likeliest token of the set instead of drawing.
        detector: Span detector; the default one if None.
        keep_logits: Keep each step's logits, so that it can be read again at another lambda or alpha; see
            :func:`coft_core.reread`.

    Raises:
        InvalidInputError: The prompt is empty or too long, or a span lies outside it.
        CalibrationMismatch: The policy's calibration belongs to another policy.
    """
    prepared = plan(model, text, policy, spans, seed, greedy, max_new_tokens, detector, keep_logits)
    rollout = Rollout(prepared)
    try:
        while rollout.finished is None:
            rollout.step()
        return Run(
            prompt=text,
            text=rollout.text,
            tokens=tuple(step.token for step in rollout.steps),
            steps=rollout.steps,
            spans=prepared.prompt.spans,
            seed=seed,
            finished=rollout.finished,
            certificate=prepared.certificate.text,
            warnings=prepared.warnings,
        )
    finally:
        rollout.close()


def score(
    model: LanguageModel,
    text: str,
    continuation: str,
    policy: Policy,
    spans: Sequence[Span] | None = None,
    detector: SpanDetector | None = None,
) -> list[Step]:
    """Teacher-force a given continuation: what each of its tokens would have looked like to the policy.

    Args:
        model: The model.
        text: The prompt.
        continuation: The text that follows it, taken literally (its leading space counts).
        policy: The policy; a step's ``policy_token`` is its greedy choice.
        spans: Sensitive spans of the prompt; None detects them. Suggested and kept ones are never masked.
        detector: Span detector; the default one if None.

    Returns:
        One step a token of the continuation, all ``forced``.

    Raises:
        InvalidInputError: The prompt or the continuation is empty.
        PromptTooLongError: Both together exceed the model's context.
        CalibrationMismatch: The policy's calibration belongs to another policy.
    """
    prepared = plan(model, text, policy, spans, detector=detector)
    tokens = continuation_ids(model, prepared.prompt, continuation)
    branches = policy.branches(prepared.prompt)
    by_branch = teacher_forced_logits(model, [(branch.input_ids, tokens) for branch in branches])
    logits = torch.stack(by_branch, dim=1)  # (C, B, V)
    names = tuple(branch.name for branch in branches)
    return [
        _decide(prepared, logits[index : index + 1], names, index, token_id, 0.0, greedy=True)
        for index, token_id in enumerate(tokens)
    ]


def _decide(
    plan: Plan,
    logits: Tensor,
    branches: tuple[str, ...],
    index: int,
    forced: int | None,
    uniform: float,
    greedy: bool,
) -> Step:
    """One step of one prompt; ``logits`` is ``(1, B, V)``."""
    if forced is not None and not 0 <= forced < logits.shape[-1]:
        raise InvalidInputError(f"There is no token {forced}; the vocabulary has {logits.shape[-1]:,}.")
    with torch.inference_mode():
        views = plan.policy.views(logits, index, branches)
        draw = torch.full((1,), uniform, dtype=torch.float64, device=logits.device)
        choice = choose(views.log_p_fused, views.certified, plan.policy.sampling, draw, greedy)
        emitted = choice.token_ids if forced is None else torch.full_like(choice.token_ids, forced)
        packed = pack_step(views, choice, emitted)[0]  # (N,)
        context = StepContext(index, forced is not None, plan.certificate.mismatched)
        if not plan.keep_logits:
            return unpack_step(packed.tolist(), plan.model.token_text, views, context)
        keeper = Keeper.of(plan.policy, branches, logits[0], plan.full_bytes, plan.head_tokens)
        kept = keeper.pack(logits[0], torch.cat([emitted, choice.token_ids]))
        # Step and logits cross to the host as one run of bytes: two transfers would wait for the device twice.
        crossed = torch.cat([packed.view(torch.uint8), kept]).cpu().numpy().tobytes()
    size = packed.numel() * packed.element_size()
    step = unpack_step(np.frombuffer(crossed[:size]).tolist(), plan.model.token_text, views, context)
    return replace(step, logits=keeper.unpack(crossed[size:]))
