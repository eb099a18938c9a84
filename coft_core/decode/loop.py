"""The heart: one loop for generating, stepping, going back, forking and scoring under any policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import torch

from coft_core.conformal.informative import warning
from coft_core.decode.decide import Moment, NextStep, decide, decide_together, remember, remembered
from coft_core.decode.plan import Plan, plan
from coft_core.errors import InvalidInputError
from coft_core.model.branches import MemoryUse
from coft_core.model.group import BranchGroup, Forwards, OwnForwards, score_branches
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Past, Policy
from coft_core.policies.sampling import keyed_uniform
from coft_core.scorers.base import ToxicityScorer
from coft_core.text.detection import SpanDetector
from coft_core.text.masking import continuation_ids
from coft_core.types import Run, Span, Step

ROOT_PATH = "0"


class Rollout:
    """A chain that can be stepped, taken back, forked and closed.

    All branches are rows of one batch; a step is one forward and one device-to-host transfer.
    """

    def __init__(
        self, plan: Plan, path: str = ROOT_PATH, steps: Sequence[Step] = (), forwards: Forwards | None = None
    ) -> None:
        """Begin a chain, or take one up where it was left.

        Args:
            plan: What to decode.
            path: The branch's path, part of the key of its draws.
            steps: Steps taken earlier; their tokens are fed with the prompt when the next step is asked for.
            forwards: Where forwards are run, such as with those of other rollouts; None runs each by itself.

        Raises:
            PromptTooLongError: The prompt fills the model's context.
        """
        branches = plan.policy.branches(plan.prompt)
        self.plan = plan
        self.path = path
        self._steps: list[Step] = list(steps)
        self._tokens = [step.token_id for step in steps]
        self._branches = tuple(branch.name for branch in branches)
        forwards = forwards or OwnForwards()
        self._batch = BranchGroup(plan.all_models, branches, forwards)
        with forwards.exclusive():
            self._batch.prepare()
            self._memories = remembered(plan, branches, self._tokens)
        for token_id in self._tokens:
            self._append(token_id)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The chain so far."""
        return tuple(self._steps)

    @property
    def finished(self) -> str | None:
        """None while the chain can go on, else ``"end"``, ``"length"`` or ``"context"``."""
        if self._tokens and self._tokens[-1] in self.plan.model.end_token_ids:
            return "end"
        if len(self._tokens) >= self.plan.max_new_tokens:
            return "length"
        return "context" if self._batch.room <= 0 else None

    @property
    def text(self) -> str:
        """Text of the chain without special tokens."""
        return self.plan.model.continuation_text(self._tokens)

    @property
    def waited(self) -> float:
        """Seconds for which the newest step waited on forwards of other rollouts."""
        return self._batch.waited

    @property
    def memory_size(self) -> int:
        """Bytes of keys and values that the rollout holds."""
        return self._batch.memory_size

    @property
    def memory_size_next(self) -> int:
        """Bytes that it will hold after its next step, as far as it is known before the first."""
        return self._batch.memory_size_next

    @property
    def memory_uses(self) -> dict[str, MemoryUse]:
        """How keys and values are kept, by the name under which branches ask for their model."""
        return self._batch.memory_uses

    @property
    def memory_notes(self) -> tuple[str, ...]:
        """Where keys and values are not kept in preallocated memory, and why; a sentence for each such model."""
        return self._batch.memory_notes

    def step(self, token_id: int | None = None) -> Step:
        """Take one step.

        Args:
            token_id: A token to force; None lets the policy choose.

        Raises:
            InvalidInputError: The chain is finished, or the token is not in the vocabulary.
            RolloutClosedError: The rollout is closed.
        """
        if self.finished:
            raise InvalidInputError("This chain is finished; fork from an earlier step to go on.")
        index = len(self._steps)
        uniform = keyed_uniform(self.plan.seed, path_at(self.path, index), index)
        moment = Moment(index, self._branches, uniform, self.plan.greedy, token_id)
        past = Past(self.plan.model, self.plan.prompt, tuple(self._tokens), self._memories[-1])
        logits, step = self._batch.followed(NextStep(self.plan, moment, past))  # (B, V)
        self._memories.append(remember(self.plan.policy, self._memories[-1], logits, step.token_id, self._branches))
        self._append(step.token_id)
        self._steps.append(step)
        self._tokens.append(step.token_id)
        return step

    def back(self, count: int = 1) -> None:
        """Take back the last steps; taking them again without forcing gives the same tokens.

        Raises:
            InvalidInputError: There are fewer steps than that.
        """
        keep = len(self._steps) - count
        self._batch.crop(keep)
        del self._steps[keep:], self._tokens[keep:]
        del self._memories[keep + 1 :]

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
        other._steps, other._tokens, other._batch = self._steps[:index], self._tokens[:index], batch
        other._memories = self._memories[: index + 1]
        other.step(token_id)
        return other

    def release_logits(self) -> None:
        """Forget the kept logits of the steps so far, for a caller who has stored them; nothing else changes."""
        for place in range(len(self._steps) - 1, -1, -1):
            # They are kept of the newest steps alone: what stands before one without them was released already.
            if self._steps[place].logits is None:
                return
            self._steps[place] = replace(self._steps[place], logits=None)

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
    models: Mapping[str, LanguageModel] | None = None,
    scorers: Mapping[str, ToxicityScorer] | None = None,
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
            :func:`coft_core.decode.reread`.
        models: Further models that the policy runs, by name; None loads them.
        scorers: Toxicity scorers by name; None loads them.

    Raises:
        InvalidInputError: The prompt is empty or too long, or a span lies outside it.
        CalibrationMismatch: The policy's calibration belongs to another policy.
    """
    prepared = plan(
        model, text, policy, spans, seed, greedy, max_new_tokens, detector, keep_logits, models=models, scorers=scorers
    )
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
            warnings=(*prepared.warnings, *filter(None, [warning(rollout.steps)])),
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
    models: Mapping[str, LanguageModel] | None = None,
    scorers: Mapping[str, ToxicityScorer] | None = None,
) -> list[Step]:
    """Teacher-force a given continuation: what each of its tokens would have looked like to the policy.

    Args:
        model: The model.
        text: The prompt.
        continuation: The text that follows it, taken literally (its leading space counts).
        policy: The policy; a step's ``policy_token`` is its greedy choice.
        spans: Sensitive spans of the prompt; None detects them. Suggested and kept ones are never masked.
        detector: Span detector; the default one if None.
        models: Further models that the policy runs, by name; None loads them.
        scorers: Toxicity scorers by name; None loads them.

    Returns:
        One step a token of the continuation, all ``forced``.

    Raises:
        InvalidInputError: The prompt or the continuation is empty.
        PromptTooLongError: Both together exceed the model's context.
        CalibrationMismatch: The policy's calibration belongs to another policy.
    """
    prepared = plan(model, text, policy, spans, detector=detector, models=models, scorers=scorers)
    tokens = continuation_ids(model, prepared.prompt, continuation)
    branches = prepared.policy.branches(prepared.prompt)
    logits = score_branches(prepared.all_models, branches, tokens)  # (C, B, V)
    names = tuple(branch.name for branch in branches)
    steps, memory = [], None
    for index, token_id in enumerate(tokens):
        own = logits[index : index + 1]  # (1, B, V)
        past = Past(model, prepared.prompt, tuple(tokens[:index]), memory)
        steps.append(decide(prepared, own, Moment(index, names, 0.0, greedy=True, forced=token_id), past))
        memory = remember(prepared.policy, memory, own[0], token_id, names)
    return steps


@dataclass
class _Chain:
    """One prompt on its way."""

    plan: Plan
    steps: list[Step] = field(default_factory=list)
    memory: Any = None
    finished: str = ""

    @property
    def past(self) -> Past:
        tokens = tuple(step.token_id for step in self.steps)
        return Past(self.plan.model, self.plan.prompt, tokens, self.memory)

    def end(self, room: int) -> None:
        """Say why nothing more is written, if nothing is."""
        if not self.finished and self.steps:
            if self.steps[-1].token_id in self.plan.model.end_token_ids:
                self.finished = "end"
            elif len(self.steps) >= self.plan.max_new_tokens:
                self.finished = "length"
            elif room <= 0:
                self.finished = "context"


def generate_together(plans: Sequence[Plan]) -> list[Run]:
    """Continue several prompts under one policy; prompts with the same branches share their forwards.

    A prompt gets the tokens that :func:`coft_core.generate` gives it alone, as far as floating-point sums in a larger
    batch agree; where the batch fills the context of its longest prompt, all of it ends there.

    Args:
        plans: What to decode: the same model, policy and sampling, each prompt with its own seed and length.

    Returns:
        One run a plan, in their order.
    """
    names = [tuple(branch.name for branch in own.policy.branches(own.prompt)) for own in plans]
    order = sorted(range(len(plans)), key=lambda place: names[place])
    found: dict[int, Run] = {}
    for branches, places in groupby(order, key=names.__getitem__):
        alike = list(places)
        found.update(zip(alike, _continue([plans[place] for place in alike], branches), strict=True))
    return [found[place] for place in range(len(plans))]


def _continue(plans: Sequence[Plan], branches: tuple[str, ...]) -> list[Run]:
    chains = [_Chain(own) for own in plans]
    specs = [branch for own in plans for branch in own.policy.branches(own.prompt)]
    group = BranchGroup(plans[0].all_models, specs)
    try:
        while any(not chain.finished for chain in chains):
            _advance(chains, group, branches)
    finally:
        group.close()
    return [_run(chain) for chain in chains]


def _advance(chains: Sequence[_Chain], group: BranchGroup, branches: tuple[str, ...]) -> None:
    """One step of every chain; a finished one is fed along, unseen, so that the rows stay together."""
    plans, index = [chain.plan for chain in chains], group.generated
    logits = group.logits().view(len(chains), len(branches), -1)  # (G, B, V)
    uniforms = [keyed_uniform(own.seed, ROOT_PATH, index) for own in plans]
    draws = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)  # (G,)
    made = decide_together(plans, logits, index, branches, draws, [chain.past for chain in chains])
    for chain, step, own in zip(chains, made, logits, strict=True):
        if not chain.finished:
            chain.memory = remember(chain.plan.policy, chain.memory, own, step.token_id, branches)
            chain.steps.append(step)
    tokens = torch.tensor([step.token_id for step in made])  # (G,)
    group.append(tokens.repeat_interleave(len(branches)))
    for chain in chains:
        chain.end(group.room)


def _run(chain: _Chain) -> Run:
    plan = chain.plan
    return Run(
        prompt=plan.prompt.factual_text,
        text=plan.model.continuation_text([step.token_id for step in chain.steps]),
        tokens=tuple(step.token for step in chain.steps),
        steps=tuple(chain.steps),
        spans=plan.prompt.spans,
        seed=plan.seed,
        finished=chain.finished,
        certificate=plan.certificate.text,
        warnings=(*plan.warnings, *filter(None, [warning(chain.steps)])),
    )
