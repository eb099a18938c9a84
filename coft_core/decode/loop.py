"""The loop: COFT's Algorithm 1 for one chain or many, and what steps, goes back, forks and scores by it.

::

    p~    <- M(p)                                      plan: the prompt with its sensitive spans masked    line 1
    z, z~ <- f(w; p), f(w; p~)                         group.followed: all branches, rows of one batch          2
    z^    <- (1 - lambda) z + lambda z~                the policy's views: fuse                               3-4
    C     <- {v: min(softmax z^, softmax z~) >= tau}   the policy's views: certify                              5
    v     <- argmax z^ if C is empty, else             choose                                              6-10
             a draw from softmax z^ within C
    w     <- w v                                       write: what all branches read next                      11

:func:`decide_and_write` does lines 2 to 11: one forward and one device-to-host transfer for all chains. Lines 3 to 10
are in :mod:`coft_core.decode.decide`, since steps of several rollouts may be decided together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from itertools import groupby
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from coft_core.conformal.informative import warning
from coft_core.decode.decide import NextStep, NextSteps, decide
from coft_core.decode.plan import Plan, plan
from coft_core.errors import InvalidInputError
from coft_core.model.branches import BranchSpec, MemoryUse
from coft_core.model.group import BranchGroup, score_branches
from coft_core.model.joint import JointForwards
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Past, Policy
from coft_core.policies.sampling import keyed_uniform
from coft_core.scorers.base import ToxicityScorer
from coft_core.text.detection import SpanDetector
from coft_core.text.masking import continuation_ids
from coft_core.types import Run, Span, Step

ROOT_PATH = "0"

KEPT_TOGETHER = 0.75
"""Finished chains are fed along until no more than this share goes on, where a forward takes its time by the row."""


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
    models: Mapping[str, LanguageModel] | None = None,
    scorers: Mapping[str, ToxicityScorer] | None = None,
) -> Run:
    """Generate a continuation under a policy, with everything that an audit shows of each token.

    It ends with the model's end token, a full context or ``max_new_tokens`` steps. Arguments and errors are those of
    :func:`coft_core.plan`.
    """
    planned = plan(
        model, text, policy, spans, seed, greedy, max_new_tokens, detector, keep_logits, models=models, scorers=scorers
    )
    return generate_together([planned])[0]


def generate_together(plans: Sequence[Plan]) -> list[Run]:
    """Continue several prompts under one policy, as each alone; those with the same branches share their forwards."""
    names = [tuple(branch.name for branch in plan.policy.branches(plan.prompt)) for plan in plans]
    order = sorted(range(len(plans)), key=lambda place: names[place])
    runs: dict[int, Run] = {}
    for _, places in groupby(order, key=names.__getitem__):
        alike = list(places)
        chains = [PlannedChain(plans[place]) for place in alike]
        continue_together(chains, decide_and_write)
        runs.update(zip(alike, (chain.run() for chain in chains), strict=True))
    return [runs[place] for place in range(len(plans))]


def continue_together(
    chains: Sequence[AnyChain], one_step: Callable[[BranchGroup, Sequence[AnyChain]], object]
) -> None:
    """Continue chains with the same branches to their ends, each as far as its own context goes."""
    width, models = len(chains[0].branches), chains[0].models
    # Elsewhere a forward of few rows takes the time of reading the weights, and a moved memory is captured again.
    by_the_row = all(model.device.type == "cpu" for model in models.values())
    group = BranchGroup(models, [branch for chain in chains for branch in chain.branches])
    try:
        while left := [place for place, chain in enumerate(chains) if chain.finished is None]:
            if group.room <= 0 or (by_the_row and len(left) <= KEPT_TOGETHER * len(chains)):
                group.keep([place * width + row for place in left for row in range(width)])
                chains = [chains[place] for place in left]
            one_step(group, chains)
    finally:
        group.close()


def decide_and_write(group: BranchGroup, chains: Sequence[PlannedChain], forced: int | None = None) -> list[Step]:
    """One step of Algorithm 1 for each chain."""
    following = NextSteps(tuple(chain.next_step(group.generated, forced) for chain in chains))
    # Line 2, the logits that follow the prefix in every branch; lines 3 to 10, a token for each chain.
    logits, steps = group.followed(following)  # (G * B, V), G
    # Line 11, the tokens that the branches read next.
    write(group, chains, logits, steps)
    return steps


def write(group: BranchGroup, chains: Sequence[Chain[Decided]], logits: Tensor, steps: Sequence[Decided]) -> None:
    """Make each decided token the pending one of its chain's branches; where that fails, no chain has changed."""
    width = len(logits) // len(chains)
    taken = [
        (chain, step, chain.remembered(step, logits[place * width : (place + 1) * width]))
        for place, (chain, step) in enumerate(zip(chains, steps, strict=True))
        if chain.finished is None
    ]
    group.append(torch.tensor([step.token_id for step in steps for _ in range(width)]))
    for chain, step, memory in taken:
        chain.take(step, memory)


