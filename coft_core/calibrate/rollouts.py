"""Thresholds from the deployed policy's own chains, on which they depend themselves: iterated until they settle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from coft_core.calibrate.chains import Chains, chain_prompts, generate_chains
from coft_core.calibrate.ledger import ledger_key
from coft_core.calibrate.settings import CalibrationOptions, counted
from coft_core.calibrate.task import Prepared, Task, masked_views
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.coverage import CoverageReport, clopper_pearson
from coft_core.conformal.part import ChainRecord, Iteration, Part, is_settled
from coft_core.conformal.quantile import minimum_contexts
from coft_core.conformal.values import CalibrationValues
from coft_core.errors import InvalidInputError
from coft_core.fingerprint import Fingerprint

CONSISTENCY = 0.95
"""Probability with which the fixed point counts as consistent, over all families together."""

Parts = Mapping[str, Part]
"""Thresholds of each masked view: the only one of a joint mask, or the families'."""


def calibrate_on_rollouts(task: Task) -> Calibration:
    """Iterate thresholds on the policy's own chains, and measure their coverage."""
    if len(task.policies) != 1:
        raise InvalidInputError(
            f"There are {len(task.policies)} fusion weights; chains are written under one, so give one at a time for "
            "rollouts."
        )
    settings = task.settings
    prompts = chain_prompts(task.model, task.examples, task.contexts, task.policies[0], settings.spans)
    task = task.keeping(item.prompt for item in prompts)
    contexts: dict[str, set[int]] = {}
    for item in prompts:
        for view in masked_views(task.policies[0], item.prompt):
            contexts.setdefault(view, set()).add(item.context)
    levels = task.levels(contexts)
    (fingerprint,) = task.fingerprints
    if settings.ledger is not None:
        settings.ledger.bind(ledger_key("rollout", [fingerprint], task.examples, _decisive(settings, levels)))
    masked = [item for item in prompts if masked_views(task.policies[0], item.prompt)]
    rounds = _Rounds(task, fingerprint, levels, masked, counted(settings.progress, len(masked)))
    held_out = task.held_out(contexts, levels)
    # A stream of its own, so that the rounds do not depend on how many contexts are kept apart.
    everything = sorted(set().union(*contexts.values()) - set(held_out))
    order = np.random.default_rng([settings.seed, 1]).permutation(everything).tolist()
    size, searches = round_size(order, contexts, levels, settings.max_iterations)
    thresholds: Parts | None = None
    used = 0
    for _ in range(searches):
        thresholds = rounds.round(order[used : used + size], thresholds, final=False)
        used += size
        if is_settled(rounds.records[-1], settings.tolerance):
            break
    final = rounds.round(order[used:], thresholds, final=True)
    apart = rounds.chains(held_out, final, "verification") if held_out else None
    parts = {
        view: replace(
            part,
            verification=apart.truth(view) if apart else CalibrationValues.empty(),
            chains=ChainRecord(part.reading, settings.max_new_tokens, settings.tolerance, tuple(rounds.records)),
        )
        for view, part in final.items()
    }
    return task.assembled(parts, apart.chosen if apart else None, unmasked=len(prompts) - len(masked))


def _decisive(settings: CalibrationOptions, levels: Mapping[str, float]) -> dict[str, object]:
    """What chains depend on beside policy and examples: thresholds are in force, so also how they are read."""
    names = ("bin_width", "max_position", "draws", "seed", "by_group", "verification_share")
    values = {name: getattr(settings, name) for name in (*names, "max_new_tokens", "tolerance", "max_iterations")}
    # Ledgers that were begun before bins could widen have no word of it, and are of even ones.
    spacing = {} if settings.bin_spacing == "even" else {"bin_spacing": settings.bin_spacing}
    return {**values, **spacing, "alphas": dict(levels)}


@dataclass
class _Rounds:
    """Generates chains of contexts under thresholds, and reads thresholds off them."""

    task: Task
    fingerprint: Fingerprint
    levels: Mapping[str, float]
    prompts: Sequence[Prepared]
    done: Callable[[int], None]
    records: list[Iteration] = field(default_factory=list)

    def chains(self, contexts: Sequence[int], thresholds: Parts | None, phase: str) -> Chains:
        settings, (policy,) = self.task.settings, self.task.policies
        wanted = set(contexts)
        return generate_chains(
            self.task.model,
            replace(policy, calibration=self.task.assembled(in_force(thresholds))) if thresholds else policy,
            [prompt for prompt in self.prompts if prompt.context in wanted],
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
        after = {
            view: self.task.thresholds(self.fingerprint, alpha, chains.truth(view))
            for view, alpha in self.levels.items()
        }
        # The thresholds that generated these chains, measured on them: nothing is certified away without thresholds.
        measured = {
            view: replace(part, verification=chains.truth(view)) for view, part in (thresholds or after).items()
        }
        overall = self.task.assembled(measured).coverage
        self.records.append(
            Iteration(
                contexts=len(contexts),
                values=sum(len(part.values) for part in after.values()),
                change=max(largest_change((thresholds or {}).get(view), part) for view, part in after.items()),
                kept=overall.kept if thresholds else overall.contexts,
                consistent=all(
                    _consistent(part.coverage, thresholds is not None, part.alpha, len(measured))
                    for part in measured.values()
                ),
                final=final,
            )
        )
        return after


def in_force(parts: Parts) -> Parts:
    """Thresholds as chains are written under them; see :meth:`coft_core.conformal.values.CalibrationValues.lowered`."""
    return {view: replace(part, values=part.values.lowered()) for view, part in parts.items()}


def largest_change(before: Part | None, after: Part) -> float:
    """Largest change of any step's ``tau``, a probability; thresholds that certify everything count as 0."""
    starts = {*after.positions.starts, *(before.positions.starts if before else ())}
    return max(abs(after.bin(step).tau - (before.bin(step).tau if before else 0.0)) for step in starts)


def round_size(
    order: Sequence[int], contexts: Mapping[str, set[int]], levels: Mapping[str, float], rounds: int
) -> tuple[int, int]:
    """How contexts are shared among rounds: as many rounds as leave each view enough for its level."""
    needed = {view: max(minimum_contexts(alpha), 1) for view, alpha in levels.items()}
    members = {view: np.isin(order, list(numbers)) for view, numbers in contexts.items()}  # (K,) each
    with_say = [view for view, inside in members.items() if int(inside.sum()) >= needed[view]]
    for count in range(min(rounds, len(order)), 1, -1) if with_say else ():
        size = len(order) // count
        borders = [*range(0, size * count, size)]
        if all(np.add.reduceat(members[view], borders, dtype=int).min() >= needed[view] for view in with_say):
            return size, count - 1
    return len(order), 0


def _consistent(coverage: CoverageReport, in_force: bool, alpha: float, views: int) -> bool:
    """Whether thresholds that were in force kept the share of fresh true tokens that alpha asks for."""
    if not (contexts := coverage.contexts):
        return True
    kept = coverage.kept if in_force else contexts
    low, high = clopper_pearson(kept, contexts, 1 - (1 - CONSISTENCY) / views)
    return low <= 1 - alpha <= high
