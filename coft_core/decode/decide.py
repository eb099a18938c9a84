"""One step of Algorithm 1, from the logits of a chain, or of several at once, to the token that is written.

:class:`StepForm` has the algorithm's lines: the policy fuses and certifies, and a token is drawn from what is left.
Everything else here brings several chains together, and numbers to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from coft_core.decode.captured import Numbers, step_functions, to_host
from coft_core.decode.plan import Plan
from coft_core.decode.record import Keeper, pack_step, unpack_step
from coft_core.errors import InvalidInputError
from coft_core.policies.base import Past, Policy, Views
from coft_core.policies.bounds import bounded_views, choose_by
from coft_core.types import Step


@dataclass(frozen=True, slots=True)
class StepForm:
    """What the tensors of a step depend on besides logits, draws and forced tokens."""

    policy: Policy
    index: int
    branches: tuple[str, ...]
    greedy: bool
    keeper: Keeper | None
    noise: float
    most_likely: int | None = None

    @property
    def key(self) -> Hashable:
        """Equal where the function is the same."""
        thresholds = self.policy.thresholds(self.index, self.branches)
        return (self.policy.form, thresholds, self.branches, self.greedy, self.keeper, self.noise)

    def views(self, logits: Tensor, pasts: Sequence[Past] = ()) -> Views:
        """Lines 3 to 5, fuse and certify: what the policy says of logits ``(G, B, V)``; few look at the ``pasts``."""
        if self.most_likely is not None:
            threshold = self.policy.threshold(self.index)
            return bounded_views(self.policy, logits, *threshold, self.noise, self.most_likely)
        return self.policy.views(logits, self.index, self.branches, pasts)

    def tensors(
        self, logits: Tensor, draws: Tensor, forced: Tensor | None, views: Views
    ) -> tuple[Tensor, Tensor | None]:
        """Lines 6 to 10, choose with draws ``(G,)``, and pack all that is said of the steps.

        Tokens that are ``forced``, ``(G,)``, are written whatever is chosen, unless they are negative. Gives the packed
        rows, ``(G, N)`` float32, and the kept logits as bytes, ``(G, M)``.
        """
        # A draw from the certified set, or the likeliest fused token where that is empty.
        choice = choose_by(views, self.policy.sampling, draws, self.greedy)
        emitted = choice.token_ids if forced is None else torch.where(forced < 0, choice.token_ids, forced)
        packed = pack_step(views, choice, emitted, self.noise)
        if self.keeper is None:
            return packed, None
        return packed, self.keeper.pack(logits)


@dataclass(frozen=True, slots=True)
class NextStep:
    """The step that a chain takes next: all that it depends on besides its logits."""

    plan: Plan
    index: int
    branches: tuple[str, ...]
    uniform: float
    past: Past
    forced: int | None = None

    def record(self, views: Views, row: list[float], form: StepForm, kept: bytes) -> Step:
        """The step from its numbers, which are on the host already."""
        model = self.plan.model
        return unpack_step(
            row,
            model.token_text,
            views,
            index=self.index,
            forced=self.forced is not None,
            mismatched=self.plan.certificate.mismatched,
            vocabulary=model.vocabulary_size,
            noise=form.noise,
            logits=form.keeper.unpack(kept) if form.keeper else None,
        )


def decide(steps: Sequence[NextStep], logits: Tensor) -> list[Step]:
    """The next steps of G chains under one policy at one position, by their logits ``(G, B, V)``."""
    form, draws = _form(steps[0], logits), _draws(steps, logits)
    forced = _forced(steps, logits)
    functions = step_functions(steps[0].plan.model)
    numbers = functions.numbers(form, logits, draws, forced) if functions else None
    if numbers is None:
        with torch.inference_mode():
            views = form.views(logits, [step.past for step in steps])
            numbers = to_host(views, *form.tensors(logits, draws, forced, views))
    rows = zip(steps, numbers.rows, numbers.kept, strict=True)
    return [step.record(numbers.views, row, form, kept) for step, row, kept in rows]


@dataclass(frozen=True, slots=True)
class NextSteps:
    """The next steps of chains whose logits come from one forward; a :class:`coft_core.model.joint.Sequel`."""

    steps: tuple[NextStep, ...]

    @property
    def key(self) -> Hashable | None:
        """Equal where steps are one function of logits, draws and thresholds; None where they are decided alone."""
        step, *others = self.steps
        plan = step.plan
        bounded = plan.model.most_likely is not None
        if others or step.forced is not None or not plan.policy.reads_rowwise or bounded:
            return None
        kept = plan.full_bytes if plan.keep_logits else None
        return (plan.policy.form, step.branches, plan.greedy, kept)

    def alone(self, logits: Tensor) -> list[Step]:
        """The steps from their own logits, ``(G * B, V)``; see :func:`decide`."""
        return decide(self.steps, logits.view(len(self.steps), -1, logits.shape[-1]))

    def together(self, logits: Sequence[Tensor], sequels: Sequence[NextSteps]) -> list[Callable[[], list[Step]]]:
        """Steps of several groups at once, each at its own position and threshold; one transfer for all of them."""
        steps = [sequel.steps[0] for sequel in sequels]
        stacked = torch.stack(list(logits))  # (G, B, V)
        form = _form(steps[0], stacked)
        # Log-probabilities are float32, and a number is compared with them in their type.
        thresholds = [step.plan.policy.threshold(step.index)[0] for step in steps]
        log_tau = _on_device(thresholds, torch.float32, stacked.device)[:, None]  # (G, 1)
        with torch.inference_mode():
            views = form.policy.views_at(stacked, log_tau)
            numbers = to_host(views, *form.tensors(stacked, _draws(steps, stacked), None, views))
        return [partial(_one, steps[place], numbers, place, form) for place in range(len(steps))]


def _one(step: NextStep, numbers: Numbers, place: int, form: StepForm) -> list[Step]:
    log_tau, state = step.plan.policy.threshold(step.index)
    views = replace(numbers.views, log_tau=log_tau, state=state)
    return [step.record(views, numbers.rows[place], form, numbers.kept[place])]


def _form(step: NextStep, logits: Tensor) -> StepForm:
    plan = step.plan
    keeper = None
    if plan.keep_logits and plan.policy.fusion_weight is not None:
        layout = Keeper.of(plan.policy, step.branches, logits[0])
        keeper = layout if layout.size <= plan.full_bytes else None
    return StepForm(
        plan.policy, step.index, step.branches, plan.greedy, keeper, plan.noise.nats, plan.model.most_likely
    )


def _draws(steps: Sequence[NextStep], logits: Tensor) -> Tensor:
    return _on_device([step.uniform for step in steps], torch.float64, logits.device)


def _forced(steps: Sequence[NextStep], logits: Tensor) -> Tensor | None:
    """Tokens to write whatever is chosen, ``(G,)``, negative for none; None where there is none at all."""
    tokens = [-1 if step.forced is None else step.forced for step in steps]
    for step in steps:
        if step.forced is not None and not 0 <= step.forced < logits.shape[-1]:
            raise InvalidInputError(f"There is no token {step.forced}; the vocabulary has {logits.shape[-1]:,}.")
    return None if max(tokens) < 0 else _on_device(tokens, torch.int64, logits.device)


def _on_device(numbers: Sequence[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers of the host on a device, without waiting for it."""
    if len(numbers) == 1:
        return torch.full((1,), numbers[0], dtype=dtype, device=device)
    return torch.tensor(numbers, dtype=dtype).to(device, non_blocking=True)