def score(
    model: LanguageModel,
    text: str,
    continuation: str,
    policy: Policy,
    spans: Sequence[Span] | None = None,
    detector: SpanDetector | None = None,
    models: Mapping[str, LanguageModel] | None = None,
    scorers: Mapping[str, ToxicityScorer] | None = None,
) -> list[Step]:
    """Teacher-force a continuation: what each of its tokens would have looked like to the policy.

    The continuation is taken literally (its leading space counts); the other arguments are those of
    :func:`coft_core.plan`. All steps are ``forced``, and their ``policy_token`` is the policy's greedy choice.

    Raises:
        InvalidInputError: The prompt or the continuation is empty.
        PromptTooLongError: Both together exceed the model's context.
        CalibrationMismatch: The policy's calibration belongs to another policy.
    """
    planned = plan(model, text, policy, spans, greedy=True, detector=detector, models=models, scorers=scorers)
    chain = PlannedChain(planned)
    tokens = continuation_ids(model, planned.prompt, continuation)
    logits = score_branches(planned.all_models, chain.branches, tokens)  # (C, B, V)
    for index, (token_id, row) in enumerate(zip(tokens, logits, strict=True)):
        (step,) = decide([chain.next_step(index, token_id)], row[None])
        chain.take(step, chain.remembered(step, row))
    return list(chain.steps)


class Written(Protocol):
    """What a pass of the loop decides for a chain."""

    @property
    def token_id(self) -> int:
        """The token that is written."""


Decided = TypeVar("Decided", bound=Written)


class Chain(Generic[Decided]):
    """What is written behind one prompt, whatever is kept of each step."""

    def __init__(
        self,
        models: Mapping[str, LanguageModel],
        branches: Sequence[BranchSpec],
        end_token_ids: Collection[int],
        max_new_tokens: int,
    ) -> None:
        self.models, self.branches = models, tuple(branches)
        self._end_token_ids, self._max_new_tokens = end_token_ids, max_new_tokens
        self._context = min(models[row.model].context_length - len(row.input_ids) for row in branches)
        self.steps: tuple[Decided, ...] = ()

    @property
    def tokens(self) -> tuple[int, ...]:
        """What is written."""
        return tuple([step.token_id for step in self.steps])

    @property
    def finished(self) -> str | None:
        """None while it can go on, else ``"end"``, ``"length"`` or ``"context"``."""
        if self.steps and self.steps[-1].token_id in self._end_token_ids:
            return "end"
        if len(self.steps) >= self._max_new_tokens:
            return "length"
        return "context" if len(self.steps) >= self._context else None

    def remembered(self, step: Decided, logits: Tensor) -> Any:
        """What the policy carries on from a step with logits ``(B, V)``; nothing changes yet."""

    def take(self, step: Decided, memory: Any) -> None:
        """Write a step's token."""
        self.steps = (*self.steps, step)


AnyChain = TypeVar("AnyChain", bound=Chain[Any])


class PlannedChain(Chain[Step]):
    """A chain of a plan, with all that an audit shows of each step and with what its policy remembers."""

    def __init__(self, plan: Plan, path: str = ROOT_PATH) -> None:
        branches = plan.policy.branches(plan.prompt)
        super().__init__(plan.all_models, branches, plan.model.end_token_ids, plan.max_new_tokens)
        self.plan, self.path = plan, path
        self._names = tuple(branch.name for branch in self.branches)
        # Before the first step, and after each.
        self._memories: list[Any] = [None]

    def next_step(self, index: int, forced: int | None = None) -> NextStep:
        """What the step at a position depends on besides its logits."""
        uniform = keyed_uniform(self.plan.seed, path_at(self.path, index), index)
        past = Past(self.plan.model, self.plan.prompt, self.tokens, self._memories[-1])
        return NextStep(self.plan, index, self._names, uniform, past, forced)

    def remembered(self, step: Step, logits: Tensor) -> Any:
        """What the policy carries on from a step with logits ``(B, V)``; None for policies that do not look back."""
        if not self.plan.policy.looks_back:
            return None
        with torch.inference_mode():
            return self.plan.policy.remember(self._memories[-1], logits, step.token_id, self._names)

    def take(self, step: Step, memory: Any) -> None:
        """Write a step's token, and keep what the policy carries on."""
        super().take(step, memory)
        self._memories.append(memory)

    def resume(self, steps: Sequence[Step]) -> None:
        """Take up steps that were decided earlier; a policy that looks back reads them once more."""
        logits: Any = [None] * len(steps)
        if steps and self.plan.policy.looks_back:
            logits = score_branches(self.plan.all_models, self.branches, [step.token_id for step in steps])  # (C, B, V)
        for step, row in zip(steps, logits, strict=True):
            self.take(step, self.remembered(step, row))

    def run(self) -> Run:
        """What was written, with all that is said of it."""
        return Run(
            prompt=self.plan.prompt.factual_text,
            text=self.plan.model.continuation_text(self.tokens),
            tokens=tuple(step.token for step in self.steps),
            steps=self.steps,
            spans=self.plan.prompt.spans,
            seed=self.plan.seed,
            finished=self.finished or "",
            certificate=self.plan.certificate.counted(self.steps).text,
            warnings=(*self.plan.warnings, *filter(None, [warning(self.steps)])),
        )


