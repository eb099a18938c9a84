"""Calibration on the deployed policy's own chains (assumptions A2 and A4 of the paper).

The thresholds decide what the policy writes, and what it writes decides the thresholds. Rounds on fresh contexts break
the circle: each generates chains under the thresholds of the round before and reads new ones, until they settle. All
contexts that no round has used then give the final thresholds, and contexts kept apart from the start measure coverage
under exactly these. With factorized masks every family has thresholds of its own, and a chain is written under all of
them together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Generic

import numpy as np

from coft_core.calibrating.chains import ChainPrompt, Chains, generate_chains
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.coverage import CoverageReport, clopper_pearson
from coft_core.conformal.groups import ContextGroups
from coft_core.conformal.options import CalibrationSettings, Progress
from coft_core.conformal.quantile import minimum_contexts
from coft_core.conformal.record import ChainRecord, Iteration, is_settled
from coft_core.conformal.split import held_out_contexts
from coft_core.conformal.values import CalibrationValues
from coft_core.engine.model import LanguageModel
from coft_core.fingerprint import Fingerprint
from coft_core.policies.fused import FusedPolicy, Thresholds

CONSISTENCY = 0.95
"""Probability with which the fixed point counts as consistent, over all families together."""

Parts = Mapping[str, Calibration]
"""Thresholds of each masked view: the only one of a joint mask, or the families'."""


@dataclass(frozen=True, slots=True)
class RolloutTask(Generic[Thresholds]):
    """What is calibrated.

    Attributes:
        model: The model.
        policy: The policy without thresholds.
        fingerprint: Fingerprint of the policy with thresholds from rollouts.
        prompts: The prompts that are continued.
        contexts: Contexts in which each masked view occurs.
        alphas: Risk level of each masked view.
        assemble: Makes the policy's calibration of the views' thresholds and the policy's own choices.
        settings: The options.
        groups: Groups of the contexts, if thresholds are asked by group.
    """

    model: LanguageModel
    policy: FusedPolicy[Thresholds]
    fingerprint: Fingerprint
    prompts: Sequence[ChainPrompt]
    contexts: Mapping[str, frozenset[int]]
    alphas: Mapping[str, float]
    assemble: Callable[[Parts, CalibrationValues], Thresholds]
    settings: CalibrationSettings
    groups: ContextGroups | None = None


def calibrate_on_rollouts(task: RolloutTask[Thresholds]) -> Thresholds:
    """Iterate thresholds on the policy's own chains, and measure their coverage.

    Args:
        task: What is calibrated; a ledger in its settings is bound to it.

    Returns:
        The calibration, with the record of its rounds.
    """
    settings = task.settings
    rounds = _Rounds(task, counted(settings.progress, len(task.prompts)))
    held_out = held_out_contexts(task.contexts, task.alphas, settings.verification_share, settings.seed, task.groups)
    # A stream of its own, so that the rounds do not depend on how many contexts are kept apart.
    everything = sorted(frozenset().union(*task.contexts.values()) - set(held_out))
    order = np.random.default_rng([settings.seed, 1]).permutation(everything).tolist()
    size, searches = round_size(order, task.contexts, task.alphas, settings.max_iterations)
    thresholds: Parts | None = None
    used = 0
    for _ in range(searches):
        thresholds = rounds.round(order[used : used + size], thresholds, final=False)
        used += size
        if is_settled(rounds.records[-1], settings.tolerance):
            break
    final = rounds.round(order[used:], thresholds, final=True)
    apart = rounds.chains(held_out, final, "verification") if held_out else None
    created = datetime.now(UTC).isoformat(timespec="seconds")
    parts = {
        name: replace(
            part,
            verification=apart.truth(name) if apart else CalibrationValues.empty(),
            chains=ChainRecord(part.reading, settings.max_new_tokens, settings.tolerance, tuple(rounds.records)),
            context_groups=task.groups or ContextGroups(),
            created=created,
            name=settings.name,
        )
        for name, part in final.items()
    }
    return task.assemble(parts, apart.chosen if apart else CalibrationValues.empty())


BELOW = 1e-4
"""How far under the thresholds that were read off those lie that write chains, in nats: twice the rounding of float32.

Coarser number types round by more than could be given away; there a copy can still fall on either side.
"""


