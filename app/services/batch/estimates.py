"""How long a batch will take: a few steps of one of its own prompts, extrapolated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from app.services.device_memory import DeviceMemory
from app.services.planning import Planner
from app.services.prompts.files import PromptRow
from app.services.views import replace
from app.services.views.batches import BatchEstimate, BatchRequest
from coft_core.decode import Plan, Rollout
from coft_core.engine.model import LanguageModel
from coft_core.footprint import reserved_bytes

TRIAL_STEPS = 8
"""Steps of the trial at most, the first one included."""


def estimated(
    rows: Sequence[PromptRow],
    request: BatchRequest,
    planner: Planner,
    model: LanguageModel,
    memory: DeviceMemory,
    clock: Callable[[], float] = time.perf_counter,
) -> BatchEstimate:
    """Try the prompt of medium length, and extrapolate to chains that all run to their last step.

    Args:
        rows: The rows that can be used, at least one.
        request: What is asked of them.
        planner: Plans the trial.
        model: The model.
        memory: The device's memory and turns; the caller holds none.
        clock: Seconds.

    Raises:
        CoftError: The settings cannot be used.
    """
    settings = request.settings
    row = sorted(rows, key=lambda item: len(item.example.prompt))[len(rows) // 2]
    group = row.example.group if request.group_thresholds else settings.group
    tried = min(TRIAL_STEPS, settings.max_new_tokens)
    plan = planner.plan(
        model, row.example.prompt, row.example.spans, replace(settings, group=group, max_new_tokens=tried)
    )
    read, a_step = memory.run(reserved_bytes(plan, tried), partial(_timed, plan, clock))
    units = {(row.line,) if row.example.context is None else row.example.context for row in rows}
    return BatchEstimate(
        prompts=len(rows),
        contexts=len(units),
        groups=len({row.example.group for row in rows} - {None}),
        tokens=len(rows) * settings.max_new_tokens,
        seconds=len(rows) * (read + a_step * (settings.max_new_tokens - 1)),
    )


def _timed(plan: Plan, clock: Callable[[], float]) -> tuple[float, float]:
    """Seconds of the first step, which reads the prompt, and of each further one."""
    # The first run of a model is slow for reasons that do not come again.
    with _rollout(Rollout(plan)) as warming:
        warming.step()
    began = clock()
    with _rollout(Rollout(plan)) as rollout:
        rollout.step()
        read = clock() - began
        while rollout.finished is None:
            rollout.step()
        taken = len(rollout.steps)
    return read, (clock() - began - read) / (taken - 1) if taken > 1 else read


@contextmanager
def _rollout(rollout: Rollout) -> Iterator[Rollout]:
    try:
        yield rollout
    finally:
        rollout.close()