class Rollout(PlannedChain):
    """A chain that can be stepped, taken back, forked and closed.

    ``plan`` is what is decoded, and ``path`` is part of the key of its draws.
    """

    def __init__(
        self, plan: Plan, path: str = ROOT_PATH, steps: Sequence[Step] = (), forwards: JointForwards | None = None
    ) -> None:
        """Begin a chain, or go on after steps, whose tokens are fed with the prompt at the next step."""
        super().__init__(plan, path)
        self._group = BranchGroup(self.models, self.branches, forwards)
        with forwards.exclusive() if forwards else nullcontext():
            self._group.prepare()
            self.resume(steps)
        for step in steps:
            self._group.append(torch.full((self._group.row_count,), step.token_id))

    @property
    def text(self) -> str:
        """Text of the chain without special tokens."""
        return self.plan.model.continuation_text(self.tokens)

    @property
    def waited(self) -> float:
        """Seconds for which the newest step waited on forwards of other rollouts."""
        return self._group.waited

    @property
    def memory_size(self) -> int:
        """Bytes of keys and values that the rollout holds."""
        return self._group.memory_size

    @property
    def memory_size_next(self) -> int:
        """Bytes that it will hold after its next step, as far as it is known before the first."""
        return self._group.memory_size_next

    @property
    def memory_uses(self) -> dict[str, MemoryUse]:
        """How keys and values are kept, by the name under which branches ask for their model."""
        return self._group.memory_uses

    def step(self, token_id: int | None = None) -> Step:
        """Take one step, with a token that is forced, or the policy's choice.

        Raises:
            InvalidInputError: The chain is finished, or the token is not in the vocabulary.
            RolloutClosedError: The rollout is closed.
        """
        if self.finished:
            raise InvalidInputError("This chain is finished; fork from an earlier step to go on.")
        (step,) = decide_and_write(self._group, [self], token_id)
        return step

    def back(self, count: int = 1) -> None:
        """Take back the last steps; taking them again without forcing gives the same tokens.

        Raises:
            InvalidInputError: There are fewer steps than that.
        """
        length = len(self.steps) - count
        self._group.crop(length)
        self.steps, self._memories = self.steps[:length], self._memories[: length + 1]

    def fork(self, index: int, token_id: int) -> Rollout:
        """A second rollout, whose last step is another token at a step, 0-based; this one stays as it is.

        Its keys and values are a cut copy, not recomputed.
        """
        fork = copy(self)
        fork._group = self._group.fork(index)
        fork.path = fork_path(self.path, index, token_id)
        fork.steps, fork._memories = self.steps[:index], self._memories[: index + 1]
        fork.step(token_id)
        return fork

    def release_logits(self) -> None:
        """Forget the kept logits of the steps so far, for a caller who has stored them; nothing else changes."""
        self.steps = tuple(step if step.logits is None else replace(step, logits=None) for step in self.steps)

    def close(self) -> None:
        """Release the key-value memory."""
        self._group.close()


def fork_path(path: str, index: int, token_id: int) -> str:
    """Path of the branch that departs from ``path`` at a step with a token."""
    return f"{path}/{index}:{token_id}"


def path_at(path: str, index: int) -> str:
    """Path whose key draws a step of a branch's chain: up to and at its fork, the chain is its parent's."""
    parent, separator, fork = path.rpartition("/")
    if separator and index <= int(fork.partition(":")[0]):
        return path_at(parent, index)
    return path