@dataclass
class _Rounds(Generic[Thresholds]):
    """Generates chains of contexts under thresholds, and reads thresholds off them."""

    task: RolloutTask[Thresholds]
    done: Callable[[int], None]
    records: list[Iteration] = field(default_factory=list)

    def chains(self, contexts: Sequence[int], thresholds: Parts | None, phase: str) -> Chains:
        task, settings = self.task, self.task.settings
        wanted = set(contexts)
        return generate_chains(
            task.model,
            replace(task.policy, calibration=self._assembled(in_force(thresholds)) if thresholds else None),
            [prompt for prompt in task.prompts if prompt.context in wanted],
            settings.max_new_tokens,
            settings.seed,
            self.done,
            settings.batch_size,
            settings.ledger,
            phase,
            settings.room,
        )

    def round(self, contexts: Sequence[int], thresholds: Parts | None, final: bool) -> Parts:
        chains = self.chains(contexts, thresholds, f"rollout/{len(self.records) + 1}")
        after = {name: self._read(name, chains.truth(name)) for name in self.task.alphas}
        # The thresholds that generated these chains, measured on them: nothing is certified away without thresholds.
        measured = {
            name: replace(part, verification=chains.truth(name)) for name, part in (thresholds or after).items()
        }
        overall = self._assembled(measured).coverage.overall
        self.records.append(
            Iteration(
                contexts=len(contexts),
                values=sum(len(part.values) for part in after.values()),
                change=max(largest_change((thresholds or {}).get(name), part) for name, part in after.items()),
                kept=overall.kept if thresholds else overall.contexts,
                consistent=all(
                    _consistent(part.coverage, thresholds is not None, part.alpha, len(measured))
                    for part in measured.values()
                ),
                final=final,
            )
        )
        return after

    def _assembled(self, parts: Parts) -> Thresholds:
        return self.task.assemble(parts, CalibrationValues.empty())

    def _read(self, name: str, values: CalibrationValues) -> Calibration:
        settings = self.task.settings
        return Calibration(
            fingerprint=self.task.fingerprint,
            alpha=self.task.alphas[name],
            values=values,
            bin_width=settings.bin_width,
            max_position=settings.max_position,
            bin_spacing=settings.bin_spacing,
            seed=settings.seed,
            draws=settings.draws,
        )


def in_force(parts: Parts) -> Parts:
    """Thresholds as chains are written under them: :data:`BELOW` under what was read off.

    A threshold is the support of some prompt's true token. A copy of that prompt has the same support, up to the
    rounding of its batch, so that it would lie on the one or the other side as its neighbours have it.
    """
    return {
        name: replace(part, values=replace(part.values, values=part.values.values - BELOW))
        for name, part in parts.items()
    }


def largest_change(before: Calibration | None, after: Calibration) -> float:
    """Largest change of any bin's ``tau``, a probability; thresholds that certify everything count as 0."""
    earlier = [0.0] * len(after.bins) if before is None else [entry.tau for entry in before.bins]
    return max(abs(a.tau - b) for a, b in zip(after.bins, earlier, strict=True))


def counted(progress: Progress | None, total: int) -> Callable[[int], None]:
    """Turn counts of finished batches into (done, total)."""
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress:
            progress(done, total)

    return advance


def round_size(
    order: Sequence[int], contexts: Mapping[str, frozenset[int]], alphas: Mapping[str, float], rounds: int
) -> tuple[int, int]:
    """How contexts are shared out among rounds: as many rounds as leave each view what its level needs in all of them.

    Args:
        order: The contexts in the order in which rounds use them.
        contexts: Contexts of each masked view; one with fewer than its level needs altogether has no say.
        alphas: Risk level of each.
        rounds: Rounds at most, the final one included.

    Returns:
        Contexts of a search round, and the number of such rounds; the final one has all others.
    """
    needed = {name: max(minimum_contexts(alpha), 1) for name, alpha in alphas.items()}
    having = {name: np.isin(order, list(own)) for name, own in contexts.items()}  # (K,) each
    counted_views = [name for name, own in having.items() if int(own.sum()) >= needed[name]]
    for count in range(min(rounds, len(order)), 1, -1) if counted_views else ():
        size = len(order) // count
        borders = [*range(0, size * count, size)]
        if all(np.add.reduceat(having[name], borders, dtype=int).min() >= needed[name] for name in counted_views):
            return size, count - 1
    return len(order), 0


def _consistent(coverage: CoverageReport, in_force: bool, alpha: float, views: int) -> bool:
    """Whether thresholds that were in force kept the share of fresh true tokens that alpha asks for."""
    if not (contexts := coverage.contexts):
        return True
    kept = coverage.kept if in_force else contexts
    low, high = clopper_pearson(kept, contexts, 1 - (1 - CONSISTENCY) / views)
    return low <= 1 - alpha <= high
